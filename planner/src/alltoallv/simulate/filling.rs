//! Max-min fair rates by progressive filling: all flows grow alike until a resource or their own path stops them.
//!
//! It knows no time. Start at [`Filling::rates`].

/// Room for one machine.
#[derive(Debug, Default)]
pub(super) struct Filling {
    left: Vec<f64>,
    open: Vec<u32>,
    touched: Vec<u32>,
}

impl Filling {
    /// Room for so many resources.
    pub fn new(resources: usize) -> Self {
        Self {
            left: vec![0.0; resources],
            open: vec![0; resources],
            touched: Vec::new(),
        }
    }

    /// Sets `rates[k]` of each flow, given the resources it uses and the most it can have.
    ///
    /// `capacity` says what a resource gives to so many flows.
    pub fn rates(&mut self, flows: &[(&[u32], f64)], capacity: impl Fn(u32, u32) -> f64, rates: &mut Vec<f64>) {
        rates.clear();
        rates.resize(flows.len(), 0.0);
        self.touched.clear();
        for (uses, _) in flows {
            for &r in *uses {
                if self.open[r as usize] == 0 {
                    self.touched.push(r);
                }
                self.open[r as usize] += 1;
            }
        }
        for &r in &self.touched {
            self.left[r as usize] = capacity(r, self.open[r as usize]);
        }
        let mut waiting: Vec<u32> = (0..flows.len() as u32).collect();
        while !waiting.is_empty() {
            let share = |r: u32, left: &[f64], open: &[u32]| left[r as usize].max(0.0) / f64::from(open[r as usize]);
            let mut level = f64::INFINITY;
            for &r in &self.touched {
                if self.open[r as usize] > 0 {
                    level = level.min(share(r, &self.left, &self.open));
                }
            }
            for &flow in &waiting {
                level = level.min(flows[flow as usize].1);
            }
            let bar = level * (1.0 + 1e-9);
            // Those at the level's limits stop; at least one does.
            let (left, open) = (&mut self.left, &mut self.open);
            let stops = |flow: u32, left: &[f64], open: &[u32]| {
                let (uses, most) = flows[flow as usize];
                most <= bar || uses.iter().any(|&r| share(r, left, open) <= bar)
            };
            let stopping: Vec<u32> = waiting.iter().copied().filter(|&f| stops(f, left, open)).collect();
            if stopping.is_empty() {
                break;
            }
            for &flow in &stopping {
                rates[flow as usize] = level;
                for &r in flows[flow as usize].0 {
                    left[r as usize] -= level;
                    open[r as usize] -= 1;
                }
            }
            let mut next = stopping.iter().copied().peekable();
            waiting.retain(|flow| next.next_if_eq(flow).is_none());
        }
        self.touched.iter().for_each(|&r| self.open[r as usize] = 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(flows: &[(&[u32], f64)], capacity: &[f64]) -> Vec<f64> {
        let mut rates = Vec::new();
        Filling::new(capacity.len()).rates(flows, |r, _| capacity[r as usize], &mut rates);
        rates
    }

    #[test]
    fn the_textbook_case_is_max_min_fair() {
        // One long flow over both links, one short one on each.
        let flows: [(&[u32], f64); 3] = [(&[0, 1], 99.0), (&[0], 99.0), (&[1], 99.0)];
        assert_eq!(rates(&flows, &[10.0, 4.0]), [2.0, 8.0, 2.0]);
    }

    #[test]
    fn a_flow_that_cannot_use_its_share_leaves_it_to_others() {
        let flows: [(&[u32], f64); 3] = [(&[0], 1.0), (&[0], 99.0), (&[0], 99.0)];
        assert_eq!(rates(&flows, &[9.0]), [1.0, 4.0, 4.0]);
        assert_eq!(rates(&[(&[], 5.0)], &[]), [5.0]);
    }
}

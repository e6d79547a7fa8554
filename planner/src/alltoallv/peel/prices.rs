//! Prices: how close each resource is to being last, and so what a byte on each lane is worth.
//!
//! It reads loads and changes none. Start at [`Peel::rank`].

use super::{Peel, largest};
use crate::alltoallv::maths::to16;
use crate::alltoallv::net::{Net, WORD};

impl Peel {
    /// Prices, and resources in order of load.
    pub(super) fn rank(&mut self, net: &Net) {
        self.most = largest(&self.load);
        let scale = 1.0 / self.most.max(f32::MIN_POSITIVE);
        for ((&load, price), (high, share)) in
            (self.load.iter().zip(&mut self.price)).zip(self.high.iter_mut().zip(&net.share))
        {
            let x = load * scale;
            let p = to16(x);
            *price = (p + 0.05 * x * x + 1e-9) * share;
            *high = (p * p) * (p * p);
        }
        self.sort(scale);
        match &net.ends {
            Some(ends) => {
                for rank in 0..net.ranks {
                    let sum = |of: &[u16]| of.iter().map(|&r| self.price[usize::from(r)]).sum();
                    self.out_price[rank] = sum(&ends.out[rank]);
                    self.into_price[rank] = sum(&ends.into[rank]);
                }
                for (rank, runs) in ends.runs.iter().enumerate() {
                    let out = self.out_price[rank];
                    for &(to, lane, count) in runs {
                        let (to, lane, count) = (to as usize, lane as usize, count as usize);
                        let worth = self.worth[lane..lane + count].iter_mut();
                        let figures = self.into_price[to..to + count].iter().zip(&net.inv[lane..lane + count]);
                        worth
                            .zip(figures)
                            .for_each(|(worth, (into, inv))| *worth = (out + into) * inv);
                    }
                    let (begin, end) = net.local[rank];
                    self.appraise(net, begin as usize..end as usize);
                }
            }
            None => self.appraise(net, 0..net.len()),
        }
    }

    /// Resources in order of load.
    fn sort(&mut self, scale: f32) {
        if self.order.len() <= WORD {
            // Nearly in order from the step before: few exchanges.
            for i in 1..self.order.len() {
                let r = self.order[i];
                let key = self.load[usize::from(r)];
                let mut at = i;
                // By number among equals: the order must not remember earlier demands.
                while at > 0 && {
                    let before = self.order[at - 1];
                    let load = self.load[usize::from(before)];
                    load < key || (load == key && before > r)
                } {
                    self.order[at] = self.order[at - 1];
                    at -= 1;
                }
                self.order[at] = r;
            }
            return;
        }
        // Counted into 256 steps of load, in the order of their numbers within a step.
        let step = |load: f32| 255 - ((load * scale * 255.0) as usize).min(255);
        let mut begins = [0u16; 257];
        self.load.iter().for_each(|&load| begins[step(load) + 1] += 1);
        for k in 0..256 {
            begins[k + 1] += begins[k];
        }
        for (r, &load) in self.load.iter().enumerate() {
            let at = &mut begins[step(load)];
            self.order[usize::from(*at)] = r as u16;
            *at += 1;
        }
    }

    /// What bytes are worth on lanes, and on the other lanes of their pairs.
    fn appraise(&mut self, net: &Net, range: std::ops::Range<usize>) {
        for lane in range.clone().filter(|&lane| self.rest[lane] > 0.0) {
            let sum: f32 = net.uses(lane).iter().map(|&r| self.price[usize::from(r)]).sum();
            self.worth[lane] = sum * net.inv[lane];
        }
        for lane in range.filter(|&lane| self.rest[lane] > 0.0) {
            let other = self.other(net.lanes(net.pair[lane] as usize), lane);
            self.other_worth[lane] = self.worth[other];
        }
    }
}

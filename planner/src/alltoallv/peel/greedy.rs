//! The greedy selector: the heaviest lane of all that fit, again and again.
//!
//! The heaviest lane of each source is kept, of each rank within its node and of each class of ranks between nodes, and looked
//! for again only where it turns out to be blocked: weights do not change while lanes are selected, so what is kept bounds
//! what is left. Start at [`Greedy`].

use super::selector::Select;
use super::{NOBODY, Peel};
use crate::alltoallv::net::Net;

/// The heaviest lane of each source when it was last looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Greedy {
    heads: Vec<Head>,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    weight: f32,
    lane: u32,
}

impl Greedy {
    /// Room for this many sources: ranks, and classes of them.
    pub fn new(sources: usize) -> Self {
        let nothing = Head {
            weight: 0.0,
            lane: NOBODY,
        };
        Self {
            heads: vec![nothing; sources],
        }
    }
}

impl Select for Greedy {
    fn select(&mut self, peel: &mut Peel, net: &Net, _cap: f32) {
        peel.release();
        for (source, head) in self.heads.iter_mut().enumerate() {
            *head = peel.head(net, source);
        }
        loop {
            let (mut best, mut most) = (usize::MAX, 0.0);
            for (source, head) in self.heads.iter().enumerate() {
                if head.weight > most {
                    (best, most) = (source, head.weight);
                }
            }
            let Some(head) = self.heads.get_mut(best) else {
                return;
            };
            let lane = head.lane;
            if peel.fits(net, lane as usize) {
                peel.take(net, lane as usize);
            }
            *head = peel.head(net, best);
            // What was found blocked once cannot be found again.
            if head.lane == lane {
                head.weight = 0.0;
            }
        }
    }
}

impl Peel {
    /// The heaviest lane of a source that fits; of weight 0 if there is none.
    fn head(&self, net: &Net, source: usize) -> Head {
        let (mut lane, mut most) = (NOBODY, 0.0);
        if let Some(class) = source.checked_sub(net.ranks) {
            let found = (self.far.as_ref()).and_then(|far| far.heaviest_from(class, self.cap, &mut most));
            return Head {
                lane: found.map_or(NOBODY, |(from, to)| net.first[from * net.ranks + to]),
                weight: if found.is_some() { most } else { 0.0 },
            };
        }
        let nodes = self.local_left.len();
        let lanes = match &self.far {
            None => net.lanes(source * net.ranks).start..net.lanes((source + 1) * net.ranks - 1).end,
            // Of a node with nothing left to itself weights are of the past.
            Some(_) if self.local_left[source * nodes / net.ranks] == 0 => 0..0,
            Some(_) => net.local[source].0 as usize..net.local[source].1 as usize,
        };
        for candidate in lanes {
            let weight = self.weight[candidate];
            if weight > most && self.fits(net, candidate) {
                (lane, most) = (candidate as u32, weight);
            }
        }
        Head { weight: most, lane }
    }
}

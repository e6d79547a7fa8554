//! Quick steps: no exchanges, on machines of so many ranks that their tables no longer fit the caches.
//!
//! Of a lane between nodes everything follows from its two ranks, so it stands in a selection as these, and no table of lanes
//! is read for it. Start at [`Peel::is_quick`].

use super::{FAR, Peel, Selector, WORD, largest, smaller};
use crate::alltoallv::net::{Ends, Net, UNLIMITED};
use crate::alltoallv::plan::{Chunk, Plan};
use std::ops::Range;

/// A lane between nodes as an item of a selection.
#[inline]
pub(super) fn item(from: usize, to: usize) -> u32 {
    FAR | (from as u32) << 15 | to as u32
}

/// Its two ranks.
#[inline]
pub(super) fn ranks(item: u32) -> (usize, usize) {
    ((item & !FAR) as usize >> 15, item as usize & 0x7fff)
}

impl Peel {
    /// No lane is put back: nothing is remembered that only exchanges need.
    #[inline]
    pub(super) fn is_quick(&self) -> bool {
        self.quick
    }

    /// Finds out whether steps are to be quick.
    pub(super) fn find_quick(&mut self, net: &Net) {
        let uniform = net.ends.as_ref().is_some_and(|ends| ends.inv > 0.0);
        let critical = self.effort.selector == Selector::Critical;
        self.quick = critical && uniform && self.far.is_some() && self.single && !self.effort.swap;
    }

    /// Fills `selection`.
    pub(super) fn select_quick(&mut self, net: &Net, cap: f32) {
        self.release();
        let Some(ends) = &net.ends else { return };
        let bar = self.bar(cap);
        for at in 0..self.order.len() {
            let resource = usize::from(self.order[at]);
            if self.load[resource] < bar && !self.egress[resource] {
                continue;
            }
            // A lane between nodes may be of another rank of the class: then there is still one in the node to be found.
            for _ in 0..2 {
                if self.taken[resource / WORD] >> (resource % WORD) & 1 != 0 {
                    break;
                }
                let mut most = 0.0;
                let far = self.heaviest_far(resource, cap, &mut most);
                let local = (self.heaviest[resource] > most).then(|| self.heaviest_local(net, resource, most).0);
                match (local.flatten(), far) {
                    (Some(lane), _) => {
                        self.selection.push(lane as u32);
                        self.take_ends(net, net.uses(lane));
                    }
                    (None, Some((from, to))) => {
                        self.selection.push(item(from, to));
                        self.take_far(ends, from, to);
                    }
                    (None, None) => break,
                }
            }
        }
    }

    /// What no lane of a rank within its node exceeds, by its sending port; of other resources nothing is known.
    pub(super) fn find_heaviest(&mut self, net: &Net, lanes: Range<usize>) {
        let weights = &self.weight[lanes.clone()];
        self.heaviest[usize::from(net.uses(lanes.start)[0])] = largest(weights);
    }

    /// The resources of a lane between nodes are taken until all are released.
    #[inline]
    fn take_far(&mut self, ends: &Ends, from: usize, to: usize) {
        for &r in ends.out[from].iter().chain(&ends.into[to]) {
            let r = usize::from(r);
            self.taken[r / WORD] |= u64::from(self.limit[r] != UNLIMITED) << (r % WORD);
        }
        if let Some(far) = &mut self.far {
            far.out.close(from);
            far.into.close(to);
        }
    }

    /// Those of any lane.
    fn take_ends(&mut self, net: &Net, uses: &[u16]) {
        let Some(far) = &mut self.far else { return };
        for &r in uses {
            let r = usize::from(r);
            if self.limit[r] == UNLIMITED {
                continue;
            }
            self.taken[r / WORD] |= 1 << (r % WORD);
            if net.port[r] {
                net.senders(r).iter().for_each(|&rank| far.out.shut(rank as usize));
                net.receivers(r).iter().for_each(|&rank| far.into.shut(rank as usize));
            } else {
                far.out.close_all_at(r);
                far.into.close_all_at(r);
            }
        }
    }

    /// Bytes for a lane between nodes of an activation, and what it takes off the loads.
    pub(super) fn commit_far(&mut self, net: &Net, ends: &Ends, item: u32, duration: f32, plan: &mut Plan) {
        let (from, to) = ranks(item);
        let pair = from * net.ranks + to;
        let rem = self.rem[pair];
        let Some(far) = self.far.as_mut().filter(|_| rem > 0) else {
            return;
        };
        let bytes = super::commit::share(rem, duration / ends.inv);
        plan.lanes.push(Chunk {
            from: from as u16,
            to: to as u16,
            path: 0,
            turn: 0,
            offset: self.whole[pair] - rem,
            bytes,
        });
        let left = rem - bytes;
        self.rem[pair] = left;
        self.far_left -= usize::from(left == 0);
        let off = bytes as f32 * ends.inv;
        far.set(from, to, left as f32 * ends.inv);
        for &r in ends.out[from].iter().chain(&ends.into[to]) {
            let load = &mut self.load[usize::from(r)];
            let rest = *load - off * ends.hold[usize::from(r)];
            *load = if rest > 0.0 { rest } else { 0.0 };
        }
    }

    /// Brings the bytes of an activation's pairs into the cache, many at once.
    pub(super) fn read_ahead(&self, net: &Net) {
        let pairs = self.best.iter().filter(|&&item| item & FAR != 0).map(|&item| {
            let (from, to) = ranks(item);
            from * net.ranks + to
        });
        std::hint::black_box(pairs.fold(0, |all, pair| all | self.rem[pair] | self.whole[pair]));
    }

    /// Time left of a lane of the selection, nanoseconds.
    #[inline]
    pub(super) fn time_left(&self, net: &Net, item: u32) -> f32 {
        match &self.far {
            Some(far) if item & FAR != 0 => {
                let (from, to) = ranks(item);
                far.time(from, to)
            }
            _ => self.rest[item as usize] * net.inv[item as usize],
        }
    }

    /// What a lane between nodes is served in each of several durations.
    #[inline]
    pub(super) fn served_far<const MANY: usize>(&self, item: u32, tried: &[f32; MANY]) -> [f32; MANY] {
        let (from, to) = ranks(item);
        let time = self.far.as_ref().map_or(0.0, |far| far.time(from, to));
        tried.map(|tried| smaller(time, tried))
    }
}

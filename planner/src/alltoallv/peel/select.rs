//! Selection: the lanes of one activation, for the most loaded resources first.
//!
//! Selections are feasible and maximal: every rank's sending port is looked at. It sets no bytes. Start at
//! [`Peel::select`].

use super::{NOBODY, Peel, WORD, smaller};
use crate::alltoallv::net::{Net, UNLIMITED};
use std::ops::Range;

impl Peel {
    /// What each lane is worth when an activation lasts `cap` nanoseconds.
    ///
    /// Bytes past what the path plan gives a lane relieve the pair's other path instead.
    pub(super) fn weigh(&mut self, net: &Net, cap: f32) {
        self.cap = cap;
        if self.far.is_none() {
            self.weigh_range(net, cap, 0..net.len());
            return;
        }
        let nodes = self.local_left.len();
        for node in 0..nodes {
            if self.is_looked_at(node) {
                for rank in node * net.ranks / nodes..(node + 1) * net.ranks / nodes {
                    let (begin, end) = net.local[rank];
                    let lanes = begin as usize..end as usize;
                    self.weigh_range(net, cap, lanes.clone());
                    if self.quick && !lanes.is_empty() {
                        self.find_heaviest(net, lanes);
                    }
                }
            }
        }
    }

    fn weigh_range(&mut self, net: &Net, cap: f32, range: Range<usize>) {
        let weight = &mut self.weight[range.clone()];
        let (rest, rate) = (&self.rest[range.clone()], &net.rate[range.clone()]);
        let (worth, other) = (&self.worth[range.clone()], &self.other_worth[range.clone()]);
        let share = &self.share[range];
        for ((((weight, rest), rate), (worth, other)), share) in weight
            .iter_mut()
            .zip(rest)
            .zip(rate)
            .zip(worth.iter().zip(other))
            .zip(share)
        {
            let bytes = smaller(*rest, cap * rate);
            let own = smaller(bytes, *share);
            *weight = own * worth + (bytes - own) * other;
        }
    }

    /// What a lane is worth.
    #[inline]
    pub(super) fn weight_of(&self, net: &Net, lane: usize) -> f32 {
        match &self.far {
            Some(far) if !net.is_local(usize::from(net.from[lane]), lane) => {
                far.weight(usize::from(net.from[lane]), usize::from(net.to[lane]), self.cap)
            }
            _ => self.weight[lane],
        }
    }

    /// The pair's other lane that has most bytes in the path plan.
    #[inline]
    pub(super) fn other(&self, lanes: Range<usize>, lane: usize) -> usize {
        if lanes.len() <= 2 {
            return lanes.start + lanes.end - 1 - lane;
        }
        let mut other = lane;
        let mut most = -1.0;
        for candidate in lanes.filter(|&c| c != lane) {
            if self.share[candidate] > most {
                (other, most) = (candidate, self.share[candidate]);
            }
        }
        other
    }

    /// Fills `selection`.
    pub(super) fn select(&mut self, net: &Net, cap: f32) {
        self.release();
        let bar = self.bar(cap);
        if !self.masks.is_empty() {
            self.select_small(bar);
            return;
        }
        for at in 0..self.order.len() {
            let resource = usize::from(self.order[at]);
            // A lane between nodes may be of another rank of the class: then there is still one in the node to be found.
            for _ in 0..2 {
                if (self.load[resource] < bar && !self.egress[resource]) || self.full(resource) {
                    break;
                }
                match self.heaviest(net, resource) {
                    Some(lane) => self.take(net, lane),
                    None => break,
                }
            }
        }
    }

    /// The same where resources are bits of one word.
    fn select_small(&mut self, bar: f32) {
        let mut taken = 0;
        for &r in &self.order {
            let r = usize::from(r);
            let low = u64::from(self.load[r] < bar) & !(self.senders >> r);
            if (low | taken >> r) & 1 != 0 {
                continue;
            }
            let users = self.user_start[r] as usize..self.user_start[r + 1] as usize;
            // The largest weight and, among equals, the first lane: bits of positive floats are in their order.
            let mut most = 0u64;
            for (&lane, &mask) in self.users[users.clone()].iter().zip(&self.user_masks[users]) {
                let weight = self.weight[lane as usize];
                let fits = u64::from(taken & mask == 0).wrapping_neg();
                most = most.max((u64::from(weight.to_bits()) << 32 | u64::from(!lane)) & fits);
            }
            // Without any weight there is nothing to send.
            if most >> 32 != 0 {
                let lane = !(most as u32);
                self.selection.push(lane);
                taken |= self.masks[lane as usize];
                if taken & self.senders == self.senders {
                    // Every lane needs a sender.
                    break;
                }
            }
        }
        self.taken[0] = taken;
    }

    /// The heaviest lane of a resource whose resources are all free.
    pub(super) fn heaviest(&self, net: &Net, resource: usize) -> Option<usize> {
        let (lane, mut most) = self.heaviest_local(net, resource, 0.0);
        let far = self.heaviest_far(resource, self.cap, &mut most);
        far.map_or(lane, |(from, to)| Some(net.first[from * net.ranks + to] as usize))
    }

    /// The same but for lanes that are found by their ends, if it is worth more than `most`, and what it is worth.
    #[inline]
    pub(super) fn heaviest_local(&self, net: &Net, resource: usize, mut most: f32) -> (Option<usize>, f32) {
        let mut best = None;
        if self.far.is_none() || self.local_left[usize::from(self.node[resource])] > 0 {
            let users = self.user_start[resource] as usize..self.user_start[resource + 1] as usize;
            for &lane in &self.users[users] {
                let weight = self.weight[lane as usize];
                if weight > most && self.fits(net, lane as usize) {
                    (best, most) = (Some(lane as usize), weight);
                }
            }
        }
        (best, most)
    }

    /// The ends of the heaviest of those, if it is over `most`, which it becomes.
    #[inline]
    pub(super) fn heaviest_far(&self, resource: usize, cap: f32, most: &mut f32) -> Option<(usize, usize)> {
        let far = self.far.as_ref()?;
        let mut pair = None;
        for &class in &far.out.at[resource] {
            pair = far.heaviest_from(usize::from(class), cap, most).or(pair);
        }
        for &class in &far.into.at[resource] {
            pair = far.heaviest_to(usize::from(class), cap, most).or(pair);
        }
        pair
    }

    /// Every resource of a lane is free.
    #[inline]
    pub(super) fn fits(&self, net: &Net, lane: usize) -> bool {
        match self.masks.get(lane) {
            Some(mask) => self.taken[0] & mask == 0,
            None => !net.uses(lane).iter().any(|&r| self.full(usize::from(r))),
        }
    }

    #[inline]
    fn full(&self, resource: usize) -> bool {
        self.taken[resource / WORD] >> (resource % WORD) & 1 != 0
    }

    /// Adds a lane to the selection.
    pub(super) fn take(&mut self, net: &Net, lane: usize) {
        self.selection.push(lane as u32);
        if let Some(mask) = self.masks.get(lane) {
            self.taken[0] |= mask;
            return;
        }
        for &r in net.uses(lane) {
            let r = usize::from(r);
            if self.limit[r] == UNLIMITED {
                continue;
            }
            self.in_use[r] += 1;
            self.owner[r] = lane as u32;
            if self.in_use[r] == self.limit[r] {
                self.taken[r / WORD] |= 1 << (r % WORD);
                self.shut(net, r);
            }
        }
    }

    /// Removes a lane from the selection.
    pub(super) fn drop(&mut self, net: &Net, lane: u32) {
        if let Some(at) = self.selection.iter().rposition(|&l| l == lane) {
            self.selection.swap_remove(at);
        }
        if let Some(mask) = self.masks.get(lane as usize) {
            self.taken[0] &= !mask;
            return;
        }
        for &r in net.uses(lane as usize) {
            let r = usize::from(r);
            if self.limit[r] == UNLIMITED {
                continue;
            }
            if self.in_use[r] == self.limit[r] {
                self.open(net, r);
            }
            self.in_use[r] -= 1;
            self.taken[r / WORD] &= !(1 << (r % WORD));
            if self.in_use[r] == 0 {
                self.owner[r] = NOBODY;
            }
        }
    }

    /// Closes the ends of paths between nodes that use a resource which is full now.
    #[inline]
    fn shut(&mut self, net: &Net, resource: usize) {
        if let (Some(far), Some(ends)) = (&mut self.far, &net.ends) {
            ends.senders[resource]
                .iter()
                .for_each(|&rank| far.out.shut(rank as usize));
            ends.receivers[resource]
                .iter()
                .for_each(|&rank| far.into.shut(rank as usize));
        }
    }

    /// Opens them again.
    #[inline]
    fn open(&mut self, net: &Net, resource: usize) {
        if let (Some(far), Some(ends)) = (&mut self.far, &net.ends) {
            ends.senders[resource]
                .iter()
                .for_each(|&rank| far.out.open(rank as usize));
            ends.receivers[resource]
                .iter()
                .for_each(|&rank| far.into.open(rank as usize));
        }
    }

    /// An empty selection.
    pub(super) fn release(&mut self) {
        self.selection.clear();
        self.taken.fill(0);
        if !self.masks.is_empty() {
            return;
        }
        if !self.is_quick() {
            self.in_use.fill(0);
            self.owner.fill(NOBODY);
        }
        if let Some(far) = &mut self.far {
            far.out.release();
            far.into.release();
        }
    }
}

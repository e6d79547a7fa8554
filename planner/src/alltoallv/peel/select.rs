//! Selection: the lanes of one activation, for the most loaded resources first.
//!
//! Selections are feasible and maximal: every rank's sending port is looked at. It sets no bytes. Start at
//! [`Peel::select`].

use super::{NOBODY, Peel, WORD, larger, smaller};
use crate::alltoallv::net::{Ends, Net, UNLIMITED};
use std::ops::Range;

impl Peel {
    /// What each lane is worth when an activation lasts `cap` nanoseconds.
    ///
    /// Bytes past what the path plan gives a lane relieve the pair's other path instead.
    pub(super) fn weigh(&mut self, net: &Net, cap: f32) {
        match &net.ends {
            Some(ends) => {
                for (runs, &(begin, end)) in ends.runs.iter().zip(&net.local) {
                    for &(_, lane, count) in runs {
                        self.weigh_single(net, cap, lane as usize..(lane + count) as usize);
                    }
                    self.weigh_any(net, cap, begin as usize..end as usize);
                }
            }
            None => self.weigh_any(net, cap, 0..net.len()),
        }
    }

    fn weigh_single(&mut self, net: &Net, cap: f32, range: Range<usize>) {
        let weight = &mut self.weight[range.clone()];
        let (rest, rate) = (&self.rest[range.clone()], &net.rate[range.clone()]);
        let worth = &self.worth[range];
        for (((weight, rest), rate), worth) in weight.iter_mut().zip(rest).zip(rate).zip(worth) {
            *weight = smaller(*rest, cap * rate) * worth;
        }
    }

    fn weigh_any(&mut self, net: &Net, cap: f32, range: Range<usize>) {
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
        let bar = (self.most - cap).min(0.98 * self.most);
        for at in 0..self.order.len() {
            let r = self.order[at];
            let resource = usize::from(r);
            if (self.load[resource] < bar && !self.egress[resource]) || self.full(resource) {
                continue;
            }
            if let Some(lane) = self.heaviest(net, resource) {
                self.take(net, lane);
            }
        }
    }

    /// The heaviest lane of a resource whose resources are all free.
    pub(super) fn heaviest(&self, net: &Net, resource: usize) -> Option<usize> {
        let users = self.user_start[resource] as usize..self.user_start[resource + 1] as usize;
        let (mut best, mut most) = (usize::MAX, 0.0);
        for &lane in &self.users[users] {
            let weight = self.weight[lane as usize];
            if weight > most && self.fits(net, lane as usize) {
                (best, most) = (lane as usize, weight);
            }
        }
        if let Some(ends) = &net.ends {
            for &from in &ends.senders[resource] {
                if self.shut_out[from as usize] == 0 {
                    self.heaviest_of_row(ends, from as usize, &mut best, &mut most);
                }
            }
            for &to in &ends.receivers[resource] {
                if self.shut_in[to as usize] == 0 {
                    self.heaviest_of_column(ends, to as usize, &mut best, &mut most);
                }
            }
        }
        (best != usize::MAX).then_some(best)
    }

    fn heaviest_of_row(&self, ends: &Ends, from: usize, best: &mut usize, most: &mut f32) {
        for &(to, lane, count) in &ends.runs[from] {
            let (to, lane, count) = (to as usize, lane as usize, count as usize);
            let weight = &self.weight[lane..lane + count];
            let open = &self.open_in[to..to + count];
            // The largest by itself first, then where it is: both are loops over vectors.
            let mut tops = [0.0f32; 8];
            let (blocks, opens) = (weight.chunks_exact(8), open.chunks_exact(8));
            let mut top = 0.0;
            for (w, o) in blocks.remainder().iter().zip(opens.remainder()) {
                top = larger(top, w * o);
            }
            for (w, o) in blocks.zip(opens) {
                for k in 0..8 {
                    tops[k] = larger(tops[k], w[k] * o[k]);
                }
            }
            let top = tops.iter().fold(top, |a, &b| larger(a, b));
            if top > *most {
                let at = weight.iter().zip(open).position(|(w, o)| w * o == top);
                (*best, *most) = (lane + at.unwrap_or(0), top);
            }
        }
    }

    fn heaviest_of_column(&self, ends: &Ends, to: usize, best: &mut usize, most: &mut f32) {
        let begin = to / ends.per_node * ends.per_node;
        let end = begin + ends.per_node;
        let mut look = |from: usize, base: u32| {
            let lane = base.wrapping_add(to as u32) as usize;
            let weight = self.weight[lane];
            if weight > *most && self.shut_out[from] == 0 {
                (*best, *most) = (lane, weight);
            }
        };
        (0..begin).for_each(|from| look(from, ends.bases[from].1));
        (end..self.shut_in.len()).for_each(|from| look(from, ends.bases[from].0));
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
                self.shut(net, r, 1);
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
                self.shut(net, r, -1);
            }
            self.in_use[r] -= 1;
            self.taken[r / WORD] &= !(1 << (r % WORD));
            if self.in_use[r] == 0 {
                self.owner[r] = NOBODY;
            }
        }
    }

    /// Counts a full resource at the ends of paths between nodes, or one that is full no longer.
    #[inline]
    fn shut(&mut self, net: &Net, resource: usize, by: i8) {
        if let Some(ends) = &net.ends {
            for &from in &ends.senders[resource] {
                self.shut_out[from as usize] += by;
            }
            for &to in &ends.receivers[resource] {
                let shut = &mut self.shut_in[to as usize];
                *shut += by;
                self.open_in[to as usize] = if *shut == 0 { 1.0 } else { 0.0 };
            }
        }
    }

    /// An empty selection.
    pub(super) fn release(&mut self) {
        self.selection.clear();
        self.taken.fill(0);
        if !self.masks.is_empty() {
            return;
        }
        self.in_use.fill(0);
        self.shut_in.fill(0);
        self.shut_out.fill(0);
        self.open_in.fill(1.0);
        self.owner.fill(NOBODY);
    }
}

//! Exchanges: a lane that was left out comes in for those that stand in its way, if the sum of weights rises.
//!
//! It keeps a selection feasible and maximal. Start at [`Peel::exchange`].

use super::{NOBODY, Peel, WORD};
use crate::alltoallv::net::Net;

/// Fewest parts in a whole by which the sum of weights must rise.
const GAIN: f32 = 1.0005;
/// Ranks up to which idle ranks are looked at again after each exchange.
const SMALL: usize = 16;

impl Peel {
    /// Copies the best selection into `selection` and improves it, one pass over all lanes.
    pub(super) fn exchange(&mut self, net: &Net, cap: f32) {
        self.release();
        for at in 0..self.best.len() {
            self.take(net, self.best[at] as usize);
        }
        let mut total: f32 = self.selection.iter().map(|&l| self.weight_of(net, l as usize)).sum();
        if !self.masks.is_empty() {
            self.exchange_small(net, total);
            return;
        }
        if net.ranks <= SMALL {
            for lane in 0..net.len() {
                if self.weight_of(net, lane) > 0.0 {
                    total = self.try_in(net, lane, total);
                }
            }
            return;
        }
        let bar = self.most - cap;
        for at in 0..self.order.len() {
            let resource = usize::from(self.order[at]);
            if self.load[resource] < bar {
                break;
            }
            if self.owner[resource] != NOBODY {
                continue;
            }
            total = self.try_users(net, resource, total);
        }
    }

    /// Tries the lanes of a resource that nobody uses until one comes in.
    fn try_users(&mut self, net: &Net, resource: usize, mut total: f32) -> f32 {
        for user in self.user_start[resource]..self.user_start[resource + 1] {
            let lane = self.users[user as usize] as usize;
            if self.weight_of(net, lane) > 0.0 {
                total = self.try_in(net, lane, total);
                if self.owner[resource] != NOBODY {
                    return total;
                }
            }
        }
        let (Some(_), Some(ends)) = (&self.far, &net.ends) else {
            return total;
        };
        let n = net.ranks;
        let near = |a: usize, b: usize| a / ends.per_node == b / ends.per_node;
        let rows = ends.senders[resource]
            .iter()
            .flat_map(|&from| (0..n).map(move |to| (from as usize, to)));
        let columns = ends.receivers[resource]
            .iter()
            .flat_map(|&to| (0..n).map(move |from| (from, to as usize)));
        for (from, to) in rows.chain(columns).filter(|&(from, to)| !near(from, to)) {
            let lane = net.first[from * n + to] as usize;
            if self.weight_of(net, lane) > 0.0 {
                total = self.try_in(net, lane, total);
                if self.owner[resource] != NOBODY {
                    return total;
                }
            }
        }
        total
    }

    /// Tries one lane; the sum of weights afterwards.
    fn try_in(&mut self, net: &Net, lane: usize, total: f32) -> f32 {
        let weight = self.weight_of(net, lane);
        let mut against = [NOBODY; 16];
        let mut count = 0;
        let mut lost = 0.0;
        for &r in net.uses(lane) {
            let owner = self.owner[usize::from(r)];
            if owner == lane as u32 {
                return total;
            }
            if owner != NOBODY && self.limit[usize::from(r)] == 1 && !against[..count].contains(&owner) {
                against[count] = owner;
                count += 1;
                lost += self.weight_of(net, owner as usize);
            }
        }
        if lost > 2.0 * weight {
            return total;
        }
        for &out in &against[..count] {
            self.drop(net, out);
        }
        let kept = self.selection.len();
        let back = |peel: &mut Self| {
            while peel.selection.len() > kept {
                let last = peel.selection[peel.selection.len() - 1];
                peel.drop(net, last);
            }
            against[..count].iter().for_each(|&out| peel.take(net, out as usize));
            total
        };
        if !self.fits(net, lane) {
            // Slots that are full have no one owner.
            return back(self);
        }
        self.take(net, lane);
        let mut sum = total - lost + weight;
        for &out in &against[..count] {
            sum += self.refill(net, usize::from(net.uses(out as usize)[0]));
        }
        if net.ranks <= SMALL {
            for at in 0..self.order.len() {
                let resource = usize::from(self.order[at]);
                if self.egress[resource] && self.owner[resource] == NOBODY {
                    sum += self.refill(net, resource);
                }
            }
        }
        if sum > total * GAIN {
            return sum;
        }
        back(self)
    }

    /// Takes the heaviest lane of a resource, if any fits; its weight.
    fn refill(&mut self, net: &Net, resource: usize) -> f32 {
        match self.heaviest(net, resource) {
            Some(lane) => {
                self.take(net, lane);
                self.weight_of(net, lane)
            }
            None => 0.0,
        }
    }

    /// The same where resources are bits of one word: nothing changes before it is known to be better.
    fn exchange_small(&mut self, net: &Net, mut total: f32) {
        self.owner.fill(NOBODY);
        for at in 0..self.selection.len() {
            self.own(net, self.selection[at]);
        }
        self.heaviest.fill(0.0);
        for (lane, &weight) in self.weight.iter().enumerate() {
            let most = &mut self.heaviest[usize::from(net.uses(lane)[0])];
            *most = if weight > *most { weight } else { *most };
        }
        for lane in 0..net.len() {
            if self.weight[lane] > 0.0 {
                total = self.try_small(net, lane, total);
            }
        }
    }

    fn own(&mut self, net: &Net, lane: u32) {
        for &r in net.uses(lane as usize) {
            self.owner[usize::from(r)] = lane;
        }
    }

    fn try_small(&mut self, net: &Net, lane: usize, total: f32) -> f32 {
        let (weight, mask) = (self.weight[lane], self.masks[lane]);
        let mut against = [0u32; WORD];
        let (mut count, mut lost, mut freed) = (0, 0.0, 0u64);
        let mut meets = self.taken[0] & mask;
        while meets != 0 {
            let out = self.owner[meets.trailing_zeros() as usize];
            if out == lane as u32 {
                return total;
            }
            let theirs = self.masks[out as usize];
            meets &= !theirs;
            freed |= theirs;
            lost += self.weight[out as usize];
            against[count] = out;
            count += 1;
        }
        if lost > 2.0 * weight {
            return total;
        }
        let mut taken = self.taken[0] & !freed | mask;
        // No more than the heaviest lane of each sender that would be idle can come back.
        let mut idle = self.senders & !taken;
        let mut hope = 0.0;
        let mut look = idle;
        while look != 0 {
            hope += self.heaviest[look.trailing_zeros() as usize];
            look &= look - 1;
        }
        let mut sum = total - lost + weight;
        if sum + hope <= total * GAIN {
            return total;
        }
        let mut refill = [0u32; WORD];
        let mut refilled = 0;
        while idle != 0 {
            let resource = idle.trailing_zeros() as usize;
            idle &= idle - 1;
            let users = self.user_start[resource] as usize..self.user_start[resource + 1] as usize;
            let (mut best, mut most) = (NOBODY, 0.0);
            for &user in &self.users[users] {
                let weight = self.weight[user as usize];
                if weight > most && taken & self.masks[user as usize] == 0 {
                    (best, most) = (user, weight);
                }
            }
            if best != NOBODY {
                taken |= self.masks[best as usize];
                sum += most;
                refill[refilled] = best;
                refilled += 1;
            }
        }
        if sum <= total * GAIN {
            return total;
        }
        for &out in &against[..count] {
            self.drop(net, out);
        }
        for &new in [lane as u32].iter().chain(&refill[..refilled]) {
            self.take(net, new as usize);
            self.own(net, new);
        }
        sum
    }
}

//! Prices: how close each resource is to being last, and so what a byte on each lane is worth.
//!
//! It reads loads and changes none. Start at [`Peel::rank`].

use super::{Peel, larger, total};
use crate::alltoallv::maths::{raised_from_16, to16};
use crate::alltoallv::net::{Net, WORD};

/// Steps from one valuation of a node's lanes to the next, where steps are to be quick.
const TURNS: usize = 4;

impl Peel {
    /// Prices, and resources in order of load.
    pub(super) fn rank(&mut self, net: &Net) {
        self.find_tops(net);
        let scale = 1.0 / self.most.max(f32::MIN_POSITIVE);
        for ((&load, price), (high, share)) in
            (self.load.iter().zip(&mut self.price)).zip(self.high.iter_mut().zip(&net.share))
        {
            let x = load * scale;
            // Smaller ones to this power are no floats that are quick.
            let p = to16(larger(x, 0.01));
            *price = (p + 0.05 * x * x + 1e-9) * share;
            *high = raised_from_16(p);
        }
        self.highs = total(&self.high);
        self.sort(scale);
        if let (Some(far), Some(ends)) = (&mut self.far, &net.ends) {
            far.set_prices(ends, &self.price);
        }
        self.appraise(net);
    }

    /// Resources in order of load.
    fn sort(&mut self, scale: f32) {
        if self.load.len() <= WORD {
            self.sort_few();
            return;
        }
        // Counted into 256 steps of load, in the order of their numbers within a step: the last bits of a float this large are
        // a whole number.
        const WHOLE: f32 = 8_388_608.0;
        let scale = 255.0 * scale;
        for (key, &load) in self.keys.iter_mut().zip(&self.load) {
            *key = 255 - (load * scale + WHOLE).to_bits() as u8;
        }
        // Where nothing is exchanged, it is known already which are looked at.
        let bar = if self.is_quick() {
            let bar = self.bar(self.effort.caps[0] * self.quantum);
            255 - (bar * scale + WHOLE).to_bits() as u8
        } else {
            u8::MAX
        };
        self.some.clear();
        let mut begins = [0u16; 256];
        for (r, (&key, &egress)) in self.keys.iter().zip(&self.egress).enumerate() {
            if key <= bar || egress {
                begins[usize::from(key)] += 1;
                self.some.push((key, r as u16));
            }
        }
        let mut sum = 0;
        for begin in &mut begins {
            sum += std::mem::replace(begin, sum);
        }
        self.order.resize(self.some.len(), 0);
        for &(key, r) in &self.some {
            let at = &mut begins[usize::from(key)];
            self.order[usize::from(*at)] = r;
            *at += 1;
        }
    }

    /// The same of resources that fit one word: those that are looked at for any duration, without a branch.
    fn sort_few(&mut self) {
        const LAST: u32 = WORD as u32 - 1;
        let bar = self.bar(self.effort.caps[0] * self.quantum);
        let mut keys = [0i32; WORD + 1];
        let mut count = 0;
        for (r, (&load, &egress)) in self.load.iter().zip(&self.egress).enumerate() {
            // Bits of positive floats are in their order; the last of them are the number, lowest first.
            keys[count % WORD] = (load.to_bits() & !LAST | (LAST - r as u32)) as i32;
            count += usize::from((load >= bar) | egress);
        }
        keys[count..].fill(0);
        self.order.resize(count, 0);
        let looked_at = &keys[..count.next_multiple_of(8).min(WORD)];
        for &key in &keys[..count] {
            let place: i32 = looked_at.iter().map(|&other| i32::from(other > key)).sum();
            self.order[place as usize] = (LAST - (key as u32 & LAST)) as u16;
        }
    }

    /// Load from which a resource that is no sending port is looked at, for a duration.
    pub(super) fn bar(&self, cap: f32) -> f32 {
        (self.most - cap).min(0.98 * self.most)
    }

    /// What bytes are worth on lanes, and on the other lanes of their pairs.
    fn appraise(&mut self, net: &Net) {
        if !self.masks.is_empty() {
            self.appraise_all(net);
            return;
        }
        if self.far.is_none() {
            for at in 0..self.active.len() {
                self.appraise_pair(net, self.active[at] as usize);
            }
            return;
        }
        let (n, around) = (net.ranks, net.ranks / self.local_left.len());
        for node in 0..self.local_left.len() {
            if self.is_looked_at(node) {
                for from in node * around..(node + 1) * around {
                    (node * around..(node + 1) * around).for_each(|to| self.appraise_pair(net, from * n + to));
                }
            }
        }
    }

    /// Whether lanes within a node are valued at this step: of nodes with something left to themselves all of them, or, where
    /// steps are to be quick, each in its turn.
    pub(super) fn is_looked_at(&self, node: usize) -> bool {
        self.local_left[node] > 0 && (self.steps == 0 || !self.takes_turns() || node % TURNS == self.steps % TURNS)
    }

    /// All lanes, of pairs that are done as well: fewer questions.
    fn appraise_all(&mut self, net: &Net) {
        match net.all_padded() {
            (padded, 4) => self.sum_prices::<4>(padded),
            (padded, 5) => self.sum_prices::<5>(padded),
            (padded, 6) => self.sum_prices::<6>(padded),
            (padded, stride) => {
                for (worth, uses) in self.worth.iter_mut().zip(padded.chunks(stride)) {
                    *worth = uses.iter().map(|&r| self.price[usize::from(r)]).sum();
                }
            }
        }
        self.worth
            .iter_mut()
            .zip(&net.inv)
            .for_each(|(worth, inv)| *worth *= inv);
        if !self.twins.is_empty() {
            for (other, &twin) in self.other_worth.iter_mut().zip(&self.twins) {
                *other = self.worth[usize::from(twin)];
            }
            return;
        }
        for at in 0..self.active.len() {
            let lanes = net.lanes(self.active[at] as usize);
            for lane in lanes.clone() {
                self.other_worth[lane] = self.worth[self.other(lanes.clone(), lane)];
            }
        }
    }

    #[inline]
    fn sum_prices<const STRIDE: usize>(&mut self, padded: &[u16]) {
        // A table of a power of two needs no look at its length.
        let mut price = [0.0f32; 2 * WORD];
        price[..self.price.len()].copy_from_slice(&self.price);
        for (worth, uses) in self.worth.iter_mut().zip(padded.as_chunks::<STRIDE>().0) {
            *worth = uses.iter().map(|&r| price[usize::from(r) % (2 * WORD)]).sum();
        }
    }

    /// With one duration what lanes are worth changes little from step to step.
    fn takes_turns(&self) -> bool {
        self.is_quick() && self.effort.tried == 1
    }

    #[inline]
    fn appraise_pair(&mut self, net: &Net, pair: usize) {
        let lanes = net.lanes(pair);
        for lane in lanes.clone() {
            let sum: f32 = net.padded(lane).iter().map(|&r| self.price[usize::from(r)]).sum();
            self.worth[lane] = sum * net.inv[lane];
        }
        if lanes.len() == 2 {
            self.other_worth[lanes.start] = self.worth[lanes.start + 1];
            self.other_worth[lanes.start + 1] = self.worth[lanes.start];
            return;
        }
        for lane in lanes.clone() {
            self.other_worth[lane] = self.worth[self.other(lanes.clone(), lane)];
        }
    }
}

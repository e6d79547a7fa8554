//! Prices: how close each resource is to being last, and so what a byte on each lane is worth.
//!
//! It reads loads and changes none. Start at [`Peel::rank`].

use super::{Peel, total};
use crate::alltoallv::maths::to16;
use crate::alltoallv::net::{Net, WORD};

impl Peel {
    /// Prices, and resources in order of load.
    pub(super) fn rank(&mut self, net: &Net) {
        self.find_tops();
        let scale = 1.0 / self.most.max(f32::MIN_POSITIVE);
        for ((&load, price), (high, share)) in
            (self.load.iter().zip(&mut self.price)).zip(self.high.iter_mut().zip(&net.share))
        {
            let x = load * scale;
            let p = to16(x);
            *price = (p + 0.05 * x * x + 1e-9) * share;
            *high = (p * p) * (p * p);
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
        let step = |load: f32| 255 - ((load * scale * 255.0) as i32).clamp(0, 255) as usize;
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
    fn appraise(&mut self, net: &Net) {
        for &pair in &self.active {
            let lanes = net.lanes(pair as usize);
            for lane in lanes.clone() {
                let sum: f32 = net.padded(lane).iter().map(|&r| self.price[usize::from(r)]).sum();
                self.worth[lane] = sum * net.inv[lane];
            }
            if lanes.len() == 2 {
                self.other_worth[lanes.start] = self.worth[lanes.start + 1];
                self.other_worth[lanes.start + 1] = self.worth[lanes.start];
                continue;
            }
            for lane in lanes.clone() {
                self.other_worth[lane] = self.worth[self.other(lanes.clone(), lane)];
            }
        }
    }
}

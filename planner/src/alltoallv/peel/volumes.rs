//! How long an activation should last: the duration that takes most off the soft maximum of loads for its time.
//!
//! It only compares; bytes are set on commit. Start at [`Peel::durations`].

use super::{FAR, Peel, larger, smaller, total};
use crate::alltoallv::maths::{root64, to64};
use crate::alltoallv::net::Net;

/// Loads whose 64th power is below this are as good as none.
const LOW: f32 = 1e-12;
/// Most durations compared at once.
const MOST: usize = 8;

/// Room for one comparison.
#[derive(Clone, Debug)]
pub(super) struct Scratch {
    /// What each duration takes off each resource's load.
    served: Vec<[f32; MOST]>,
    touched: Vec<u16>,
    is_touched: Vec<bool>,
    /// Loads to the power 64 of resources that it touches not.
    untouched: Vec<f32>,
    times: Vec<f32>,
}

impl Scratch {
    pub fn new(resources: usize, lanes: usize) -> Self {
        Self {
            served: vec![[0.0; MOST]; resources],
            touched: Vec::with_capacity(resources),
            is_touched: vec![false; resources],
            untouched: vec![0.0; resources],
            times: Vec::with_capacity(lanes),
        }
    }

    #[inline]
    fn add<const MANY: usize>(&mut self, r: u16, time: &[f32; MANY], high: &[f32]) {
        let at = usize::from(r);
        if !self.is_touched[at] {
            self.is_touched[at] = true;
            // Far below the largest load, a load counts for nothing.
            if high[at] >= LOW {
                self.touched.push(r);
                self.served[at][..MANY].copy_from_slice(time);
            }
        } else if high[at] >= LOW {
            for (sum, time) in self.served[at].iter_mut().zip(time) {
                *sum += time;
            }
        }
    }
}

impl Peel {
    /// The best utility of the selection and the duration that has it, nanoseconds.
    pub(super) fn durations(&mut self, net: &Net, cap: f32) -> (f32, f32) {
        match self.effort.durations {
            ..=4 => self.best_of::<4>(net, cap),
            _ => self.best_of::<MOST>(net, cap),
        }
    }

    fn best_of<const MANY: usize>(&mut self, net: &Net, cap: f32) -> (f32, f32) {
        if self.selection.is_empty() {
            return (f32::MIN, 0.0);
        }
        let mut scratch = std::mem::take(&mut self.volumes);
        let tried = if self.selection.len() == self.active.len() + self.far_left {
            // Every pair left has its lane: a second activation would only cost.
            [f32::MAX; MANY]
        } else {
            self.candidates(net, cap, &mut scratch.times)
        };
        let mut longest = [0.0f32; MANY];
        for &lane in &self.selection {
            if let (FAR.., Some(ends)) = (lane, &net.ends) {
                let served = self.served_far(lane, &tried);
                longest
                    .iter_mut()
                    .zip(served)
                    .for_each(|(longest, served)| *longest = larger(*longest, served));
                let (from, to) = super::quick::ranks(lane);
                for &r in ends.out[from].iter().chain(&ends.into[to]) {
                    scratch.add(r, &served, &self.high);
                }
                continue;
            }
            let lane = lane as usize;
            let pair = net.pair[lane] as usize;
            let (rest, planned, inv, rate) = (self.rest[lane], self.share[lane], net.inv[lane], net.rate[lane]);
            let (mut own, mut over) = ([0.0f32; MANY], [0.0f32; MANY]);
            let mut any = false;
            for k in 0..MANY {
                let bytes = smaller(rest, tried[k] * rate);
                let mine = smaller(bytes, planned);
                own[k] = mine * inv;
                over[k] = bytes - mine;
                any |= over[k] > 0.0;
                longest[k] = larger(longest[k], bytes * inv);
            }
            for &r in net.uses(lane) {
                scratch.add(r, &own, &self.high);
            }
            if any {
                let lanes = net.lanes(pair);
                let other = if lanes.len() > 1 { self.other(lanes, lane) } else { lane };
                let inv = net.inv[other];
                over.iter_mut().for_each(|x| *x *= inv);
                for &r in net.uses(other) {
                    scratch.add(r, &over, &self.high);
                }
            }
        }
        let scale = 1.0 / self.most.max(f32::MIN_POSITIVE);
        for ((untouched, high), touched) in scratch.untouched.iter_mut().zip(&self.high).zip(&scratch.is_touched) {
            *untouched = *high * f32::from(1 - u8::from(*touched));
        }
        let untouched = total(&scratch.untouched);
        let mut after = [untouched; MANY];
        for &r in &scratch.touched {
            let at = usize::from(r);
            let load = self.load[at] * scale;
            let share = net.share[at] * scale;
            for (after, served) in after.iter_mut().zip(&scratch.served[at]) {
                let left = larger(load - served * share, 0.0);
                *after += to64(left);
            }
        }
        scratch.touched.clear();
        scratch.is_touched.fill(false);
        self.volumes = scratch;
        let before = root64(self.highs);
        let roots = after.map(root64);
        let mut best = (f32::MIN, 0.0);
        for k in 0..MANY {
            let gained = (before - roots[k]) * self.most;
            let utility = gained / (net.alpha + longest[k]);
            if utility > best.0 {
                best = (utility, tried[k]);
            }
        }
        best
    }

    /// Durations to compare: times after which lanes of the selection would be done, and `cap`.
    fn candidates<const MANY: usize>(&self, net: &Net, cap: f32, times: &mut Vec<f32>) -> [f32; MANY] {
        times.clear();
        let (least, most) = (self.quantum / 3.0, 1.5 * cap);
        let step = self.selection.len().div_ceil(16);
        for &lane in self.selection.iter().step_by(step) {
            let time = self.time_left(net, lane);
            if time >= least && time <= most {
                times.push(time);
            }
        }
        for i in 1..times.len() {
            let mut at = i;
            while at > 0 && times[at - 1] > times[at] {
                times.swap(at - 1, at);
                at -= 1;
            }
        }
        let mut tried = [cap; MANY];
        let room = MANY - 1;
        if times.len() <= room {
            tried[1..=times.len()].copy_from_slice(times);
        } else {
            for (k, slot) in tried[1..].iter_mut().enumerate() {
                *slot = times[k * (times.len() - 1) / (room - 1)];
            }
        }
        tried
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new(0, 0)
    }
}

//! How long an activation should last: the duration that takes most off the soft maximum of loads for its time.
//!
//! It only compares; bytes are set on commit. Start at [`Peel::durations`].

use super::{FAR, Peel, larger, smaller};
use crate::alltoallv::maths::{norm, raised};
use crate::alltoallv::net::{Net, WORD};

/// Most durations compared at once.
const MOST: usize = 8;

/// Room for one comparison.
#[derive(Clone, Debug)]
pub(super) struct Scratch {
    /// What each duration takes off each resource's load, resource by resource.
    served: Vec<f32>,
    times: Vec<f32>,
}

impl Scratch {
    pub fn new(resources: usize, lanes: usize) -> Self {
        Self {
            served: vec![0.0; MOST * resources],
            times: Vec::with_capacity(lanes),
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
        let (after, longest) = if self.masks.is_empty() || self.twins.is_empty() {
            self.after(net, &tried, &mut scratch)
        } else {
            self.after_few(net, &tried)
        };
        self.volumes = scratch;
        let before = norm(self.highs);
        let roots = after.map(norm);
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

    /// The sum of loads to the power 64 after each duration, and how long the longest lane takes.
    fn after<const MANY: usize>(
        &self,
        net: &Net,
        tried: &[f32; MANY],
        scratch: &mut Scratch,
    ) -> ([f32; MANY], [f32; MANY]) {
        let served = &mut scratch.served.as_chunks_mut::<MANY>().0[..self.load.len()];
        served.fill([0.0; MANY]);
        let mut add = |ids: &[u16], time: &[f32; MANY]| {
            for &r in ids {
                let served = &mut served[usize::from(r)];
                (0..MANY).for_each(|k| served[k] += time[k]);
            }
        };
        let mut longest = [0.0f32; MANY];
        for &lane in &self.selection {
            if let (FAR.., Some(ends)) = (lane, &net.ends) {
                let time = self.served_far(lane, tried);
                (0..MANY).for_each(|k| longest[k] = larger(longest[k], time[k]));
                let (from, to) = super::quick::ranks(lane);
                add(&ends.out[from], &time);
                add(&ends.into[to], &time);
                continue;
            }
            let lane = lane as usize;
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
            add(net.uses(lane), &own);
            if any {
                let lanes = net.lanes(net.pair[lane] as usize);
                let other = if lanes.len() > 1 { self.other(lanes, lane) } else { lane };
                let inv = net.inv[other];
                over.iter_mut().for_each(|x| *x *= inv);
                add(net.uses(other), &over);
            }
        }
        lengthen(net, served, &mut longest);
        (self.raised(net, served), longest)
    }

    /// The sum of what is left of all loads, over the largest one, to the power 64.
    #[inline]
    fn raised<const MANY: usize>(&self, net: &Net, served: &[[f32; MANY]]) -> [f32; MANY] {
        let scale = 1.0 / larger(self.most, f32::MIN_POSITIVE);
        let mut after = [0.0f32; MANY];
        for ((served, load), share) in served.iter().zip(&self.load).zip(&net.share) {
            let (load, share) = (load * scale, share * scale);
            for k in 0..MANY {
                after[k] += raised(load - served[k] * share);
            }
        }
        after
    }

    /// The same where resources fit one word: all of them, without a branch.
    fn after_few<const MANY: usize>(&self, net: &Net, tried: &[f32; MANY]) -> ([f32; MANY], [f32; MANY]) {
        let mut served = [[0.0f32; MANY]; WORD + 1];
        let mut longest = [0.0f32; MANY];
        for &lane in &self.selection {
            let lane = lane as usize;
            let other = usize::from(self.twins[lane]);
            let (rest, planned, inv, rate) = (self.rest[lane], self.share[lane], net.inv[lane], net.rate[lane]);
            let other_inv = net.inv[other];
            let (mut own, mut over) = ([0.0f32; MANY], [0.0f32; MANY]);
            for k in 0..MANY {
                let bytes = smaller(rest, tried[k] * rate);
                let mine = smaller(bytes, planned);
                own[k] = mine * inv;
                over[k] = (bytes - mine) * other_inv;
                longest[k] = larger(longest[k], bytes * inv);
            }
            for (&r, &s) in net.padded(lane).iter().zip(net.padded(other)) {
                let (r, s) = (usize::from(r).min(WORD), usize::from(s).min(WORD));
                (0..MANY).for_each(|k| served[r][k] += own[k]);
                (0..MANY).for_each(|k| served[s][k] += over[k]);
            }
        }
        lengthen(net, &served, &mut longest);
        (self.raised(net, &served), longest)
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

/// Lanes that share a leaf switch's port take as long as it is busy.
#[inline]
fn lengthen<const MANY: usize>(net: &Net, served: &[[f32; MANY]], longest: &mut [f32; MANY]) {
    for r in (net.leaf_ports..net.resources).filter(|&r| net.own[r] > 0.0) {
        for (longest, served) in longest.iter_mut().zip(&served[r]) {
            *longest = larger(*longest, served * net.share[r]);
        }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new(0, 0)
    }
}

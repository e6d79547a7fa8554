//! Commit: the chosen lanes get their bytes, exactly, and what is left is brought up to date.
//!
//! Only here do bytes leave the demand. Start at [`Peel::commit`].

use super::{FAR, Peel};
use crate::alltoallv::net::Net;
use crate::alltoallv::plan::{ALIGN, Chunk, Plan};

/// What is left of a pair below this goes along.
const TAIL: u64 = 4096;

impl Peel {
    /// Appends the best selection as an activation of a duration in nanoseconds.
    pub(super) fn commit(&mut self, net: &Net, duration: f32, plan: &mut Plan) {
        let mut exhausted = false;
        self.read_ahead(net);
        for at in 0..self.best.len() {
            if let (FAR.., Some(ends)) = (self.best[at], &net.ends) {
                self.commit_far(net, ends, self.best[at], duration, plan);
                continue;
            }
            let lane = self.best[at] as usize;
            let pair = net.pair[lane] as usize;
            let rem = self.rem[pair];
            if rem == 0 {
                // Another path of the pair took all.
                continue;
            }
            let bytes = share(rem, duration * net.rate[lane]);
            plan.lanes.push(Chunk {
                from: net.from[lane],
                to: net.to[lane],
                path: (lane - net.first[pair] as usize) as u16,
                turn: 0,
                offset: self.whole[pair] - rem,
                bytes,
            });
            let left = rem - bytes;
            self.rem[pair] = left;
            self.rest[net.lanes(pair)].fill(left as f32);
            if left == 0 {
                // It may not be its node's turn to be valued.
                self.weight[net.lanes(pair)].fill(0.0);
            }
            self.relieve(net, lane, pair, bytes as f32);
            let (from, to) = (usize::from(net.from[lane]), usize::from(net.to[lane]));
            match &mut self.far {
                Some(far) if !net.is_local(from, lane) => {
                    far.set(from, to, left as f32 * net.inv[lane]);
                    self.far_left -= usize::from(left == 0);
                }
                _ if left == 0 => {
                    exhausted = true;
                    let nodes = self.local_left.len();
                    self.local_left[from * nodes / net.ranks] -= 1;
                }
                _ => {}
            }
        }
        plan.end();
        if exhausted {
            let rem = &self.rem;
            self.active.retain(|&pair| rem[pair as usize] > 0);
        }
    }

    /// Takes bytes off the path plan, first from the lane that carried them, and off the loads.
    fn relieve(&mut self, net: &Net, lane: usize, pair: usize, bytes: f32) {
        let mut left = bytes;
        let last = self.rem[pair] == 0;
        let lanes = net.lanes(pair);
        self.take_off(net, lane, last, &mut left);
        for other in lanes.filter(|&other| other != lane) {
            if left > 0.0 || last {
                self.take_off(net, other, last, &mut left);
            }
        }
    }

    fn take_off(&mut self, net: &Net, lane: usize, last: bool, left: &mut f32) {
        let planned = self.share[lane];
        let off = if last { planned } else { planned.min(*left) };
        *left -= off;
        self.share[lane] = planned - off;
        if off > 0.0 {
            for &r in net.uses(lane) {
                let load = &mut self.load[usize::from(r)];
                *load = (*load - off * net.hold(lane, r)).max(0.0);
            }
        }
    }
}

/// Bytes for a lane that could carry `wish`: aligned, at least one unit, all if little is left.
pub(super) fn share(rem: u64, wish: f32) -> u64 {
    let aligned = (wish as u64 / ALIGN * ALIGN).max(ALIGN);
    if aligned >= rem || rem - aligned < TAIL {
        rem
    } else {
        aligned
    }
}

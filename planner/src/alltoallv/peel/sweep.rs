//! The path plan: which part of a pair's bytes takes which of its paths, so that no resource is loaded more than need be.
//!
//! It moves bytes from a pair's dearest path to its cheapest, pair by pair; it selects nothing. Start at
//! [`Peel::sweep_all`].

use super::{Peel, largest};
use crate::alltoallv::maths::to16;
use crate::alltoallv::net::Net;

/// Loads count by this power: so high that only the largest matter.
const EXPONENT: f32 = 32.0;

#[inline]
fn to32(x: f32) -> f32 {
    let x = to16(x);
    x * x
}

impl Peel {
    /// Goes through all pairs with several paths once.
    pub(super) fn sweep_all(&mut self, net: &Net) {
        for node in 0..self.node_ends.len() {
            self.sweep_node(net, node);
        }
    }

    /// Gives each pair the fastest of its paths that no pair before it needs: the path plan where no rank has two peers.
    pub(super) fn one_path_each(&mut self, net: &Net) {
        self.release();
        for at in 0..self.active.len() {
            let lanes = net.lanes(self.active[at] as usize);
            let bytes = self.share[lanes.start];
            if let Some(lane) = lanes.clone().find(|&lane| self.fits(net, lane)) {
                self.take(net, lane);
                self.share[lanes.start] = 0.0;
                self.share[lane] = bytes;
            }
        }
    }

    /// Goes through the pairs of an eighth of the nodes.
    pub(super) fn sweep_some(&mut self, net: &Net) {
        let nodes = self.node_ends.len();
        for _ in 0..nodes.div_ceil(8) {
            let node = self.next_node;
            self.next_node = (node + 1) % nodes;
            self.sweep_node(net, node);
        }
    }

    fn sweep_node(&mut self, net: &Net, node: usize) {
        let begin = if node == 0 {
            0
        } else {
            self.node_ends[node - 1] as usize
        };
        let end = self.node_ends[node] as usize;
        self.most = largest(&self.load);
        if begin == end || self.most <= 0.0 {
            return;
        }
        let scale = 1.0 / self.most;
        for (&load, price) in self.load.iter().zip(&mut self.price) {
            *price = to32(load * scale);
        }
        for at in begin..end {
            let pair = self.several[at] as usize;
            if self.rem[pair] > 0 {
                self.balance(net, pair, scale);
            }
        }
    }

    /// Moves bytes of one pair from its dearest path in use to its cheapest.
    fn balance(&mut self, net: &Net, pair: usize, scale: f32) {
        let (mut dear, mut cheap) = ((usize::MAX, -1.0), (usize::MAX, f32::INFINITY));
        for lane in net.lanes(pair) {
            let uses = net.uses(lane).iter();
            let cost: f32 = uses
                .map(|&r| self.price[usize::from(r)] * net.share[usize::from(r)])
                .sum();
            let cost = cost * net.inv[lane];
            if self.share[lane] > 0.0 && cost > dear.1 {
                dear = (lane, cost);
            }
            if cost < cheap.1 {
                cheap = (lane, cost);
            }
        }
        let ((dear, cost), (cheap, least)) = (dear, cheap);
        if dear == cheap || dear == usize::MAX || cost <= least * 1.002 {
            return;
        }
        // One Newton step on the sum of powers along this pair's direction.
        let mut bend = 0.0;
        for lane in [dear, cheap] {
            for &r in net.uses(lane) {
                let at = usize::from(r);
                let hold = net.inv[lane] * net.share[at];
                if self.load[at] > 0.0 && !net.port[at] {
                    bend += hold * hold * self.price[at] / self.load[at];
                }
            }
        }
        let x = self.share[dear];
        let moved = x.min((cost - least) / (bend * EXPONENT).max(f32::MIN_POSITIVE));
        self.share[dear] -= moved;
        self.share[cheap] += moved;
        for (lane, bytes) in [(dear, -moved), (cheap, moved)] {
            for &r in net.uses(lane) {
                let r16 = usize::from(r);
                self.load[r16] = (self.load[r16] + bytes * net.hold(lane, r)).max(0.0);
                self.price[r16] = to32(self.load[r16] * scale);
            }
        }
    }
}

//! The path plan: which part of a pair's bytes takes which of its paths, so that no resource is loaded more than need be.
//!
//! It moves bytes from a pair's dearest path to its cheapest, pair by pair; it selects nothing. Start at
//! [`Peel::sweep_all`].

use super::{Peel, larger, largest};
use crate::alltoallv::net::Net;

/// Loads count by this power: so high that only the largest matter.
const EXPONENT: f32 = 32.0;

/// Costs closer than this are the same; loads are then within a thousandth.
const LEVEL: f32 = 1.02;

/// A load that is as good as none: its power is still a float like others, which smaller ones take long to be.
const LEAST: f32 = 0.1;

/// What a load over the largest one costs: its power 32, and its power 31 before it, by which that rises.
#[inline]
fn price(x: f32) -> (f32, f32) {
    let x = larger(x, LEAST);
    let a = x * x;
    let b = a * a;
    let c = b * b;
    let d = c * c;
    let slope = (d * c) * (b * a) * x;
    (slope * x, slope)
}

impl Peel {
    /// Goes through all pairs with several paths so many times, or until nothing moves; other nodes' pairs do not matter.
    pub(super) fn sweep_all(&mut self, net: &Net, times: usize) {
        self.calm.fill(false);
        for _ in 0..times {
            for node in 0..self.live_ends.len() {
                if !self.calm[node] {
                    self.calm[node] = !self.sweep_node(net, node) && !net.coupled;
                }
            }
        }
    }

    /// Gives each pair the fastest of its paths that no pair before it needs: the path plan where no rank has two peers.
    pub(super) fn one_path_each(&mut self, net: &Net, bytes: &[u64]) {
        self.release();
        for pair in (0..bytes.len()).filter(|&pair| bytes[pair] > 0) {
            let lanes = net.lanes(pair);
            if let Some(lane) = lanes.clone().find(|&lane| self.fits(net, lane)) {
                self.take(net, lane);
                self.share[lanes.start] = 0.0;
                self.share[lane] = bytes[pair] as f32;
            }
        }
    }

    /// Goes through the pairs of an eighth of the nodes.
    pub(super) fn sweep_some(&mut self, net: &Net) {
        self.find_tops(net);
        let nodes = self.live_ends.len();
        for _ in 0..nodes.div_ceil(8) {
            let node = self.next_node;
            self.next_node = (node + 1) % nodes;
            self.sweep_node(net, node);
        }
    }

    /// Whether any bytes moved.
    fn sweep_node(&mut self, net: &Net, node: usize) -> bool {
        let begin = if node == 0 {
            0
        } else {
            self.live_ends[node - 1] as usize
        };
        let end = self.live_ends[node] as usize;
        self.most = largest(&self.tops);
        if begin == end || self.most <= 0.0 {
            return false;
        }
        let scale = 1.0 / self.most;
        // Paths of a node's pairs use what is the node's own, unless pairs between nodes may choose as well.
        let own = if net.coupled {
            0..net.resources
        } else {
            node * net.per_node..(node + 1) * net.per_node
        };
        let figures = self.load[own.clone()].iter().zip(&net.share[own.clone()]);
        let curves = self.curve[own.clone()].iter_mut().zip(&self.bends[own.clone()]);
        let prices = self.price[own.clone()].iter_mut().zip(curves);
        for ((mine, (curve, bends)), (&load, &share)) in prices.zip(figures) {
            let (power, slope) = price(load * scale);
            (*mine, *curve) = (power * share, slope * bends);
        }
        self.price[net.resources] = 0.0;
        let fresh = self.steps == 0;
        let mut moved = false;
        for at in begin..end {
            let pair = self.live[at] as usize;
            if fresh || self.rem[pair] > 0 {
                moved |= self.balance(net, pair, scale);
            }
        }
        if net.coupled {
            self.find_tops(net);
        } else {
            self.tops[node] = largest(&self.load[own]);
        }
        moved
    }

    /// Moves bytes of one pair from its dearest path in use to its cheapest; whether it did.
    fn balance(&mut self, net: &Net, pair: usize, scale: f32) -> bool {
        let lanes = net.lanes(pair);
        let (dear, cheap, cost, least) = if lanes.len() == 2 {
            // By far the most pairs: both sums at once.
            let (a, b) = (lanes.start, lanes.start + 1);
            let (mut of_a, mut of_b) = (0.0, 0.0);
            for (&r, &s) in net.padded(a).iter().zip(net.padded(b)) {
                of_a += self.price[usize::from(r)];
                of_b += self.price[usize::from(s)];
            }
            (of_a, of_b) = (of_a * net.inv[a], of_b * net.inv[b]);
            if of_b < of_a {
                (a, b, of_a, of_b)
            } else {
                (b, a, of_b, of_a)
            }
        } else {
            let (mut dear, mut cheap) = ((lanes.start, -1.0), (lanes.start, f32::INFINITY));
            for lane in lanes {
                let uses = net.padded(lane).iter();
                let cost: f32 = uses.map(|&r| self.price[usize::from(r)]).sum();
                let cost = cost * net.inv[lane];
                if self.share[lane] > 0.0 && cost > dear.1 {
                    dear = (lane, cost);
                }
                if cost < cheap.1 {
                    cheap = (lane, cost);
                }
            }
            (dear.0, cheap.0, dear.1, cheap.1)
        };
        if self.share[dear] <= 0.0 || cost <= least * LEVEL {
            return false;
        }
        // One Newton step on the sum of powers along this pair's direction.
        let mut bend = 0.0;
        for lane in [dear, cheap] {
            let curves: f32 = net.padded(lane).iter().map(|&r| self.curve[usize::from(r)]).sum();
            bend += net.inv[lane] * net.inv[lane] * curves * scale;
        }
        let x = self.share[dear];
        let moved = x.min((cost - least) / (bend * EXPONENT).max(f32::MIN_POSITIVE));
        self.share[dear] -= moved;
        self.share[cheap] += moved;
        for (lane, bytes) in [(dear, -moved), (cheap, moved)] {
            for &r in net.uses(lane) {
                let at = usize::from(r);
                self.load[at] = larger(self.load[at] + bytes * net.hold(lane, r), 0.0);
                let (power, slope) = price(self.load[at] * scale);
                self.price[at] = power * net.share[at];
                self.curve[at] = slope * self.bends[at];
            }
        }
        true
    }
}

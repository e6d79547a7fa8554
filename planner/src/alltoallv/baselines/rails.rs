//! Two-level exchanges: over the NICs between ranks of one number in their nodes, and on inside the nodes.
//!
//! Start at [`forward`] and [`balanced`].

use crate::alltoallv::demand::Demand;
use crate::alltoallv::fabric::Fabric;
use crate::alltoallv::simulate::Traffic;

/// A machine as nodes of ranks.
struct Rails<'a> {
    fabric: &'a Fabric,
    demand: &'a Demand,
    nodes: usize,
    size: usize,
    traffic: Traffic,
    staged: bool,
    /// What all flows of a stage wait for.
    gate: Option<u32>,
    begin: usize,
}

impl<'a> Rails<'a> {
    fn new(fabric: &'a Fabric, demand: &'a Demand, staged: bool) -> Self {
        Self {
            fabric,
            demand,
            nodes: fabric.nodes(),
            size: fabric.ranks_per_node(),
            traffic: Traffic::default(),
            staged,
            gate: None,
            begin: 0,
        }
    }

    fn send(&mut self, from: usize, to: usize, bytes: f64) {
        if from == to || bytes < 0.5 {
            return;
        }
        let delay = if self.gate.is_none() {
            f64::from(self.fabric.alpha_ns())
        } else {
            0.0
        };
        let id = self.traffic.send(self.fabric, from, to, 0, bytes, delay);
        self.traffic.flows[id as usize].after.extend(self.gate);
    }

    /// The end of a stage.
    fn stage(&mut self) {
        if self.staged && self.traffic.flows.len() > self.begin {
            self.gate = Some(self.traffic.barrier(self.begin, f64::from(self.fabric.alpha_ns())));
            self.begin = self.traffic.flows.len();
        }
    }

    /// Pairs within nodes, directly.
    fn inside(&mut self) {
        for node in 0..self.nodes {
            let ranks = node * self.size..(node + 1) * self.size;
            for shift in 1..self.size {
                for from in ranks.clone() {
                    let to = ranks.start + (from - ranks.start + shift) % self.size;
                    self.send(from, to, self.demand.get(from, to) as f64);
                }
            }
        }
    }

    fn finish(mut self) -> Traffic {
        // A barrier with nothing behind it is none.
        if self.traffic.flows.last().is_some_and(|flow| flow.uses.is_empty()) {
            self.traffic.flows.pop();
        }
        self.traffic
    }

    /// Bytes of a rank for a node.
    fn for_node(&self, from: usize, node: usize) -> f64 {
        let ranks = node * self.size..(node + 1) * self.size;
        ranks.map(|to| self.demand.get(from, to) as f64).sum()
    }
}

/// Each rank sends what it has for a node to the rank of its own number there, which passes it on.
pub(super) fn forward(fabric: &Fabric, demand: &Demand, staged: bool) -> Traffic {
    let mut rails = Rails::new(fabric, demand, staged);
    let (nodes, size) = (rails.nodes, rails.size);
    for shift in 1..nodes {
        for from in 0..nodes * size {
            let node = (from / size + shift) % nodes;
            let bytes = rails.for_node(from, node);
            rails.send(from, node * size + from % size, bytes);
        }
    }
    rails.inside();
    rails.stage();
    for shift in 1..nodes {
        for from in 0..nodes * size {
            let node = (from / size + shift) % nodes;
            let rail = node * size + from % size;
            for to in node * size..(node + 1) * size {
                rails.send(rail, to, demand.get(from, to) as f64);
            }
        }
    }
    rails.finish()
}

/// Ranks of a node even out what it has for each other node first, and pass it on behind the NICs.
pub(super) fn balanced(fabric: &Fabric, demand: &Demand, staged: bool) -> Traffic {
    let mut rails = Rails::new(fabric, demand, staged);
    let (nodes, size) = (rails.nodes, rails.size);
    for node in 0..nodes {
        for other in (0..nodes).filter(|&other| other != node) {
            even_out(&mut rails, node, other);
        }
    }
    rails.stage();
    // Node to node, one to one, over all NICs alike.
    for shift in 1..nodes {
        for node in 0..nodes {
            let other = (node + shift) % nodes;
            let total: f64 = (node * size..(node + 1) * size)
                .map(|from| rails.for_node(from, other))
                .sum();
            for rail in 0..size {
                rails.send(node * size + rail, other * size + rail, total / size as f64);
            }
        }
        rails.stage();
    }
    rails.inside();
    // Each rank got the same mixture of destinations.
    for to in 0..nodes * size {
        let node = to / size;
        let from_outside = (0..nodes * size).filter(|from| from / size != node);
        let wanted: f64 = from_outside.map(|from| demand.get(from, to) as f64).sum();
        for rail in node * size..(node + 1) * size {
            rails.send(rail, to, wanted / size as f64);
        }
    }
    rails.finish()
}

/// Moves bytes for `other` from the ranks of `node` that have more than the average to those that have less.
fn even_out(rails: &mut Rails<'_>, node: usize, other: usize) {
    let size = rails.size;
    let mut has: Vec<f64> = (node * size..(node + 1) * size)
        .map(|from| rails.for_node(from, other))
        .collect();
    let average = has.iter().sum::<f64>() / size as f64;
    let mut to = 0;
    for from in 0..size {
        while has[from] > average + 0.5 {
            while to < size && has[to] >= average - 0.5 {
                to += 1;
            }
            if to == size {
                return;
            }
            let moved = (has[from] - average).min(average - has[to]);
            rails.send(node * size + from, node * size + to, moved);
            has[from] -= moved;
            has[to] += moved;
        }
    }
}

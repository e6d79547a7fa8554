//! Peel: one activation after the other, each the lanes and the bytes that relieve the most loaded resources most.
//!
//! Each step takes what is left of the demand, prices resources by how close they are to being last, selects lanes for a
//! few durations, and keeps the one that gains most time for the time it costs. All memory is allocated in
//! `Peel::new`; each step reads only what earlier steps left, so activation `k + 1` can be made while `k` runs.
//! Floats steer, integers count: bytes are exact. Start at `Peel::step`.

mod commit;
mod effort;
mod prices;
mod select;
mod swap;
mod sweep;
mod volumes;

use super::demand::Demand;
use super::net::{Net, UNLIMITED, WORD};
use super::plan::Plan;

pub use effort::Effort;

/// Sweeps of the path plan before the first step.
const INITIAL_SWEEPS: usize = 12;

/// Ranks up to which a plan may be peeled at all.
const PEEL_MOST: usize = 256;

const NOBODY: u32 = u32::MAX;

/// The state of a plan under way.
#[derive(Clone, Debug)]
pub(super) struct Peel {
    effort: Effort,
    /// Bytes of each pair: all, and left.
    whole: Vec<u64>,
    rem: Vec<u64>,
    /// Bytes left of each lane's pair, rounded.
    rest: Vec<f32>,
    /// Pairs with something left.
    active: Vec<u32>,
    /// Pairs with several paths, by node of the source.
    several: Vec<u32>,
    node_ends: Vec<u32>,
    next_node: usize,
    /// Bytes that the path plan gives each lane.
    share: Vec<f32>,
    /// Load of each resource when the path plan is kept, nanoseconds.
    load: Vec<f32>,
    /// Load over the largest to the power 16 while sweeping; what a nanosecond on each resource is worth else.
    price: Vec<f32>,
    /// Load over the largest to the power 64.
    high: Vec<f32>,
    /// What a byte on each lane is worth.
    worth: Vec<f32>,
    /// What a byte on the pair's other lane is worth.
    other_worth: Vec<f32>,
    /// Prices at the two ends of paths between nodes, for each rank.
    out_price: Vec<f32>,
    into_price: Vec<f32>,
    /// What each lane is worth for the duration tried.
    weight: Vec<f32>,
    /// Resources by load, largest first.
    order: Vec<u16>,
    /// Lanes of each resource.
    user_start: Vec<u32>,
    users: Vec<u32>,
    /// Resources of each lane as bits, where all fit one word and carry one lane each, or any number.
    masks: Vec<u64>,
    /// Sending ports as bits, in that case.
    senders: u64,
    /// The heaviest lane of each resource, free or not, in that case.
    heaviest: Vec<f32>,
    taken: Vec<u64>,
    in_use: Vec<u16>,
    limit: Vec<u16>,
    egress: Vec<bool>,
    /// Full resources at either end of each rank's paths between nodes; 1 where there is none at the receiving end.
    shut_out: Vec<i8>,
    shut_in: Vec<i8>,
    open_in: Vec<f32>,
    owner: Vec<u32>,
    selection: Vec<u32>,
    best: Vec<u32>,

    volumes: volumes::Scratch,
    /// The busiest resource's load.
    most: f32,
    /// Pairs with something to send, by source, then by destination.
    degrees: Vec<u32>,
    quantum: f32,
    busiest: f32,
    steps: usize,
}

impl Peel {
    /// Room for any demand on a fabric.
    pub fn new(net: &Net, nodes: usize, egress: impl Fn(usize) -> u32) -> Self {
        let (n, resources, lanes) = (net.ranks, net.resources, net.len());
        let mut several = Vec::new();
        let mut node_ends = Vec::new();
        let per_node = n / nodes.max(1);
        for node in 0..nodes {
            let rows = node * per_node..(node + 1) * per_node;
            let pairs = rows.flat_map(|i| (0..n).map(move |j| i * n + j));
            several.extend(pairs.filter(|&p| net.lanes(p).len() > 1).map(|p| p as u32));
            node_ends.push(several.len() as u32);
        }
        // Lanes between nodes are found by their ends where that is possible.
        let listed = |lane: &usize| {
            let local = net.local[net.pair[*lane] as usize / n];
            net.ends.is_none() || (local.0 as usize..local.1 as usize).contains(lane)
        };
        let mut user_start = vec![0u32; resources + 1];
        for lane in (0..lanes).filter(listed) {
            net.uses(lane).iter().for_each(|&r| user_start[usize::from(r) + 1] += 1);
        }
        for r in 0..resources {
            user_start[r + 1] += user_start[r];
        }
        let mut fill = user_start.clone();
        let mut users = vec![0u32; user_start[resources] as usize];
        for lane in (0..lanes).filter(listed) {
            for &r in net.uses(lane) {
                let at = &mut fill[usize::from(r)];
                users[*at as usize] = lane as u32;
                *at += 1;
            }
        }
        let limit: Vec<u16> = (0..resources)
            .map(|r| if net.port[r] { 1 } else { net.slots[r] })
            .collect();
        let small = resources <= WORD && limit.iter().all(|&limit| limit == 1 || limit == UNLIMITED);
        let mask = |lane: usize| {
            let uses = net.uses(lane).iter().filter(|&&r| limit[usize::from(r)] != UNLIMITED);
            uses.fold(0u64, |mask, &r| mask | 1 << r)
        };
        let masks = if small {
            (0..lanes).map(mask).collect()
        } else {
            Vec::new()
        };
        let mut is_egress = vec![false; resources];
        (0..n).for_each(|rank| is_egress[egress(rank) as usize] = true);
        let senders = (0..resources)
            .filter(|&r| small && is_egress[r])
            .fold(0, |bits, r| bits | 1 << r);
        Self {
            effort: Effort::FULL,
            rem: vec![0; n * n],
            whole: vec![0; n * n],
            rest: vec![0.0; lanes],
            active: Vec::with_capacity(n * n),
            several,
            node_ends,
            next_node: 0,
            share: vec![0.0; lanes],
            load: vec![0.0; resources],
            price: vec![0.0; resources],
            high: vec![0.0; resources],
            worth: vec![0.0; lanes],
            other_worth: vec![0.0; lanes],
            out_price: vec![0.0; n],
            into_price: vec![0.0; n],
            weight: vec![0.0; lanes],
            order: (0..resources as u16).collect(),
            user_start,
            users,
            masks,
            senders,
            heaviest: vec![0.0; resources],
            taken: vec![0; resources.div_ceil(WORD)],
            in_use: vec![0; resources],
            limit,
            egress: is_egress,
            shut_out: vec![0; n],
            shut_in: vec![0; n],
            open_in: vec![1.0; n],
            owner: vec![NOBODY; resources],
            selection: Vec::with_capacity(2 * n),
            best: Vec::with_capacity(2 * n),

            volumes: volumes::Scratch::new(resources, 2 * n),
            most: 0.0,
            degrees: vec![0; 2 * n],
            quantum: 0.0,
            busiest: 0.0,
            steps: 0,
        }
    }

    /// Takes a demand and plans its paths.
    pub fn begin(&mut self, net: &Net, demand: &Demand, effort: Effort) {
        self.effort = effort;
        self.active.clear();
        self.weight.fill(0.0);
        self.share.fill(0.0);
        self.steps = 0;
        self.next_node = 0;
        for (pair, &bytes) in demand.bytes().iter().enumerate() {
            self.rem[pair] = bytes;
            self.whole[pair] = bytes;
            self.rest[net.lanes(pair)].fill(bytes as f32);
            if bytes > 0 {
                self.active.push(pair as u32);
                self.share[net.first[pair] as usize] = bytes as f32;
            }
        }
        let peers = self.peers(net.ranks);
        if peers == 1 {
            self.one_path_each(net);
        } else {
            self.reload(net);
            for _ in 0..INITIAL_SWEEPS {
                self.sweep_all(net);
            }
        }
        self.reload(net);
        self.busiest = self.most;
        self.quantum = self.most / (effort.rho * peers as f32);
    }

    /// The most peers of a rank, either way; at least 1.
    fn peers(&mut self, ranks: usize) -> u32 {
        self.degrees.fill(0);
        for &pair in &self.active {
            self.degrees[pair as usize / ranks] += 1;
            self.degrees[ranks + pair as usize % ranks] += 1;
        }
        self.degrees.iter().copied().max().unwrap_or(0).max(1)
    }

    /// The busiest resource's load when the demand was taken, nanoseconds.
    pub fn busiest(&self) -> f32 {
        self.busiest
    }

    /// The unit of durations, nanoseconds.
    pub fn quantum(&self) -> f32 {
        self.quantum
    }

    /// Bytes of each pair, and those that are left.
    pub fn whole(&self) -> &[u64] {
        &self.whole
    }

    /// Bytes left of each pair.
    pub fn left(&self) -> &[u64] {
        &self.rem
    }

    /// Bytes that the path plan gives each lane.
    pub fn shares(&self) -> &[f32] {
        &self.share
    }

    /// Activations after which the rest is packed.
    pub fn most_activations(net: &Net) -> usize {
        if net.ranks <= PEEL_MOST { 6 * net.ranks } else { 0 }
    }

    /// Lanes of so many activations.
    pub fn most_lanes(net: &Net) -> usize {
        Self::most_activations(net) * 2 * net.ranks
    }

    /// Appends the next activation; false when nothing is left.
    pub fn step(&mut self, net: &Net, plan: &mut Plan) -> bool {
        if self.active.is_empty() {
            return false;
        }
        if self.steps % 64 == 63 {
            self.reload(net);
        }
        if self.steps > 0 && self.steps.is_multiple_of(self.effort.sweep_every) {
            self.sweep_some(net);
        }
        self.steps += 1;
        self.rank(net);
        // Where figures are absurd, everything that is left of one pair is always a way on.
        let mut found = (f32::MIN, f32::INFINITY, self.quantum);
        self.best.clear();
        for at in 0..self.effort.tried {
            let cap = self.effort.caps[at] * self.quantum;
            self.weigh(net, cap);
            self.select(net, cap);
            let (utility, duration) = self.durations(net, cap);
            if utility > found.0 {
                found = (utility, duration, cap);
                std::mem::swap(&mut self.selection, &mut self.best);
            }
        }
        if self.effort.swap {
            self.weigh(net, found.2);
            self.exchange(net, found.2);
            let (utility, duration) = self.durations(net, found.2);
            if utility > found.0 {
                found.1 = duration;
                std::mem::swap(&mut self.selection, &mut self.best);
            }
        }
        if self.best.is_empty() {
            self.best.push(net.first[self.active[0] as usize]);
        }
        self.commit(net, found.1, plan);
        true
    }

    /// Loads from the path plan, from scratch.
    fn reload(&mut self, net: &Net) {
        self.load.fill(0.0);
        for &pair in &self.active {
            for lane in net.lanes(pair as usize) {
                let bytes = self.share[lane];
                if bytes > 0.0 {
                    for &r in net.uses(lane) {
                        self.load[usize::from(r)] += bytes * net.hold(lane, r);
                    }
                }
            }
        }
        self.most = largest(&self.load);
    }
}

/// The largest of numbers that are not negative.
fn largest(of: &[f32]) -> f32 {
    of.iter().fold(0.0, |a, &b| if b > a { b } else { a })
}

#[inline]
fn smaller(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

#[inline]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

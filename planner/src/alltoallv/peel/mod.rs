//! Peel: one activation after the other, each the lanes and the bytes that relieve the most loaded resources most.
//!
//! Each step takes what is left of the demand, prices resources by how close they are to being last, selects lanes for a
//! few durations, and keeps the one that gains most time for the time it costs. All memory is allocated in
//! `Peel::new`; each step reads only what earlier steps left, so activation `k + 1` can be made while `k` runs.
//! Floats steer, integers count: bytes are exact. Start at `Peel::step`.

mod begin;
mod commit;
mod effort;
mod family;
mod far;
mod greedy;
mod prices;
mod quick;
mod select;
mod selector;
mod swap;
mod sweep;
mod volumes;

use super::net::{Net, UNLIMITED, WORD};
use super::plan::Plan;

pub use effort::Effort;
pub(super) use family::Families;
pub use family::FamilyFault;
pub use selector::Selector;

/// Ranks up to which a plan may be peeled at all.
pub const PEEL_MOST: usize = 256;

const NOBODY: u32 = u32::MAX;

/// Marks a lane between nodes in a selection of quick steps.
const FAR: u32 = 1 << 31;

/// The state of a plan under way.
#[derive(Clone, Debug)]
pub(super) struct Peel {
    effort: Effort,
    /// Bytes of each pair: all, and left.
    whole: Vec<u64>,
    rem: Vec<u64>,
    /// Bytes left of each lane's pair, rounded.
    rest: Vec<f32>,
    /// Pairs with something left; without those that `far` holds.
    active: Vec<u32>,
    /// How many there are of these in each node, and of all others.
    local_left: Vec<u32>,
    /// Node of each resource.
    node: Vec<u16>,
    far_left: usize,
    /// Pairs between nodes, where their ends say all about them.
    far: Option<far::Far>,
    /// Pairs with several paths, by node of the source; those of them that have something to send.
    several: Vec<u32>,
    node_ends: Vec<u32>,
    live: Vec<u32>,
    live_ends: Vec<u32>,
    next_node: usize,
    /// Nodes in which a sweep moved nothing.
    calm: Vec<bool>,
    /// Bytes that the path plan gives each lane.
    share: Vec<f32>,
    /// Load of each resource when the path plan is kept, nanoseconds; that part of it that no choice of paths changes.
    load: Vec<f32>,
    base: Vec<f32>,
    /// The largest load of each node, and of what is no node's.
    tops: Vec<f32>,
    /// Load over the largest to the power 32 while sweeping, what a nanosecond on each resource is worth else; and a zero.
    price: Vec<f32>,
    /// How fast prices rise with loads while sweeping, of all but ports, and what share of their time; 0 for ports.
    curve: Vec<f32>,
    bends: Vec<f32>,
    /// Load over the largest to the power 64, and the sum of all.
    high: Vec<f32>,
    highs: f32,
    /// What a byte on each lane is worth.
    worth: Vec<f32>,
    /// What a byte on the pair's other lane is worth.
    other_worth: Vec<f32>,
    /// What each lane is worth for the duration tried; of lanes between nodes `far` knows.
    weight: Vec<f32>,
    cap: f32,
    /// Resources by load, largest first.
    order: Vec<u16>,
    keys: Vec<u8>,
    some: Vec<(u8, u16)>,
    /// Lanes of each resource.
    user_start: Vec<u32>,
    users: Vec<u32>,
    /// Resources of each lane as bits, where all fit one word and carry one lane each, or any number.
    masks: Vec<u64>,
    /// The same in the order of `users`.
    user_masks: Vec<u64>,
    /// The other lane of each lane's pair, in that case, if no pair has more.
    twins: Vec<u16>,
    /// Sending ports as bits, in that case.
    senders: u64,
    /// The heaviest lane of each resource, free or not, in that case.
    heaviest: Vec<f32>,
    taken: Vec<u64>,
    in_use: Vec<u16>,
    limit: Vec<u16>,
    /// Every resource carries one lane, or any number.
    single: bool,
    /// Steps are quick.
    quick: bool,
    egress: Vec<bool>,
    owner: Vec<u32>,
    selection: Vec<u32>,
    best: Vec<u32>,

    greedy: greedy::Greedy,
    families: Option<Box<Families>>,

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
        // Whoever has more ranks is never peeled: only the path plan is made.
        let peeled = n <= PEEL_MOST;
        let (pairs, lanes) = if peeled { (n * n, lanes) } else { (0, 0) };
        let (user_start, users) = users(net, lanes);
        let limit: Vec<u16> = (0..resources)
            .map(|r| if net.port[r] { 1 } else { net.slots[r] })
            .collect();
        let single = limit.iter().all(|&limit| limit == 1 || limit == UNLIMITED);
        let small = resources <= WORD && single;
        let mask = |lane: usize| {
            let uses = net.uses(lane).iter().filter(|&&r| limit[usize::from(r)] != UNLIMITED);
            uses.fold(0u64, |mask, &r| mask | 1 << r)
        };
        let masks = if small {
            (0..lanes).map(mask).collect()
        } else {
            Vec::new()
        };
        // Where nothing is peeled, ends say enough of pairs between nodes whatever lies between.
        let by_ends = net.ends.is_some() || (!peeled && net.leaf_ends.is_some());
        let mut is_egress = vec![false; resources];
        (0..n).for_each(|rank| is_egress[egress(rank) as usize] = true);
        let senders = (0..resources)
            .filter(|&r| small && is_egress[r])
            .fold(0, |bits, r| bits | 1 << r);
        let ends = net.ends.as_ref().filter(|_| peeled);
        let far = ends.map(|ends| far::Far::new(net, ends));
        let sources = if peeled { n } else { 0 } + far.as_ref().map_or(0, far::Far::senders);
        Self {
            effort: Effort::FULL,
            rem: vec![0; pairs],
            whole: vec![0; pairs],
            rest: vec![0.0; lanes],
            active: Vec::with_capacity(n * if by_ends { per_node } else { n }),
            local_left: vec![0; nodes],
            node: (0..resources)
                .map(|r| (r / net.per_node).min(nodes - 1) as u16)
                .collect(),
            far_left: 0,
            far,
            live: Vec::with_capacity(several.len()),
            live_ends: Vec::with_capacity(nodes),
            several,
            node_ends,
            next_node: 0,
            calm: vec![false; nodes],
            share: vec![0.0; net.len()],
            load: vec![0.0; resources],
            base: vec![0.0; resources],
            tops: vec![0.0; nodes + 1],
            price: vec![0.0; resources + 1],
            curve: vec![0.0; resources + 1],
            bends: (0..resources)
                .map(|r| if net.port[r] { 0.0 } else { net.share[r] })
                .collect(),
            high: vec![0.0; resources],
            highs: 0.0,
            worth: vec![0.0; lanes],
            other_worth: vec![0.0; lanes],
            weight: vec![0.0; lanes],
            cap: 0.0,
            order: (0..resources as u16).collect(),
            keys: vec![0; resources],
            some: Vec::with_capacity(resources),
            twins: if masks.is_empty() { Vec::new() } else { twins(net) },
            user_masks: if masks.is_empty() {
                Vec::new()
            } else {
                users.iter().map(|&lane| masks[lane as usize]).collect()
            },
            masks,
            user_start,
            users,
            senders,
            heaviest: vec![0.0; resources],
            taken: vec![0; resources.div_ceil(WORD)],
            in_use: vec![0; resources],
            limit,
            single,
            quick: false,
            egress: is_egress,
            owner: vec![NOBODY; resources],
            selection: Vec::with_capacity(2 * n),
            best: Vec::with_capacity(2 * n),

            greedy: greedy::Greedy::new(sources),
            families: None,

            volumes: volumes::Scratch::new(resources, 2 * n),
            most: 0.0,
            degrees: vec![0; 2 * n],
            quantum: 0.0,
            busiest: 0.0,
            steps: 0,
        }
    }

    /// Families for the selector that asks for them.
    pub fn set_families(&mut self, families: Families) {
        self.families = Some(Box::new(families));
    }

    /// Whether an effort's selector has what it needs.
    pub fn can(&self, effort: &Effort) -> bool {
        effort.selector != Selector::Family || self.families.is_some()
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
    pub fn left(&self) -> (&[u64], &[u64]) {
        (&self.whole, &self.rem)
    }

    /// Bytes that the path plan gives each lane of pairs that have several.
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
        if self.active.is_empty() && self.far_left == 0 {
            return false;
        }
        if self.steps % 64 == 63 {
            self.recount(net);
        }
        if self.steps > 0 && self.steps.is_multiple_of(self.effort.sweep_every) {
            self.sweep_some(net);
        }
        self.rank(net);
        self.steps += 1;
        // Where figures are absurd, everything that is left of one pair is always a way on.
        let mut found = (f32::MIN, f32::INFINITY, self.quantum);
        self.best.clear();
        for at in 0..self.effort.tried {
            let cap = self.effort.caps[at] * self.quantum;
            self.weigh(net, cap);
            self.pick(net, cap);
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
            let first = self.active.first().map(|&pair| pair as usize);
            let pair = first.or_else(|| self.rem.iter().position(|&rem| rem > 0));
            self.best.push(net.first[pair.unwrap_or(0)]);
        }
        self.commit(net, found.1, plan);
        true
    }

    /// Loads from what is left, from scratch: sums of differences drift.
    fn recount(&mut self, net: &Net) {
        if let (Some(far), Some(ends)) = (&self.far, &net.ends) {
            self.base.fill(0.0);
            far.load(ends, &mut self.base);
        }
        self.reload(net);
    }
}

/// The other lane of each lane's pair, or the lane itself; none where a pair has more than two.
fn twins(net: &Net) -> Vec<u16> {
    let pairs = || (0..net.ranks * net.ranks).map(|pair| net.lanes(pair));
    if net.len() > usize::from(u16::MAX) || pairs().any(|lanes| lanes.len() > 2) {
        return Vec::new();
    }
    let twin = |lanes: std::ops::Range<usize>| {
        lanes
            .clone()
            .map(move |lane| (lanes.start + lanes.end - 1 - lane) as u16)
    };
    pairs().flat_map(twin).collect()
}

/// Lanes of each resource, but for those that are found by their ends.
fn users(net: &Net, lanes: usize) -> (Vec<u32>, Vec<u32>) {
    let listed = |&lane: &usize| net.ends.is_none() || net.is_local(usize::from(net.from[lane]), lane);
    let mut start = vec![0u32; net.resources + 1];
    for lane in (0..lanes).filter(listed) {
        net.uses(lane).iter().for_each(|&r| start[usize::from(r) + 1] += 1);
    }
    for r in 0..net.resources {
        start[r + 1] += start[r];
    }
    let mut fill = start.clone();
    let mut users = vec![0u32; start[net.resources] as usize];
    for lane in (0..lanes).filter(listed) {
        for &r in net.uses(lane) {
            let at = &mut fill[usize::from(r)];
            users[*at as usize] = lane as u32;
            *at += 1;
        }
    }
    (start, users)
}

/// The largest of numbers that are not negative.
fn largest(of: &[f32]) -> f32 {
    let mut parts = [0.0f32; 8];
    let chunks = of.chunks_exact(8);
    let rest = chunks.remainder().iter().fold(0.0, |a, &b| larger(b, a));
    for chunk in chunks {
        for k in 0..8 {
            parts[k] = larger(chunk[k], parts[k]);
        }
    }
    parts.iter().fold(rest, |a, &b| larger(b, a))
}

/// A sum in eight parts: its order is fixed and a loop over vectors.
fn total(of: &[f32]) -> f32 {
    let mut parts = [0.0f32; 8];
    let chunks = of.chunks_exact(8);
    let rest: f32 = chunks.remainder().iter().sum();
    for chunk in chunks {
        for k in 0..8 {
            parts[k] += chunk[k];
        }
    }
    parts.iter().sum::<f32>() + rest
}

#[inline]
fn smaller(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

#[inline]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

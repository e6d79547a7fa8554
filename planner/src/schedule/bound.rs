//! What no all-reduce can beat on a machine, by the cost model's own figures: news has to travel to the farthest rank,
//! and the payload has to cross every cut in both directions.
//!
//! It ignores launch, stages and sums, so even a perfect schedule stays above it for small payloads. Start at
//! [`Bound::of`].

use super::edges::Edges;
use super::ir::{Delivery, Rank};

/// Ranks up to which every cut is looked at.
const EVERY_CUT_RANKS: usize = 12;

/// The two bounds of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Latency along the shortest path between the two ranks that are farthest apart, microseconds.
    pub latency_us: f64,
    /// Time for one byte of payload over the tightest cut that was looked at, microseconds.
    pub us_per_byte: f64,
}

impl Bound {
    /// The bounds of `edges`; infinite where pushes do not join all ranks.
    pub fn of(edges: &Edges) -> Self {
        let n = edges.ranks();
        let us_per_byte = cuts(n).into_iter().map(|inside| cut(edges, inside)).fold(0.0, f64::max);
        Self {
            latency_us: farthest(edges),
            us_per_byte,
        }
    }

    /// The larger of both for a payload, microseconds.
    pub fn at(&self, bytes: u64) -> f64 {
        self.latency_us.max(bytes as f64 * self.us_per_byte)
    }
}

/// Floyd and Warshall over latencies.
fn farthest(edges: &Edges) -> f64 {
    let n = edges.ranks();
    let direct = |a: Rank, b: Rank| match a == b {
        true => 0.0,
        false if edges.allows(a, b, Delivery::Push) => edges.latency_us(a, b),
        false => f64::INFINITY,
    };
    let mut far: Vec<f64> = (0..n * n).map(|at| direct(at / n, at % n)).collect();
    for via in 0..n {
        for a in 0..n {
            for b in 0..n {
                far[a * n + b] = far[a * n + b].min(far[a * n + via] + far[via * n + b]);
            }
        }
    }
    far.into_iter().fold(0.0, f64::max)
}

/// Masks of one side of each cut: all, or single ranks and runs of neighbours on large machines.
fn cuts(n: usize) -> Vec<u64> {
    if n < 2 {
        return Vec::new();
    }
    let all = u64::MAX >> (64 - n);
    if n <= EVERY_CUT_RANKS {
        return (1..all).collect();
    }
    let run = |first: usize, length: usize| (0..length).fold(0, |m, i| m | 1 << ((first + i) % n));
    (0..n)
        .flat_map(|first| (1..n).map(move |length| run(first, length)))
        .collect()
}

/// Time that one byte from `inside` to everybody else takes if all edges across work at once.
fn cut(edges: &Edges, inside: u64) -> f64 {
    let n = edges.ranks();
    let is_inside = |r: Rank| inside >> r & 1 == 1;
    let across: Vec<(Rank, Rank)> = (0..n)
        .flat_map(|a| (0..n).map(move |b| (a, b)))
        .filter(|&(a, b)| a != b && is_inside(a) && !is_inside(b) && edges.allows(a, b, Delivery::Push))
        .collect();
    let rate = |&(a, b): &(Rank, Rank)| 1.0 / edges.us_per_byte(a, b);
    // Senders' ports, then receivers': what shares a port moves at its fastest edge's rate.
    let ports = |end: &dyn Fn(&(Rank, Rank)) -> Rank| -> f64 {
        let of_rank = |r: Rank| {
            let own = || across.iter().filter(|e| end(e) == r);
            let shared = own()
                .filter(|e| edges.shares_port(e.0, e.1))
                .map(rate)
                .fold(0.0, f64::max);
            let apart: f64 = own().filter(|e| !edges.shares_port(e.0, e.1)).map(rate).sum();
            shared + apart
        };
        (0..n).map(of_rank).sum()
    };
    // Shared capacities that cover edges across for less than those edges carry by themselves; any choice is a bound.
    let mut left = across.clone();
    let mut shared = 0.0;
    for (us_per_byte, mask) in edges.resources() {
        let crosses = |e: &(Rank, Rank)| mask[e.0] >> e.1 & 1 == 1;
        let covered: f64 = left.iter().filter(|e| crosses(e)).map(rate).sum();
        if covered > 1.0 / us_per_byte {
            shared += 1.0 / us_per_byte;
            left.retain(|e| !crosses(e));
        }
    }
    shared += left.iter().map(rate).sum::<f64>();
    // One capacity alone may hold all that crosses.
    let holds_all = |mask: &Vec<u64>| across.iter().all(|e| mask[e.0] >> e.1 & 1 == 1);
    let single = edges.resources().iter().filter(|r| holds_all(&r.1)).map(|r| 1.0 / r.0);
    let most = ports(&|e| e.0).min(ports(&|e| e.1)).min(shared);
    1.0 / single.fold(most, f64::min)
}

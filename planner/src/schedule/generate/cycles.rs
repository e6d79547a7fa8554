//! Hamiltonian cycles of the usable edges, best first: all of them for small groups, a guided search beyond.
//!
//! A ring uses every edge of its cycle in every stage, so a cycle is as good as its slowest edge and its busiest shared
//! capacity. It never makes a schedule. Start at [`best`].

use crate::schedule::edges::Edges;
use crate::schedule::ir::{Delivery, Rank};

/// Largest group whose cycles are all looked at: 5,040 directed ones at most.
const EXHAUSTIVE_RANKS: usize = 8;

/// Ranks that the guided search may try to place before it gives up.
const GUIDED_STEPS: usize = 20_000;

/// Cycles that differ in what they cost and are worth a candidate.
const KEPT: usize = 3;

/// Payload that estimates are made for, bytes.
const ESTIMATE_BYTES: f64 = 128.0 * 1024.0;

/// The best few cycles with different estimates; `both` asks for edges that carry traffic both ways at once.
pub(super) fn best(edges: &Edges, both: bool) -> Vec<Vec<Rank>> {
    let n = edges.ranks();
    let mut found = if n <= EXHAUSTIVE_RANKS {
        all(edges, both)
    } else {
        guided(edges, both)
    };
    let mut costed: Vec<(f64, Vec<Rank>)> = found.drain(..).map(|c| (estimate(edges, &c, both), c)).collect();
    costed.sort_by(|a, b| a.0.total_cmp(&b.0));
    costed.dedup_by(|next, kept| (next.0 - kept.0).abs() < 1e-9);
    costed.truncate(KEPT);
    costed.into_iter().map(|(_, cycle)| cycle).collect()
}

fn joined(edges: &Edges, both: bool, a: Rank, b: Rank) -> bool {
    edges.allows(a, b, Delivery::Push) && (!both || edges.allows(b, a, Delivery::Push))
}

fn all(edges: &Edges, both: bool) -> Vec<Vec<Rank>> {
    let (mut path, mut found) = (vec![0], Vec::new());
    extend(edges, both, &mut path, 1, &mut found);
    found
}

fn extend(edges: &Edges, both: bool, path: &mut Vec<Rank>, used: u64, found: &mut Vec<Vec<Rank>>) {
    let (n, last) = (edges.ranks(), path[path.len() - 1]);
    if path.len() == n {
        // Read backwards a cycle for both ways is the same one.
        if joined(edges, both, last, 0) && (!both || n < 3 || path[1] < last) {
            found.push(path.clone());
        }
        return;
    }
    for next in 1..n {
        if used >> next & 1 == 0 && joined(edges, both, last, next) {
            path.push(next);
            extend(edges, both, path, used | 1 << next, found);
            path.pop();
        }
    }
}

/// Nearest neighbour first from a few starts, with a way back out of dead ends, then exchanges of two edges.
fn guided(edges: &Edges, both: bool) -> Vec<Vec<Rank>> {
    let n = edges.ranks();
    let mut found = Vec::new();
    for start in [0, n / 2, n - 1] {
        let (mut path, mut steps) = (vec![start], 0);
        if nearest(edges, both, &mut path, 1 << start, &mut steps) {
            improve(edges, both, &mut path);
            found.push(path);
        }
    }
    found
}

fn nearest(edges: &Edges, both: bool, path: &mut Vec<Rank>, used: u64, steps: &mut usize) -> bool {
    let (n, last) = (edges.ranks(), path[path.len() - 1]);
    if path.len() == n {
        return joined(edges, both, last, path[0]);
    }
    let mut open: Vec<(f64, Rank)> = (0..n)
        .filter(|&next| used >> next & 1 == 0 && joined(edges, both, last, next))
        .map(|next| (edges.time_us(last, next, ESTIMATE_BYTES), next))
        .collect();
    open.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    for (_, next) in open {
        *steps += 1;
        if *steps > GUIDED_STEPS {
            return false;
        }
        path.push(next);
        if nearest(edges, both, path, used | 1 << next, steps) {
            return true;
        }
        path.pop();
    }
    false
}

/// Turns stretches of the cycle round while that helps; stretches of one-way cycles stay as they are.
fn improve(edges: &Edges, both: bool, cycle: &mut [Rank]) {
    let n = cycle.len();
    let length = |cycle: &[Rank]| -> f64 {
        (0..n)
            .map(|i| {
                let (a, b) = (cycle[i], cycle[(i + 1) % n]);
                if joined(edges, both, a, b) {
                    // Squares: one slow edge holds up the whole ring.
                    edges.time_us(a, b, ESTIMATE_BYTES).powi(2)
                } else {
                    f64::INFINITY
                }
            })
            .sum()
    };
    let mut now = length(cycle);
    for _ in 0..2 {
        for i in 1..n {
            for j in i + 1..n {
                cycle[i..=j].reverse();
                let then = length(cycle);
                if then < now - 1e-9 {
                    now = then;
                } else {
                    cycle[i..=j].reverse();
                }
            }
        }
    }
}

/// What all stages of a ring take together, less what is the same for all rings.
fn estimate(edges: &Edges, cycle: &[Rank], both: bool) -> f64 {
    let n = cycle.len();
    let steps = (2 * (n - 1)) as f64;
    let ways = if both { 2.0 } else { 1.0 };
    let bytes = ESTIMATE_BYTES / (n as f64 * ways);
    let (mut latency, mut byte) = (0.0_f64, 0.0_f64);
    let mut shared = vec![0.0; edges.resources().len()];
    let mut used = Vec::with_capacity(2 * n);
    for i in 0..n {
        let (a, b) = (cycle[i], cycle[(i + 1) % n]);
        used.push((a, b));
        if both {
            used.push((b, a));
        }
    }
    for (a, b) in used {
        latency = latency.max(edges.latency_us(a, b));
        let port = if edges.shares_port(a, b) { ways } else { 1.0 };
        byte = byte.max(port * edges.us_per_byte(a, b));
        for (load, (us_per_byte, mask)) in shared.iter_mut().zip(edges.resources()) {
            if mask[a] >> b & 1 == 1 {
                *load += us_per_byte;
            }
        }
    }
    byte = shared.iter().fold(byte, |a, &b| a.max(b));
    steps * (latency + bytes * byte)
}

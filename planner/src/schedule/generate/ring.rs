//! Rings: reduce-scatter and all-gather round a Hamiltonian cycle of the usable edges, one way or both ways at once.
//!
//! Each rank talks to two neighbours only, so a ring suits machines with few links and large payloads; its stages grow
//! with the number of ranks. The cycles themselves come from `cycles`. Start at [`generate`], then [`build`].

use super::flow::Flow;
use super::{Candidate, cycles};
use crate::schedule::edges::Edges;
use crate::schedule::ir::{Rank, Schedule};

/// Largest ring: a thread keeps a value of every chunk, and a ring cuts the payload into one chunk a rank.
const MOST_RANKS: usize = 32;

/// Chunks up to which both directions are worth their registers.
const MOST_CHUNKS_BOTH_WAYS: usize = 16;

/// One- and two-directional rings over the few best cycles.
pub(super) fn generate(edges: &Edges, most: usize) -> Vec<Candidate> {
    let n = edges.ranks();
    if !(3..=MOST_RANKS).contains(&n) {
        return Vec::new();
    }
    let mut candidates = Vec::new();
    for both in [false, true] {
        if both && 2 * n > MOST_CHUNKS_BOTH_WAYS {
            continue;
        }
        let shape = if both { "ring-both-ways" } else { "ring" };
        for (number, cycle) in cycles::best(edges, both).into_iter().enumerate() {
            let name = match number {
                0 => shape.to_owned(),
                k => format!("{shape}-p{k}"),
            };
            let back: Vec<Rank> = cycle.iter().rev().copied().collect();
            let ways = if both { vec![cycle, back] } else { vec![cycle] };
            candidates.extend(build(&ways, name).map(|schedule| Candidate {
                schedule,
                shape: shape.into(),
            }));
        }
    }
    candidates.truncate(most);
    candidates
}

/// The schedule in which each directed cycle reduces and gathers its own share of the payload, or none where cycles
/// are not of one length.
pub(super) fn build(cycles: &[Vec<Rank>], name: String) -> Option<Schedule> {
    let n = cycles.first()?.len();
    if n < 2 || cycles.iter().any(|c| c.len() != n) {
        return None;
    }
    let mut flow = Flow::new(n, n * cycles.len());
    let mut totals = Vec::with_capacity(n * cycles.len());
    for (way, cycle) in cycles.iter().enumerate() {
        for start in 0..n {
            // The chunk sets out at `start` and comes round to the place before it.
            let chunk = way * n + start;
            let at = |hop: usize| cycle[(start + hop) % n];
            let mut sum = flow.values.input(at(0));
            for hop in 0..n - 1 {
                flow.send(hop, (at(hop), at(hop + 1)), chunk, sum);
                let own = flow.values.input(at(hop + 1));
                sum = flow.values.fold(&[sum, own]);
            }
            let total = flow.rounded(sum);
            for hop in n - 1..2 * n - 2 {
                flow.send(hop, (at(hop), at(hop + 1)), chunk, total);
            }
            totals.push(total);
        }
    }
    flow.finish(name, totals)
}

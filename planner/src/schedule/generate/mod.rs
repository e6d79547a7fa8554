//! Candidate schedules for a topology.
//!
//! A generator is one file and one line in `IDEAS`. Generators only emit schedules whose edges exist, but nobody
//! relies on it: the verifier looks at everything they make. They never rank across families. Start at [`generate`].

mod cycles;
mod flow;
mod fold_in;
mod islands;
mod links;
pub mod mixed_radix;
mod placement;
mod pull;
mod relay;
mod ring;
mod spanning;
mod trees;

use super::edges::Edges;
use super::ir::Schedule;

/// A schedule that nobody has verified yet, and which idea it is an instance of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The schedule.
    pub schedule: Schedule,
    /// Equal for two candidates of one topology exactly if one becomes the other by renaming ranks, up to the order of
    /// sums: the schedule's name less its placement.
    pub shape: String,
}

/// Makes at most so many candidates, the most promising first.
type Family = fn(&Edges, usize) -> Vec<Candidate>;

/// Generators that make a few candidates each, whatever the budget.
const IDEAS: &[Family] = &[
    // The peer-read baseline: one candidate at most, so it goes first.
    pull::one_shot_pull,
    // Trees before rings: every connected machine has one, so none is without a schedule.
    trees::generate,
    relay::generate,
    islands::generate,
    ring::generate,
    fold_in::generate,
];

/// At most `budget` candidates for `edges`, none for a single rank. Deterministic.
///
/// A schedule grows with the square of the number of ranks, so the budget shrinks with it beyond 8 ranks: 512 of 2,048
/// at 16 ranks, 32 at 64. Ideas with few instances take at most half of it; grids, which have a placement for every
/// order of ranks, take the rest.
pub fn generate(edges: &Edges, budget: usize) -> Vec<Candidate> {
    let n = edges.ranks();
    if !(2..=64).contains(&n) {
        return Vec::new();
    }
    let budget = if n > 8 {
        budget.saturating_mul(64) / (n * n)
    } else {
        budget
    };
    let mut candidates: Vec<Candidate> = Vec::new();
    for family in IDEAS {
        let left = budget.div_ceil(2).saturating_sub(candidates.len());
        let made = family(edges, left).into_iter();
        candidates.extend(made.filter(|c| keeps_to_peer_limit(&c.schedule, edges)).take(left));
    }
    // One-shot, two-shot, mixed-radix exchange, recursive halving and doubling, and all between them.
    candidates.extend(mixed_radix::generate(edges, budget - candidates.len()));
    candidates
}

/// Whether no rank talks to more peers than the platform lets it.
fn keeps_to_peer_limit(schedule: &Schedule, edges: &Edges) -> bool {
    let Some(most) = edges.most_peers() else { return true };
    let mut peers = vec![0_u64; schedule.ranks];
    for t in schedule.transfers() {
        peers[t.from] |= 1 << t.to;
        peers[t.to] |= 1 << t.from;
    }
    peers.iter().all(|mask| mask.count_ones() as usize <= most)
}

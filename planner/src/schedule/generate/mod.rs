//! Candidate schedules for a topology.
//!
//! A generator is one file and one line in [`FAMILIES`]. Generators only emit schedules whose edges exist, but nobody
//! relies on it: the verifier looks at everything they make. They never rank across families. Start at [`generate`].

pub mod mixed_radix;
mod placement;
mod pull;

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

/// All generators. Later ones get what earlier ones leave of the budget.
const FAMILIES: &[Family] = &[
    // The peer-read baseline: one candidate at most, so it goes first.
    pull::one_shot_pull,
    // One-shot, two-shot, mixed-radix exchange, recursive halving and doubling, and all between them.
    mixed_radix::generate,
];

/// At most `budget` candidates for `edges`, none for a single rank. Deterministic.
///
/// A schedule grows with the square of the number of ranks, so the budget shrinks with it beyond 8 ranks: 512 of 2,048
/// at 16 ranks, 32 at 64.
pub fn generate(edges: &Edges, budget: usize) -> Vec<Candidate> {
    let n = edges.ranks();
    if !(2..=64).contains(&n) {
        return Vec::new();
    }
    let budget = if n > 8 { budget.saturating_mul(64) / (n * n) } else { budget };
    let mut candidates = Vec::new();
    for family in FAMILIES {
        let left = budget.saturating_sub(candidates.len());
        candidates.extend(family(edges, left).into_iter().take(left));
    }
    candidates
}

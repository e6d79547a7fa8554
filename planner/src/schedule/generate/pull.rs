//! One-shot pull: every rank reads every peer's registered input and sums all of it.
//!
//! It is what peer-read kernels do today, so it is the baseline that others are compared with. It never pulls anything
//! but inputs. Start at [`one_shot_pull`].

use super::Candidate;
use crate::schedule::edges::Edges;
use crate::schedule::ir::{Delivery, Schedule, Stage, Transfer, Values};

/// The one candidate, if every rank can read from every other.
pub(super) fn one_shot_pull(edges: &Edges, most: usize) -> Vec<Candidate> {
    let n = edges.ranks();
    let readable = |from: usize| (0..n).all(|to| to == from || edges.allows(from, to, Delivery::Pull));
    let fits = edges.most_peers().is_none_or(|most| n - 1 <= most);
    if most == 0 || !fits || !(0..n).all(readable) {
        return Vec::new();
    }
    let mut values = Values::default();
    let inputs: Vec<_> = (0..n).map(|r| values.input(r)).collect();
    let total = values.fold(&inputs);
    // Each reader starts at its right neighbour, so that not all of them read from one rank at a time.
    let transfers = (0..n).flat_map(|to| (1..n).map(move |d| (to, (to + d) % n)));
    let transfers = transfers
        .map(|(to, from)| Transfer {
            from,
            to,
            chunk: 0,
            value: inputs[from],
        })
        .collect();
    let name = "one-shot-pull".to_owned();
    let schedule = Schedule {
        name: name.clone(),
        ranks: n,
        chunks: 1,
        delivery: Delivery::Pull,
        values: values.into_vec(),
        stages: vec![Stage { transfers }],
        outputs: vec![vec![total]; n],
    };
    vec![Candidate { schedule, shape: name }]
}

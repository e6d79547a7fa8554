//! One-shot where edges are missing: every input travels to every rank along shortest paths, whoever stands in between
//! passes it on, and all sum in one order.
//!
//! It never sums on the way, so it takes as many stages as the graph is wide and is for small groups and payloads.
//! Start at [`generate`].

use super::flow::Flow;
use super::links::Links;
use super::{Candidate, spanning};
use crate::schedule::edges::Edges;

/// Every rank receives every input, so larger groups are better served by sums on the way.
const MOST_RANKS: usize = 16;

/// The one candidate, where the graph has holes.
pub(super) fn generate(edges: &Edges, most: usize) -> Vec<Candidate> {
    let n = edges.ranks();
    let links = Links::of(edges).filter(|l| n <= MOST_RANKS && most > 0 && !l.is_complete());
    let Some(links) = links.filter(|_| n >= 3) else {
        return Vec::new();
    };
    let mut flow = Flow::new(n, 1);
    let inputs: Vec<_> = (0..n).map(|r| flow.values.input(r)).collect();
    for (source, &input) in inputs.iter().enumerate() {
        let Some(tree) = spanning::nearest(edges, &links, source) else {
            return Vec::new();
        };
        let mut stage = vec![0; n];
        for rank in tree.down_order() {
            if let Some(parent) = tree.down[rank] {
                flow.send(stage[parent], (parent, rank), 0, input);
                stage[rank] = stage[parent] + 1;
            }
        }
    }
    let total = flow.values.fold(&inputs);
    let shape = "one-shot-relay".to_owned();
    let schedule = flow.finish(shape.clone(), vec![total]);
    schedule
        .into_iter()
        .map(|schedule| Candidate {
            schedule,
            shape: shape.clone(),
        })
        .collect()
}

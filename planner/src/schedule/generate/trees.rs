//! Trees: sum up to a root, send the total down again; several edge-disjoint trees split the payload between them.
//!
//! Missing edges need no care: a tree only has usable ones, and whoever stands in between relays. On a graph with holes
//! a tree for each owner (`two-shot-relay`) does what two-shot does on a complete one. The trees themselves come from
//! `spanning`. Start at [`generate`], then [`build`].

use super::Candidate;
use super::flow::Flow;
use super::links::Links;
use super::spanning::{self, Tree};
use crate::schedule::edges::Edges;
use crate::schedule::ir::{Rank, Schedule};

/// Transfers in all: ranks of a tree differ in their parts, so each may need code of its own.
const MOST_TRANSFERS: usize = 512;

/// Ranks up to which every rank owns a chunk on a graph with holes.
const MOST_OWNERS: usize = 16;

/// Single trees of a few widths, disjoint trees of a few numbers, a tree an owner where the graph has holes.
pub(super) fn generate(edges: &Edges, most: usize) -> Vec<Candidate> {
    let n = edges.ranks();
    if n < 3 {
        return Vec::new();
    }
    let Some(links) = Links::of(edges) else {
        return one_way(edges).into_iter().take(most).collect();
    };
    let mut made: Vec<(String, Vec<Tree>)> = Vec::new();
    for fan_out in [n - 1, 4, 3, 2] {
        let tree = spanning::quickest(edges, &links, fan_out);
        let widest = tree.as_ref().map_or(0, Tree::widest);
        // A wider limit that changes nothing is the same idea.
        if let Some(tree) = tree.filter(|t| !made.iter().any(|m| m.1[0] == *t)) {
            made.push((format!("tree-{widest}"), vec![tree]));
        }
    }
    for count in [2, 3, 4] {
        if let Some(trees) = spanning::disjoint(edges, &links, count) {
            made.push((format!("trees-disjoint-{count}"), trees));
        }
    }
    if n <= MOST_OWNERS && !links.is_complete() {
        let trees: Option<Vec<Tree>> = (0..n).map(|root| spanning::nearest(edges, &links, root)).collect();
        made.extend(trees.map(|trees| ("two-shot-relay".into(), trees)));
    }
    let mut candidates: Vec<Candidate> = Vec::new();
    for (shape, trees) in made {
        if trees.len() * 2 * (n - 1) > MOST_TRANSFERS || candidates.iter().any(|c| c.shape == shape) {
            continue;
        }
        candidates.extend(build(n, &trees, shape.clone()).map(|schedule| Candidate { schedule, shape }));
    }
    candidates.truncate(most);
    candidates
}

/// Where links carry one way only: one tree up and another down, if both exist.
fn one_way(edges: &Edges) -> Option<Candidate> {
    let tree = spanning::directed(edges)?;
    let schedule = build(edges.ranks(), &[tree], "tree-one-way".into())?;
    Some(Candidate {
        schedule,
        shape: "tree-one-way".into(),
    })
}

/// One chunk a tree: up as early as children allow, down from the stage after the root has all.
pub(super) fn build(n: usize, trees: &[Tree], name: String) -> Option<Schedule> {
    let mut flow = Flow::new(n, trees.len());
    let mut totals = Vec::with_capacity(trees.len());
    for (chunk, tree) in trees.iter().enumerate() {
        let mut sums: Vec<_> = (0..n).map(|r| flow.values.input(r)).collect();
        // The stage in which a rank's own sum is complete.
        let mut ready = vec![0_usize; n];
        for rank in tree.up_order() {
            let Some(parent) = tree.up[rank] else { continue };
            flow.send(ready[rank], (rank, parent), chunk, sums[rank]);
            let operands = [sums[parent], sums[rank]];
            sums[parent] = flow.values.fold(&operands);
            ready[parent] = ready[parent].max(ready[rank] + 1);
        }
        let root: Rank = tree.root;
        let total = flow.rounded(sums[root]);
        let mut known = vec![0_usize; n];
        known[root] = ready[root];
        for rank in tree.down_order() {
            let Some(parent) = tree.down[rank] else { continue };
            flow.send(known[parent], (parent, rank), chunk, total);
            known[rank] = known[parent] + 1;
        }
        totals.push(total);
    }
    flow.finish(name, totals)
}

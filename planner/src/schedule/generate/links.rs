//! The graph that trees and relays run over: edges usable both ways, thinned where a platform limits peers.
//!
//! It never adds an edge. Start at [`Links::of`].

use crate::schedule::edges::Edges;
use crate::schedule::ir::Rank;

/// Payload that an edge's cost is taken at, bytes.
pub(super) const EDGE_BYTES: f64 = 32.0 * 1024.0;

/// Two-way edges, as a mask of neighbours a rank.
#[derive(Clone, Debug)]
pub(super) struct Links {
    /// `near[rank]`: mask of the ranks it may talk to.
    pub near: Vec<u64>,
}

impl Links {
    /// All two-way edges, or the cheapest ones within the peer limit: a spanning tree first, so that thinning does not
    /// cut the graph where it need not. `None` where they do not join all ranks.
    pub(super) fn of(edges: &Edges) -> Option<Self> {
        let n = edges.ranks();
        let all = Self {
            near: (0..n).map(|r| edges.mutual(r)).collect(),
        };
        let thinned = match edges.most_peers() {
            Some(most) if all.near.iter().any(|m| m.count_ones() as usize > most) => all.thinned(edges, most),
            _ => all,
        };
        thinned.joins_all().then_some(thinned)
    }

    /// Two-way edges `a < b`, cheapest first.
    pub(super) fn sorted(&self, edges: &Edges) -> Vec<(Rank, Rank)> {
        let n = self.near.len();
        let mut list: Vec<(f64, Rank, Rank)> = (0..n)
            .flat_map(|a| (a + 1..n).map(move |b| (a, b)))
            .filter(|&(a, b)| self.near[a] >> b & 1 == 1)
            .map(|(a, b)| (cost(edges, a, b), a, b))
            .collect();
        list.sort_by(|x, y| x.0.total_cmp(&y.0).then((x.1, x.2).cmp(&(y.1, y.2))));
        list.into_iter().map(|(_, a, b)| (a, b)).collect()
    }

    /// Neighbours of a rank, ascending.
    pub(super) fn neighbours(&self, rank: Rank) -> impl Iterator<Item = Rank> + '_ {
        (0..self.near.len()).filter(move |&b| self.near[rank] >> b & 1 == 1)
    }

    /// Whether every two ranks are neighbours.
    pub(super) fn is_complete(&self) -> bool {
        let most = self.near.len() - 1;
        self.near.iter().all(|m| m.count_ones() as usize == most)
    }

    fn thinned(&self, edges: &Edges, most: usize) -> Self {
        let n = self.near.len();
        let sorted = self.sorted(edges);
        let mut kept = Self { near: vec![0; n] };
        let mut part: Vec<usize> = (0..n).collect();
        // A tree of low degree leaves room for other edges.
        for limit in [most.min(2), most.min(4), most] {
            for &(a, b) in &sorted {
                if part[a] != part[b] && kept.has_room(a, b, limit) {
                    kept.join(a, b);
                    let (from, to) = (part[a], part[b]);
                    part.iter_mut().filter(|p| **p == from).for_each(|p| *p = to);
                }
            }
        }
        for &(a, b) in &sorted {
            if kept.near[a] >> b & 1 == 0 && kept.has_room(a, b, most) {
                kept.join(a, b);
            }
        }
        kept
    }

    fn has_room(&self, a: Rank, b: Rank, most: usize) -> bool {
        [a, b].iter().all(|&r| (self.near[r].count_ones() as usize) < most)
    }

    fn join(&mut self, a: Rank, b: Rank) {
        self.near[a] |= 1 << b;
        self.near[b] |= 1 << a;
    }

    fn joins_all(&self) -> bool {
        let (mut reached, mut open) = (1_u64, vec![0]);
        while let Some(rank) = open.pop() {
            for next in self.neighbours(rank) {
                if reached >> next & 1 == 0 {
                    reached |= 1 << next;
                    open.push(next);
                }
            }
        }
        reached.count_ones() as usize == self.near.len()
    }
}

/// What the slower direction of an edge takes for [`EDGE_BYTES`].
pub(super) fn cost(edges: &Edges, a: Rank, b: Rank) -> f64 {
    edges.time_us(a, b, EDGE_BYTES).max(edges.time_us(b, a, EDGE_BYTES))
}

//! To eight ranks: every placement depth first, refused as soon as it cannot beat the best one.
//!
//! Nothing is kept but the cost so far, so that a step is a few additions; with so few ranks that beats a cleverer bound,
//! whose upkeep costs more than the steps it saves. The first of the cheapest placements wins, which is the
//! lexicographically least. Where nothing fits it says so, and [`super::search`] finds the words for it. Start at
//! [`nearest`].

use super::problem::{BLOCKED, Problem};

/// The most ranks and slots.
pub(super) const MOST: usize = 8;

/// A link between a rank and an earlier one: what it costs for each slot of the two.
struct Pair {
    earlier: usize,
    cost: [[u32; MOST]; MOST],
}

struct Search {
    /// For each rank, its links to earlier ones.
    pairs: Vec<Vec<Pair>>,
    /// At each depth, the least that all links of the ranks still to place cost.
    rest: Vec<u32>,
    slot_of: [usize; MOST],
    best: Option<[usize; MOST]>,
    best_cost: u32,
}

/// Cost and slots of the cheapest placement; none where there is no placement.
///
/// The problem must have as many slots as ranks, at most [`MOST`].
pub(super) fn nearest(problem: &Problem) -> Option<(u32, Vec<usize>)> {
    let ranks = problem.neighbours.len();
    let mut pairs: Vec<Vec<Pair>> = Vec::with_capacity(ranks);
    let mut rest = vec![0_u32; ranks + 1];
    for (rank, list) in problem.neighbours.iter().enumerate() {
        let earlier = list.iter().filter(|n| n.rank < rank);
        let pair = earlier.map(|n| {
            rest[rank] = rest[rank].saturating_add(n.least);
            let mut cost = [[BLOCKED; MOST]; MOST];
            for (slot, row) in cost.iter_mut().enumerate().take(ranks) {
                for (other, cost) in row
                    .iter_mut()
                    .enumerate()
                    .take(ranks)
                    .filter(|(other, _)| *other != slot)
                {
                    *cost = problem.cost(n, slot, other);
                }
            }
            Pair { earlier: n.rank, cost }
        });
        pairs.push(pair.collect());
    }
    for rank in (0..ranks).rev() {
        rest[rank] = rest[rank].saturating_add(rest[rank + 1]);
    }
    let mut search = Search {
        pairs,
        rest,
        slot_of: [0; MOST],
        best: None,
        best_cost: BLOCKED,
    };
    search.descend(0, 0, 0);
    let best = search.best?;
    Some((search.best_cost, best[..ranks].to_vec()))
}

impl Search {
    fn descend(&mut self, rank: usize, cost: u32, taken: u8) {
        let ranks = self.pairs.len();
        if rank == ranks {
            (self.best, self.best_cost) = (Some(self.slot_of), cost);
            return;
        }
        for slot in 0..ranks {
            if taken & (1 << slot) != 0 {
                continue;
            }
            let links = self.pairs[rank].iter();
            let cost = links.fold(cost, |sum, pair| {
                sum.saturating_add(pair.cost[slot][self.slot_of[pair.earlier]])
            });
            // A blocked link saturates, and is as dear as no placement at all.
            if cost.saturating_add(self.rest[rank + 1]) < self.best_cost {
                self.slot_of[rank] = slot;
                self.descend(rank + 1, cost, taken | (1 << slot));
            }
        }
    }
}

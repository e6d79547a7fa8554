//! The nearest placement by depth-first branch and bound with forward checking.
//!
//! The bound is Gilmore and Lawler's, cheaply: what a rank costs towards the placed ones on its best slot, plus half of the
//! least that each link to a rank still to place can cost from there.
//! Up to [`super::EXACT_RANKS`] ranks the answer is the nearest placement, and the lexicographically least of
//! those. Above, a node limit makes it an anytime search that says whether it got to the end. No clock and no
//! randomness: the same question has the same answer everywhere. Start reading at [`best`].

use super::problem::{BLOCKED, Problem, plus};
use super::report::Reason;
use super::small;

/// A placement and what is known about it.
pub(super) struct Found {
    pub distance: u32,
    pub placement: Vec<usize>,
    pub optimal: bool,
    pub lower_bound: u32,
}

/// Finds the nearest placement within `limit` search nodes.
pub(super) fn best(problem: &Problem, limit: u64) -> Result<Found, Reason> {
    let ranks = problem.neighbours.len();
    if ranks <= small::MOST
        && problem.slots.len() == ranks
        && let Some((distance, placement)) = small::nearest(problem)
    {
        return Ok(Found {
            distance,
            placement: placement.into_iter().map(|slot| problem.slots[slot]).collect(),
            optimal: true,
            lower_bound: distance,
        });
    }
    let by_number: Vec<usize> = (0..problem.neighbours.len()).collect();
    // Below the limit everything is searched out, so plain order also gives the least placement.
    let order = if limit == u64::MAX {
        by_number.clone()
    } else {
        connected_order(problem)
    };
    let cheap_first = limit != u64::MAX;
    let floor = Search::new(problem, &order, false, BLOCKED, 0).floor_of_all();

    // A placement at the lower bound, if there is one, is found fastest by refusing everything dearer.
    let mut search = Search::new(problem, &order, cheap_first, plus(floor, 1), limit / 2);
    search.run();
    let mut spent = search.nodes;
    if search.best.is_none() {
        search = Search::new(problem, &order, cheap_first, BLOCKED, limit.saturating_sub(spent));
        search.floor = floor;
        search.run();
        spent += search.nodes;
    }
    let at_floor = search.best.is_some() && search.best_cost == floor;
    let optimal = at_floor || !search.cut_short;
    let distance = search.best_cost;
    let Some(mut placement) = search.best.take() else {
        return Err(match search.deepest {
            Some((_, a, b)) if !search.cut_short => problem.no_link(a, b).unwrap_or(Reason::GaveUp { nodes: spent }),
            _ => Reason::GaveUp { nodes: spent },
        });
    };
    if cheap_first {
        let mut least = Search::new(
            problem,
            &by_number,
            false,
            plus(distance, 1),
            limit.saturating_sub(spent),
        );
        least.first_only = true;
        least.run();
        placement = least.best.unwrap_or(placement);
    }
    let placement = placement.into_iter().map(|slot| problem.slots[slot]).collect();
    Ok(Found {
        distance,
        placement,
        optimal,
        lower_bound: if optimal { distance } else { floor },
    })
}

/// Ranks with most links to earlier ones first, so that wrong turns show early.
fn connected_order(problem: &Problem) -> Vec<usize> {
    let ranks = problem.neighbours.len();
    let mut order: Vec<usize> = Vec::new();
    let mut placed = vec![false; ranks];
    while order.len() < ranks {
        let links = |rank: usize| {
            let neighbours = &problem.neighbours[rank];
            (
                neighbours.iter().filter(|neighbour| placed[neighbour.rank]).count(),
                neighbours.len(),
            )
        };
        let next = (0..ranks)
            .filter(|&rank| !placed[rank])
            .max_by_key(|&rank| (links(rank), std::cmp::Reverse(rank)));
        let Some(next) = next else { break };
        placed[next] = true;
        order.push(next);
    }
    order
}

struct Search<'a> {
    problem: &'a Problem,
    order: &'a [usize],
    /// At depth `d`: the least that links among `order[d..]` cost wherever they are placed.
    rest: Vec<u32>,
    /// Try cheap slots first rather than slots in order.
    cheap_first: bool,
    /// Stop at the first placement.
    first_only: bool,
    /// Stop at a placement this cheap.
    floor: u32,
    nodes: u64,
    limit: u64,
    cut_short: bool,
    /// Slot of each family rank placed so far.
    slot_of: Vec<usize>,
    taken: Vec<bool>,
    best: Option<Vec<usize>>,
    /// Only what is cheaper than this is of interest.
    best_cost: u32,
    /// Depth, and the two family ranks whose links found no place, where the search got furthest.
    deepest: Option<(usize, usize, usize)>,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, order: &'a [usize], cheap_first: bool, below: u32, limit: u64) -> Self {
        let ranks = order.len();
        let mut rest = vec![0; ranks + 1];
        for depth in (0..ranks).rev() {
            let later = |rank: usize| order[depth + 1..].contains(&rank);
            let neighbours = problem.neighbours[order[depth]]
                .iter()
                .filter(|neighbour| later(neighbour.rank));
            rest[depth] = neighbours.fold(rest[depth + 1], |sum, neighbour| plus(sum, neighbour.least));
        }
        Self {
            problem,
            order,
            rest,
            cheap_first,
            first_only: false,
            floor: 0,
            nodes: 0,
            limit,
            cut_short: false,
            slot_of: vec![0; ranks],
            taken: vec![false; problem.slots.len()],
            best: None,
            best_cost: below,
            deepest: None,
        }
    }

    fn run(&mut self) {
        let slots = self.problem.slots.len();
        let costs = vec![0; self.order.len() * slots];
        let ahead = self.ahead();
        self.descend(0, 0, &costs, &ahead);
    }

    /// No placement costs less.
    fn floor_of_all(&mut self) -> u32 {
        let costs = vec![0; self.order.len() * self.problem.slots.len()];
        let ahead = self.ahead();
        // Where some rank has no slot at all, the search itself finds the words for it.
        self.bound(0, 0, &costs, &ahead).unwrap_or(self.rest[0])
    }

    /// `ahead[rank * slots + slot]`: twice the half of the least that links to ranks still to place cost from there.
    fn ahead(&self) -> Vec<u64> {
        let slots = self.problem.slots.len();
        let mut ahead = vec![0; self.order.len() * slots];
        for (rank, list) in self.problem.neighbours.iter().enumerate() {
            for neighbour in list {
                let row = &self.problem.ahead[neighbour.ahead];
                for slot in 0..slots {
                    ahead[rank * slots + slot] += wide(row[slot]);
                }
            }
        }
        ahead
    }

    /// `costs[rank * slots + slot]` is what placing `rank` there costs towards the ranks placed so far, `ahead` what it
    /// costs at least towards the others. Returns true when the search is over.
    fn descend(&mut self, depth: usize, cost: u32, costs: &[u32], ahead: &[u64]) -> bool {
        let Some(&rank) = self.order.get(depth) else {
            self.best = Some(self.slot_of.clone());
            self.best_cost = cost;
            return self.first_only || cost <= self.floor;
        };
        let slots = self.problem.slots.len();
        let row = &costs[rank * slots..][..slots];
        let mut choices: Vec<usize> = (0..slots)
            .filter(|&slot| !self.taken[slot] && row[slot] != BLOCKED)
            .collect();
        if self.cheap_first {
            choices.sort_by_key(|&slot| (2 * wide(row[slot]) + ahead[rank * slots + slot], slot));
        }
        // Once placed, its links are part of the costs and no longer ahead of anyone.
        let mut ahead = ahead.to_vec();
        for neighbour in &self.problem.neighbours[rank] {
            // Links lead both ways, so the neighbour knows this rank.
            let back = self.problem.neighbours[neighbour.rank].iter().find(|n| n.rank == rank);
            let Some(back) = back else { continue };
            let row = &self.problem.ahead[back.ahead];
            for (entry, least) in ahead[neighbour.rank * slots..][..slots].iter_mut().zip(row) {
                *entry -= wide(*least);
            }
        }
        for slot in choices {
            if self.nodes == self.limit {
                self.cut_short = true;
                return true;
            }
            self.nodes += 1;
            let so_far = plus(cost, row[slot]);
            if plus(so_far, self.rest[depth]) >= self.best_cost {
                continue;
            }
            let mut next = costs.to_vec();
            for neighbour in &self.problem.neighbours[rank] {
                for other in 0..slots {
                    let entry = &mut next[neighbour.rank * slots + other];
                    *entry = plus(*entry, self.problem.cost(neighbour, slot, other));
                }
            }
            self.slot_of[rank] = slot;
            self.taken[slot] = true;
            let over =
                self.may_improve(depth + 1, so_far, &next, &ahead) && self.descend(depth + 1, so_far, &next, &ahead);
            self.taken[slot] = false;
            if over {
                return true;
            }
        }
        false
    }

    /// Whether every rank still to place has a slot left, and all together can stay below the best.
    fn may_improve(&mut self, depth: usize, cost: u32, costs: &[u32], ahead: &[u64]) -> bool {
        match self.bound(depth, cost, costs, ahead) {
            Ok(bound) => bound < self.best_cost,
            Err(rank) => {
                self.note_dead_end(depth, rank);
                false
            }
        }
    }

    /// The least that any placement from here on costs, or the rank that no slot is left for.
    fn bound(&self, depth: usize, cost: u32, costs: &[u32], ahead: &[u64]) -> Result<u32, usize> {
        let slots = self.problem.slots.len();
        let left = &self.order[depth..];
        let (mut simple, mut twice) = (plus(cost, self.rest[depth.min(self.rest.len() - 1)]), 0_u64);
        let mut least_of = Vec::with_capacity(left.len());
        let free: Vec<usize> = (0..slots).filter(|&slot| !self.taken[slot]).collect();
        for &rank in left {
            let (row, far) = (&costs[rank * slots..][..slots], &ahead[rank * slots..][..slots]);
            let near = free.iter().map(|&slot| row[slot]).min().unwrap_or(BLOCKED);
            if near == BLOCKED {
                return Err(rank);
            }
            simple = plus(simple, near);
            let least = free
                .iter()
                .map(|&slot| 2 * wide(row[slot]) + far[slot])
                .min()
                .unwrap_or(0);
            if least >= wide(BLOCKED) {
                return Err(rank);
            }
            twice += least;
            least_of.push(least);
        }
        // Where every slot must be taken, what the best choices leave unpaid for a slot is owed as well.
        if free.len() == left.len() {
            for &slot in &free {
                let over = left.iter().zip(&least_of).map(|(&rank, least)| {
                    let at = rank * slots + slot;
                    2 * wide(costs[at]) + ahead[at] - least
                });
                let over = over.min().unwrap_or(0);
                if over >= wide(BLOCKED) / 2 {
                    return Err(left[0]);
                }
                twice += over;
            }
        }
        let whole = u64::from(cost) + twice.div_ceil(2);
        Ok(simple.max(u32::try_from(whole).unwrap_or(BLOCKED)))
    }

    fn note_dead_end(&mut self, depth: usize, rank: usize) {
        if self.deepest.is_some_and(|(deepest, ..)| deepest >= depth) {
            return;
        }
        let placed = &self.order[..depth];
        let list = &self.problem.neighbours[rank];
        let neighbour = (list.iter().rev().find(|neighbour| placed.contains(&neighbour.rank))).or(list.first());
        self.deepest = neighbour
            .map(|neighbour| (depth, rank, neighbour.rank))
            .or(self.deepest);
    }
}

/// A cost for sums that are also taken apart again: blocked ones must not saturate.
fn wide(cost: u32) -> u64 {
    if cost == BLOCKED { 1 << 40 } else { u64::from(cost) }
}

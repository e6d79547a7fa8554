//! Which rank stands where on a grid: all ways up to symmetry for up to 8 ranks, a guided handful beyond.
//!
//! Renaming the coordinates of one axis changes the order of sums and nothing else, so placements that differ by that
//! are one. That group moves every point to every other, so rank 0 may stand at the origin and each axis through the
//! origin ascend. Placements that a symmetry of the machine turns into each other are one, too. It never looks at a schedule: estimates come from each axis's slowest edge and busiest port. Start at
//! [`search`].

use super::mixed_radix::{Grid, Mode, Shape};
use crate::schedule::edges::Edges;
use crate::schedule::ir::{Delivery, Rank};
use crate::schedule::symmetry::Symmetry;

/// Largest group whose placements are all looked at.
const EXHAUSTIVE_RANKS: usize = 8;

/// Ranks that a guided search may try to place before it gives up on a graph with holes.
const GUIDED_STEPS: usize = 20_000;

/// Payload that estimates are made for, bytes: where latency and bandwidth both matter.
const ESTIMATE_BYTES: f64 = 32.0 * 1024.0;

/// A placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// 0 where position and rank agree, else a number that is unique for the grid's factors.
    pub number: usize,
    /// The rank on each position.
    pub ranks: Vec<Rank>,
}

/// What working along one axis costs: the slowest edge's latency, and microseconds for one byte to each other on the
/// line over the busiest edge, port or shared capacity.
#[derive(Clone, Copy, Debug, Default)]
struct AxisCost {
    latency_us: f64,
    us_per_byte: f64,
}

/// A placement and what each axis costs.
type Costed = (Placed, Vec<AxisCost>);

/// Feasible placements of each shape, best estimate first; shapes by their best one, one-shot ahead of all.
pub(super) fn search<'a>(edges: &Edges, shapes: &'a [Shape]) -> Vec<(&'a Shape, Vec<Placed>)> {
    let mut found: Vec<(f64, &Shape, Vec<Placed>)> = Vec::new();
    let mut known: Vec<(Vec<usize>, Vec<Costed>)> = Vec::new();
    let symmetry = Symmetry::of(edges);
    for shape in shapes {
        let factors = shape.factors();
        let at = match known.iter().position(|k| k.0 == factors) {
            Some(at) => at,
            None => {
                let placements = placements(edges, &symmetry, &factors);
                known.push((factors, placements));
                known.len() - 1
            }
        };
        let mut ranked: Vec<(f64, &Placed)> = known[at].1.iter().map(|(p, axes)| (estimate(shape, axes), p)).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.number.cmp(&b.1.number)));
        if let Some(best) = ranked.first() {
            let first = shape.0.len() == 1 && shape.0[0].1 == Mode::Replicate;
            let key = if first { f64::NEG_INFINITY } else { best.0 };
            found.push((key, shape, ranked.into_iter().map(|r| r.1.clone()).collect()));
        }
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found.into_iter().map(|(_, shape, placed)| (shape, placed)).collect()
}

fn placements(edges: &Edges, symmetry: &Symmetry, factors: &[usize]) -> Vec<Costed> {
    let grid = Grid::new(factors);
    let n = edges.ranks();
    let degree: usize = factors.iter().map(|f| f - 1).sum();
    if edges.most_peers().is_some_and(|most| degree > most) {
        return Vec::new();
    }
    let lists = if n <= EXHAUSTIVE_RANKS {
        exhaustive(edges, factors, &grid)
    } else {
        guided(edges, factors, &grid)
    };
    let lists = symmetry.representatives(lists, |placement| canonical(factors, &grid, placement));
    let identity: Vec<Rank> = (0..n).collect();
    // The identity comes first in both lists, if at all.
    let shift = usize::from(lists.first() != Some(&identity));
    let number = |at: usize| at + shift;
    let placed = lists.into_iter().enumerate().map(|(at, ranks)| Placed {
        number: number(at),
        ranks,
    });
    placed
        .map(|p| {
            let axes = axis_costs(edges, factors.len(), &grid, &p.ranks);
            (p, axes)
        })
        .collect()
}

/// The placement that differs in coordinates' names only and has rank 0 at the origin and each axis ascending.
fn canonical(factors: &[usize], grid: &Grid<'_>, placement: Vec<Rank>) -> Vec<Rank> {
    let origin = placement.iter().position(|&r| r == 0).unwrap_or(0);
    // For each axis: which coordinate of the placement stands at each coordinate of the result.
    let order: Vec<Vec<usize>> = factors
        .iter()
        .enumerate()
        .map(|(axis, &f)| {
            let mut order: Vec<usize> = (0..f).collect();
            order.sort_by_key(|&a| placement[grid.moved(origin, axis, a)]);
            order
        })
        .collect();
    let from = |p: usize| {
        let axes = order.iter().enumerate();
        axes.fold(p, |at, (axis, order)| {
            grid.moved(at, axis, order[grid.coordinate(p, axis)])
        })
    };
    (0..placement.len()).map(|p| placement[from(p)]).collect()
}

/// All placements whose edges exist, in lexicographic order.
fn exhaustive(edges: &Edges, factors: &[usize], grid: &Grid<'_>) -> Vec<Vec<Rank>> {
    let n = edges.ranks();
    let order: Vec<usize> = (0..n).collect();
    let mut filling = Filling::new(edges, factors, grid, &order);
    // On an axis through the origin the rank before must be smaller.
    for (axis, &f) in factors.iter().enumerate() {
        for a in 2..f {
            filling.after[grid.moved(0, axis, a)] = Some(grid.moved(0, axis, a - 1));
        }
    }
    filling.placement[0] = 0;
    filling.used = 1;
    let mut found = Vec::new();
    filling.all(1, &mut found);
    found
}

/// A few placements with near ranks on one line, from several starts, with the first or the last axis filled first.
fn guided(edges: &Edges, factors: &[usize], grid: &Grid<'_>) -> Vec<Vec<Rank>> {
    let n = edges.ranks();
    let forward: Vec<usize> = (0..n).collect();
    let reversed_factors: Vec<usize> = factors.iter().rev().copied().collect();
    let reversed_grid = Grid::new(&reversed_factors);
    let mirror = |p: usize| {
        let axes = factors.len();
        (0..axes).fold(0, |to, a| grid.moved(to, axes - 1 - a, reversed_grid.coordinate(p, a)))
    };
    let backward: Vec<usize> = (0..n).map(mirror).collect();
    let mut found: Vec<Vec<Rank>> = Vec::new();
    let identity = forward.clone();
    let fits = (0..n).all(|p| {
        let on_lines = (0..factors.len()).flat_map(|axis| grid.others(p, axis).collect::<Vec<_>>());
        on_lines.into_iter().all(|q| edges.allows(p, q, Delivery::Push))
    });
    if fits {
        found.push(identity);
    }
    for start in [0, n / 2, n - 1] {
        for order in [&forward, &backward] {
            let mut filling = Filling::new(edges, factors, grid, order);
            filling.placement[order[0]] = start;
            filling.used = 1 << start;
            if filling.nearest_first(1) && !found.contains(&filling.placement) {
                found.push(filling.placement);
            }
        }
    }
    found
}

/// Positions being filled in a given order, with holes of the graph respected.
struct Filling<'a> {
    edges: &'a Edges,
    order: &'a [usize],
    mutual: Vec<u64>,
    /// For each step, the earlier positions that share a line with the position filled in it.
    neighbours: Vec<Vec<usize>>,
    /// `after[position]`: the position that must hold a smaller rank.
    after: Vec<Option<usize>>,
    placement: Vec<Rank>,
    used: u64,
    steps: usize,
}

impl<'a> Filling<'a> {
    fn new(edges: &'a Edges, factors: &[usize], grid: &Grid<'_>, order: &'a [usize]) -> Self {
        let n = edges.ranks();
        let neighbours = |step: usize| {
            let share = |&q: &usize| {
                let differs = |axis: &usize| grid.coordinate(order[step], *axis) != grid.coordinate(q, *axis);
                (0..factors.len()).filter(differs).count() == 1
            };
            order[..step].iter().copied().filter(share).collect()
        };
        Self {
            edges,
            order,
            mutual: (0..n).map(|r| edges.mutual(r)).collect(),
            neighbours: (0..n).map(neighbours).collect(),
            after: vec![None; n],
            placement: vec![0; n],
            used: 0,
            steps: 0,
        }
    }

    fn free(&self, step: usize) -> u64 {
        let all = u64::MAX >> (64 - self.edges.ranks());
        let near = self.neighbours[step]
            .iter()
            .fold(all & !self.used, |m, &q| m & self.mutual[self.placement[q]]);
        match self.after[self.order[step]] {
            Some(q) => near & !(u64::MAX >> (63 - self.placement[q])),
            None => near,
        }
    }

    fn all(&mut self, step: usize, found: &mut Vec<Vec<Rank>>) {
        if step == self.order.len() {
            found.push(self.placement.clone());
            return;
        }
        let mut free = self.free(step);
        while free != 0 {
            let rank = free.trailing_zeros() as usize;
            free &= free - 1;
            self.put(step, rank);
            self.all(step + 1, found);
            self.used &= !(1 << rank);
        }
    }

    /// Fills the rest with the nearest free rank first, and goes back where that leads nowhere.
    fn nearest_first(&mut self, step: usize) -> bool {
        if step == self.order.len() {
            return true;
        }
        let free = self.free(step);
        let mut ranks: Vec<(f64, Rank)> = (0..self.edges.ranks())
            .filter(|r| free >> r & 1 == 1)
            .map(|r| {
                let near = self.neighbours[step].iter().map(|&q| self.placement[q]);
                let cost = |q| self.edges.latency_us(q, r) + ESTIMATE_BYTES * self.edges.us_per_byte(q, r);
                (near.map(cost).sum(), r)
            })
            .collect();
        ranks.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (_, rank) in ranks {
            self.steps += 1;
            if self.steps > GUIDED_STEPS {
                return false;
            }
            self.put(step, rank);
            if self.nearest_first(step + 1) {
                return true;
            }
            self.used &= !(1 << rank);
        }
        false
    }

    fn put(&mut self, step: usize, rank: Rank) {
        self.placement[self.order[step]] = rank;
        self.used |= 1 << rank;
    }
}

fn axis_costs(edges: &Edges, axes: usize, grid: &Grid<'_>, placement: &[Rank]) -> Vec<AxisCost> {
    let n = placement.len();
    let mut ingress = vec![0.0; n];
    (0..axes)
        .map(|axis| {
            let mut cost = AxisCost::default();
            let mut shared = vec![0.0; edges.resources().len()];
            ingress.fill(0.0);
            for position in 0..n {
                let from = placement[position];
                let mut egress = 0.0;
                for other in grid.others(position, axis) {
                    let to = placement[other];
                    let byte = edges.us_per_byte(from, to);
                    cost.latency_us = cost.latency_us.max(edges.latency_us(from, to));
                    cost.us_per_byte = cost.us_per_byte.max(byte);
                    if edges.shares_port(from, to) {
                        egress += byte;
                        ingress[to] += byte;
                    }
                    for (load, (us_per_byte, mask)) in shared.iter_mut().zip(edges.resources()) {
                        if mask[from] >> to & 1 == 1 {
                            *load += us_per_byte;
                        }
                    }
                }
                cost.us_per_byte = cost.us_per_byte.max(egress);
            }
            cost.us_per_byte = ingress.iter().chain(&shared).fold(cost.us_per_byte, |a, &b| a.max(b));
            cost
        })
        .collect()
}

fn estimate(shape: &Shape, axes: &[AxisCost]) -> f64 {
    let mut live = ESTIMATE_BYTES;
    let mut total = 0.0;
    for (&(f, mode), axis) in shape.0.iter().zip(axes) {
        match mode {
            Mode::Replicate => total += axis.latency_us + live * axis.us_per_byte,
            Mode::Scatter => {
                live /= f as f64;
                // The gather stage that undoes it costs the same again.
                total += 2.0 * (axis.latency_us + live * axis.us_per_byte);
            }
        }
    }
    total
}

//! Symmetries of a machine as schedules see it: renamings of ranks that change no figure and no capability.
//!
//! Two placements that differ by one are one candidate. Every renaming given out has been checked edge by edge and
//! capacity by capacity; one that is missed (the search has a limit) costs time and no schedule. Start at
//! [`Symmetry::of`].

use super::edges::Edges;
use super::ir::{Delivery, Rank};
use std::collections::{BTreeMap, HashMap};

/// Ranks that one search may try to place.
const STEPS: usize = 20_000;

/// Renamings that generate all that were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symmetry {
    ranks: usize,
    generators: Vec<Vec<Rank>>,
}

impl Symmetry {
    /// Searches the renamings of `edges`, from the last rank to the first: those that keep the ranks before a rank in
    /// place and move it, one for each place that it can move to and that known ones do not reach.
    pub fn of(edges: &Edges) -> Self {
        let ranks = edges.ranks();
        let labels = labels(edges);
        let mut found = Self {
            ranks,
            generators: Vec::new(),
        };
        for fixed in (0..ranks).rev() {
            for image in fixed + 1..ranks {
                if found.orbit(fixed).contains(&image) {
                    continue;
                }
                let mut search = Search {
                    edges,
                    labels: &labels,
                    image: (0..fixed).collect(),
                    steps: 0,
                };
                if search.may_stand(image) && search.extend(Some(image)) {
                    found.generators.push(search.image);
                }
            }
        }
        found
    }

    /// Renamings `new_rank[rank]` that generate all others.
    pub fn generators(&self) -> &[Vec<Rank>] {
        &self.generators
    }

    /// How many renamings there are, the identity included; saturates.
    pub fn order(&self) -> u64 {
        let keeps = |g: &&Vec<Rank>, first: usize| (0..first).all(|r| g[r] == r);
        (0..self.ranks)
            .map(|first| {
                let of_level: Vec<_> = self.generators.iter().filter(|g| keeps(g, first)).collect();
                orbit(first, &of_level).len() as u64
            })
            .fold(1, u64::saturating_mul)
    }

    /// One of each set of `items` that renamings turn into each other, the first of its set; `canon` undoes what makes
    /// two items one for other reasons, and gives items as `items` has them.
    pub(super) fn representatives(
        &self,
        items: Vec<Vec<Rank>>,
        canon: impl Fn(Vec<Rank>) -> Vec<Rank>,
    ) -> Vec<Vec<Rank>> {
        if self.generators.is_empty() {
            return items;
        }
        let place: HashMap<&[Rank], usize> = items.iter().enumerate().map(|(i, p)| (p.as_slice(), i)).collect();
        let mut seen = vec![false; items.len()];
        let mut kept = Vec::new();
        for first in 0..items.len() {
            if std::mem::replace(&mut seen[first], true) {
                continue;
            }
            kept.push(first);
            let mut open = vec![first];
            while let Some(at) = open.pop() {
                for g in &self.generators {
                    let renamed = canon(items[at].iter().map(|&r| g[r]).collect());
                    if let Some(&next) = place.get(renamed.as_slice())
                        && !std::mem::replace(&mut seen[next], true)
                    {
                        open.push(next);
                    }
                }
            }
        }
        kept.into_iter().map(|i| items[i].clone()).collect()
    }

    fn orbit(&self, rank: Rank) -> Vec<Rank> {
        let keeps = |g: &&Vec<Rank>| (0..rank).all(|r| g[r] == r);
        orbit(rank, &self.generators.iter().filter(keeps).collect::<Vec<_>>())
    }
}

fn orbit(rank: Rank, generators: &[&Vec<Rank>]) -> Vec<Rank> {
    let (mut orbit, mut at) = (vec![rank], 0);
    while at < orbit.len() {
        for g in generators {
            let next = g[orbit[at]];
            if !orbit.contains(&next) {
                orbit.push(next);
            }
        }
        at += 1;
    }
    orbit
}

/// Whether `new_rank` changes nothing: every edge's figures and capabilities, and every shared capacity.
pub fn is_symmetry(edges: &Edges, new_rank: &[Rank]) -> bool {
    let n = edges.ranks();
    let mut sorted = new_rank.to_vec();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..n) {
        return false;
    }
    let same = |a: Rank, b: Rank| label(edges, a, b) == label(edges, new_rank[a], new_rank[b]);
    (0..n).all(|a| (0..n).all(|b| a == b || same(a, b))) && keeps_capacities(edges, new_rank)
}

type Label = (bool, bool, bool, u64, u64, Vec<u64>);

fn label(edges: &Edges, a: Rank, b: Rank) -> Label {
    let crossed = edges.resources().iter().filter(|(_, mask)| mask[a] >> b & 1 == 1);
    let mut crossed: Vec<u64> = crossed.map(|(us_per_byte, _)| us_per_byte.to_bits()).collect();
    crossed.sort_unstable();
    (
        edges.allows(a, b, Delivery::Push),
        edges.allows(a, b, Delivery::Pull),
        edges.shares_port(a, b),
        edges.latency_us(a, b).to_bits(),
        edges.us_per_byte(a, b).to_bits(),
        crossed,
    )
}

/// A small number for each ordered pair, equal where labels are.
fn labels(edges: &Edges) -> Vec<u32> {
    let n = edges.ranks();
    let mut known: BTreeMap<Label, u32> = BTreeMap::new();
    let mut labels = Vec::with_capacity(n * n);
    for a in 0..n {
        for b in 0..n {
            let next = known.len() as u32 + 1;
            labels.push(if a == b {
                0
            } else {
                *known.entry(label(edges, a, b)).or_insert(next)
            });
        }
    }
    labels
}

fn keeps_capacities(edges: &Edges, new_rank: &[Rank]) -> bool {
    let n = edges.ranks();
    let all = || edges.resources().iter();
    let moved = all().map(|(us, mask)| {
        let mut to = vec![0_u64; n];
        for a in 0..n {
            for b in (0..n).filter(|&b| mask[a] >> b & 1 == 1) {
                to[new_rank[a]] |= 1 << new_rank[b];
            }
        }
        (us.to_bits(), to)
    });
    let mut moved: Vec<(u64, Vec<u64>)> = moved.collect();
    let mut own: Vec<(u64, Vec<u64>)> = all().map(|(us, mask)| (us.to_bits(), mask.clone())).collect();
    moved.sort();
    own.sort();
    moved == own
}

struct Search<'a> {
    edges: &'a Edges,
    labels: &'a [u32],
    /// Images of the first ranks.
    image: Vec<Rank>,
    steps: usize,
}

impl Search<'_> {
    /// Whether the next rank may be renamed `to`, as far as the ranks before it can say.
    fn may_stand(&self, to: Rank) -> bool {
        let (n, next) = (self.edges.ranks(), self.image.len());
        !self.image.contains(&to)
            && self.image.iter().enumerate().all(|(rank, &image)| {
                self.labels[rank * n + next] == self.labels[image * n + to]
                    && self.labels[next * n + rank] == self.labels[to * n + image]
            })
    }

    fn extend(&mut self, first: Option<Rank>) -> bool {
        let n = self.edges.ranks();
        if self.image.len() == n {
            return is_symmetry(self.edges, &self.image);
        }
        let choices: Vec<Rank> = match first {
            Some(to) => vec![to],
            None => (0..n).collect(),
        };
        for to in choices {
            if !self.may_stand(to) {
                continue;
            }
            self.steps += 1;
            if self.steps > STEPS {
                return false;
            }
            self.image.push(to);
            if self.extend(None) {
                return true;
            }
            self.image.pop();
        }
        false
    }
}

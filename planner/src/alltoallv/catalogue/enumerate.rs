//! Every maximal family of a template up to symmetry, by depth first search over its lane types.
//!
//! A family says how many lanes of each type are under way at once. It is maximal if, with the lanes below one switch filled
//! in, no lane of any type can be added; others are parts of maximal ones and need no entry. Of families that exchanges of
//! groups turn into each other only one is looked for: the one whose counts, read in the order of types, are greatest. The
//! search is exact: where it would grow past its limits it says so and returns nothing. Start reading at [`representatives`].

use std::cmp::Ordering;
use std::fmt;

use super::symmetry::Symmetry;
use super::template::{OUTSIDE, Template};

/// Nodes of the search after which a template is refused.
pub const MAX_NODES: u64 = 1_000_000;
/// Families after which a template is refused.
pub const MAX_FAMILIES: usize = 1 << 16;

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// One maximal family of each orbit, in no order, as [`Template::family`] makes them.
    pub families: Vec<u128>,
    /// Nodes of the search.
    pub nodes: u64,
}

/// The search grew past a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    /// Families found until then.
    pub families: usize,
    /// Nodes visited until then.
    pub nodes: u64,
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} orbits of families after {} steps of the search: a catalogue holds at most {MAX_FAMILIES} families and searches {MAX_NODES} steps",
            self.families, self.nodes
        )
    }
}

/// One maximal family of each orbit.
///
/// # Errors
/// More than [`MAX_FAMILIES`] families or [`MAX_NODES`] steps.
pub fn representatives(template: &Template, symmetry: &Symmetry) -> Result<Found, TooMany> {
    let mut search = Search::new(template, symmetry);
    search.visit(0, 0, 0)?;
    Ok(search.found)
}

/// One lane type as the search sees it.
struct Step {
    from: usize,
    to: usize,
    copies: u8,
    first: u8,
    /// Its resources that can be full, as a mask.
    mask: u128,
    /// Those that carry several lanes, to be counted.
    counted: Vec<usize>,
    /// Of the types from here on: resources that they use, and lanes they could add at each end.
    later: u128,
    later_out: Vec<i16>,
    later_in: Vec<i16>,
}

/// An exchange that agrees with the family in the counts of this many types.
#[derive(Clone, Copy)]
struct Tied {
    exchange: usize,
    equal: usize,
}

struct Search {
    steps: Vec<Step>,
    /// Per group and, last, the outside: ranks without a lane out, without a lane in.
    out: Vec<i16>,
    into: Vec<i16>,
    size: Vec<i16>,
    /// Exclusive resources in use, others when all their lanes are.
    full: u128,
    used: Vec<u32>,
    capacity: Vec<u32>,
    /// Types with room left behind, in the order of the search.
    skipped: Vec<usize>,
    /// Lanes of each type so far.
    counts: Vec<u8>,
    /// For each exchange but the first, the type that goes to each type.
    sources: Vec<Vec<u8>>,
    /// Exchanges that make nothing greater or less so far, one frame for each step on the way here.
    tied: Vec<Tied>,
    found: Found,
}

impl Search {
    fn new(template: &Template, symmetry: &Symmetry) -> Self {
        let groups = template.sizes.len();
        let end = |g: u8| if g == OUTSIDE { groups } else { usize::from(g) };
        // Masks begin behind the ports of the ranks, which no two lanes of a family compete for.
        let ports = 2 * template.sizes.iter().map(|&n| usize::from(n)).sum::<usize>();
        let mut steps: Vec<Step> = Vec::new();
        for (t, lane) in template.types.iter().enumerate() {
            let bounded = lane
                .mids
                .iter()
                .map(|&id| usize::from(id))
                .filter(|&id| template.capacity[id].is_some());
            let bounded: Vec<usize> = bounded.collect();
            steps.push(Step {
                from: end(lane.from),
                to: end(lane.to),
                copies: lane.copies,
                first: template.bits[t],
                mask: bounded.iter().fold(0, |mask, id| mask | 1 << (id - ports)),
                counted: (bounded.into_iter())
                    .filter(|&id| template.capacity[id] != Some(1))
                    .map(|id| id - ports)
                    .collect(),
                later: 0,
                later_out: vec![0; groups + 1],
                later_in: vec![0; groups + 1],
            });
        }
        let (mut later, mut later_out, mut later_in) = (0, vec![0; groups + 1], vec![0; groups + 1]);
        for step in steps.iter_mut().rev() {
            later |= step.mask;
            later_out[step.from] += i16::from(step.copies);
            later_in[step.to] += i16::from(step.copies);
            (step.later, step.later_out, step.later_in) = (later, later_out.clone(), later_in.clone());
        }
        let mut size: Vec<i16> = template.sizes.iter().map(|&n| i16::from(n)).collect();
        size.push(i16::MAX / 2);
        Self {
            steps,
            out: size.clone(),
            into: size.clone(),
            size,
            full: 0,
            used: vec![0; template.capacity.len() - ports],
            capacity: template.capacity[ports..]
                .iter()
                .map(|c| c.unwrap_or(u32::MAX))
                .collect(),
            skipped: Vec::new(),
            counts: vec![0; template.types.len()],
            sources: symmetry.types.iter().skip(1).map(|types| inverse(types)).collect(),
            tied: (0..symmetry.types.len() - 1)
                .map(|exchange| Tied { exchange, equal: 0 })
                .collect(),
            found: Found::default(),
        }
    }

    fn visit(&mut self, at: usize, family: u128, frame: usize) -> Result<(), TooMany> {
        self.found.nodes += 1;
        if self.found.nodes > MAX_NODES || self.found.families.len() > MAX_FAMILIES {
            return Err(TooMany {
                families: self.found.families.len(),
                nodes: self.found.nodes,
            });
        }
        let own = self.tied.len();
        let result = if self.beaten(at, frame) || self.dead(at) {
            Ok(())
        } else {
            self.branch(at, family, own)
        };
        self.tied.truncate(own);
        result
    }

    fn branch(&mut self, at: usize, family: u128, frame: usize) -> Result<(), TooMany> {
        if at == self.steps.len() {
            self.found.families.push(family);
            return Ok(());
        }
        // Lanes of one type are all alike: take none, one, two, ...
        let mut taken = 0;
        while taken < self.steps[at].copies && self.fits(at) {
            self.skipped.push(at);
            self.counts[at] = taken;
            let next = family | (u128::MAX >> (127 - u32::from(taken)) >> 1) << self.steps[at].first;
            self.visit(at + 1, next, frame)?;
            self.skipped.pop();
            self.take(at);
            taken += 1;
        }
        self.counts[at] = taken;
        let ones = if taken == 0 {
            0
        } else {
            u128::MAX >> (128 - u32::from(taken))
        };
        let result = self.visit(at + 1, family | ones << self.steps[at].first, frame);
        (0..taken).for_each(|_| self.give(at));
        result
    }

    /// Whether one more lane of a type fits, whatever comes later.
    fn fits(&self, at: usize) -> bool {
        let step = &self.steps[at];
        self.full & step.mask == 0 && self.out[step.from] > 0 && self.into[step.to] > 0
    }

    fn take(&mut self, at: usize) {
        let step = &self.steps[at];
        self.out[step.from] -= 1;
        self.into[step.to] -= 1;
        self.full |= step.mask;
        for &id in &step.counted {
            self.used[id] += 1;
            if self.used[id] < self.capacity[id] {
                self.full &= !(1 << id);
            }
        }
    }

    fn give(&mut self, at: usize) {
        let step = &self.steps[at];
        self.out[step.from] += 1;
        self.into[step.to] += 1;
        self.full &= !step.mask;
        for &id in &step.counted {
            self.used[id] -= 1;
        }
    }

    /// Whether some exchange makes a family with greater counts of every family below: that one is found elsewhere.
    ///
    /// Of the exchanges in `tied` from `frame` on, those that are still undecided are added behind.
    fn beaten(&mut self, at: usize, frame: usize) -> bool {
        let end = self.tied.len();
        for i in frame..end {
            let Tied { exchange, mut equal } = self.tied[i];
            let source = &self.sources[exchange];
            let decided = loop {
                if equal >= at {
                    break None;
                }
                let from = usize::from(source[equal]);
                if from >= at {
                    break None;
                }
                match self.counts[from].cmp(&self.counts[equal]) {
                    Ordering::Greater => return true,
                    Ordering::Less => break Some(()),
                    Ordering::Equal => equal += 1,
                }
            };
            if decided.is_none() {
                self.tied.push(Tied { exchange, equal });
            }
        }
        false
    }

    /// Whether some lane that was left out fits whatever the types from `at` on do, so that nothing maximal lies below.
    ///
    /// Lanes below a switch take as many ranks as have neither an outgoing nor an incoming lane; so after them a group has a
    /// free sender only if more lanes go in than out, and a free receiver only if more go out than in.
    fn dead(&self, at: usize) -> bool {
        let outside = self.size.len() - 1;
        let (later, step) = match self.steps.get(at) {
            Some(step) => (step.later, Some(step)),
            None => (0, None),
        };
        let most = |of: fn(&Step) -> &Vec<i16>, g: usize| step.map_or(0, |step| of(step)[g]);
        self.skipped.iter().any(|&s| {
            let skipped = &self.steps[s];
            // Ranks that send less those that receive.
            let surplus = |g: usize| self.into[g] - self.out[g];
            self.full & skipped.mask == 0
                && (later & skipped.mask == 0)
                && (skipped.from == outside || surplus(skipped.from) + most(|s| &s.later_out, skipped.from) < 0)
                && (skipped.to == outside || surplus(skipped.to) - most(|s| &s.later_in, skipped.to) > 0)
        })
    }
}

/// The type that goes to each type.
fn inverse(types: &[u8]) -> Vec<u8> {
    let mut inverse = vec![0; types.len()];
    types
        .iter()
        .enumerate()
        .for_each(|(from, &to)| inverse[usize::from(to)] = from as u8);
    inverse
}

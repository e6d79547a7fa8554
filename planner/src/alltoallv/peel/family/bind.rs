//! Ranks for the lanes of a family: alternate assignment.
//!
//! With destinations fixed each group's sources are assigned at best, then the other way round, until nothing is gained. The
//! sum of weights never falls. Start at [`Binder::bind`].

use super::assign::Assigner;
use crate::alltoallv::net::Net;

/// Rounds after which an assignment stays as it is.
const ROUNDS: usize = 4;

/// A lane of a family: from group to group by a class of paths, with the ranks that take it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub from: u16,
    pub to: u16,
    pub class: u16,
    pub source: u16,
    pub target: u16,
    /// What it is worth at best.
    pub worth: f32,
}

impl Slot {
    /// The lane of two ranks; none from a rank to itself.
    fn lane(&self, net: &Net, source: u16, target: u16) -> Option<usize> {
        let pair = usize::from(source) * net.ranks + usize::from(target);
        (source != target).then(|| net.first[pair] as usize + usize::from(self.class))
    }
}

/// Room to bind one family.
#[derive(Clone, Debug)]
pub(super) struct Binder {
    /// First rank of each group, and behind its last.
    groups: Vec<(u16, u16)>,
    /// What is bound.
    pub slots: Vec<Slot>,
    /// Ranks that have a lane out, and one in.
    sends: Vec<bool>,
    receives: Vec<bool>,
    rows: Vec<u16>,
    matrix: Vec<f32>,
    column_of: Vec<u16>,
    assigner: Assigner,
}

impl Binder {
    /// Room for groups of ranks and a number of slots.
    pub fn new(groups: Vec<(u16, u16)>, slots: usize) -> Self {
        let most = groups.iter().map(|&(begin, end)| usize::from(end - begin)).max();
        let most = most.unwrap_or(0);
        let ranks = groups.iter().map(|&(_, end)| usize::from(end)).max().unwrap_or(0);
        Self {
            groups,
            slots: Vec::with_capacity(slots),
            sends: vec![false; ranks],
            receives: vec![false; ranks],
            rows: Vec::with_capacity(most),
            matrix: Vec::with_capacity(most * most),
            column_of: Vec::with_capacity(most),
            assigner: Assigner::new(most),
        }
    }

    /// Gives every slot a source and a destination of its own; the sum of weights.
    pub fn bind(&mut self, net: &Net, weight: &impl Fn(usize) -> f32) -> f32 {
        // What could be worth most has the first choice.
        for i in 1..self.slots.len() {
            let mut at = i;
            while at > 0 && self.slots[at - 1].worth < self.slots[at].worth {
                self.slots.swap(at - 1, at);
                at -= 1;
            }
        }
        self.begin(net, weight);
        let mut total = self.total(net, weight);
        for _ in 0..ROUNDS {
            let before = total;
            for sources in [true, false] {
                for group in 0..self.groups.len() {
                    self.improve(net, weight, group as u16, sources);
                }
            }
            total = self.total(net, weight);
            if total <= before {
                break;
            }
        }
        total
    }

    /// The lanes of the slots that have something to send.
    pub fn lanes<'a>(&'a self, net: &'a Net, weight: &'a impl Fn(usize) -> f32) -> impl Iterator<Item = u32> + 'a {
        let lane = |slot: &Slot| slot.lane(net, slot.source, slot.target);
        let heavy = move |&lane: &usize| weight(lane) > 0.0;
        self.slots.iter().filter_map(lane).filter(heavy).map(|lane| lane as u32)
    }

    fn total(&self, net: &Net, weight: &impl Fn(usize) -> f32) -> f32 {
        let of = |slot: &Slot| slot.lane(net, slot.source, slot.target).map_or(0.0, weight);
        self.slots.iter().map(of).sum()
    }

    /// The heaviest pair of ranks that is free, slot by slot.
    fn begin(&mut self, net: &Net, weight: &impl Fn(usize) -> f32) {
        self.sends.fill(false);
        self.receives.fill(false);
        for slot in &mut self.slots {
            let (sources, targets) = (self.groups[usize::from(slot.from)], self.groups[usize::from(slot.to)]);
            let mut most = -1.0;
            for source in (sources.0..sources.1).filter(|&rank| !self.sends[usize::from(rank)]) {
                for target in (targets.0..targets.1).filter(|&rank| !self.receives[usize::from(rank)]) {
                    let weight = slot.lane(net, source, target).map_or(0.0, weight);
                    if weight > most {
                        (most, slot.source, slot.target) = (weight, source, target);
                    }
                }
            }
            self.sends[usize::from(slot.source)] = true;
            self.receives[usize::from(slot.target)] = true;
        }
    }

    /// Assigns the ranks of a group to the slots that leave it, or that enter it, if the sum of weights rises.
    fn improve(&mut self, net: &Net, weight: &impl Fn(usize) -> f32, group: u16, sources: bool) {
        let (begin, end) = self.groups[usize::from(group)];
        let of_group = |slot: &Slot| if sources { slot.from == group } else { slot.to == group };
        self.rows.clear();
        self.matrix.clear();
        let mut before = 0.0;
        for (row, slot) in self.slots.iter().enumerate().filter(|(_, slot)| of_group(slot)) {
            self.rows.push(row as u16);
            before += slot.lane(net, slot.source, slot.target).map_or(0.0, weight);
            for rank in begin..end {
                let (source, target) = if sources {
                    (rank, slot.target)
                } else {
                    (slot.source, rank)
                };
                self.matrix.push(slot.lane(net, source, target).map_or(0.0, weight));
            }
        }
        if self.rows.is_empty() {
            return;
        }
        let columns = usize::from(end - begin);
        self.column_of.clear();
        self.column_of.resize(self.rows.len(), 0);
        self.assigner.best(columns, &self.matrix, &mut self.column_of);
        let chosen = self.column_of.iter().zip(self.matrix.chunks_exact(columns));
        let after: f32 = chosen.map(|(&column, row)| row[usize::from(column)]).sum();
        if after > before {
            for (&row, &column) in self.rows.iter().zip(&self.column_of) {
                let slot = &mut self.slots[usize::from(row)];
                let end = if sources { &mut slot.source } else { &mut slot.target };
                *end = begin + column;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alltoallv::maths::Dice;
    use crate::alltoallv::{Fabric, TreeSpec};

    fn slot(from: u16, to: u16) -> Slot {
        Slot {
            from,
            to,
            class: 0,
            source: 0,
            target: 0,
            worth: 0.0,
        }
    }

    #[test]
    fn alternate_assignment_only_gains_and_gives_every_slot_ranks_of_its_own() {
        let fabric = Fabric::new(&TreeSpec::tree(1, 2, 6)).expect("a machine");
        let net = Net::new(&fabric);
        let mut dice = Dice::new(3);
        let mut gained = 0;
        for _ in 0..50 {
            let weights: Vec<f32> = (0..net.len()).map(|_| dice.below(1000) as f32).collect();
            let weight = |lane: usize| weights[lane];
            let mut binder = Binder::new(vec![(0, 6), (6, 12)], 12);
            // Two lanes each way, the others below their switches.
            let ends = [(0, 1), (0, 1), (1, 0), (1, 0)].into_iter();
            let below = [(0, 0), (1, 1)].into_iter().cycle().take(8);
            binder.slots.extend(ends.chain(below).map(|(from, to)| slot(from, to)));
            binder.begin(&net, &weight);
            let start = binder.total(&net, &weight);
            let mut before = start;
            for round in 0..2 * ROUNDS {
                for group in 0..2 {
                    binder.improve(&net, &weight, group, round % 2 == 0);
                    let after = binder.total(&net, &weight);
                    assert!(after >= before, "{after} after {before}");
                    before = after;
                }
            }
            let total = binder.bind(&net, &weight);
            assert!(total >= start && total == binder.total(&net, &weight));
            gained += u32::from(total > start);
            for end in [
                |slot: &Slot| (slot.from, slot.source),
                |slot: &Slot| (slot.to, slot.target),
            ] {
                let mut ranks: Vec<_> = binder.slots.iter().map(end).collect();
                assert!(ranks.iter().all(|&(group, rank)| rank / 6 == group));
                ranks.sort_unstable();
                ranks.dedup();
                assert_eq!(ranks.len(), 12);
            }
        }
        assert!(gained > 40, "{gained} of 50");
    }
}

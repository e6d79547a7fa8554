//! A plan: activations one after the other, each a set of lanes with their bytes; and what every plan must keep.
//!
//! It says who sends which bytes over which path, never how. Start at `Plan`; `Plan::check` holds the invariants.

use super::demand::Demand;
use super::net::{Net, UNLIMITED};
use std::fmt;

/// Chunks begin and end at multiples of this many bytes, but for a pair's end.
pub const ALIGN: u64 = 16;

/// Bytes of one pair on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Chunk {
    /// Who sends.
    pub from: u16,
    /// Who receives.
    pub to: u16,
    /// Which path of the pair, as [`super::Fabric::path`] counts them.
    pub path: u16,
    /// Number among the lanes that follow each other on the same path resources within an activation; 0 but for fans.
    pub turn: u16,
    /// First byte of the pair's bytes.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// Activations one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Plan {
    /// Lanes of all activations.
    pub(super) lanes: Vec<Chunk>,
    /// Where each activation ends in `lanes`.
    pub(super) ends: Vec<u32>,
}

/// What a plan does that no plan may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanFault(pub(super) String);

impl fmt::Display for PlanFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlanFault {}

impl Plan {
    /// Number of activations.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Nobody sends anything.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The lanes of an activation; none past the last one.
    pub fn activation(&self, k: usize) -> &[Chunk] {
        let begin = if k == 0 {
            0
        } else {
            self.ends.get(k - 1).map_or(0, |e| *e as usize)
        };
        self.ends.get(k).map_or(&[], |&end| &self.lanes[begin..end as usize])
    }

    /// All activations in order.
    pub fn activations(&self) -> impl Iterator<Item = &[Chunk]> {
        (0..self.len()).map(|k| self.activation(k))
    }

    /// All lanes in order.
    pub fn lanes(&self) -> &[Chunk] {
        &self.lanes
    }

    /// A number that two ranks compare to know that they made the same plan.
    pub fn hash(&self) -> u64 {
        super::hash::of(self)
    }

    /// Room for so much, so that nothing is allocated later.
    pub(super) fn with_room(lanes: usize, activations: usize) -> Self {
        Self {
            lanes: Vec::with_capacity(lanes),
            ends: Vec::with_capacity(activations),
        }
    }

    pub(super) fn clear(&mut self) {
        self.lanes.clear();
        self.ends.clear();
    }

    /// Ends an activation; one without lanes is none.
    pub(super) fn end(&mut self) {
        let end = self.lanes.len() as u32;
        if self.ends.last().copied().unwrap_or(0) < end {
            self.ends.push(end);
        }
    }

    /// Every invariant that can be seen from outside: exact bytes in order, alignment, capacity, one lane a port.
    ///
    /// `rounds` says that activations are channels: false for a fluid plan, whose lanes all share.
    pub(super) fn check(&self, net: &Net, demand: &Demand, rounds: bool) -> Result<(), PlanFault> {
        let n = net.ranks;
        let mut sent = vec![0u64; n * n];
        let mut used: Vec<Vec<usize>> = vec![Vec::new(); net.resources];
        for (k, lanes) in self.activations().enumerate() {
            let fault = |lane: &Chunk, what: String| {
                Err(PlanFault(format!(
                    "activation {k}, lane {} to {} by path {}: {what}",
                    lane.from, lane.to, lane.path
                )))
            };
            used.iter_mut().for_each(Vec::clear);
            for (at, lane) in lanes.iter().enumerate() {
                let (from, to) = (usize::from(lane.from), usize::from(lane.to));
                if from >= n || to >= n || from == to {
                    return fault(lane, "no pair".into());
                }
                let pair = from * n + to;
                let id = net.first[pair] as usize + usize::from(lane.path);
                if id >= net.lanes(pair).end {
                    return fault(lane, "no such path".into());
                }
                if lane.bytes == 0 {
                    return fault(lane, "no bytes".into());
                }
                if lane.offset != sent[pair] {
                    return fault(lane, format!("begins at byte {}, not at {}", lane.offset, sent[pair]));
                }
                if !lane.offset.is_multiple_of(ALIGN) {
                    return fault(lane, format!("begins at byte {}, no multiple of {ALIGN}", lane.offset));
                }
                sent[pair] = lane.offset.saturating_add(lane.bytes);
                for &r in net.uses(id) {
                    used[usize::from(r)].push(at);
                }
            }
            for (r, users) in used.iter().enumerate().filter(|_| rounds) {
                let slots = if net.port[r] { 1 } else { usize::from(net.slots[r]) };
                if slots == usize::from(UNLIMITED) {
                    continue;
                }
                // Lanes of one fan take turns: they count once, and their ports belong to one group.
                let mut lanes_at_once: Vec<_> = users.iter().filter(|&&at| lanes[at].turn == 0).collect();
                lanes_at_once.dedup();
                let fans = users.len() > lanes_at_once.len();
                let own = |at: &usize| lanes[*at].from == lanes[users[0]].from;
                if lanes_at_once.len() > slots || (fans && slots == 1 && !users.iter().all(own)) {
                    return Err(PlanFault(format!(
                        "activation {k}: resource {r} is used by {} lanes at once: it carries {slots}",
                        users.len()
                    )));
                }
            }
        }
        for (pair, (&sent, &wanted)) in sent.iter().zip(demand.bytes()).enumerate() {
            if sent != wanted {
                let (from, to) = (pair / n, pair % n);
                return Err(PlanFault(format!(
                    "{from} to {to}: {sent} bytes are sent, {wanted} were asked for"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fabric, Planner, Strategy, TreeSpec};
    use super::*;

    /// A plan of two nodes, what it is for, and its tables.
    fn planned(strategy: Strategy) -> (Net, Demand, Plan) {
        let fabric = Fabric::new(&TreeSpec::pcie_2x2().cluster(2)).expect("a machine");
        let demand = Demand::skewed(1, 8, 1_000_000).expect("a demand");
        let mut planner = Planner::new(&fabric);
        let plan = planner.plan_by(&demand, strategy).expect("eight ranks").clone();
        (Net::new(&fabric), demand, plan)
    }

    fn refused(net: &Net, demand: &Demand, plan: &Plan) -> String {
        plan.check(net, demand, true)
            .expect_err("the plan is wrong")
            .to_string()
    }

    #[test]
    fn what_no_plan_may_do_is_refused_in_words() {
        type Break = fn(&mut Plan);
        let breaks: [(&str, Break); 9] = [
            ("bytes are sent", |plan| plan.lanes[0].bytes += 16),
            // Of some pair's last chunk a byte is missing.
            ("bytes are sent", |plan| {
                let last = plan.lanes.last_mut().expect("a lane");
                last.bytes -= 1;
            }),
            ("begins at byte 16, not at 0", |plan| plan.lanes[0].offset = 16),
            ("no bytes", |plan| plan.lanes[0].bytes = 0),
            ("no pair", |plan| plan.lanes[0].to = plan.lanes[0].from),
            ("no pair", |plan| plan.lanes[0].to = 8),
            ("no such path", |plan| plan.lanes[0].path = 9),
            ("lanes at once", |plan| {
                // Everything in one activation.
                let all = plan.ends.last().copied().expect("an activation");
                plan.ends = vec![all];
            }),
            ("lanes at once", |plan| {
                // A part of a lane beside itself.
                let copy = Chunk {
                    offset: 16,
                    bytes: plan.lanes[0].bytes - 16,
                    ..plan.lanes[0]
                };
                plan.lanes[0].bytes = 16;
                plan.lanes.insert(1, copy);
                plan.ends.iter_mut().for_each(|end| *end += 1);
            }),
        ];
        let (net, demand, good) = planned(Strategy::Rotation);
        assert_eq!(good.check(&net, &demand, true), Ok(()));
        for (at, (words, break_it)) in breaks.into_iter().enumerate() {
            let mut plan = good.clone();
            break_it(&mut plan);
            let said = refused(&net, &demand, &plan);
            assert!(said.contains(words), "{at}: {said}");
        }
    }

    #[test]
    fn a_chunk_in_the_middle_of_a_unit_is_refused() {
        let (net, demand, mut plan) = planned(Strategy::Peel);
        let n = net.ranks;
        let pair = |lane: &Chunk| usize::from(lane.from) * n + usize::from(lane.to);
        let second = plan
            .lanes
            .iter()
            .position(|lane| lane.offset > 0)
            .expect("a pair in several chunks");
        let first = (0..second).rfind(|&at| pair(&plan.lanes[at]) == pair(&plan.lanes[second]));
        let first = first.expect("the chunk before");
        plan.lanes[first].bytes -= 1;
        plan.lanes[second].offset -= 1;
        plan.lanes[second].bytes += 1;
        assert!(refused(&net, &demand, &plan).contains("no multiple of 16"));
    }

    #[test]
    fn activations_without_lanes_are_none() {
        let mut plan = Plan::default();
        plan.end();
        plan.lanes.push(Chunk::default());
        plan.end();
        plan.end();
        assert_eq!(
            (plan.len(), plan.activation(0).len(), plan.activation(1).len()),
            (1, 1, 0)
        );
    }
}

//! Sequences recorded ahead of time: for each demand that is known to come, equal pairs or a profile, the best of several plans.
//!
//! They are made by the planner when a catalogue is built, kept in it, and scaled to a demand without planning. Start at
//! [`recorded`] and [`scaled`]; [`super::Planner::with_sequences`] plans with them.

mod scale;

use super::choose::Planner;
use super::demand::Demand;
use super::peel::Effort;
use super::profile::Profile;
use super::sequence::{Activations, Lane, Step, best_sequence};
use super::spec::Machine;
use super::strategy::Strategy;
pub(super) use scale::Room;
pub use scale::scaled;

/// Bytes of a pair, on average, that the plans are made for: enough that time goes into transfers.
pub(super) const BYTES: u64 = 8 << 20;
/// Ranks up to which a node gets sequences: the planner peels no more.
const MAX_RANKS: usize = 64;
/// Durations that a plan may try, in quanta, and rounds that it aims at; those that win most often come first.
///
/// On the shipped machines of eight ranks they are within 0.2 % of all pairings of these durations with 3, 2, 1.5 and 1, on
/// equal, skewed and sparse demands.
const TRIES: [([f32; 4], f32); 6] = [
    ([4.0, 2.0, 1.0, 0.5], 3.0),
    ([2.0, 1.0, 0.5, 0.25], 3.0),
    ([2.0, 1.0, 0.5, 0.25], 2.0),
    ([8.0, 4.0, 2.0, 1.0], 3.0),
    ([4.0, 2.0, 1.0, 0.5], 2.0),
    ([2.0, 1.0, 0.5, 0.25], 1.5),
];
/// Ranks up to which all are tried, and how many of them beyond: a plan of a larger node takes longer, and a build should not.
const SMALL: usize = 8;
const FEW: usize = 3;

/// What is recorded for a single node: sequences of steps, each for a demand up to a factor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequences {
    /// For equal pairs; empty if none was recorded.
    pub uniform: Vec<Step>,
    /// For each profile, in the order of the descriptor.
    pub profiles: Vec<Recorded>,
}

/// A profile and the sequence that serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// What it is for.
    pub profile: Profile,
    /// Each lane with its share of the pair's demand; pairs without bytes in the profile have no lanes.
    pub steps: Vec<Step>,
}

impl Sequences {
    /// Nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.uniform.is_empty() && self.profiles.is_empty()
    }
}

impl From<Vec<Step>> for Sequences {
    fn from(uniform: Vec<Step>) -> Self {
        let profiles = Vec::new();
        Self { uniform, profiles }
    }
}

/// Plans made for each sequence of a node of so many ranks.
pub fn plans(ranks: usize) -> usize {
    if ranks <= SMALL { TRIES.len() } else { FEW }
}

/// The sequences of a machine that may be a single node; none for others, and where nothing needs an order.
pub fn recorded(machine: &Machine) -> Sequences {
    let single = machine.any_nodes || machine.spec.nodes == 1;
    let Some(node) = machine.fabric(Some(1)).ok().filter(|_| single) else {
        return Sequences::default();
    };
    let ranks = node.ranks();
    if node.is_fluid() || !(2..=MAX_RANKS).contains(&ranks) {
        return Sequences::default();
    }
    // One planner serves all: its tables take as long to make as a plan.
    let mut planner = Planner::new(&node);
    let mut best =
        |demand: &Demand| best_sequence(demand, 0..plans(ranks) as u64, |seed| one(&mut planner, demand, seed));
    let pair = |at: usize| if at / ranks == at % ranks { 0 } else { BYTES };
    let even = Demand::from_checked(ranks, (0..ranks * ranks).map(pair).collect());
    let total = even.total();
    Sequences {
        uniform: best(&even),
        profiles: (machine.profiles.iter())
            .map(|profile| Recorded {
                profile: profile.clone(),
                steps: best(&profile.scaled(total)),
            })
            .collect(),
    }
}

/// One plan and what it is predicted to take, nanoseconds.
fn one(planner: &mut Planner, demand: &Demand, seed: u64) -> Option<(u64, Activations)> {
    let (caps, rho) = TRIES[seed as usize % TRIES.len()];
    planner.set_effort(Effort {
        caps,
        rho,
        ..Effort::FULL
    });
    let plan = planner.plan_by(demand, Strategy::Peel).ok()?;
    let lane = |chunk: &super::Chunk| {
        let lane = Lane {
            from: chunk.from.into(),
            to: chunk.to.into(),
            class: u8::try_from(chunk.path).ok()?,
        };
        // Lanes that take turns are no channel.
        (chunk.turn == 0).then_some((lane, chunk.bytes))
    };
    let steps: Option<Activations> = plan
        .activations()
        .map(|lanes| lanes.iter().map(lane).collect())
        .collect();
    Some((planner.predict().hand_off_ns as u64, steps?))
}

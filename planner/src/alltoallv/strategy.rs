//! Ways to plan, and what a plan is predicted to take.
//!
//! Start at [`Strategy`].

use super::peel::FamilyFault;
use std::fmt;

/// How a plan was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Activation by activation, by what relieves the most loaded resources.
    Peel,
    /// All lanes at once into rounds, longest first.
    Pack,
    /// A fixed order of peers.
    Rotation,
    /// A sequence recorded ahead of time for uniform demand, with other volumes; a rotation where there is none.
    Base,
    /// Everything at once.
    Fluid,
    /// A kept plan with other volumes.
    Cached,
}

impl Strategy {
    /// All that can be asked for.
    pub const ALL: [Self; 5] = [Self::Peel, Self::Pack, Self::Rotation, Self::Base, Self::Fluid];

    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Peel => "peel",
            Self::Pack => "pack",
            Self::Rotation => "rotation",
            Self::Base => "base",
            Self::Fluid => "fluid",
            Self::Cached => "cached",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A demand for another number of ranks than the machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongRanks {
    /// Of the demand.
    pub demand: usize,
    /// Of the machine.
    pub machine: usize,
}

impl fmt::Display for WrongRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { demand, machine } = self;
        write!(
            f,
            "the demand is for {demand} ranks, the machine has {machine}: give a row and a column for each rank"
        )
    }
}

impl std::error::Error for WrongRanks {}

/// Why a planner makes no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The demand is for another number of ranks.
    Ranks(WrongRanks),
    /// Its effort asks for a selector that lacks something.
    Selector(FamilyFault),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ranks(e) => e.fmt(f),
            Self::Selector(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}

impl From<WrongRanks> for Refused {
    fn from(wrong: WrongRanks) -> Self {
        Self::Ranks(wrong)
    }
}

/// What a plan is predicted to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// How it was made.
    pub strategy: Strategy,
    /// With a barrier before each activation, nanoseconds; of a fluid plan one activation.
    pub barrier_ns: f64,
    /// With resources handed on from lane to lane, nanoseconds: what is executed.
    pub hand_off_ns: f64,
}

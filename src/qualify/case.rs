//! One chain of a plan, in words that a person can repeat.

use super::mix::Mixing;
use super::patterns::Pattern;
use crate::device::{Geometry, Mode};
use crate::registry::Element;
use std::fmt;

/// What a chain was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    /// Its number within the plan, from 0.
    pub index: u32,
    /// Type of inputs and outputs.
    pub element: Element,
    /// Payload a rank.
    pub bytes: u64,
    /// Blocks and threads.
    pub geometry: Geometry,
    /// Dependent calls of one replay.
    pub calls: u32,
    /// Eager or captured.
    pub mode: Mode,
    /// The rank that was held back and by how many nanoseconds.
    pub skew: Option<(usize, u64)>,
    /// Output and input were the same buffer.
    pub in_place: bool,
    /// First inputs.
    pub pattern: Pattern,
    /// Whether later inputs hold infinities, NaNs and other special values.
    pub specials: bool,
    /// Seed of first inputs and of mixing.
    pub seed: u32,
}

impl Case {
    /// First inputs of all ranks.
    pub fn inputs(&self, ranks: usize) -> Vec<Vec<u8>> {
        self.pattern
            .inputs(self.element, ranks, self.bytes, self.seed, self.index)
    }

    /// How inputs of later calls are made.
    pub const fn mixing(&self) -> Mixing {
        Mixing {
            element: self.element,
            seed: self.seed,
            specials: self.specials,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            index,
            element,
            bytes,
            geometry,
            calls,
            pattern,
            seed,
            ..
        } = self;
        write!(
            f,
            "chain {index} ({bytes} bytes of {element}, {geometry}, {calls} calls"
        )?;
        match self.mode {
            Mode::Eager => f.write_str(" launched one by one")?,
            Mode::Graph { replays } => write!(f, " captured and replayed {replays} times")?,
        }
        if let Some((rank, ns)) = self.skew {
            write!(f, ", rank {rank} late by {:.1} us", ns as f64 / 1000.0)?;
        }
        let place = if self.in_place { "in place" } else { "out of place" };
        let specials = if self.specials { " with specials" } else { "" };
        write!(f, ", {place}, {pattern} inputs{specials}, seed {seed})")
    }
}

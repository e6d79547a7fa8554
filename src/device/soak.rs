//! A soak: very many dependent calls whose every word is checked where it was made. Plain data; `qualify` says what is
//! right, executors that can check on the device run it. Start at [`Soak`].

use super::{Geometry, Prepared};
use crate::registry::{Element, Partials};

/// Steps of an expression in reverse Polish notation, a byte each; smaller bytes are ranks whose input is pushed.
pub mod step {
    /// The two values on top become their sum.
    pub const SUM: u8 = 0xfe;
    /// The value on top is rounded to the element type.
    pub const ROUND: u8 = 0xfd;
    /// The end.
    pub const END: u8 = 0xff;
    /// The most values that may wait for their sum.
    pub const DEPTH: usize = 8;
}

/// What is called how often, and what must come out.
#[derive(Clone, Copy, Debug)]
pub struct Soak<'a> {
    /// What is called.
    pub collective: Prepared,
    /// Payloads a rank with their geometries, taken in turn.
    pub shapes: &'a [(u64, Geometry)],
    /// Calls in all, at least 1.
    pub calls: u64,
    /// Seed of the inputs.
    pub seed: u32,
    /// Type of inputs and outputs.
    pub element: Element,
    /// Where sums are rounded.
    pub partials: Partials,
    /// `programs[rank][chunk]`: the declared expression, see [`step`].
    pub programs: &'a [Vec<Vec<u8>>],
}

/// How far a soak has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls that have ended.
    pub calls: u64,
    /// Words compared, on all ranks.
    pub words: u64,
    /// Words that were not the declared sum.
    pub wrong: u64,
    /// One of them.
    pub first: Option<WrongWord>,
}

/// A word that was not the declared sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongWord {
    /// On which rank.
    pub rank: usize,
    /// In which call, from 0.
    pub call: u64,
    /// Which element.
    pub element: u32,
    /// The bits that it should have had.
    pub expected: u32,
    /// Its bits.
    pub got: u32,
}

impl std::fmt::Display for WrongWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            rank,
            call,
            element,
            expected,
            got,
        } = self;
        write!(
            f,
            "rank {rank}, call {call}, element {element}: 0x{got:04x} instead of 0x{expected:04x}"
        )
    }
}

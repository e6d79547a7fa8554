//! Why the family selector cannot serve a machine.
//!
//! Start at [`FamilyFault`].

use std::fmt;

/// What is missing for [`super::super::Selector::Family`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyFault {
    /// It was asked for, but no catalogue was given.
    NoCatalogue,
    /// The catalogue is of another machine, or the fabric is not the planner's.
    Machine,
    /// The catalogue has no families of a single node.
    Alone,
    /// The machine has this many nodes.
    Nodes(usize),
    /// Lanes of a node, over all types: more than can be told apart.
    Lanes(usize),
}

impl fmt::Display for FamilyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCatalogue => {
                f.write_str("the selector family needs a catalogue: give one to `Planner::with_catalogue` first")
            }
            Self::Machine => f.write_str("the catalogue is of another machine: build it again"),
            Self::Alone => {
                f.write_str("the catalogue has no families of a single node: build one for `nodes: 1` or `Any`")
            }
            Self::Nodes(n) => write!(
                f,
                "the selector family serves machines of one node, this one has {n}: take critical or greedy"
            ),
            Self::Lanes(n) => write!(
                f,
                "{n} lanes of a node compete, the selector family tells 254 apart: take critical or greedy"
            ),
        }
    }
}

impl std::error::Error for FamilyFault {}

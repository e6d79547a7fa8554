//! What others would do with the same demand on the same machine, as flows for the simulator.
//!
//! Each is a reading of published descriptions on our resource model, made to favour it where something is left open; none
//! is anybody's code. Start at [`Baseline`].

mod rails;
mod rounds;

use super::demand::Demand;
use super::fabric::Fabric;
use super::simulate::Traffic;

/// A way to exchange that does not plan for the demand as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Baseline {
    /// Round `s`: everybody sends to the rank `s` further on, by the fastest path.
    FixedPeers,
    /// The same, each round's paths chosen for its bytes.
    AdaptivePaths,
    /// Everything begins at once, by the fastest path.
    AllAtOnce,
    /// Bytes for another node go to the rank of the same number there, which passes them on (as DeepEP); both hops at once.
    RailForward,
    /// The same, the second hop after the first.
    RailForwardStaged,
    /// Ranks of a node share what it has for each other node evenly, send over all NICs, and pass it on (as FAST); all at
    /// once.
    Balance,
    /// The same, one after the other, node by node.
    BalanceStaged,
}

impl Baseline {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::FixedPeers,
        Self::AdaptivePaths,
        Self::AllAtOnce,
        Self::RailForward,
        Self::RailForwardStaged,
        Self::Balance,
        Self::BalanceStaged,
    ];

    /// In a few words.
    pub fn name(self) -> &'static str {
        match self {
            Self::FixedPeers => "fixed peers, fastest path",
            Self::AdaptivePaths => "fixed peers, adaptive path",
            Self::AllAtOnce => "all at once",
            Self::RailForward => "rail and forward, overlapped",
            Self::RailForwardStaged => "rail and forward, staged",
            Self::Balance => "balance and redistribute, overlapped",
            Self::BalanceStaged => "balance and redistribute, staged",
        }
    }

    /// It differs from sending everything directly only where there are several nodes.
    pub fn needs_nodes(self) -> bool {
        !matches!(self, Self::FixedPeers | Self::AdaptivePaths | Self::AllAtOnce)
    }

    /// The flows of a demand; the demand must be for the machine's ranks.
    pub fn traffic(self, fabric: &Fabric, demand: &Demand) -> Traffic {
        match self {
            Self::FixedPeers => rounds::shifted(fabric, demand, false),
            Self::AdaptivePaths => rounds::shifted(fabric, demand, true),
            Self::AllAtOnce => rounds::at_once(fabric, demand),
            Self::RailForward => rails::forward(fabric, demand, false),
            Self::RailForwardStaged => rails::forward(fabric, demand, true),
            Self::Balance => rails::balanced(fabric, demand, false),
            Self::BalanceStaged => rails::balanced(fabric, demand, true),
        }
    }
}

//! What stands in the way of peer collectives on this machine, and a verdict on every peer edge.
//!
//! Peer access that the driver grants is a claim. The verdict comes from the kernels that will serve: patterns that are never
//! zero and differ by rank and round cross each edge, and what arrives is told apart: right, zeros, stale, torn, or never.
//! It is run in a child process, which is killed when it hangs ([`child`]), and kept until driver, boot, devices or kernels
//! change ([`cache`]). A pair that fails is vetoed: the live probe takes the edge away, so planning, matching and serving
//! never see it.
//!
//! Two questions beyond patterns: whether a slot may be reset while the peer's next put is under way, and whether 128-byte
//! lines that a peer keeps overwriting are ever seen part old, part new. Torn lines take `packet128` from the edge, and
//! nothing else.
//!
//! Pairs are tested one by one, both directions at the same time; where all pass, disjoint pairs run again side by side.
//! Not covered: one GPU talking to several at once, and what only copy engines do. Start at [`judge`], then [`system`] for the rest of the machine.

pub mod cache;
pub mod child;
pub mod link;
pub mod rounds;
pub mod simulated;
pub mod switches;
pub mod system;
mod verdict;

pub use verdict::{PairReport, Verdict, judge};

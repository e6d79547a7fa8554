//! AlltoAllv over shared links: what a machine can carry at once, found ahead of time, and how a demand is served by it.
//!
//! A demand is a matrix of bytes, one entry for each ordered pair of ranks. Paths of a pair share resources (ports, switch
//! uplinks, socket links, NICs) with paths of other pairs; a set of paths that can all be under way at once is a *channel*.
//! All arithmetic is in integers, so that every rank that runs the same code gets the same result. No clock, no I/O.
//! Start reading at [`Fabric`].

pub mod catalogue;
pub mod fabric;
mod paths;
pub mod sequence;
pub mod spec;

pub use catalogue::Catalogue;
pub use fabric::{Fabric, Group, Resource, ResourceKind};
pub use paths::{Class, MAX_PATHS, MAX_RESOURCES, Path, PathKind};
pub use sequence::Lane;
pub use spec::{Mode, Modes, Nics, Rates, Reach, SpecError, Switch, TreeSpec};

//! AlltoAllv over shared links: what a machine can carry at once, found ahead of time, and how a demand is served by it.
//!
//! A demand is a matrix of bytes, one entry for each ordered pair of ranks. Paths of a pair share resources (ports, switch
//! uplinks, socket links, NICs) with paths of other pairs; a set of paths that can all be under way at once is a *channel*.
//! Bytes are integers; floats that steer use only operations that IEEE 754 fixes, in fixed order, so that every rank that
//! runs the same code gets the same result. No clock, no I/O.
//! Start reading at [`Fabric`], then [`Planner`].

pub mod base;
pub mod baselines;
pub mod bound;
mod cache;
pub mod catalogue;
pub mod choose;
pub mod demand;
pub mod fabric;
mod fluid;
mod handoff;
mod hash;
mod leaves;
mod lp;
mod maths;
mod net;
mod pack;
mod paths;
pub mod peel;
pub mod plan;
mod polish;
pub mod profile;
mod rotate;
pub mod sequence;
pub mod simulate;
pub mod spec;
mod split;
mod strategy;

pub use base::{Recorded, Sequences};
pub use baselines::Baseline;
pub use bound::Bound;
pub use catalogue::Catalogue;
pub use choose::Planner;
pub use demand::{Demand, DemandError, Kind};
pub use fabric::{Fabric, Group, Resource, ResourceKind};
pub use paths::{Class, MAX_PATHS, MAX_RESOURCES, Path, PathKind};
pub use peel::{Effort, FamilyFault, Selector};
pub use plan::{Chunk, Plan, PlanFault};
pub use profile::{Profile, ProfileError};
pub use sequence::Lane;
pub use spec::{Leaves, Machine, Mode, Modes, Network, Nics, Rates, Reach, SpecError, Switch, TreeSpec};
pub use strategy::{Prediction, Refused, Strategy, WrongRanks};

//! The model of a machine: ranks, the directed links between them, and the resources links share.
//!
//! It says what a machine *is*. It never says how to use it (`schedule`), which family fits it
//! (`matching`), or what a live machine looks like (the probe in the main crate builds a [`Topology`]).
//! Start reading at [`model`], then [`defaults`] for the figures a descriptor leaves out.

pub mod defaults;
pub mod model;

pub use model::{Link, LinkClass, MAX_RANKS, PcieClass, Resource, Topology};

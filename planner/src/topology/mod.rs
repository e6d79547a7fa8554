//! The model of a machine: ranks, the directed links between them, and the resources links share.
//!
//! It says what a machine *is*. It never says how to use it (`schedule`), which family fits it
//! (`matching`), or what a live machine looks like (the probe in the main crate builds a [`Topology`]).
//! Start reading at [`model`], then [`defaults`] for the figures a descriptor leaves out, then
//! [`descriptor`] for the text that people write.

pub mod defaults;
pub mod descriptor;
pub mod fault;
pub mod model;
pub mod print;

mod links;
mod machine;
mod profiles;
mod reader;
mod tree;

pub use descriptor::{alltoallv_fault, check_set, parse_descriptor, parse_descriptor_bytes};
pub use fault::Fault;
pub use model::{Link, LinkClass, MAX_RANKS, PcieClass, Resource, Topology};
pub use print::to_ron;

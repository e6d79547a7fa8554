//! Lowers verified schedules to CUDA text, drives `nvcc` and the host compiler, and writes the manifest.
//!
//! A library for build scripts and for `families!`: it never runs a collective and never opens the network. Everything
//! is deterministic: the same descriptors, the same version and the same toolkit give the same bytes. Start at
//! [`Forge`]; what it does in order is `select` (plan and choose), `lower` (schedule to text), `toolkit` (text to
//! fatbin), `host` (text to object), `manifest` (what `families!` reads).

pub mod alltoallv;
pub mod descriptors;
pub mod env;
pub mod forge;
pub mod headers;
pub mod host;
pub mod jobs;
pub mod lower;
pub mod manifest;
pub mod select;
pub mod sets;
pub mod toolkit;

pub use forge::{Forge, ForgeError};
pub use lower::Element;
pub use sets::Set;

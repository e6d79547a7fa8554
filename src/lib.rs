//! topoforge turns GPU topology descriptors into specialised, proven CUDA collectives ahead of time.

extern crate self as topoforge;

pub mod device;
pub mod qualify;
pub mod registry;

pub use topoforge_planner as planner;

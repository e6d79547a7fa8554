//! topoforge turns GPU topology descriptors into specialised, proven CUDA collectives ahead of time.

// `families!` names this crate from outside and from inside alike.
extern crate self as topoforge;

mod builtin;
pub mod comm;
pub mod device;
pub mod driver;
pub mod matching;
pub mod probe;
pub mod qualify;
pub mod registry;
pub mod routes;
pub mod tools;
pub mod tune;

pub use builtin::BUILTIN;
pub use topoforge_macros::{families, family};
pub use topoforge_planner as planner;

//! Lowering and building.
pub mod env;
pub mod lower;
pub mod toolkit;

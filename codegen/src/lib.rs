//! Lowering and building.
pub mod toolkit;

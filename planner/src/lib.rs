//! Planner.
pub mod matching;
pub mod picture;
pub mod schedule;
pub mod topology;

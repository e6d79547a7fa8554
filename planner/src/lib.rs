//! Planner.
pub mod topology;
pub mod schedule;
pub mod matching;

//! Planner.
pub mod matching;
pub mod schedule;
pub mod topology;

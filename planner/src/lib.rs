//! Machines, schedules and which family fits: everything that is decided before a kernel exists or runs.
//!
//! `topology` reads descriptors, `schedule` makes, verifies, ranks and simulates schedules, `picture` draws them,
//! `matching` places a compiled family on a live machine, and `names` offers near names for a mistyped one. No I/O, no CUDA, no clock, no unseeded randomness, no `unsafe`:
//! the same input gives the same result everywhere. Start at [`schedule::plan()`].

pub mod alltoallv;
pub mod matching;
pub mod names;
pub mod picture;
pub mod schedule;
pub mod topology;

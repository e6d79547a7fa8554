//! Reports of `topoforge alltoallv`.

pub mod catalogue;
pub mod plan;
pub mod profile;
pub mod simulate;

use super::table::count;

/// What is exchanged on which machine: the first line of a report.
fn heading(topology: &str, ranks: usize, demand: &str, bytes: u64) -> String {
    format!("{topology}: {ranks} ranks, {demand}, {} bytes in all\n", count(bytes))
}

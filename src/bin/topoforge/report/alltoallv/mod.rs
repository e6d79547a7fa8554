//! Reports of `topoforge alltoallv`.

pub mod catalogue;
pub mod plan;
pub mod simulate;

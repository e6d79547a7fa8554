//! Reports of `topoforge alltoallv`.

pub mod catalogue;

//! The report of a profile: as text it is what a descriptor holds, and nothing else, so that it can be redirected into one.
//!
//! Start at [`ProfileReport`].

use crate::report::Report;
use serde::Serialize;

/// `topoforge alltoallv profile`
#[derive(Debug, Serialize)]
pub struct ProfileReport {
    /// As it was asked for.
    pub name: String,
    /// Of one node.
    pub ranks: usize,
    /// Relative bytes, a row for each sender, without a common divisor.
    pub demand: Vec<Vec<u64>>,
    /// As a descriptor spells it.
    pub ron: String,
}

impl Report for ProfileReport {
    fn text(&self) -> String {
        format!("{},\n", self.ron)
    }
}

//! Schedules: who sends which chunk to whom, and in which order sums are taken.
//!
//! `ir` is the data, `expression` the sums it declares, `generate` makes candidates, `verify` accepts or refuses
//! them, `cost` ranks what was accepted and `plan` strings these together. Nothing here knows about protocols'
//! instructions or about CUDA. Start reading at [`ir::Schedule`], then [`verify::Verified`].

pub mod expression;
pub mod ir;

pub use expression::Expression;
pub use ir::{Delivery, Rank, Schedule, Stage, Transfer, Value, ValueId};

//! Schedules: who sends which chunk to whom, and in which order sums are taken.
//!
//! `ir` is the data, `expression` the sums it declares, `generate` makes candidates, `verify` accepts or refuses
//! them, `cost` ranks what was accepted and `plan` strings these together. Nothing here knows about protocols'
//! instructions or about CUDA. Start reading at [`ir::Schedule`], then [`verify::Verified`].

pub mod bound;
pub mod calibration;
pub mod cost;
pub mod edges;
pub mod expression;
pub mod generate;
pub mod ir;
pub mod plan;
pub mod simulate;
pub mod symmetry;
pub mod verify;

pub use cost::{Protocol, Widths};
pub use edges::{EdgePolicy, Edges};
pub use expression::Expression;
pub use generate::{Candidate, generate};
pub use ir::{Delivery, Rank, Schedule, Stage, Transfer, Value, ValueId};
pub use plan::{Plan, PlanOptions, Ranked, SizeClass, family_options, family_policy, plan, plan_at};
pub use verify::{Verified, VerifyError, declared, replicated, verify};

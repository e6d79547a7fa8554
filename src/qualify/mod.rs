//! Proofs that a collective is correct: bit for bit against its declared sum, or within the error bound.
//!
//! Everything runs through [`crate::device::Executor`], so the same checks hold on the host and on GPUs. It never times
//! anything and never trusts a device for the reference. Start at [`check::qualify`]; `mix` and [`patterns`] say what
//! goes in, [`mod@reference`] and [`bound`] what must come out, [`mod@controls`] proves that the checks catch faults.

pub mod bits;
pub mod bound;
mod case;
pub mod check;
pub mod comparator;
pub mod controls;
pub mod mix;
pub mod patterns;
pub mod plan;
pub mod reference;
mod refusal;
pub mod soak;

pub use case::Case;
pub use check::{Proof, qualify};
pub use comparator::qualify_comparator;
pub use controls::{Control, Outcome, controls};
pub use plan::QualifyPlan;
pub use refusal::{Reason, Refusal};
pub use soak::{SoakPlan, Soaked, soak};

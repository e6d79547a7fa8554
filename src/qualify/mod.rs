//! Proofs that a collective is correct. Start at `mix`.
pub mod mix;

//! Hand-written kernels, compiled by the machine's C++ compiler, against an independent sum; and generated ones of
//! every idea that the planner has.

mod catches;
mod holds;
mod ideas;
mod kit;
mod model;
mod plain;

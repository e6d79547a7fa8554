//! Hand-written kernels, compiled by the machine's C++ compiler, against an independent sum.

mod catches;
mod holds;
mod kit;
mod model;

//! What is fastest here: times proven variants against what the user has today and says which serves.
//!
//! Whatever is timed has been qualified first; correctness itself is [`crate::qualify`]'s business. It never writes
//! routes and never prints. Start at [`tune`]; [`bench()`] is the same measurement without choosing.

mod bench;
pub mod geometry;
mod options;
pub mod payloads;
mod pool;
mod report;
mod run;
pub mod select;
pub mod trace;

pub use bench::{BenchReport, BenchRow, Figure, bench};
pub use options::{Compare, Progress, TuneError, TuneOptions};
pub use payloads::{PayloadError, Payloads};
pub use report::{ComparatorTime, LeftOut, Row, TuneReport};
pub use run::tune;
pub use trace::{CallShape, CallTrace, TraceError};

//! What is fastest here: times proven variants against what the user has today and says which serves.
//!
//! Whatever is timed has been qualified first; correctness itself is [`crate::qualify`]'s business. It never writes
//! routes and never prints. Start at [`tune`]; [`bench()`] is the same measurement without choosing.

mod bench;
pub mod geometry;
mod options;
pub mod payloads;
mod phases;
mod places;
mod pool;
mod projection;
mod report;
mod run;
pub mod select;
pub mod trace;

pub use bench::{BenchReport, BenchRow, Figure, bench};
pub use options::{Compare, Progress, TuneError, TuneOptions};
pub use payloads::{PayloadError, Payloads};
pub use phases::{Phase, Phases};
pub use places::{Place, Places, places};
pub use projection::{Projection, StepCalls, StepError, StepTime, project};
pub use report::{ComparatorTime, LeftOut, Loaded, Row, TuneReport};
pub use run::tune;
pub use trace::{CallShape, CallTrace, TraceError};

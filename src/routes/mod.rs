//! The rule table: which payload size is served by what, where and when that was measured, written and read whole.
//!
//! It never measures and never reads half a file. A table comes from a tuning on a real device ([`Routes::from_report`])
//! or from a file ([`Routes::read`]), and is proven again before it serves ([`requalify`]). Start at [`Routes`].

mod error;
mod file;
mod identity;
mod requalify;
mod table;

pub use error::RoutesError;
pub(crate) use file::write_whole;
pub use identity::{Identity, NcclIdentity};
pub use requalify::{Dropped, requalify};
pub use table::{Route, Routes, Served};

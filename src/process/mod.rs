//! Ranks that are processes: how they find each other, speak, share memory, agree, and notice that one of them is gone.
//!
//! A [`bootstrap`] brings a few bytes from everybody to everybody, once. With them a [`mesh`] of Unix sockets is made: it
//! carries descriptors, and its ends say at once when a process is gone. Over it, a [`heap`] of memory that all ranks map,
//! and a [`link`] on which ranks go step by step: all run the same program, and each step's outcome is the same on all.
//! Nothing here knows collectives or CUDA. Start at [`mesh::Mesh::join`].

pub mod bootstrap;
mod connect;
pub mod error;
pub mod heap;
pub mod link;
pub mod mesh;
pub mod watch;
pub mod wire;

pub use bootstrap::Bootstrap;
pub use error::JoinError;
pub use watch::Seen;

use std::time::Duration;

/// A patience that can be added to any time: at most a century.
pub(crate) fn bounded(patience: Duration) -> Duration {
    patience.min(Duration::from_secs(100 * 365 * 24 * 3600))
}

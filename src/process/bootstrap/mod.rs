//! How processes that know nothing of each other but their ranks come together: a few bytes from everybody to everybody.
//!
//! Three ways: [`local::LocalSocket`], an id of 128 bytes that the caller hands round; [`torchrun::torchrun`], what
//! `torchrun` puts into the environment; [`gather::Gather`], the caller's own all-gather. It is used for set-up only, for
//! a few hundred bytes a rank; everything after goes over the mesh. Start at [`Bootstrap`].

mod centre;
pub mod gather;
pub(super) mod lines;
pub mod local;
pub mod torchrun;

pub use gather::Gather;
pub use local::LocalSocket;
pub use torchrun::torchrun;

use super::JoinError;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// A connection that shows, between two gathers, that waiting for the others has become senseless.
#[derive(Clone, Copy, Debug)]
pub struct Alarm<'a> {
    /// Whose end it shows.
    pub rank: usize,
    /// The connection.
    pub fd: BorrowedFd<'a>,
    /// Anything to read is bad news too, not only its end.
    pub words: bool,
}

/// An all-gather of bytes between processes of one machine.
pub trait Bootstrap: Send {
    /// This process's rank.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn world(&self) -> usize;

    /// Everybody's bytes in the order of ranks. Every rank calls it, equally often.
    ///
    /// # Errors
    /// A rank is missing at `deadline`, gone, or does not belong here: it is named.
    fn all_gather(&mut self, mine: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>, JoinError>;

    /// What to watch while ranks connect to each other. None where the bootstrap does not notice ends by itself.
    fn alarms(&self) -> Vec<Alarm<'_>> {
        Vec::new()
    }
}

//! Serving: all-reduce calls on the caller's streams, by the routes that were proven and timed at set-up.
//!
//! One process with a stream a rank. Set-up places a family ([`Site`]), proves and times its variants or reads a route
//! table, and agrees on one table for all ranks; a call then only looks up a size and launches. What no route serves
//! goes to NCCL, or in pieces to a compiled variant where there is no NCCL. Start at [`Communicator`].

#[cfg(feature = "host-executor")]
mod host;

mod cuda;
mod dispatch;
mod error;
mod setup;
mod site;

pub use dispatch::{Call, Decision, Dispatch, Range};
pub use error::CommError;
pub use site::Site;

use crate::registry::{Partials, Registry};
use crate::tune::{Compare, Payloads};
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut};
use half::f16;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What to do when a route table was measured with something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Changed {
    /// Tune again, and write the new table over the old one.
    #[default]
    Retune,
    /// Serve everything by the comparator.
    Comparator,
    /// Fail.
    Strict,
}

/// How communicators are set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Families to choose from.
    pub registry: Registry,
    /// This family instead of the nearest.
    pub family: Option<String>,
    /// In which type sums are rounded.
    pub partials: Partials,
    /// Sizes that are tuned.
    pub payloads: Payloads,
    /// What routes must beat.
    pub comparators: Vec<Compare>,
    /// Also try programmatic launches. They pay only where the neighbouring kernels are launched so too, and up to seven
    /// further grids become resident while one spins: off by default.
    pub programmatic: bool,
    /// A table to read, or to write where there is none.
    pub routes: Option<PathBuf>,
    /// When that table does not belong here.
    pub changed: Changed,
    /// A failed proof is an error instead of a route less.
    pub strict: bool,
    /// How long a wait may last.
    pub deadline: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            registry: Registry::builtin(),
            family: None,
            partials: Partials::F16,
            payloads: Payloads::standard(),
            comparators: vec![Compare::Nccl, Compare::Pull],
            programmatic: false,
            routes: None,
            changed: Changed::Retune,
            strict: false,
            deadline: Duration::from_secs(30),
        }
    }
}

/// The reduction. Compiled routes sum; others are not offered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceOp {
    /// Addition.
    Sum,
}

enum Part {
    Cuda(cuda::CudaPart),
    #[cfg(feature = "host-executor")]
    Host(host::HostPart),
}

/// One rank's handle. `Send`, not `Sync`: a rank calls from one thread at a time, in the same order as all others.
pub struct Communicator {
    rank: usize,
    world: usize,
    dispatch: Dispatch,
    summary: Arc<str>,
    part: Part,
}

impl Communicator {
    /// Joins a stream a rank, all of this process; rank `r` serves on `streams[r]`.
    ///
    /// Proves and times routes, or reads and proves `options.routes`. Takes some seconds.
    ///
    /// # Errors
    /// No family fits, the device fails, or the policy is strict and something is not as it was.
    pub fn from_streams(streams: &[Arc<CudaStream>], options: &Options) -> Result<Vec<Self>, CommError> {
        setup::cuda(streams, options)
    }

    /// Joins `ranks` threads on the host executor: exact bits, no GPU, no meaningful times.
    ///
    /// # Errors
    /// The family is unknown or not a single variant of it passes its proof.
    #[cfg(feature = "host-executor")]
    pub fn on_host(family: &str, options: &Options) -> Result<Vec<Self>, CommError> {
        setup::host(family, options)
    }

    /// This rank, `0..world_size`.
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks take part.
    pub const fn world_size(&self) -> usize {
        self.world
    }

    /// Which family, which placement, which route for which size, how often each served, and why.
    pub fn explain(&self) -> String {
        format!("{}\n{}", self.summary, self.dispatch.explain())
    }

    /// The agreed table and this rank's counters.
    pub const fn dispatch(&self) -> &Dispatch {
        &self.dispatch
    }

    /// Sums `src` over all ranks into `dst`, enqueued on this rank's stream. Allocates nothing and waits for nothing on
    /// routes, so it may be captured into a graph; the communicators of all ranks must outlive every such graph and every
    /// call under way. A wait that runs past its deadline shows in the next call, or in [`Communicator::check`]. When one thread drives several ranks, wrap the ranks' calls in
    /// [`group`], as with NCCL.
    ///
    /// # Errors
    /// Lengths differ, nobody can serve the call, or an earlier call ran past its deadline: then the peer is named and
    /// the communicator stays dead.
    pub fn all_reduce<S: DevicePtr<f16>, R: DevicePtrMut<f16>>(
        &self,
        src: &S,
        dst: &mut R,
        _op: &ReduceOp,
    ) -> Result<(), CommError> {
        let part = self.cuda()?;
        if src.len() != dst.len() {
            return Err(CommError::Misuse {
                reason: format!(
                    "source has {} elements, destination {}: give equal lengths",
                    src.len(),
                    dst.len()
                ),
            });
        }
        part.at_home(src.stream().context().ordinal())?;
        part.at_home(dst.stream().context().ordinal())?;
        let count = src.len();
        let (from, _read) = src.device_ptr(part.stream());
        let (to, _written) = dst.device_ptr_mut(part.stream());
        part.call(&self.dispatch, from, to, count)
    }

    /// [`Communicator::all_reduce`] with one buffer.
    ///
    /// # Errors
    /// As there.
    pub fn all_reduce_in_place<R: DevicePtrMut<f16>>(&self, buffer: &mut R, _op: &ReduceOp) -> Result<(), CommError> {
        let part = self.cuda()?;
        part.at_home(buffer.stream().context().ordinal())?;
        let count = buffer.len();
        let (at, _written) = buffer.device_ptr_mut(part.stream());
        part.call(&self.dispatch, at, at, count)
    }

    /// Whether everything enqueued so far has ended in time, as far as it has ended: call it after synchronising, and
    /// after replaying a graph, whose kernels can tell nobody else.
    ///
    /// # Errors
    /// The timeout of any rank, with the peer that was missing. The communicator stays dead.
    pub fn check(&self) -> Result<(), CommError> {
        match &self.part {
            Part::Cuda(part) => part.check(),
            #[cfg(feature = "host-executor")]
            Part::Host(_) => Ok(()),
        }
    }

    /// Sums a slice over all ranks, in place, on the host executor. Waits for the other ranks.
    ///
    /// # Errors
    /// The size has no route, ranks do not call alike, or one stays away past the deadline: it is named.
    #[cfg(feature = "host-executor")]
    pub fn all_reduce_slice(&self, buffer: &mut [f16]) -> Result<(), CommError> {
        let Part::Host(part) = &self.part else {
            return Err(CommError::Misuse {
                reason: "this communicator serves GPU memory: use all_reduce".into(),
            });
        };
        let bytes = buffer.len() as u64 * 2;
        match self.dispatch.decide(Call { bytes, aligned: true }) {
            Decision::Nothing => Ok(()),
            Decision::Comparator(why) => Err(CommError::Unserved {
                reason: format!("{bytes} bytes: {why}, and the host executor has no comparator"),
            }),
            Decision::Range(range) => {
                let mut raw: Vec<u8> = buffer.iter().flat_map(|x| x.to_bits().to_le_bytes()).collect();
                part.call(self.rank, range, &mut raw, true)?;
                for (x, pair) in buffer.iter_mut().zip(raw.chunks_exact(2)) {
                    *x = f16::from_bits(u16::from_le_bytes([pair[0], pair[1]]));
                }
                Ok(())
            }
        }
    }

    fn cuda(&self) -> Result<&cuda::CudaPart, CommError> {
        match &self.part {
            Part::Cuda(part) => Ok(part),
            #[cfg(feature = "host-executor")]
            Part::Host(_) => Err(CommError::Misuse {
                reason: "this communicator serves host memory: use all_reduce_slice".into(),
            }),
        }
    }
}

/// Runs `calls`, which may call several ranks' collectives from one thread: those that NCCL serves start together.
///
/// # Errors
/// What `calls` returns, or NCCL's refusal.
pub fn group<T>(calls: impl FnOnce() -> Result<T, CommError>) -> Result<T, CommError> {
    cuda::group(calls)
}

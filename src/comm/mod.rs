//! Serving: all-reduce calls on the caller's streams, by the routes that were proven and timed at set-up.
//!
//! One process with a stream a rank, or a process a rank joined by a [`Bootstrap`]. Set-up places a family ([`Site`]),
//! proves and times its variants or reads a route table, and agrees on one table for all ranks; a call then only looks up
//! a size and launches. What no route serves goes to NCCL, or in pieces to a compiled variant where there is no NCCL.
//! Start at [`Communicator`].

#[cfg(feature = "host-executor")]
mod desk;
#[cfg(feature = "host-executor")]
mod host;
#[cfg(feature = "host-executor")]
mod process_host;

mod collectives;
mod cuda;
mod dispatch;
mod error;
mod id;
mod invariant;
mod memory;
mod op;
mod options;
mod order;
mod process;
mod raw;
mod scalar;
mod setup;
mod shapes;
mod site;
mod tables;
mod unmatched;

pub(crate) use collectives::{handle, holds, missing};
pub use dispatch::{Call, Decision, Dispatch, Range, Why};
pub use error::CommError;
pub use id::Id;
pub use memory::scratch_of;
pub use op::ReduceOp;
pub use options::{Changed, Options, UseNccl};
pub use raw::StreamHandle;
pub use scalar::{Dtype, Scalar};
pub use site::Site;

pub use crate::device::cuda::Way;
pub use crate::process::bootstrap;
pub use crate::process::{Bootstrap, JoinError};

use crate::tune::CallTrace;
use cudarc::driver::CudaStream;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

enum Part {
    Cuda(Box<cuda::CudaPart>),
    #[cfg(feature = "host-executor")]
    Host(host::HostPart),
    #[cfg(feature = "host-executor")]
    Process(Box<process_host::ProcessPart>),
}

/// One rank's handle. `Send`, not `Sync`: a rank calls from one thread at a time, in the same order as all others.
pub struct Communicator {
    rank: usize,
    world: usize,
    dispatch: Dispatch,
    summary: Arc<str>,
    /// Where the counted shapes go in the end.
    trace: Option<PathBuf>,
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

    /// Joins this process's stream with those of other processes, a rank each, as `bootstrap` brings them together.
    ///
    /// Every rank calls it with the same options. Proves and times routes together, or reads and proves
    /// `options.routes`, which rank 0 writes. The bootstrap is used for set-up only.
    ///
    /// # Errors
    /// As [`Communicator::from_streams`]; ranks that are missing, gone, or have another binary, other options or another
    /// route table are named.
    pub fn from_bootstrap(
        stream: &Arc<CudaStream>,
        bootstrap: &mut dyn Bootstrap,
        options: &Options,
    ) -> Result<Self, CommError> {
        process::cuda(stream, bootstrap, options)
    }

    /// Joins as `rank` of `world` processes of this machine, each with a GPU of its own, by an id that one of them made
    /// and all were given. [`Communicator::from_bootstrap`] with that id.
    ///
    /// # Errors
    /// As there.
    pub fn from_rank(
        stream: &Arc<CudaStream>,
        rank: usize,
        world: usize,
        id: &Id,
        options: &Options,
    ) -> Result<Self, CommError> {
        let mut bootstrap = bootstrap::LocalSocket::join(&id.bytes(), rank, world, options.patience)?;
        Self::from_bootstrap(stream, &mut bootstrap, options)
    }

    /// Joins `ranks` threads on the host executor: exact bits, no GPU, no meaningful times.
    ///
    /// # Errors
    /// The family is unknown or not a single variant of it passes its proof.
    #[cfg(feature = "host-executor")]
    pub fn on_host(family: &str, options: &Options) -> Result<Vec<Self>, CommError> {
        setup::host(family, options)
    }

    /// Joins this process with others, a rank each, on the processor: exact bits, no GPU, no meaningful times.
    ///
    /// # Errors
    /// As [`Communicator::from_bootstrap`] and [`Communicator::on_host`].
    #[cfg(feature = "host-executor")]
    pub fn on_host_from_bootstrap(
        family: &str,
        bootstrap: &mut dyn Bootstrap,
        options: &Options,
    ) -> Result<Self, CommError> {
        process_host::join(family, bootstrap, options)
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
            #[cfg(feature = "host-executor")]
            Part::Process(part) => part.check(),
        }
    }

    /// The stream that the typed calls are enqueued on; none on the host executor.
    pub fn stream(&self) -> Option<&Arc<CudaStream>> {
        match &self.part {
            Part::Cuda(part) => Some(part.stream()),
            #[cfg(feature = "host-executor")]
            Part::Host(_) | Part::Process(_) => None,
        }
    }

    /// The all-reduces so far by shape, and how many found no room in the table; nothing unless [`Options::trace`] is
    /// set. Replays of graphs are not seen: a captured call counts once.
    pub fn shapes(&self) -> (CallTrace, u64) {
        let shapes = match &self.part {
            Part::Cuda(part) => part.shapes(),
            #[cfg(feature = "host-executor")]
            Part::Host(part) => part.shapes(),
            #[cfg(feature = "host-executor")]
            Part::Process(_) => None,
        };
        shapes.map(shapes::Shapes::trace).unwrap_or_default()
    }

    /// Writes [`Communicator::shapes`] to a file, whole or not at all.
    ///
    /// # Errors
    /// Nothing was counted, or the file cannot be written.
    pub fn write_trace(&self, path: &Path) -> Result<(), CommError> {
        let (trace, left_out) = self.shapes();
        let misuse = |reason: String| CommError::Misuse { reason };
        if trace.shapes().next().is_none() {
            return Err(misuse(
                "no calls were counted: set Options::trace or TOPOFORGE_TRACE before set-up".to_owned(),
            ));
        }
        trace.write(path).map_err(|e| misuse(e.to_string()))?;
        if left_out > 0 {
            return Err(misuse(format!(
                "{left_out} calls of further shapes found no room in the trace"
            )));
        }
        Ok(())
    }

    /// Sums a slice over all ranks, in place, on the host executor. Waits for the other ranks.
    ///
    /// # Errors
    /// The size has no route, ranks do not call alike, or one stays away past the deadline: it is named.
    #[cfg(feature = "host-executor")]
    pub fn all_reduce_slice<T: Scalar>(&self, buffer: &mut [T]) -> Result<(), CommError> {
        match &self.part {
            Part::Host(part) => part.all_reduce(&self.dispatch, self.rank, buffer),
            Part::Process(part) => part.all_reduce(&self.dispatch, buffer),
            Part::Cuda(_) => Err(CommError::Misuse {
                reason: "this communicator serves GPU memory: use all_reduce".into(),
            }),
        }
    }

    fn cuda(&self) -> Result<&cuda::CudaPart, CommError> {
        match &self.part {
            Part::Cuda(part) => Ok(part),
            #[cfg(feature = "host-executor")]
            Part::Host(_) | Part::Process(_) => Err(CommError::Misuse {
                reason: "this communicator serves host memory: use all_reduce_slice".into(),
            }),
        }
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, world, .. } = self;
        write!(f, "Communicator {{ rank: {rank} of {world}, .. }}")
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // All ranks call alike, so one of them tells for all.
        if let Some(path) = self.trace.take().filter(|_| self.rank == 0)
            && let (trace, _) = self.shapes()
            && trace.shapes().next().is_some()
            && let Err(error) = trace.write(&path)
        {
            eprintln!("topoforge: the trace of calls is lost: {error}");
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

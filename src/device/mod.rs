//! Where collectives run: one trait and its two houses, `cuda` and `host`.
//!
//! An executor prepares a variant (loads its kernel, makes scratch), runs chains of dependent calls and returns every
//! output, and times calls. It decides nothing: what is correct is `qualify`'s business, what is fast `tune`'s.
//! Start at [`Executor`].

pub mod abi;
pub mod cuda;
pub mod edges;
pub mod floor;
#[cfg(feature = "host-executor")]
pub mod host;
pub mod lines;
pub mod soak;
pub(crate) mod verdict;

use crate::registry::{Element, Partials, Variant};
use std::fmt;

/// Blocks and threads of a launch, the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Geometry {
    /// Blocks of the grid.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// How the grid follows the one before it.
    pub launch: Launch,
}

impl Geometry {
    /// A plain launch.
    pub const fn new(blocks: u32, threads: u32) -> Self {
        Self {
            blocks,
            threads,
            launch: Launch::Plain,
        }
    }

    /// The same, launched otherwise.
    #[must_use]
    pub const fn launched(mut self, launch: Launch) -> Self {
        self.launch = launch;
        self
    }
}

/// `5x64`, with a `p` behind a programmatic launch and an `e` behind an early one.
impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.launch {
            Launch::Plain => "",
            Launch::Programmatic => "p",
            Launch::Early => "e",
        };
        f.pad(&format!("{}x{}{mark}", self.blocks, self.threads))
    }
}

/// What an executor runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// `host` or `cuda`.
    pub kind: &'static str,
    /// One name a rank, e.g. `NVIDIA H200`.
    pub names: Vec<String>,
    /// Device ordinal of each rank; equal numbers are virtual ranks sharing a GPU.
    pub ordinals: Vec<usize>,
    /// Compute capability, e.g. 90; 0 on the host.
    pub arch: u32,
    /// Whether times mean anything: not on the host, not with virtual ranks.
    pub timed: bool,
}

/// Something to compare with that is not one of our variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparator {
    /// NCCL on elements of a type; with `F32` partials of others it gets f32 tensors and both conversions belong to the
    /// call.
    Nccl(NcclSetting, Element, Partials),
    /// Peer reads of f16 in two stages: each rank sums its part of all inputs, then reads the other ranks' parts. Inputs are
    /// read where they lie; sums are rounded in this type.
    TwoStagePull(Partials),
}

impl Comparator {
    /// The type of its elements.
    pub const fn element(self) -> Element {
        match self {
            Self::Nccl(_, element, _) => element,
            Self::TwoStagePull(_) => Element::F16,
        }
    }

    /// In which type sums are rounded.
    pub const fn partials(self) -> Partials {
        match self {
            Self::Nccl(_, _, partials) | Self::TwoStagePull(partials) => partials,
        }
    }
}

/// How NCCL is told to work. It reads its environment anew for every communicator, so several can stand side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NcclSetting {
    /// As the caller's environment says.
    AsFound,
    /// With its protocol of data and flags in one word.
    Ll,
    /// With its rings only.
    Ring,
}

impl NcclSetting {
    /// The variable that asks for it, and its value.
    pub const fn variable(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::AsFound => None,
            Self::Ll => Some(("NCCL_PROTO", "LL")),
            Self::Ring => Some(("NCCL_ALGO", "Ring")),
        }
    }
}

/// A collective that an executor has prepared. Only valid for the executor that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prepared(pub usize);

/// What [`Executor::prepare`] needs besides the variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// The largest payload of any call, in bytes.
    pub max_bytes: u64,
    /// Threads of a block; fixed for the life of the scratch, since a `flag` tile is that many columns.
    pub threads: u32,
    /// A fault to plant, for negative controls.
    pub fault: Option<Fault>,
}

/// How a kernel follows the one before it in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Launch {
    /// It starts when that one has ended.
    #[default]
    Plain,
    /// It is made ready when the blocks of that one have left and waits on the device for the end of its memory
    /// traffic (compute capability 9.0 and up). Saves a fraction of a microsecond where the neighbours are launched so too.
    Programmatic,
    /// The same, and it lets the grid behind become resident from the start. A little faster still for small grids, but
    /// up to seven further grids wait on the GPU beside one that spins.
    Early,
}

/// Grids that may wait beside one that spins, itself included, when launches are early.
const EARLY_GRIDS: u32 = 8;

impl Launch {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Programmatic, Self::Early];
    /// The programmatic modes.
    pub const PROGRAMMATIC: [Self; 2] = [Self::Programmatic, Self::Early];

    /// The name in reports and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Programmatic => "programmatic",
            Self::Early => "early",
        }
    }

    /// Whether the device must be able to make a grid ready while another runs.
    pub const fn is_programmatic(self) -> bool {
        !matches!(self, Self::Plain)
    }

    /// How many blocks may be launched where `resident` fit on the GPU at once.
    pub const fn most_blocks(self, resident: u32) -> u32 {
        match self {
            Self::Plain | Self::Programmatic => resident,
            Self::Early => resident / EARLY_GRIDS,
        }
    }

    /// The value of a name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|l| l.name() == name)
    }
}

/// Faults that prove the checks. Every executor supports those that it says it does in [`Executor::plants`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// One rank's contribution is replaced by zeros on its way to one peer.
    DroppedContribution,
    /// One buffer instead of two: a put may overwrite what a slow reader still needs.
    SingleBuffer,
    /// Readers look at the other buffer: data of the previous call.
    StaleHalf,
    /// One rank's counters start one ahead.
    SwappedCounter,
    /// System fences do nothing.
    NoFence,
    /// Block barriers do nothing.
    NoBarrier,
    /// The first poll of every wait is believed.
    NoWait,
    /// Counters never advance.
    FrozenCounter,
    /// The parts of a 128-byte line arrive one by one.
    TornLine,
}

/// Eager launches, or a captured graph replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Each call is launched.
    Eager,
    /// The calls are captured once and replayed this many times.
    Graph {
        /// At least 1.
        replays: u32,
    },
}

/// Calls each of which takes its inputs from the previous one's outputs through the mixing node
/// ([`crate::qualify::mix`]).
#[derive(Clone, Debug)]
pub struct Chain<'a> {
    /// What is called.
    pub collective: Prepared,
    /// Same on all ranks.
    pub geometry: Geometry,
    /// Payload a rank: a whole number of elements, at most the prepared maximum.
    pub bytes: u64,
    /// Dependent calls (of one replay).
    pub calls: u32,
    /// First inputs, one slice of `bytes` a rank.
    pub inputs: &'a [Vec<u8>],
    /// Seed of the mixing nodes.
    pub mix_seed: u32,
    /// Whether mixing may make infinities, NaNs and other special values.
    pub specials: bool,
    /// Eager or captured.
    pub mode: Mode,
    /// This rank is held back by so many nanoseconds before each call.
    pub skew: Option<(usize, u64)>,
    /// Output and input are the same buffer.
    pub in_place: bool,
}

/// # Errors
/// [`DeviceError::Misuse`] for a payload that is no positive number of whole elements.
pub(crate) fn whole(bytes: u64, element: Element) -> Result<(), DeviceError> {
    let size = element.bytes() as u64;
    if bytes > 0 && bytes.is_multiple_of(size) {
        return Ok(());
    }
    let reason = format!("{bytes} bytes are no payload: give a positive multiple of {size}, the size of {element}");
    Err(DeviceError::Misuse { reason })
}

/// `outputs[call][rank]`, replay after replay, each `bytes` long.
pub type Outputs = Vec<Vec<Vec<u8>>>;

/// One candidate of a timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// What is called.
    pub collective: Prepared,
    /// Same on all ranks.
    pub geometry: Geometry,
    /// Payload a rank.
    pub bytes: u64,
    /// Output over the input.
    pub in_place: bool,
}

/// How samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Dependent calls a sample, in one captured graph.
    pub calls: u32,
    /// Samples thrown away first.
    pub warmups: u32,
    /// Samples kept.
    pub samples: u32,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            calls: 128,
            warmups: 3,
            samples: 9,
        }
    }
}

/// Runs collectives on some kind of device.
pub trait Executor {
    /// What this is.
    fn device(&self) -> &DeviceInfo;

    /// How many ranks take part.
    fn ranks(&self) -> usize;

    /// Loads a variant's kernel and makes scratch on every rank. Not while a collective is in flight.
    ///
    /// # Errors
    /// The variant does not fit this device or the driver refuses.
    fn prepare(&mut self, variant: &'static Variant, preparation: &Preparation) -> Result<Prepared, DeviceError>;

    /// Prepares something to compare with.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] where it is not to be had here.
    fn prepare_comparator(&mut self, comparator: Comparator, max_bytes: u64) -> Result<Prepared, DeviceError>;

    /// Frees what `prepare` made. Unknown ids are ignored.
    fn release(&mut self, collective: Prepared);

    /// The most blocks of `threads` threads that may spin at once on every rank's device.
    ///
    /// # Errors
    /// Unknown collective, or the driver refuses.
    fn max_blocks(&self, collective: Prepared, threads: u32) -> Result<u32, DeviceError>;

    /// Runs a chain from poisoned outputs and returns every output of every call.
    ///
    /// # Errors
    /// [`DeviceError::Timeout`] names the missing peer; the collective is dead afterwards.
    fn run(&mut self, chain: &Chain<'_>) -> Result<Outputs, DeviceError>;

    /// Microseconds a call, one list of samples a candidate; samples of all candidates are interleaved, each is the
    /// slowest rank's.
    ///
    /// # Errors
    /// As [`Executor::run`].
    fn time(&mut self, candidates: &[Timed], sampling: &Sampling) -> Result<Vec<Vec<f64>>, DeviceError>;

    /// As [`Executor::time`], but `times[candidate][rank]`: every rank's samples by themselves. Where ranks have no clocks of
    /// their own, all have the slowest one's.
    ///
    /// # Errors
    /// As there.
    fn time_ranks(&mut self, candidates: &[Timed], sampling: &Sampling) -> Result<Vec<Vec<Vec<f64>>>, DeviceError> {
        let ranks = self.ranks();
        let all = self.time(candidates, sampling)?;
        Ok(all.into_iter().map(|samples| vec![samples; ranks]).collect())
    }

    /// As [`Executor::time`], with so many busy streams on every GPU, which copy and compute during each sample.
    ///
    /// # Errors
    /// As there; [`DeviceError::Unavailable`] where times mean nothing.
    fn time_under_load(
        &mut self,
        _candidates: &[Timed],
        _sampling: &Sampling,
        _streams: u32,
    ) -> Result<Vec<Vec<f64>>, DeviceError> {
        let reason = format!(
            "the {} executor has no load: its times mean nothing",
            self.device().kind
        );
        Err(DeviceError::Unavailable { reason })
    }

    /// Runs a soak and checks every word on the device; tells from time to time how far it is. Ends early once words are
    /// wrong. None where this executor cannot check on the device.
    ///
    /// # Errors
    /// As [`Executor::run`].
    fn soak(
        &mut self,
        _soak: &soak::Soak<'_>,
        _progress: &mut dyn FnMut(&soak::Tally),
    ) -> Result<Option<soak::Tally>, DeviceError> {
        Ok(None)
    }

    /// Lets rank `from` overwrite 128-byte lines in memory of rank `to`, which looks whether any is part old, part new.
    /// None where nothing can be told by looking.
    ///
    /// # Errors
    /// As [`Executor::run`].
    fn watch_lines(&mut self, _from: usize, _to: usize) -> Result<Option<lines::LineTally>, DeviceError> {
        Ok(None)
    }

    /// What one served launch of a prepared variant costs the thread that makes it.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] where nothing is launched.
    fn launch_cost(&mut self, _timed: &Timed) -> Result<floor::LaunchCost, DeviceError> {
        let reason = format!("the {} executor launches nothing", self.device().kind);
        Err(DeviceError::Unavailable { reason })
    }

    /// Measures what launches, copies and words to a peer cost here, for these payloads and launch modes (those that the
    /// device has).
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] where times mean nothing.
    fn floor(
        &mut self,
        _payloads: &[u64],
        _launches: &[Launch],
        _sampling: &Sampling,
    ) -> Result<floor::Floor, DeviceError> {
        let reason = format!(
            "the {} executor has no floor: its times mean nothing",
            self.device().kind
        );
        Err(DeviceError::Unavailable { reason })
    }

    /// Whether a fault can be planted here.
    fn plants(&self, fault: Fault) -> bool;
}

/// What went wrong on a device, and whose fault it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// A wait ran past its deadline.
    Timeout {
        /// Who waited.
        rank: usize,
        /// For whom.
        peer: Option<usize>,
        /// In which stage.
        stage: u32,
        /// Column, tile or block.
        column: u32,
    },
    /// The collective is dead since an earlier error.
    Poisoned,
    /// A rank's process is gone or does not answer. Whatever it shared with others is dead.
    Lost {
        /// Which one, where it is known.
        rank: Option<usize>,
        /// What was going on.
        reason: String,
    },
    /// The driver refused a call.
    Driver {
        /// The driver's function.
        call: &'static str,
        /// Its numeric code.
        code: i32,
        /// What to do about it, where known.
        hint: &'static str,
    },
    /// Not in this build or not on this machine.
    Unavailable {
        /// What is missing and how to get it.
        reason: String,
    },
    /// A kernel did what no kernel may: wrote outside of its buffers, or never ended. A bug of the generator.
    KernelFault {
        /// Which kernel and what it did.
        reason: String,
    },
    /// The caller asked for something that cannot be.
    Misuse {
        /// What, and what would do.
        reason: String,
    },
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout {
                rank,
                peer: Some(peer),
                stage,
                column,
            } => {
                write!(
                    f,
                    "rank {rank} waited past the deadline for rank {peer} (stage {stage}, column {column})"
                )
            }
            Self::Timeout {
                rank,
                peer: None,
                stage,
                column,
            } => {
                write!(
                    f,
                    "rank {rank} waited past the deadline (stage {stage}, column {column})"
                )
            }
            Self::Poisoned => f.write_str("the collective died in an earlier call: build it anew"),
            Self::Driver { call, code, hint: "" } => write!(f, "{call} failed with code {code}"),
            Self::Driver { call, code, hint } => write!(f, "{call} failed with code {code}: {hint}"),
            Self::KernelFault { reason } => write!(f, "kernel fault: {reason}"),
            Self::Lost { reason, .. } | Self::Unavailable { reason } | Self::Misuse { reason } => f.write_str(reason),
        }
    }
}

impl std::error::Error for DeviceError {}

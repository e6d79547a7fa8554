//! What a caller asks of tuning, what it hears on the way, and how asking can fail.

use super::payloads::Payloads;
use super::report::{LeftOut, Row};
use crate::device::{DeviceError, Launch, Sampling};
use crate::qualify::QualifyPlan;
use crate::registry::{Memory, Partials};
use std::fmt;

/// What a compiled route is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Compare {
    /// NCCL as found; with f32 partials on f32 tensors, both conversions timed.
    Nccl,
    /// The compiled peer-read kernels.
    Pull,
    /// Nothing: every proven route is taken.
    None,
}

impl Compare {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = &[Self::Nccl, Self::Pull, Self::None];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nccl => "nccl",
            Self::Pull => "pull",
            Self::None => "none",
        }
    }

    /// The value of a name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.name() == name)
    }
}

impl fmt::Display for Compare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is tuned and how.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// Sizes.
    pub payloads: Payloads,
    /// In which type sums are rounded.
    pub partials: Partials,
    /// Where slots may lie: `Peer` where all ranks reach each other, else `Host`.
    pub memory: Memory,
    /// How kernels may be launched; what a device does not have is passed over.
    pub launches: Vec<Launch>,
    /// The fastest available of these must be beaten. All are timed, and peer-read kernels always.
    pub comparators: Vec<Compare>,
    /// For the last, interleaved round.
    pub sampling: Sampling,
    /// For the first round, which finds each variant's geometry.
    pub coarse: Sampling,
    /// Variants with geometries that the first round takes for one payload.
    pub max_candidates: usize,
    /// Variants that the last round takes for one payload.
    pub finalists: usize,
    /// What each variant must pass; the tuned payloads and their geometries are added.
    pub qualify: QualifyPlan,
}

impl Default for TuneOptions {
    fn default() -> Self {
        Self {
            payloads: Payloads::standard(),
            partials: Partials::F16,
            memory: Memory::Peer,
            launches: vec![Launch::Plain],
            comparators: vec![Compare::Nccl],
            sampling: Sampling::default(),
            coarse: Sampling {
                calls: 32,
                warmups: 1,
                samples: 3,
            },
            max_candidates: 48,
            finalists: 4,
            qualify: QualifyPlan::quick(),
        }
    }
}

/// What is going on, for a progress bar.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// A variant's proof begins.
    Qualifying {
        /// Its name.
        variant: String,
        /// Proofs done.
        done: usize,
        /// Proofs in all.
        of: usize,
    },
    /// A variant or comparator takes no part.
    LeftOut(LeftOut),
    /// A payload's timing begins.
    Timing {
        /// The payload.
        bytes: u64,
        /// Variants with geometries in its first round.
        candidates: usize,
        /// Payloads done.
        done: usize,
        /// Payloads in all.
        of: usize,
    },
    /// A payload of [`super::tune`] is decided.
    Decided(Box<Row>),
}

/// Why nothing could be tuned.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TuneError {
    /// The caller asked for something that cannot be.
    Misuse {
        /// What, and what would do.
        reason: String,
    },
    /// The family has no variants for these partials and memory.
    NoVariants {
        /// The family.
        family: String,
        /// The partials.
        partials: Partials,
        /// The memory.
        memory: Memory,
    },
    /// The device fails whatever is run.
    Device(DeviceError),
}

impl fmt::Display for TuneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misuse { reason } => f.write_str(reason),
            Self::NoVariants {
                family,
                partials,
                memory,
            } => write!(
                f,
                "family {family} has no compiled variants with {partials} partials and slots in {memory} memory: `topoforge families` lists what it has"
            ),
            Self::Device(error) => write!(f, "the device fails: {error}"),
        }
    }
}

impl std::error::Error for TuneError {}

//! What a caller asks of tuning, what it hears on the way, and how asking can fail.

use super::payloads::Payloads;
use super::report::{LeftOut, Row};
use crate::device::{DeviceError, Launch, NcclSetting, Sampling};
use crate::qualify::QualifyPlan;
use crate::registry::{Element, Memory, Partials};
use std::fmt;

/// What a compiled route is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Compare {
    /// NCCL as found; with f32 partials on f32 tensors, both conversions timed.
    Nccl,
    /// NCCL with `NCCL_PROTO=LL`. That variable is set while its communicators are made: not in a program where another
    /// thread may read the environment meanwhile other than through Rust's standard library.
    NcclLl,
    /// NCCL with `NCCL_ALGO=Ring`; set like the other one.
    NcclRing,
    /// The peer-read kernels: one stage, and two stages where ranks are of one process.
    Pull,
    /// Nothing: every proven route is taken.
    None,
}

impl Compare {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = &[Self::Nccl, Self::NcclLl, Self::NcclRing, Self::Pull, Self::None];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nccl => "nccl",
            Self::NcclLl => "nccl-ll",
            Self::NcclRing => "nccl-ring",
            Self::Pull => "pull",
            Self::None => "none",
        }
    }

    /// Which NCCL it stands for, if any.
    pub const fn nccl(self) -> Option<NcclSetting> {
        match self {
            Self::Nccl => Some(NcclSetting::AsFound),
            Self::NcclLl => Some(NcclSetting::Ll),
            Self::NcclRing => Some(NcclSetting::Ring),
            Self::Pull | Self::None => None,
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
    /// Type of inputs and outputs.
    pub element: Element,
    /// In which type sums are rounded.
    pub partials: Partials,
    /// Where slots may lie: `Peer` where all ranks reach each other, else `Host`.
    pub memory: Memory,
    /// How kernels may be launched; what a device does not have is passed over.
    pub launches: Vec<Launch>,
    /// These variants and no others, at every payload, whatever shortlists say; none for the shortlists.
    pub only: Option<Vec<&'static str>>,
    /// The fastest available of these must be beaten. All are timed, and peer-read kernels always.
    pub comparators: Vec<Compare>,
    /// For the last, interleaved round.
    pub sampling: Sampling,
    /// For the first rounds, which find each variant's geometry.
    pub coarse: Sampling,
    /// Variants with geometries that the very first round takes for one payload.
    pub max_candidates: usize,
    /// Variants whose other geometries are tried for one payload, besides peer reads.
    pub refined: usize,
    /// Variants that the last round takes for one payload.
    pub finalists: usize,
    /// Busy streams on every GPU beside which a route must not lose either; none: not tried.
    pub concurrency: u32,
    /// For samples under that load, which is enqueued for so many calls.
    pub loaded: Sampling,
    /// What each variant must pass; the tuned payloads and their geometries are added.
    pub qualify: QualifyPlan,
}

impl Default for TuneOptions {
    fn default() -> Self {
        Self {
            payloads: Payloads::standard(),
            element: Element::F16,
            partials: Partials::Element,
            memory: Memory::Peer,
            only: None,
            launches: vec![Launch::Plain],
            comparators: vec![Compare::Nccl],
            sampling: Sampling::default(),
            coarse: Sampling {
                calls: 32,
                warmups: 0,
                samples: 3,
            },
            max_candidates: 48,
            refined: 3,
            finalists: 4,
            concurrency: 0,
            loaded: Sampling {
                calls: 32,
                warmups: 1,
                samples: 7,
            },
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
        /// Variants with geometries in its very first round.
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
    /// The family has no variants for these elements, partials and memory.
    NoVariants {
        /// The family.
        family: String,
        /// The element type.
        element: Element,
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
                element,
                partials,
                memory,
            } => write!(
                f,
                "family {family} has no compiled variants of {element} elements with {} partials and slots in {memory} memory: `topoforge families` lists what it has, feature `{element}` of topoforge compiles kernels for {element}",
                partials.sums(*element)
            ),
            Self::Device(error) => write!(f, "the device fails: {error}"),
        }
    }
}

impl std::error::Error for TuneError {}

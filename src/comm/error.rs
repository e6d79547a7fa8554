//! How setting up or calling a communicator can fail, and whose fault it is.

use crate::device::DeviceError;
use crate::probe::ProbeError;
use crate::process::JoinError;
use crate::routes::RoutesError;
use crate::tune::TuneError;
use std::fmt;

/// An error of a [`super::Communicator`].
#[derive(Debug)]
#[non_exhaustive]
pub enum CommError {
    /// The machine cannot be read.
    Probe(ProbeError),
    /// No compiled family fits the machine; one reason a family.
    NoFamily {
        /// `family: reason`.
        reasons: Vec<String>,
    },
    /// Tuning failed as a whole.
    Tune(TuneError),
    /// The route table is unusable and the policy does not allow another.
    Routes(RoutesError),
    /// The table was measured elsewhere or with something else, and the policy is [`super::Changed::Strict`].
    ChangedIdentity {
        /// One line a difference.
        differences: Vec<String>,
    },
    /// A route failed its proof and the policy is strict.
    Refused {
        /// Variant and reason.
        reasons: Vec<String>,
    },
    /// Processes could not be joined: the rank at fault is named.
    Join(JoinError),
    /// The device failed; a timeout names the missing peer. The communicator is dead.
    Device(DeviceError),
    /// Neither a compiled route nor a comparator can serve the call.
    Unserved {
        /// What the call was and what would serve it.
        reason: String,
    },
    /// A call cannot be made to follow the earlier ones on the device.
    Order {
        /// Why, and what would do.
        reason: String,
    },
    /// The caller passed something that cannot be.
    Misuse {
        /// What, and what would do.
        reason: String,
    },
}

impl fmt::Display for CommError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Probe(e) => e.fmt(f),
            Self::NoFamily { reasons } => {
                write!(f, "no compiled family fits this machine ({})", reasons.join("; "))
            }
            Self::Tune(e) => e.fmt(f),
            Self::Routes(e) => e.fmt(f),
            Self::ChangedIdentity { differences } => {
                write!(
                    f,
                    "the route table does not belong to this machine: {}; measure again with `topoforge tune`",
                    differences.join("; ")
                )
            }
            Self::Refused { reasons } => write!(f, "routes failed their proof: {}", reasons.join("; ")),
            Self::Join(e) => e.fmt(f),
            Self::Device(e) => e.fmt(f),
            Self::Unserved { reason } | Self::Order { reason } | Self::Misuse { reason } => f.write_str(reason),
        }
    }
}

impl std::error::Error for CommError {}

impl From<DeviceError> for CommError {
    fn from(e: DeviceError) -> Self {
        Self::Device(e)
    }
}

impl From<JoinError> for CommError {
    fn from(e: JoinError) -> Self {
        Self::Join(e)
    }
}

impl From<ProbeError> for CommError {
    fn from(e: ProbeError) -> Self {
        Self::Probe(e)
    }
}

impl From<RoutesError> for CommError {
    fn from(e: RoutesError) -> Self {
        Self::Routes(e)
    }
}

impl From<TuneError> for CommError {
    fn from(e: TuneError) -> Self {
        Self::Tune(e)
    }
}

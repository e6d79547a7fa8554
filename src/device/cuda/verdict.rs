//! Where kernels report that they waited in vain, and what is read there. Start at [`Reports`].

use crate::device::DeviceError;
use crate::device::abi::Status;
use crate::device::verdict::{decode, gone, missing};
use crate::driver::memfd::SharedMemory;
use crate::driver::memory::MappedHost;
use crate::process::Seen;
use crate::registry::Variant;
use std::sync::Arc;

/// Words from one rank's status to the next: a line each.
pub(super) const STATUS_WORDS: usize = 16;

/// Where the ranks' kernels report.
#[derive(Clone)]
pub(super) enum Reports {
    /// All ranks are of this process.
    Here(Arc<MappedHost>),
    /// A rank's part each, in memory that processes share, and what is known of those processes.
    Shared(Arc<[(Arc<SharedMemory>, usize)]>, Arc<Seen>),
}

impl Reports {
    /// The status of a rank as it is now.
    pub fn status(&self, rank: usize) -> Status {
        match self {
            Self::Here(host) => decode(|word| host.read_u32(rank * STATUS_WORDS + word)),
            Self::Shared(parts, _) => match parts.get(rank) {
                Some((memory, at)) => decode(|word| memory.load(at + 4 * word)),
                None => Status::default(),
            },
        }
    }

    /// What has gone wrong so far: host memory, a load a rank.
    pub fn verdict(&self, variant: &Variant) -> Result<(), DeviceError> {
        if let Self::Shared(_, seen) = self {
            gone(seen)?;
        }
        missing(variant, |rank| self.status(rank)).map_or(Ok(()), Err)
    }
}

//! How memory of this rank's GPU and registered host memory reach the ranks of other processes.
//!
//! Descriptors first, since such memory outlives its maker; handles of 64 bytes where those are not to be had. Start at
//! [`Way`].

use crate::device::DeviceError;
use crate::driver::context::Context;
use crate::driver::memfd::SharedMemory;
use crate::driver::memory::{DeviceBuffer, RegisteredHost};
use crate::driver::{ipc, vmm};
use crate::process::heap::{Made, Mapped, Provider, refused};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How device memory travels between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Not at all: different processes meet in host memory only.
    Staged,
    /// CUDA IPC handles. A peer that dies may take memory from under a kernel.
    Ipc,
    /// File descriptors of the virtual memory interface, counted by the driver.
    Descriptors,
}

impl Way {
    /// The name in reports and in `TOPOFORGE_SHARE`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Ipc => "ipc",
            Self::Descriptors => "vmm",
        }
    }

    /// The best one that this device offers.
    pub fn best(context: &Context) -> Self {
        if vmm::supported(context).unwrap_or(false) {
            Self::Descriptors
        } else {
            Self::Ipc
        }
    }

    /// The next one to try.
    pub const fn worse(self) -> Self {
        match self {
            Self::Descriptors => Self::Ipc,
            Self::Ipc | Self::Staged => Self::Staged,
        }
    }

    /// From a number that travelled.
    pub const fn of(number: u8) -> Self {
        match number {
            0 => Self::Staged,
            1 => Self::Ipc,
            _ => Self::Descriptors,
        }
    }

    /// What makes and maps memory this way.
    pub fn provider(self, context: &Arc<Context>) -> Option<Box<dyn Provider>> {
        let context = context.clone();
        match self {
            Self::Staged => None,
            Self::Ipc => Some(Box::new(Handles(context))),
            Self::Descriptors => Some(Box::new(Descriptors(context))),
        }
    }
}

struct Descriptors(Arc<Context>);

impl Mapped for vmm::Memory {
    fn address(&self) -> u64 {
        Self::address(self)
    }
}

impl Provider for Descriptors {
    fn name(&self) -> &'static str {
        Way::Descriptors.name()
    }

    fn make(&mut self, bytes: u64) -> Result<Made, DeviceError> {
        let memory = vmm::Memory::create(&self.0, bytes)?;
        let (fd, size) = (memory.export()?, memory.bytes());
        Ok(Made {
            own: Box::new(memory),
            // Devices may round differently.
            token: size.to_le_bytes().to_vec(),
            fd: Some(fd),
        })
    }

    fn open(&mut self, token: &[u8], fd: Option<OwnedFd>, _bytes: u64) -> Result<Box<dyn Mapped>, DeviceError> {
        let (Some(fd), Ok(size)) = (fd, token.try_into()) else {
            return Err(missing());
        };
        Ok(Box::new(vmm::Memory::import(&self.0, &fd, u64::from_le_bytes(size))?))
    }
}

struct Handles(Arc<Context>);

impl Mapped for DeviceBuffer {
    fn address(&self) -> u64 {
        Self::address(self)
    }

    fn outlives_its_maker(&self) -> bool {
        false
    }
}

impl Mapped for ipc::Mapping {
    fn address(&self) -> u64 {
        Self::address(self)
    }

    fn outlives_its_maker(&self) -> bool {
        false
    }
}

impl Provider for Handles {
    fn name(&self) -> &'static str {
        Way::Ipc.name()
    }

    fn make(&mut self, bytes: u64) -> Result<Made, DeviceError> {
        let memory = DeviceBuffer::new(&self.0, bytes)?;
        Ok(Made {
            token: ipc::export(&self.0, memory.address())?,
            own: Box::new(memory),
            fd: None,
        })
    }

    fn open(&mut self, token: &[u8], _fd: Option<OwnedFd>, _bytes: u64) -> Result<Box<dyn Mapped>, DeviceError> {
        Ok(Box::new(ipc::Mapping::open(&self.0, token)?))
    }
}

/// Host memory that all ranks map and their GPUs address.
pub(super) struct Registered(pub Arc<Context>);

impl Mapped for RegisteredHost {
    fn address(&self) -> u64 {
        Self::address(self)
    }

    fn host(&self) -> Option<&Arc<SharedMemory>> {
        Some(self.memory())
    }
}

impl Provider for Registered {
    fn name(&self) -> &'static str {
        "registered host memory"
    }

    fn make(&mut self, bytes: u64) -> Result<Made, DeviceError> {
        let failed = |e: std::io::Error| refused("making shared memory", &e);
        let memory = SharedMemory::create(usize::try_from(bytes).unwrap_or(usize::MAX)).map_err(failed)?;
        let fd = memory.fd().try_clone_to_owned().map_err(failed)?;
        Ok(Made {
            own: Box::new(RegisteredHost::new(&self.0, memory)?),
            token: Vec::new(),
            fd: Some(fd),
        })
    }

    fn open(&mut self, _token: &[u8], fd: Option<OwnedFd>, bytes: u64) -> Result<Box<dyn Mapped>, DeviceError> {
        let fd = fd.ok_or_else(missing)?;
        let memory = SharedMemory::open(fd, usize::try_from(bytes).unwrap_or(usize::MAX))
            .map_err(|e| refused("mapping shared memory", &e))?;
        Ok(Box::new(RegisteredHost::new(&self.0, memory)?))
    }
}

fn missing() -> DeviceError {
    DeviceError::Unavailable {
        reason: "a rank sent no descriptor for its memory".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_tried_from_the_best_down_and_travel_as_numbers() {
        let mut way = Way::Descriptors;
        let mut seen = Vec::new();
        for _ in 0..3 {
            assert_eq!(Way::of(way as u8), way);
            seen.push(way.name());
            way = way.worse();
        }
        assert_eq!((seen, way), (vec!["vmm", "ipc", "staged"], Way::Staged));
    }
}

//! Device memory that travels between processes as a file descriptor.
//!
//! The driver counts who holds it: it lives until the last process that mapped it lets go, so a peer that dies takes
//! nothing from under a kernel. Needs CUDA 10.2 and a device that exports descriptors. Start at [`Memory::create`].

use super::context::{Attribute, Context};
use super::{DriverError, call_if_there};
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Mirrors `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Location {
    kind: c_int,
    id: c_int,
}

/// Mirrors `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    kind: c_int,
    handles: c_int,
    location: Location,
    win32: *mut c_void,
    flags: [u8; 8],
}

/// Mirrors `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Access {
    location: Location,
    flags: c_int,
}

const PINNED: c_int = 1;
const POSIX_FD: c_int = 1;
const ON_DEVICE: c_int = 1;
const READ_WRITE: c_int = 3;
const MINIMUM: c_int = 0;

/// Whether this device makes such memory. Containers and old drivers may still refuse.
///
/// # Errors
/// The driver refuses.
pub fn supported(context: &Context) -> Result<bool, DriverError> {
    let device = context.device();
    let driver = context.driver;
    let functions = driver.memory_create.is_some() && driver.memory_import.is_some() && driver.memory_access.is_some();
    Ok(functions
        && device.attribute(Attribute::VirtualMemory)? != 0
        && device.attribute(Attribute::ExportsDescriptors)? != 0)
}

const fn here(context: &Context) -> Location {
    Location {
        kind: ON_DEVICE,
        id: context.device().number(),
    }
}

/// The driver's hold on memory, of whatever device.
struct Hold {
    context: Arc<Context>,
    handle: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let driver = self.context.driver;
        if self.context.bind().is_ok() {
            let _ = call_if_there!(driver.memory_release(self.handle) as "cuMemRelease");
        }
    }
}

/// Memory mapped for kernels of one device.
pub struct Memory {
    hold: Hold,
    address: u64,
    bytes: usize,
    mapped: bool,
}

// SAFETY: plain addresses and handles; the driver's calls may come from any thread that has the context bound.
unsafe impl Send for Memory {}

impl Memory {
    /// Makes at least `bytes` on the context's device, uninitialised, and maps them there.
    ///
    /// # Errors
    /// Out of memory, or the driver refuses.
    pub fn create(context: &Arc<Context>, bytes: u64) -> Result<Self, DriverError> {
        context.bind()?;
        let driver = context.driver;
        let properties = Properties {
            kind: PINNED,
            handles: POSIX_FD,
            location: here(context),
            win32: std::ptr::null_mut(),
            flags: [0; 8],
        };
        let mut unit = 0;
        call_if_there!(driver.memory_granularity(&mut unit, &properties, MINIMUM) as "cuMemGetAllocationGranularity")?;
        let bytes = rounded(bytes, unit)?;
        let mut handle = 0;
        call_if_there!(driver.memory_create(&mut handle, bytes, &properties, 0) as "cuMemCreate")?;
        let context = context.clone();
        Self::map(Hold { context, handle }, bytes)
    }

    /// Maps what another process exported, for kernels of the context's device.
    ///
    /// # Errors
    /// The device cannot address it, or the driver refuses.
    pub fn import(context: &Arc<Context>, fd: &OwnedFd, bytes: u64) -> Result<Self, DriverError> {
        context.bind()?;
        let driver = context.driver;
        let mut handle = 0;
        // The driver takes the number in the place of a pointer.
        let number = fd.as_raw_fd() as usize as *mut c_void;
        call_if_there!(driver.memory_import(&mut handle, number, POSIX_FD) as "cuMemImportFromShareableHandle")?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let context = context.clone();
        Self::map(Hold { context, handle }, bytes)
    }

    fn map(hold: Hold, bytes: usize) -> Result<Self, DriverError> {
        let driver = hold.context.driver;
        let mut memory = Self {
            hold,
            address: 0,
            bytes,
            mapped: false,
        };
        let context = &memory.hold.context;
        call_if_there!(driver.address_reserve(&mut memory.address, bytes, 0, 0, 0) as "cuMemAddressReserve")?;
        call_if_there!(driver.memory_map(memory.address, bytes, 0, memory.hold.handle, 0) as "cuMemMap")?;
        memory.mapped = true;
        let access = Access {
            location: here(context),
            flags: READ_WRITE,
        };
        call_if_there!(driver.memory_access(memory.address, bytes, &access, 1) as "cuMemSetAccess")?;
        Ok(memory)
    }

    /// A descriptor that another process can import.
    ///
    /// # Errors
    /// The driver refuses, as in some containers.
    pub fn export(&self) -> Result<OwnedFd, DriverError> {
        self.hold.context.bind()?;
        let driver = self.hold.context.driver;
        let mut fd: c_int = -1;
        let at = (&raw mut fd).cast::<c_void>();
        call_if_there!(driver.memory_export(at, self.hold.handle, POSIX_FD, 0) as "cuMemExportToShareableHandle")?;
        if fd < 0 {
            return Err(DriverError {
                call: "cuMemExportToShareableHandle",
                code: 999,
            });
        }
        // SAFETY: the driver has just made it and gave it away.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// First byte as kernels of this device address it.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Size in bytes, rounded up.
    pub const fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let driver = self.hold.context.driver;
        if self.address == 0 || self.hold.context.bind().is_err() {
            return;
        }
        if self.mapped {
            let _ = call_if_there!(driver.memory_unmap(self.address, self.bytes) as "cuMemUnmap");
        }
        let _ = call_if_there!(driver.address_free(self.address, self.bytes) as "cuMemAddressFree");
    }
}

fn rounded(bytes: u64, unit: usize) -> Result<usize, DriverError> {
    let whole = usize::try_from(bytes.max(1))
        .ok()
        .and_then(|b| b.checked_next_multiple_of(unit.max(1)));
    whole.ok_or(DriverError {
        call: "cuMemCreate",
        code: 2,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;
    use std::mem::offset_of;

    #[test]
    fn structures_have_the_layout_of_the_driver() {
        assert_eq!(size_of::<Properties>(), size_of::<sys::CUmemAllocationProp>());
        assert_eq!(size_of::<Access>(), size_of::<sys::CUmemAccessDesc>());
        assert_eq!(
            offset_of!(Properties, handles),
            offset_of!(sys::CUmemAllocationProp, requestedHandleTypes)
        );
        assert_eq!(
            offset_of!(Properties, location),
            offset_of!(sys::CUmemAllocationProp, location)
        );
        assert_eq!(
            offset_of!(Properties, flags),
            offset_of!(sys::CUmemAllocationProp, allocFlags)
        );
        assert_eq!(offset_of!(Access, flags), offset_of!(sys::CUmemAccessDesc, flags));
        let fd = sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        assert_eq!(fd.0 as i32, POSIX_FD);
        assert_eq!(
            sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as i32,
            READ_WRITE
        );
        assert_eq!(sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as i32, ON_DEVICE);
    }

    #[test]
    fn sizes_are_rounded_to_whole_units() {
        assert_eq!(rounded(1, 2 << 20), Ok(2 << 20));
        assert_eq!(rounded(4 << 20, 2 << 20), Ok(4 << 20));
        assert!(rounded(u64::MAX, 2 << 20).is_err());
    }
}

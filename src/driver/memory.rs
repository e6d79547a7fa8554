//! Memory that peers and captured graphs may keep addresses of: device memory and mapped pinned host memory.
//!
//! Never from the stream-ordered pool, whose slices cannot be given to peers. Freeing waits for the device, so nothing
//! is freed while a collective is in flight. Start at [`DeviceBuffer`].

use super::context::Context;
use super::memfd::SharedMemory;
use super::{DriverError, call, call_if_there};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Device memory of one context; at least 256-byte aligned, uninitialised.
pub struct DeviceBuffer {
    context: Arc<Context>,
    address: u64,
    bytes: u64,
}

impl DeviceBuffer {
    /// Allocates; an empty buffer gets 256 bytes so that its address is its own.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new(context: &Arc<Context>, bytes: u64) -> Result<Self, DriverError> {
        context.bind()?;
        let bytes = bytes.max(256);
        let mut address = 0;
        let driver = context.driver;
        call!(driver.alloc(&mut address, usize::try_from(bytes).unwrap_or(usize::MAX)))?;
        Ok(Self {
            context: context.clone(),
            address,
            bytes,
        })
    }

    /// First byte, as kernels of this device and of enabled peers address it.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Size in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // A context that a kernel killed refuses; there is nobody left to tell.
        let driver = self.context.driver;
        if self.context.bind().is_ok() {
            let _ = call!(driver.free(self.address));
        }
    }
}

/// Filled pinned host memory that kernels of every device may address.
pub struct MappedHost {
    context: Arc<Context>,
    pointer: *mut c_void,
    words: usize,
}

// SAFETY: plain memory of its own; whoever holds the value reads and writes it with atomic accesses only.
unsafe impl Send for MappedHost {}
// SAFETY: as above.
unsafe impl Sync for MappedHost {}

const PORTABLE_AND_MAPPED: u32 = 1 | 2;

impl MappedHost {
    /// Allocates and zeroes, rounded up to 64 bytes.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new(context: &Arc<Context>, bytes: u64) -> Result<Self, DriverError> {
        Self::filled(context, bytes, 0)
    }

    /// Allocates and fills with a byte, rounded up to 64 bytes.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn filled(context: &Arc<Context>, bytes: u64, fill: u8) -> Result<Self, DriverError> {
        context.bind()?;
        let bytes = usize::try_from(bytes.max(64).next_multiple_of(64)).unwrap_or(usize::MAX);
        let mut pointer = std::ptr::null_mut();
        let driver = context.driver;
        call!(driver.host_alloc(&mut pointer, bytes, PORTABLE_AND_MAPPED))?;
        // SAFETY: the driver gave `bytes` writable bytes, and no kernel knows them yet.
        unsafe { pointer.cast::<u8>().write_bytes(fill, bytes) };
        Ok(Self {
            context: context.clone(),
            pointer,
            words: bytes / 4,
        })
    }

    /// First byte as kernels of `context` address it.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn device_address(&self, context: &Context) -> Result<u64, DriverError> {
        context.bind()?;
        let mut address = 0;
        let driver = context.driver;
        call!(driver.host_device_pointer(&mut address, self.pointer, 0))?;
        Ok(address)
    }

    /// Word `index` of 4 bytes as it is now; 0 past the end.
    pub fn read_u32(&self, index: usize) -> u32 {
        if index >= self.words {
            return 0;
        }
        // SAFETY: inside the allocation and aligned; atomic because kernels and other threads write it meanwhile.
        unsafe { AtomicU32::from_ptr(self.pointer.cast::<u32>().add(index)) }.load(Ordering::Acquire)
    }

    /// Sets word `index` of 4 bytes; past the end nothing happens.
    pub fn write_u32(&self, index: usize, value: u32) {
        if index >= self.words {
            return;
        }
        // SAFETY: inside the allocation and aligned; atomic because kernels poll it.
        // Sequentially consistent: what was written before must be seen by whoever sees this.
        unsafe { AtomicU32::from_ptr(self.pointer.cast::<u32>().add(index)) }.store(value, Ordering::SeqCst);
    }
}

impl Drop for MappedHost {
    fn drop(&mut self) {
        let driver = self.context.driver;
        if self.context.bind().is_ok() {
            let _ = call!(driver.host_free(self.pointer));
        }
    }
}

/// Memory that processes share, registered so that kernels of this process's devices may address it too.
pub struct RegisteredHost {
    context: Arc<Context>,
    memory: Arc<SharedMemory>,
    address: u64,
}

impl RegisteredHost {
    /// Registers the whole of it.
    ///
    /// # Errors
    /// The driver refuses, as in some containers.
    pub fn new(context: &Arc<Context>, memory: SharedMemory) -> Result<Self, DriverError> {
        context.bind()?;
        let driver = context.driver;
        let pointer = memory.address() as usize as *mut c_void;
        call_if_there!(driver.host_register(pointer, memory.bytes(), PORTABLE_AND_MAPPED) as "cuMemHostRegister_v2")?;
        let mut registered = Self {
            context: context.clone(),
            memory: Arc::new(memory),
            address: 0,
        };
        call!(driver.host_device_pointer(&mut registered.address, pointer, 0))?;
        Ok(registered)
    }

    /// First byte as kernels address it.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// The same bytes for the processor.
    pub const fn memory(&self) -> &Arc<SharedMemory> {
        &self.memory
    }
}

impl Drop for RegisteredHost {
    fn drop(&mut self) {
        let driver = self.context.driver;
        if self.context.bind().is_ok() {
            let pointer = self.memory.address() as usize as *mut c_void;
            let _ = call_if_there!(driver.host_unregister(pointer) as "cuMemHostUnregister");
        }
    }
}

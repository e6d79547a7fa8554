//! Devices as the driver numbers them, and the primary context of one.
//!
//! Ordinals are CUDA's and so honour `CUDA_VISIBLE_DEVICES`. The context is the primary one, which every other library
//! in the process uses too; it is never destroyed here, only released. Start at [`Context`].

use super::handles::{Driver, driver};
use super::{DriverError, call};
use crate::device::DeviceError;
use cudarc::driver::sys::CUcontext;
use cudarc::driver::{CudaContext, CudaStream};
use std::ffi::{c_char, c_int};
use std::sync::Arc;

/// Attributes of a device by the driver's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Attribute {
    /// Streaming multiprocessors.
    Multiprocessors = 16,
    /// Major part of the compute capability.
    CapabilityMajor = 75,
    /// Minor part of the compute capability.
    CapabilityMinor = 76,
    /// Whether pinned host memory can be addressed by kernels.
    MapsHostMemory = 19,
    /// Whether memory can be mapped piece by piece.
    VirtualMemory = 102,
    /// Whether such memory can be given away as a file descriptor.
    ExportsDescriptors = 103,
}

/// Attributes of an ordered pair of devices by the driver's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum PairAttribute {
    /// Relative speed of the connection, lower is better.
    PerformanceRank = 1,
    /// Whether atomics work across it natively, as over NVLink.
    NativeAtomics = 3,
}

/// A visible device: identity and questions, no context.
#[derive(Clone, Copy)]
pub struct Device {
    driver: &'static Driver,
    ordinal: usize,
    handle: c_int,
}

impl Device {
    /// How many devices are visible.
    ///
    /// # Errors
    /// No driver, or it refuses.
    pub fn count() -> Result<usize, DeviceError> {
        let driver = driver()?;
        let mut count = 0;
        call!(driver.device_count(&mut count))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The driver's CUDA version, e.g. 12040.
    ///
    /// # Errors
    /// No driver, or it refuses.
    pub fn driver_version() -> Result<i32, DeviceError> {
        let driver = driver()?;
        let mut version = 0;
        call!(driver.driver_version(&mut version))?;
        Ok(version)
    }

    /// The device of an ordinal.
    ///
    /// # Errors
    /// No driver, or no such device.
    pub fn new(ordinal: usize) -> Result<Self, DeviceError> {
        let driver = driver()?;
        let mut handle = 0;
        call!(driver.device_get(&mut handle, c_int::try_from(ordinal).unwrap_or(c_int::MAX)))?;
        Ok(Self {
            driver,
            ordinal,
            handle,
        })
    }

    /// The driver's own number.
    pub(crate) const fn number(self) -> c_int {
        self.handle
    }

    /// CUDA's number of it.
    pub const fn ordinal(self) -> usize {
        self.ordinal
    }

    /// E.g. `NVIDIA H200`.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn name(self) -> Result<String, DriverError> {
        let (driver, mut text) = (self.driver, [0_u8; 256]);
        call!(driver.device_name(text.as_mut_ptr().cast::<c_char>(), text.len() as c_int - 1, self.handle))?;
        Ok(text_of(&text))
    }

    /// PCI address, e.g. `0000:1B:00.0`; the key that joins NVML's devices and sysfs's.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn pci(self) -> Result<String, DriverError> {
        let (driver, mut text) = (self.driver, [0_u8; 64]);
        call!(driver.device_pci(text.as_mut_ptr().cast::<c_char>(), text.len() as c_int - 1, self.handle))?;
        Ok(text_of(&text))
    }

    /// The sixteen bytes behind `GPU-…`.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn uuid(self) -> Result<[u8; 16], DriverError> {
        let (driver, mut uuid) = (self.driver, [0_u8; 16]);
        call!(driver.device_uuid(&mut uuid, self.handle))?;
        Ok(uuid)
    }

    /// One attribute.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn attribute(self, attribute: Attribute) -> Result<i32, DriverError> {
        let (driver, mut value) = (self.driver, 0);
        call!(driver.device_attribute(&mut value, attribute as c_int, self.handle))?;
        Ok(value)
    }

    /// Compute capability as one number, e.g. 90.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn arch(self) -> Result<u32, DriverError> {
        let major = self.attribute(Attribute::CapabilityMajor)?;
        let minor = self.attribute(Attribute::CapabilityMinor)?;
        Ok(u32::try_from(10 * major + minor).unwrap_or(0))
    }

    /// Whether kernels of this device may address memory of `peer`. False for itself.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn can_access(self, peer: Self) -> Result<bool, DriverError> {
        let (driver, mut can) = (self.driver, 0);
        call!(driver.can_access_peer(&mut can, self.handle, peer.handle))?;
        Ok(can != 0)
    }

    /// One attribute of the pair.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn pair_attribute(self, attribute: PairAttribute, peer: Self) -> Result<i32, DriverError> {
        let (driver, mut value) = (self.driver, 0);
        call!(driver.p2p_attribute(&mut value, attribute as c_int, self.handle, peer.handle))?;
        Ok(value)
    }
}

/// Text up to the first zero.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
}

/// The primary context of a device, retained.
pub struct Context {
    pub(crate) driver: &'static Driver,
    device: Device,
    primary: Arc<CudaContext>,
}

impl Context {
    /// Retains the primary context of a device.
    ///
    /// # Errors
    /// No driver, no such device, or the context cannot be made.
    pub fn new(ordinal: usize) -> Result<Arc<Self>, DeviceError> {
        // First: cudarc panics where the driver is absent, and names our calls in errors.
        let device = Device::new(ordinal)?;
        let primary = super::timed(&super::CONTEXTS_NS, || CudaContext::new(ordinal)).map_err(|e| DriverError {
            call: "cuDevicePrimaryCtxRetain",
            code: e.0 as i32,
        })?;
        Ok(Arc::new(Self {
            driver: device.driver,
            device,
            primary,
        }))
    }

    /// The device it belongs to.
    pub const fn device(&self) -> Device {
        self.device
    }

    /// The same context for code that speaks cudarc.
    pub const fn cudarc(&self) -> &Arc<CudaContext> {
        &self.primary
    }

    pub(crate) fn handle(&self) -> CUcontext {
        self.primary.cu_ctx()
    }

    /// Makes it the calling thread's context.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn bind(&self) -> Result<(), DriverError> {
        let driver = self.driver;
        call!(driver.set_current(self.handle()))
    }

    /// Bytes of device memory that are free, and that there are.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn memory(&self) -> Result<(u64, u64), DriverError> {
        self.bind()?;
        let (mut free, mut all) = (0, 0);
        let driver = self.driver;
        super::call_if_there!(driver.memory_info(&mut free, &mut all) as "cuMemGetInfo_v2")?;
        Ok((free as u64, all as u64))
    }

    /// Waits, without bound, until everything on the device has ended. Not while a collective is in flight.
    ///
    /// # Errors
    /// An earlier fault of any kernel in this context.
    pub fn synchronise(&self) -> Result<(), DriverError> {
        self.bind()?;
        let driver = self.driver;
        call!(driver.synchronise())
    }
}

/// A new stream on a device's primary context, for a program that uses no other: slices record no events, which captures
/// could not hold.
///
/// # Errors
/// No driver, no such device, or it refuses.
pub fn stream_without_events(ordinal: usize) -> Result<Arc<CudaStream>, DeviceError> {
    let context = Context::new(ordinal)?;
    // SAFETY: the caller's slices are used on this one stream only, so nothing depends on events between streams.
    unsafe { context.primary.disable_event_tracking() };
    let stream = context.primary.new_stream().map_err(|e| DriverError {
        call: "cuStreamCreate",
        code: e.0 as i32,
    })?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_the_first_zero() {
        assert_eq!(text_of(b"NVIDIA H200\0\0junk"), "NVIDIA H200");
        assert_eq!(text_of(b""), "");
    }

    #[test]
    fn without_a_driver_everything_is_a_typed_error() {
        if driver().is_ok() {
            return;
        }
        assert!(matches!(
            Device::count(),
            Err(DeviceError::Unavailable { .. } | DeviceError::Driver { .. })
        ));
        assert!(Context::new(0).is_err());
    }
}

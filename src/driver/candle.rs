//! Memory of candle's allocator that nobody has written yet.

use candle_core::CudaDevice;
use cudarc::driver::{CudaSlice, DeviceRepr};

/// Memory for `length` elements, of any contents: whoever asks writes all of it before anything reads it.
///
/// # Errors
/// The device has no room.
pub(crate) fn unwritten<T: DeviceRepr>(device: &CudaDevice, length: usize) -> candle_core::Result<CudaSlice<T>> {
    // SAFETY: the one caller hands it to an all-reduce that writes every element, on the same stream.
    unsafe { device.alloc::<T>(length) }
}

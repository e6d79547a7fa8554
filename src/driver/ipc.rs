//! Device memory that travels between processes as a handle of 64 bytes, where descriptors are not to be had.
//!
//! The maker must outlive the mappings: a peer that dies may take memory from under a kernel, which then faults. A handle
//! stands for a whole allocation, so the offset in it travels too. Start at [`export`].

use super::context::Context;
use super::{DriverError, call_if_there};
use std::ffi::c_char;
use std::sync::Arc;

/// Mirrors `CUipcMemHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Handle([c_char; 64]);

/// Bytes of what [`export`] gives.
pub const TOKEN: usize = 64 + 8;

const LAZY_PEER_ACCESS: u32 = 1;

/// What another process needs to map memory of this context at an address that `cuMemAlloc` gave, or inside it.
///
/// # Errors
/// The driver refuses: memory of a pool or mapped piece by piece, or a container without the shared name space.
pub fn export(context: &Context, address: u64) -> Result<Vec<u8>, DriverError> {
    context.bind()?;
    let driver = context.driver;
    let mut handle = Handle([0; 64]);
    call_if_there!(driver.ipc_export(&mut handle, address) as "cuIpcGetMemHandle")?;
    let (mut base, mut bytes) = (address, 0);
    call_if_there!(driver.address_range(&mut base, &mut bytes, address) as "cuMemGetAddressRange_v2")?;
    let mut token: Vec<u8> = handle.0.iter().map(|c| *c as u8).collect();
    token.extend((address - base).to_le_bytes());
    Ok(token)
}

/// Another process's memory, mapped here.
pub struct Mapping {
    context: Arc<Context>,
    base: u64,
    offset: u64,
}

impl Mapping {
    /// Maps what [`export`] gave elsewhere, for kernels of the context's device.
    ///
    /// # Errors
    /// The token is damaged, the device cannot address it, or it is mapped in this process already.
    pub fn open(context: &Arc<Context>, token: &[u8]) -> Result<Self, DriverError> {
        context.bind()?;
        let damaged = DriverError {
            call: "cuIpcOpenMemHandle_v2",
            code: 1,
        };
        let (handle, offset) = token.split_at_checked(64).ok_or(damaged)?;
        let offset = u64::from_le_bytes(offset.try_into().map_err(|_| damaged)?);
        let mut bytes = [0; 64];
        for (to, from) in bytes.iter_mut().zip(handle) {
            *to = *from as c_char;
        }
        let mut base = 0;
        let driver = context.driver;
        call_if_there!(driver.ipc_open(&mut base, Handle(bytes), LAZY_PEER_ACCESS) as "cuIpcOpenMemHandle_v2")?;
        Ok(Self {
            context: context.clone(),
            base,
            offset,
        })
    }

    /// First byte as kernels of this device address it.
    pub const fn address(&self) -> u64 {
        self.base + self.offset
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let driver = self.context.driver;
        if self.context.bind().is_ok() {
            let _ = call_if_there!(driver.ipc_close(self.base) as "cuIpcCloseMemHandle");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;

    #[test]
    fn a_handle_has_the_size_of_the_drivers() {
        assert_eq!(size_of::<Handle>(), size_of::<sys::CUipcMemHandle>());
        assert_eq!(TOKEN, size_of::<Handle>() + 8);
    }
}

//! Embedded images to loaded kernels.
//!
//! Images are tried in order, one a toolkit; which one fits depends on the device. Kernels are loaded for good here, not
//! lazily at their first launch, since a load waits for kernels that spin. Start at [`Module::load`].

use super::context::Context;
use super::{DriverError, call};
use crate::device::DeviceError;
use cudarc::driver::sys::{CUfunction, CUmodule};
use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;

/// A loaded image.
pub struct Module {
    context: Arc<Context>,
    handle: CUmodule,
}

/// A kernel of a [`Module`], which it keeps loaded.
#[derive(Clone)]
pub struct Function {
    module: Arc<Module>,
    handle: CUfunction,
}

// SAFETY: modules and functions have no thread affinity; calls bind the context.
unsafe impl Send for Module {}
// SAFETY: as above; nothing in it changes after loading.
unsafe impl Sync for Module {}
// SAFETY: as above.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// The driver's number of registers a thread; asking for any attribute loads the kernel.
const REGISTERS: c_int = 4;

impl Module {
    /// Loads the first of `images` that fits the device.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] where there is no image at all or none has code for this device, which says why for
    /// each; [`DeviceError::Driver`] where the driver refuses for another reason.
    pub fn load(context: &Arc<Context>, images: &[&[u8]]) -> Result<Arc<Self>, DeviceError> {
        if images.is_empty() {
            let reason = "this build holds no GPU code: rebuild where nvcc can be found";
            return Err(DeviceError::Unavailable {
                reason: reason.to_owned(),
            });
        }
        context.bind()?;
        let mut reasons = Vec::new();
        for image in images {
            match load_one(context, image) {
                Ok(handle) => {
                    return Ok(Arc::new(Self {
                        context: context.clone(),
                        handle,
                    }));
                }
                Err(e) if no_fit(e.code) => reasons.push(e.to_string()),
                Err(e) => return Err(e.into()),
            }
        }
        let arch = context.device().arch()?;
        let reason = format!(
            "none of {} embedded images runs on sm_{arch}: {}",
            images.len(),
            reasons.join("; ")
        );
        Err(DeviceError::Unavailable { reason })
    }

    /// The kernel of a name, loaded now.
    ///
    /// # Errors
    /// No such kernel in the image.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Function, DeviceError> {
        let c_name = CString::new(name).map_err(|_| DeviceError::Misuse {
            reason: format!("kernel name {name:?} holds a zero byte"),
        })?;
        self.context.bind()?;
        let driver = self.context.driver;
        let mut handle = std::ptr::null_mut();
        call!(driver.module_function(&mut handle, self.handle, c_name.as_ptr()))?;
        let mut registers = 0;
        call!(driver.function_attribute(&mut registers, REGISTERS, handle))?;
        if let Some(load) = &driver.function_load {
            // SAFETY: the table holds cuFuncLoad, the handle came from the driver just now.
            let code = unsafe { (load.function)(handle) };
            super::check(load.name, code)?;
        }
        Ok(Function {
            module: self.clone(),
            handle,
        })
    }
}

/// Wrong architecture, PTX too new, PTX that does not compile, JIT switched off or absent: another image may do.
const fn no_fit(code: i32) -> bool {
    matches!(code, 209 | 218 | 221 | 222 | 223)
}

fn load_one(context: &Context, image: &[u8]) -> Result<CUmodule, DriverError> {
    let driver = context.driver;
    let mut handle = std::ptr::null_mut();
    // The image says itself how long it is; fatbins are read in 8-byte words.
    if image.as_ptr().align_offset(16) == 0 {
        call!(driver.module_load(&mut handle, image.as_ptr().cast::<c_void>()))?;
    } else {
        let aligned = aligned_copy(image);
        call!(driver.module_load(&mut handle, aligned.as_ptr().cast::<c_void>()))?;
    }
    Ok(handle)
}

fn aligned_copy(image: &[u8]) -> Vec<u128> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 16];
        word[..bytes.len()].copy_from_slice(bytes);
        u128::from_ne_bytes(word)
    };
    image.chunks(16).map(word).collect()
}

impl Function {
    pub(crate) const fn handle(&self) -> CUfunction {
        self.handle
    }

    /// Blocks of `threads` threads that one multiprocessor holds at once.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn blocks_a_multiprocessor(&self, threads: u32) -> Result<u32, DriverError> {
        let context = &self.module.context;
        context.bind()?;
        let driver = context.driver;
        let mut blocks = 0;
        call!(driver.occupancy(&mut blocks, self.handle, threads as c_int, 0))?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let driver = self.context.driver;
        if self.context.bind().is_ok() {
            let _ = call!(driver.module_unload(self.handle));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unaligned_image_keeps_its_bytes() {
        let image: Vec<u8> = (0..37).collect();
        let bytes: Vec<u8> = aligned_copy(&image).iter().flat_map(|w| w.to_ne_bytes()).collect();
        assert_eq!((&bytes[..37], bytes.len()), (&image[..], 48));
    }

    #[test]
    fn a_missing_architecture_tries_the_next_image_and_a_fault_does_not() {
        assert!(no_fit(209) && no_fit(222) && !no_fit(200) && !no_fit(700) && !no_fit(2));
    }
}

//! Kernel launches: a whole parameter block, or a list of plain values.
//!
//! Nothing here checks addresses: a launch is as right as its arguments. That is why launching stays inside the crate.
//! Start at `block`.

use super::context::Context;
use super::module::Function;
use super::stream::Stream;
use super::{DriverError, call};
use crate::device::abi::Params;
use crate::device::{Geometry, Launch as LaunchOrder};
use cudarc::driver::sys::CUstream;
use std::ffi::c_void;
use std::sync::Arc;

/// Mirrors `CUlaunchConfig`.
#[repr(C)]
pub struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: CUstream,
    attributes: *const LaunchAttribute,
    attribute_count: u32,
}

/// Mirrors `CUlaunchAttribute`: an id, then a union of 64 bytes.
#[repr(C)]
struct LaunchAttribute {
    id: u32,
    pad: u32,
    value: [u64; 8],
}

const PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;

/// Enqueues a kernel that takes one [`Params`] block by value. The kernel must be of the group the block was made for.
///
/// # Errors
/// The driver refuses; 801 for a programmatic order on a driver without it.
pub(crate) fn block(
    stream: &Stream,
    function: &Function,
    geometry: Geometry,
    params: &Params,
    order: LaunchOrder,
) -> Result<(), DriverError> {
    let mut arguments = [params.as_ptr().cast_mut().cast::<c_void>()];
    launch(stream, function, geometry, &mut arguments, order)
}

/// Enqueues a kernel that takes scalars of 4 or 8 bytes and addresses, each given as 8 bytes, low bytes first. Launched
/// as `geometry` says.
///
/// # Errors
/// The driver refuses.
pub(crate) fn values(
    stream: &Stream,
    function: &Function,
    geometry: Geometry,
    values: &[u64],
) -> Result<(), DriverError> {
    const {
        assert!(
            cfg!(target_endian = "little"),
            "a 4-byte argument is read from the low half"
        )
    };
    let mut arguments: Vec<*mut c_void> = values.iter().map(|v| std::ptr::from_ref(v).cast_mut().cast()).collect();
    launch(stream, function, geometry, &mut arguments, geometry.launch)
}

/// As `block`, on a stream that belongs to the caller of the library.
///
/// # Errors
/// The driver refuses.
pub(crate) fn block_on_user(
    stream: CUstream,
    context: &Arc<Context>,
    function: &Function,
    geometry: Geometry,
    params: &Params,
    order: LaunchOrder,
) -> Result<(), DriverError> {
    let mut arguments = [params.as_ptr().cast_mut().cast::<c_void>()];
    launch_on(context, stream, function, geometry, &mut arguments, order)
}

fn launch(
    stream: &Stream,
    function: &Function,
    geometry: Geometry,
    arguments: &mut [*mut c_void],
    order: LaunchOrder,
) -> Result<(), DriverError> {
    launch_on(stream.context(), stream.handle(), function, geometry, arguments, order)
}

fn launch_on(
    context: &Arc<Context>,
    stream: CUstream,
    function: &Function,
    geometry: Geometry,
    arguments: &mut [*mut c_void],
    order: LaunchOrder,
) -> Result<(), DriverError> {
    context.bind()?;
    let driver = context.driver;
    let Geometry { blocks, threads, .. } = geometry;
    let (handle, extra) = (function.handle(), std::ptr::null_mut());
    match order {
        LaunchOrder::Plain => {
            let arguments = arguments.as_mut_ptr();
            call!(driver.launch(handle, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, extra))
        }
        LaunchOrder::Programmatic | LaunchOrder::Early => {
            let Some(launch) = &driver.launch_ex else {
                return Err(DriverError {
                    call: "cuLaunchKernelEx",
                    code: 801,
                });
            };
            let attribute = LaunchAttribute {
                id: PROGRAMMATIC_STREAM_SERIALIZATION,
                pad: 0,
                value: [1, 0, 0, 0, 0, 0, 0, 0],
            };
            let config = LaunchConfig {
                grid: [blocks, 1, 1],
                block: [threads, 1, 1],
                shared_bytes: 0,
                stream,
                attributes: &raw const attribute,
                attribute_count: 1,
            };
            // SAFETY: the table holds cuLaunchKernelEx; config, attribute and arguments outlive the call.
            let code = unsafe { (launch.function)(&raw const config, handle, arguments.as_mut_ptr(), extra) };
            super::check(launch.name, code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;
    use std::mem::{offset_of, size_of};

    #[test]
    fn launch_structures_have_the_layout_of_the_driver() {
        assert_eq!(size_of::<LaunchConfig>(), size_of::<sys::CUlaunchConfig>());
        assert_eq!(size_of::<LaunchAttribute>(), size_of::<sys::CUlaunchAttribute>());
        assert_eq!(
            offset_of!(LaunchConfig, stream),
            offset_of!(sys::CUlaunchConfig, hStream)
        );
        assert_eq!(
            offset_of!(LaunchConfig, attributes),
            offset_of!(sys::CUlaunchConfig, attrs)
        );
        assert_eq!(
            offset_of!(LaunchConfig, attribute_count),
            offset_of!(sys::CUlaunchConfig, numAttrs)
        );
        assert_eq!(
            offset_of!(LaunchAttribute, value),
            offset_of!(sys::CUlaunchAttribute, value)
        );
        let id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        assert_eq!(PROGRAMMATIC_STREAM_SERIALIZATION, id as u32);
    }
}

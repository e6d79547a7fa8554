//! Kernel launches: a whole parameter block, or a list of plain values.
//!
//! Nothing here checks addresses: a launch is as right as its arguments. That is why launching stays inside the crate.
//! Start at `block`.

use super::context::Context;
use super::handles::Driver;
use super::module::Function;
use super::stream::Stream;
use super::{DriverError, call};
use crate::device::abi::Params;
use crate::device::{Geometry, Launch as LaunchOrder};
use cudarc::driver::sys::{CUfunction, CUstream};
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

/// As `block`, for serving: one driver call where the stream's context is current on this thread, as it is while a
/// caller serves one GPU. Where it is not, the driver refuses the launch, which enqueues nothing, and the context is bound
/// before the second try. Asking first would be a second call every time, and remembering what was bound last would be
/// wrong as soon as somebody else binds.
///
/// # Errors
/// The driver refuses.
pub(crate) fn block_at(
    stream: CUstream,
    context: &Context,
    function: &Function,
    geometry: Geometry,
    params: &Params,
    order: LaunchOrder,
) -> Result<(), DriverError> {
    let mut arguments = [params.as_ptr().cast_mut().cast::<c_void>()];
    let launch = || {
        launch_now(
            context.driver,
            stream,
            function.handle(),
            geometry,
            &mut arguments,
            order,
        )
    };
    current_or_bound(launch, || context.bind())
}

/// Tries, and only where the driver says that this thread has another context current, binds and tries again.
fn current_or_bound(
    mut launch: impl FnMut() -> Result<(), DriverError>,
    bind: impl FnOnce() -> Result<(), DriverError>,
) -> Result<(), DriverError> {
    match launch() {
        // Invalid context, or a handle that the current context does not know.
        Err(DriverError { code: 201 | 400, .. }) => bind().and_then(|()| launch()),
        done => done,
    }
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
    launch_now(context.driver, stream, function.handle(), geometry, arguments, order)
}

/// The one driver call of a launch.
fn launch_now(
    driver: &Driver,
    stream: CUstream,
    handle: CUfunction,
    geometry: Geometry,
    arguments: &mut [*mut c_void],
    order: LaunchOrder,
) -> Result<(), DriverError> {
    let Geometry { blocks, threads, .. } = geometry;
    let extra = std::ptr::null_mut();
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
    use super::super::calls_here;
    use super::*;
    use cudarc::driver::sys;
    use std::ffi::{c_int, c_uint};
    use std::mem::{offset_of, size_of};

    /// One launch of an idle kernel, serving's way; how many driver calls that took.
    fn served(driver: &Driver, order: LaunchOrder) -> (Result<(), DriverError>, u64) {
        let before = calls_here();
        let null = std::ptr::null_mut();
        let launch = || launch_now(driver, null, std::ptr::null_mut(), Geometry::new(1, 32), &mut [], order);
        let done = current_or_bound(launch, || call!(driver.set_current(std::ptr::null_mut())));
        (done, calls_here() - before)
    }

    #[test]
    fn a_served_launch_in_the_current_context_is_one_driver_call() {
        let driver = Driver::idle();
        for order in [LaunchOrder::Plain, LaunchOrder::Programmatic] {
            assert_eq!(served(&driver, order), (Ok(()), 1), "{order:?}");
        }
    }

    #[test]
    fn another_current_context_costs_a_bind_and_a_second_try_and_other_refusals_none() {
        #[rustfmt::skip]
        unsafe extern "C" fn refuses<const CODE: c_int>(
            _: CUfunction, _: c_uint, _: c_uint, _: c_uint, _: c_uint, _: c_uint, _: c_uint, _: c_uint, _: CUstream,
            _: *mut *mut c_void, _: *mut *mut c_void,
        ) -> c_int { CODE }
        let mut driver = Driver::idle();
        let refusal = |code| {
            Err(DriverError {
                call: "cuLaunchKernel",
                code,
            })
        };
        driver.launch.function = refuses::<201>;
        assert_eq!(served(&driver, LaunchOrder::Plain), (refusal(201), 3));
        driver.launch.function = refuses::<400>;
        assert_eq!(served(&driver, LaunchOrder::Plain), (refusal(400), 3));
        driver.launch.function = refuses::<700>;
        assert_eq!(served(&driver, LaunchOrder::Plain), (refusal(700), 1));
    }

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

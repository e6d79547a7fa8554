//! Opens libraries once and keeps their functions: a table a library, filled or refused as a whole.
//!
//! cudarc's own loader panics where the driver or a symbol is absent and asks for the newest symbols (its event timing
//! needs a driver of 12.8); this table asks for the oldest symbol that will do and returns codes as plain numbers, so
//! that a code which the bindings do not know is no undefined behaviour. Start at [`driver`].

use crate::device::DeviceError;
use cudarc::driver::sys::{CUcontext, CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUstream};
use libloading::Library;
use once_cell::sync::OnceCell;
use std::error::Error;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// One function of a library and its name for errors.
pub(crate) struct Call<F> {
    pub(crate) name: &'static str,
    pub(crate) function: F,
}

/// Declares a table of functions that return an `int`; those after `optional` may be missing.
macro_rules! table {
    (
        $(#[$doc:meta])* $table:ident {
            $($field:ident = $symbol:literal($($argument:ty),*);)*
        } optional {
            $($maybe:ident = $maybe_symbol:literal($($maybe_argument:ty),*);)*
        }
    ) => {
        $(#[$doc])*
        pub struct $table {
            $(pub(crate) $field: $crate::driver::handles::Call<unsafe extern "C" fn($($argument),*) -> c_int>,)*
            $(pub(crate) $maybe: Option<$crate::driver::handles::Call<unsafe extern "C" fn($($maybe_argument),*) -> c_int>>,)*
            // Functions are valid while this is open.
            _library: Library,
        }

        impl $table {
            pub(crate) fn resolve(library: Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: $crate::driver::handles::symbol(&library, concat!($symbol, "\0"), $symbol).ok_or($symbol)?,)*
                    $($maybe: $crate::driver::handles::symbol(&library, concat!($maybe_symbol, "\0"), $maybe_symbol),)*
                    _library: library,
                })
            }

            /// A table whose functions all succeed and do nothing.
            #[cfg(test)]
            #[allow(dead_code)]
            pub(crate) fn idle() -> Self {
                Self {
                    $($field: {
                        unsafe extern "C" fn idle($(_: $argument),*) -> c_int { 0 }
                        $crate::driver::handles::Call { name: $symbol, function: idle }
                    },)*
                    $($maybe: Some({
                        unsafe extern "C" fn idle($(_: $maybe_argument),*) -> c_int { 0 }
                        $crate::driver::handles::Call { name: $maybe_symbol, function: idle }
                    }),)*
                    _library: libloading::os::unix::Library::this().into(),
                }
            }
        }
    };
}
pub(crate) use table;

/// `F` must be the C signature of `name`: only [`table!`] calls this, with types read off the C headers.
pub(crate) fn symbol<F: Copy>(library: &Library, zero_ended: &'static str, name: &'static str) -> Option<Call<F>> {
    // SAFETY: see above; the pointer is copied out but the library is kept open beside it.
    let function = unsafe { library.get::<F>(zero_ended.as_bytes()) }.ok()?;
    Some(Call {
        name,
        function: *function,
    })
}

/// The first of `names` that opens, or the loader's last words.
pub(crate) fn open(names: &[&str]) -> Result<Library, String> {
    let mut last = String::new();
    for name in names {
        // SAFETY: these are system libraries whose initialisers are made for being opened at run time.
        match unsafe { Library::new(*name) } {
            Ok(library) => return Ok(library),
            // The loader's own words are one level down.
            Err(e) => last = e.source().map_or_else(|| e.to_string(), ToString::to_string),
        }
    }
    Err(last)
}

table! {
    /// The functions of libcuda that topoforge uses.
    Driver {
        init = "cuInit"(c_uint);
        driver_version = "cuDriverGetVersion"(*mut c_int);
        device_count = "cuDeviceGetCount"(*mut c_int);
        device_get = "cuDeviceGet"(*mut c_int, c_int);
        device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int);
        device_uuid = "cuDeviceGetUuid"(*mut [u8; 16], c_int);
        device_pci = "cuDeviceGetPCIBusId"(*mut c_char, c_int, c_int);
        device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
        can_access_peer = "cuDeviceCanAccessPeer"(*mut c_int, c_int, c_int);
        p2p_attribute = "cuDeviceGetP2PAttribute"(*mut c_int, c_int, c_int, c_int);
        set_current = "cuCtxSetCurrent"(CUcontext);
        synchronise = "cuCtxSynchronize"();
        enable_peer = "cuCtxEnablePeerAccess"(CUcontext, c_uint);
        alloc = "cuMemAlloc_v2"(*mut u64, usize);
        free = "cuMemFree_v2"(u64);
        host_alloc = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
        host_free = "cuMemFreeHost"(*mut c_void);
        host_device_pointer = "cuMemHostGetDevicePointer_v2"(*mut u64, *mut c_void, c_uint);
        fill = "cuMemsetD8Async"(u64, u8, usize, CUstream);
        upload = "cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, CUstream);
        download = "cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, CUstream);
        copy = "cuMemcpyDtoDAsync_v2"(u64, u64, usize, CUstream);
        module_load = "cuModuleLoadData"(*mut CUmodule, *const c_void);
        module_unload = "cuModuleUnload"(CUmodule);
        module_function = "cuModuleGetFunction"(*mut CUfunction, CUmodule, *const c_char);
        function_attribute = "cuFuncGetAttribute"(*mut c_int, c_int, CUfunction);
        occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor"(*mut c_int, CUfunction, c_int, usize);
        launch = "cuLaunchKernel"(
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void
        );
        stream_create = "cuStreamCreate"(*mut CUstream, c_uint);
        stream_destroy = "cuStreamDestroy_v2"(CUstream);
        stream_query = "cuStreamQuery"(CUstream);
        stream_synchronise = "cuStreamSynchronize"(CUstream);
        stream_wait = "cuStreamWaitEvent"(CUstream, CUevent, c_uint);
        capture_info = "cuStreamGetCaptureInfo_v2"(
            CUstream, *mut c_int, *mut u64, *mut CUgraph, *mut c_void, *mut c_void
        );
        begin_capture = "cuStreamBeginCapture_v2"(CUstream, c_int);
        end_capture = "cuStreamEndCapture"(CUstream, *mut CUgraph);
        graph_instantiate = "cuGraphInstantiateWithFlags"(*mut CUgraphExec, CUgraph, u64);
        graph_upload = "cuGraphUpload"(CUgraphExec, CUstream);
        graph_launch = "cuGraphLaunch"(CUgraphExec, CUstream);
        graph_exec_destroy = "cuGraphExecDestroy"(CUgraphExec);
        graph_destroy = "cuGraphDestroy"(CUgraph);
        event_create = "cuEventCreate"(*mut CUevent, c_uint);
        event_record = "cuEventRecord"(CUevent, CUstream);
        event_query = "cuEventQuery"(CUevent);
        event_elapsed = "cuEventElapsedTime"(*mut f32, CUevent, CUevent);
        event_destroy = "cuEventDestroy_v2"(CUevent);
    } optional {
        launch_ex = "cuLaunchKernelEx"(
            *const super::launch::LaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void
        );
        function_load = "cuFuncLoad"(CUfunction);
        host_register = "cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
        host_unregister = "cuMemHostUnregister"(*mut c_void);
        memory_create = "cuMemCreate"(*mut u64, usize, *const super::vmm::Properties, u64);
        memory_release = "cuMemRelease"(u64);
        memory_export = "cuMemExportToShareableHandle"(*mut c_void, u64, c_int, u64);
        memory_import = "cuMemImportFromShareableHandle"(*mut u64, *mut c_void, c_int);
        memory_granularity = "cuMemGetAllocationGranularity"(*mut usize, *const super::vmm::Properties, c_int);
        address_reserve = "cuMemAddressReserve"(*mut u64, usize, usize, u64, u64);
        address_free = "cuMemAddressFree"(u64, usize);
        memory_map = "cuMemMap"(u64, usize, usize, u64, u64);
        memory_unmap = "cuMemUnmap"(u64, usize);
        memory_access = "cuMemSetAccess"(u64, usize, *const super::vmm::Access, usize);
        ipc_export = "cuIpcGetMemHandle"(*mut super::ipc::Handle, u64);
        ipc_open = "cuIpcOpenMemHandle_v2"(*mut u64, super::ipc::Handle, c_uint);
        ipc_close = "cuIpcCloseMemHandle"(u64);
        address_range = "cuMemGetAddressRange_v2"(*mut u64, *mut usize, u64);
        memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
    }
}

/// The initialised driver, opened on the first call.
///
/// # Errors
/// [`DeviceError::Unavailable`] without a driver or a device, else what `cuInit` said.
pub fn driver() -> Result<&'static Driver, DeviceError> {
    static DRIVER: OnceCell<Driver> = OnceCell::new();
    DRIVER.get_or_try_init(|| super::timed(&super::INIT_NS, first))
}

fn first() -> Result<Driver, DeviceError> {
    let library = open(&["libcuda.so.1", "libcuda.so"]).map_err(|e| DeviceError::Unavailable {
        reason: format!("no CUDA driver on this machine ({e}): install the NVIDIA driver, or use the host executor"),
    })?;
    let driver = Driver::resolve(library).map_err(|symbol| DeviceError::Unavailable {
        reason: format!("this CUDA driver has no {symbol}: it is older than CUDA 11.4, update it"),
    })?;
    initialised(call_init(&driver))?;
    Ok(driver)
}

fn call_init(driver: &Driver) -> Result<(), super::DriverError> {
    super::call!(driver.init(0))
}

/// Absent hardware is no driver fault: callers fall back on [`DeviceError::Unavailable`].
fn initialised(init: Result<(), super::DriverError>) -> Result<(), DeviceError> {
    match init {
        Ok(()) => Ok(()),
        Err(e) if matches!(e.code, 34 | 100 | 999) => Err(DeviceError::Unavailable { reason: e.to_string() }),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::DriverError;

    #[test]
    fn a_library_that_is_not_there_is_an_error_with_its_name() {
        let e = open(&["libtopoforge-no-such-library.so.0"]).err().unwrap_or_default();
        assert!(e.contains("libtopoforge-no-such-library"), "{e}");
    }

    #[test]
    fn a_library_without_a_symbol_names_the_symbol() {
        let Ok(library) = open(&["libc.so.6"]) else { return };
        assert_eq!(Driver::resolve(library).err(), Some("cuInit"));
    }

    #[test]
    fn a_stub_or_an_empty_machine_is_unavailable_not_a_driver_fault() {
        for code in [34, 100] {
            let e = initialised(Err(DriverError { call: "cuInit", code }));
            assert!(
                matches!(&e, Err(DeviceError::Unavailable { reason }) if reason.contains("cuInit")),
                "{e:?}"
            );
        }
        let e = initialised(Err(DriverError {
            call: "cuInit",
            code: 803,
        }));
        assert!(matches!(e, Err(DeviceError::Driver { code: 803, .. })));
    }

    #[test]
    fn no_driver_is_a_typed_error() {
        match driver() {
            Ok(_) => {}
            Err(DeviceError::Unavailable { reason }) => assert!(!reason.is_empty()),
            Err(e) => assert!(matches!(e, DeviceError::Driver { call: "cuInit", .. }), "{e}"),
        }
    }
}

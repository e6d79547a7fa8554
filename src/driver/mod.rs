//! Thin owner types over the CUDA driver, NVML and NCCL: each frees what it made, binds its context first and turns
//! every refusal into a [`DriverError`] with the call and its code.
//!
//! Nothing here knows collectives, topologies or timing, and nothing panics where a library is absent: libraries are
//! opened at run time by [`handles`]. All `unsafe` of the GPU side lives in this folder. Start at [`handles`], then
//! [`context`].

#[cfg(feature = "candle-cuda")]
pub(crate) mod candle;
pub mod context;
pub mod event;
pub mod graph;
pub mod handles;
pub mod ipc;
pub mod launch;
pub mod memfd;
pub mod memory;
pub mod module;
pub mod nccl;
pub mod nccl_rank;
pub mod nvml;
pub mod peer;
pub mod socket;
pub mod stream;
pub(crate) mod user_stream;
pub mod vmm;

use crate::device::DeviceError;
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A library refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverError {
    /// The library's function, e.g. `cuMemAlloc_v2`.
    pub call: &'static str,
    /// Its numeric code.
    pub code: i32,
}

/// The code of a query whose work has not ended.
pub const NOT_READY: i32 = 600;

impl DriverError {
    /// What to do about it, where known; else empty.
    pub fn hint(self) -> &'static str {
        if self.call.starts_with("cu") {
            cuda_hint(self.code)
        } else {
            other_hint(self.call, self.code)
        }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        DeviceError::from(*self).fmt(f)
    }
}

impl std::error::Error for DriverError {}

impl From<DriverError> for DeviceError {
    fn from(e: DriverError) -> Self {
        Self::Driver {
            call: e.call,
            code: e.code,
            hint: e.hint(),
        }
    }
}

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Calls of CUDA's driver that this thread has made through this folder.
pub fn calls_here() -> u64 {
    CALLS.get()
}

/// What every process pays before the first collective, whoever asks first: not ours to make faster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartUp {
    /// Opening libcuda and `cuInit`.
    pub init: Duration,
    /// Retaining primary contexts, all together.
    pub contexts: Duration,
    /// Making NCCL communicators, all together.
    pub nccl: Duration,
}

static INIT_NS: AtomicU64 = AtomicU64::new(0);
static CONTEXTS_NS: AtomicU64 = AtomicU64::new(0);
static NCCL_NS: AtomicU64 = AtomicU64::new(0);

/// How long these took in this process so far.
pub fn start_up() -> StartUp {
    let read = |of: &AtomicU64| Duration::from_nanos(of.load(Ordering::Relaxed));
    StartUp {
        init: read(&INIT_NS),
        contexts: read(&CONTEXTS_NS),
        nccl: read(&NCCL_NS),
    }
}

/// Runs `work` and adds what it took.
fn timed<T>(into: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let since = Instant::now();
    let done = work();
    let ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
    into.fetch_add(ns, Ordering::Relaxed);
    done
}

/// 0 is success in all three libraries. Every call comes by here, which is what counts them.
pub(crate) fn check(call: &'static str, code: i32) -> Result<(), DriverError> {
    if call.starts_with("cu") {
        CALLS.set(CALLS.get() + 1);
    }
    if code == 0 {
        Ok(())
    } else {
        Err(DriverError { call, code })
    }
}

/// Calls an entry of a table of [`handles::Call`]s and checks what it returns.
macro_rules! call {
    ($table:ident.$field:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the table holds the function of this name with the C header's signature. Pointers are either handles
        // that an owner type of this folder keeps alive or locals that outlive the call.
        let code = unsafe { ($table.$field.function)($($argument),*) };
        $crate::driver::check($table.$field.name, code)
    }};
}
pub(crate) use call;

/// As [`call!`] for an entry that older drivers lack: code 801 then, as for what a driver does not support.
macro_rules! call_if_there {
    ($table:ident.$field:ident($($argument:expr),* $(,)?) as $name:literal) => {
        match &$table.$field {
            // SAFETY: as in `call!`.
            Some(entry) => $crate::driver::check(entry.name, unsafe { (entry.function)($($argument),*) }),
            None => Err($crate::driver::DriverError { call: $name, code: 801 }),
        }
    };
}
pub(crate) use call_if_there;

const fn cuda_hint(code: i32) -> &'static str {
    match code {
        1 => "invalid value: a bug in topoforge or a foreign handle",
        2 => "out of memory: free device memory or use fewer and smaller communicators",
        3 => "the driver is not initialised",
        34 => "this libcuda is the toolkit's stub: take the stubs folder off LD_LIBRARY_PATH",
        35 | 803 => "the kernel module and libcuda differ in version: reboot or reinstall the driver",
        46 => "the device is taken exclusively or unavailable",
        100 => "no NVIDIA device is visible: check CUDA_VISIBLE_DEVICES, the driver and the container's device access",
        101 => "no such device ordinal among the visible ones",
        200 => "the embedded image is damaged or not a fatbin",
        201 => "no valid context: it was destroyed by somebody else",
        209 => "no machine code for this device's architecture: rebuild with its compute capability",
        217 => "these two devices cannot address each other: use a host-staged variant",
        218 => "the embedded PTX does not compile with this driver",
        222 => "the embedded PTX is newer than this driver: rebuild with this architecture's machine code",
        223 => "JIT compilation is switched off (CUDA_DISABLE_PTX_JIT): rebuild with this architecture's machine code",
        500 => "the image lacks this kernel: rebuild",
        700 | 715..=719 => "a kernel faulted: the process's context on this device is dead, restart the process",
        701 => "the launch needs more registers or threads than the device has: use fewer threads",
        702 => "the display watchdog ended a kernel",
        704 => "peer access was enabled already",
        711 => "too many peers: a device can enable only so many (8 on most machines)",
        800 => "not permitted: often a container or MIG restriction",
        801 => "not supported on this device or driver",
        802 => "the system is not ready: on NVSwitch machines check that the fabric manager runs",
        804 => "this driver is too old for the installed compatibility library",
        900..=908 => "the stream cannot do that while being captured",
        _ => "",
    }
}

fn other_hint(call: &str, code: i32) -> &'static str {
    match (call.starts_with("nccl"), code) {
        (true, 1) => "NCCL met a CUDA error: set NCCL_DEBUG=WARN to see it",
        (true, 2) => "NCCL met a system error: set NCCL_DEBUG=WARN; often /dev/shm is too small",
        (true, 3) => "NCCL met a bug of its own: set NCCL_DEBUG=WARN",
        (true, 4 | 5) => "NCCL was used wrongly",
        (false, 3) => "NVML does not support this here",
        (false, 9) => "the kernel module is not loaded",
        (false, 18) => "the kernel module and libnvidia-ml differ in version: reboot or reinstall the driver",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_call_its_code_and_the_next_step() {
        let text = DriverError {
            call: "cuInit",
            code: 34,
        }
        .to_string();
        assert!(
            text.starts_with("cuInit failed with code 34: ") && text.contains("stub"),
            "{text}"
        );
        let text = DriverError {
            call: "ncclAllReduce",
            code: 1,
        }
        .to_string();
        assert!(text.contains("NCCL_DEBUG"), "{text}");
        assert_eq!(
            DriverError {
                call: "cuFuncLoad",
                code: 12345
            }
            .to_string(),
            "cuFuncLoad failed with code 12345"
        );
    }

    #[test]
    fn peer_and_ptx_refusals_are_told_apart() {
        let hint = |code| {
            DriverError {
                call: "cuCtxEnablePeerAccess",
                code,
            }
            .hint()
        };
        let hints = [hint(217), hint(218), hint(222), hint(209), hint(704), hint(711)];
        for (i, a) in hints.iter().enumerate() {
            assert!(!a.is_empty() && !hints[i + 1..].contains(a), "{a}");
        }
    }
}

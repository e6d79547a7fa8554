//! A small binding of NCCL, opened at run time: its functions, and communicators over distinct devices of this process.
//!
//! NCCL is what we compare with and fall back on; it is never linked. `TOPOFORGE_NCCL` names the library where the loader
//! does not find `libnccl.so.2`. Start at [`Communicators::new`].

use super::context::Context;
use super::handles::{open, table};
use super::nccl_rank::NcclRank;
use super::stream::Stream;
use super::{DriverError, call};
use crate::device::DeviceError;
use crate::registry::Element;
use libloading::Library;
use once_cell::sync::OnceCell;
use std::ffi::{OsString, c_int, c_void};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

pub(super) type Comm = *mut c_void;

/// Mirrors `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId(pub(super) [u8; 128]);

table! {
    /// The functions of libnccl that topoforge uses.
    Nccl {
        version = "ncclGetVersion"(*mut c_int);
        init_all = "ncclCommInitAll"(*mut Comm, c_int, *const c_int);
        destroy = "ncclCommDestroy"(Comm);
        abort = "ncclCommAbort"(Comm);
        unique_id = "ncclGetUniqueId"(*mut UniqueId);
        init_rank = "ncclCommInitRank"(*mut Comm, c_int, UniqueId, c_int);
        all_reduce = "ncclAllReduce"(*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void);
        reduce = "ncclReduce"(*const c_void, *mut c_void, usize, c_int, c_int, c_int, Comm, *mut c_void);
        broadcast = "ncclBroadcast"(*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void);
        all_gather = "ncclAllGather"(*const c_void, *mut c_void, usize, c_int, Comm, *mut c_void);
        reduce_scatter = "ncclReduceScatter"(*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void);
        send = "ncclSend"(*const c_void, usize, c_int, c_int, Comm, *mut c_void);
        recv = "ncclRecv"(*mut c_void, usize, c_int, c_int, Comm, *mut c_void);
        group_start = "ncclGroupStart"();
        group_end = "ncclGroupEnd"();
    } optional {
    }
}

/// Element types by NCCL's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum NcclType {
    /// Signed, 8 bits.
    I8 = 0,
    /// Unsigned, 8 bits.
    U8 = 1,
    /// Signed, 32 bits.
    I32 = 2,
    /// Unsigned, 32 bits.
    U32 = 3,
    /// Signed, 64 bits.
    I64 = 4,
    /// Unsigned, 64 bits.
    U64 = 5,
    /// IEEE binary16.
    F16 = 6,
    /// IEEE binary32.
    F32 = 7,
    /// IEEE binary64.
    F64 = 8,
    /// The upper half of an IEEE binary32; NCCL 2.10 and up, and CUDA 11 when it was built.
    Bf16 = 9,
}

impl From<Element> for NcclType {
    fn from(element: Element) -> Self {
        match element {
            Element::F16 => Self::F16,
            Element::Bf16 => Self::Bf16,
            Element::F32 => Self::F32,
        }
    }
}

impl NcclType {
    /// Size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

const SUM: c_int = 0;

impl Nccl {
    /// The library, opened on the first call.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] where it is not to be found.
    pub fn open() -> Result<&'static Self, DeviceError> {
        static NCCL: OnceCell<Nccl> = OnceCell::new();
        NCCL.get_or_try_init(|| {
            if cfg!(not(feature = "nccl")) {
                let reason = "this build does not open NCCL: feature `nccl` of topoforge does".to_owned();
                return Err(DeviceError::Unavailable { reason });
            }
            let named = std::env::var("TOPOFORGE_NCCL").unwrap_or_default();
            let names = if named.is_empty() {
                vec!["libnccl.so.2"]
            } else {
                vec![named.as_str()]
            };
            let library: Library = open(&names).map_err(|e| DeviceError::Unavailable {
                reason: format!("no NCCL on this machine ({e}): install it, or name it in TOPOFORGE_NCCL"),
            })?;
            Self::resolve(library).map_err(|symbol| DeviceError::Unavailable {
                reason: format!("this NCCL has no {symbol}"),
            })
        })
    }

    /// Version as NCCL counts, e.g. 22203 for 2.22.3.
    ///
    /// # Errors
    /// NCCL refuses.
    pub fn version(&self) -> Result<i32, DriverError> {
        let mut version = 0;
        call!(self.version(&mut version))?;
        Ok(version)
    }
}

/// Runs `work` with a variable set, and gives it its old value back.
fn with_variable<T>(name: &str, value: &str, work: impl FnOnce() -> T) -> T {
    struct Back<'a>(&'a str, Option<OsString>);
    impl Drop for Back<'_> {
        fn drop(&mut self) {
            match self.1.take() {
                // SAFETY: as below.
                Some(old) => unsafe { std::env::set_var(self.0, old) },
                // SAFETY: as below.
                None => unsafe { std::env::remove_var(self.0) },
            }
        }
    }
    let back = Back(name, std::env::var_os(name));
    // SAFETY: callers promise that no other thread reads the environment behind the standard library's back meanwhile;
    // NCCL itself reads it on the thread that initialises, and its helper threads of other communicators are idle.
    unsafe { std::env::set_var(name, value) };
    let done = work();
    drop(back);
    done
}

/// One communicator a device, all in this process.
pub struct Communicators {
    nccl: &'static Nccl,
    ranks: Vec<Arc<NcclRank>>,
}

impl Communicators {
    /// Joins devices, given by CUDA ordinal. Not while a collective is in flight.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] without NCCL or with a device twice; else NCCL's refusal.
    pub fn new(ordinals: &[usize]) -> Result<Self, DeviceError> {
        Self::told(ordinals, None)
    }

    /// The same, with a variable of the environment set while NCCL initialises, which reads its environment anew for
    /// every communicator; it has its old value afterwards. Not while another thread may read the environment other than
    /// through Rust's standard library.
    ///
    /// # Errors
    /// As [`Communicators::new`].
    pub fn told(ordinals: &[usize], variable: Option<(&str, &str)>) -> Result<Self, DeviceError> {
        let mut distinct = ordinals.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() != ordinals.len() {
            let reason = "NCCL needs a GPU of its own for each rank; here several ranks share one".to_owned();
            return Err(DeviceError::Unavailable { reason });
        }
        let nccl = Nccl::open()?;
        let devices: Vec<c_int> = ordinals
            .iter()
            .map(|o| c_int::try_from(*o).unwrap_or(c_int::MAX))
            .collect();
        let mut comms = vec![std::ptr::null_mut(); devices.len()];
        let mut init = || {
            super::timed(&super::NCCL_NS, || {
                call!(nccl.init_all(comms.as_mut_ptr(), devices.len() as c_int, devices.as_ptr()))
            })
        };
        match variable {
            Some((name, value)) => with_variable(name, value, init)?,
            None => init()?,
        }
        let ranks = comms.into_iter().map(|comm| Arc::new(NcclRank::owning(nccl, comm)));
        Ok(Self {
            nccl,
            ranks: ranks.collect(),
        })
    }

    /// One rank of a communicator over processes; it is the only one here. `id` is one rank's [`NcclRank::unique_id`].
    /// Waits at most `patience`, and no longer than there is hope; what NCCL still does then goes on behind our back until
    /// it notices.
    ///
    /// # Errors
    /// NCCL refuses, or ranks are missing.
    pub fn join(
        context: &Arc<Context>,
        (rank, world): (usize, usize),
        id: &[u8],
        patience: Duration,
        hopeless: impl Fn() -> bool,
    ) -> Result<Self, DeviceError> {
        let nccl = Nccl::open()?;
        let id: [u8; 128] = id.try_into().map_err(|_| DeviceError::Misuse {
            reason: format!("an NCCL id has 128 bytes, not {}", id.len()),
        })?;
        let (done, outcome) = channel();
        let context = context.clone();
        let join = move || {
            // NCCL takes the thread's device.
            let made = context.bind().map_err(DeviceError::from);
            // Nobody hears it any more after the deadline.
            let _ = done.send(made.and_then(|()| NcclRank::join(&id, rank, world)));
        };
        let unavailable = |reason: String| DeviceError::Unavailable { reason };
        std::thread::Builder::new()
            .name("topoforge-nccl".into())
            .spawn(join)
            .map_err(|e| unavailable(format!("no thread for NCCL: {e}")))?;
        let end = Instant::now() + patience;
        loop {
            match outcome.recv_timeout(Duration::from_millis(20)) {
                Ok(made) => {
                    let ranks = vec![Arc::new(made?)];
                    return Ok(Self { nccl, ranks });
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < end && !hopeless() => {}
                Err(_) => return Err(unavailable("NCCL did not join the ranks in time".to_owned())),
            }
        }
    }

    /// Ends kernels that wait for a rank that is gone. Later calls are refused.
    pub fn abort(&self) {
        self.ranks.iter().for_each(|rank| rank.abort());
    }

    /// Each rank's own communicator, which may outlive this.
    pub fn rank(&self, rank: usize) -> Option<&Arc<NcclRank>> {
        self.ranks.get(rank)
    }

    /// NCCL's version, e.g. 22203.
    ///
    /// # Errors
    /// NCCL refuses.
    pub fn version(&self) -> Result<i32, DriverError> {
        self.nccl.version()
    }

    /// Enqueues one all-reduce (sum) on every rank's stream: `buffers[rank]` is `(send, receive)`.
    ///
    /// # Errors
    /// NCCL refuses; the group is closed all the same.
    pub(crate) fn all_reduce(
        &self,
        buffers: &[(u64, u64)],
        elements: u64,
        element: NcclType,
        streams: &[&Stream],
    ) -> Result<(), DriverError> {
        let nccl = self.nccl;
        call!(nccl.group_start())?;
        let mut outcome = Ok(());
        for ((rank, &(send, receive)), stream) in self.ranks.iter().zip(buffers).zip(streams) {
            outcome = rank.all_reduce((send, receive), elements as usize, element, SUM, stream.handle());
            if outcome.is_err() {
                break;
            }
        }
        let end = call!(nccl.group_end());
        outcome.and(end)
    }
}

/// Starts a group on this thread; nothing without NCCL.
pub(crate) fn start_group() -> Result<(), DriverError> {
    Nccl::open().map_or(Ok(()), |nccl| call!(nccl.group_start()))
}

/// Ends the group that this thread started.
pub(crate) fn end_group() -> Result<(), DriverError> {
    Nccl::open().map_or(Ok(()), |nccl| call!(nccl.group_end()))
}

/// Runs `calls` between NCCL's group marks, or plainly where there is no NCCL.
pub(crate) fn group<T, E>(calls: impl FnOnce() -> Result<T, E>, refused: impl Fn(DriverError) -> E) -> Result<T, E> {
    /// Ends the group even if the calls panic: the thread would stay in it for ever.
    struct Open;
    impl Drop for Open {
        fn drop(&mut self) {
            let _ = end_group();
        }
    }
    start_group().map_err(&refused)?;
    let open = Open;
    let done = calls();
    std::mem::forget(open);
    let end = end_group().map_err(refused);
    done.and_then(|value| end.map(|()| value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_set_for_the_work_and_has_its_old_value_afterwards() {
        // Names of this test's own: nothing else in the process reads them.
        let seen = || std::env::var("TOPOFORGE_TEST_TOLD").ok();
        assert_eq!(with_variable("TOPOFORGE_TEST_TOLD", "LL", seen), Some("LL".to_owned()));
        assert_eq!(seen(), None);
        let inner = || with_variable("TOPOFORGE_TEST_TOLD", "Ring", seen);
        let both = with_variable("TOPOFORGE_TEST_TOLD", "LL", || (inner(), seen()));
        assert_eq!(both, (Some("Ring".to_owned()), Some("LL".to_owned())));
    }

    #[test]
    fn ranks_that_share_a_gpu_are_refused_before_nccl_is_opened() {
        let e = Communicators::new(&[0, 1, 0]).err();
        assert!(
            matches!(&e, Some(DeviceError::Unavailable { reason }) if reason.contains("share")),
            "{e:?}"
        );
    }
}

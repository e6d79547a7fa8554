//! A small binding of NCCL, opened at run time: one communicator over distinct devices of this process, and all-reduce.
//!
//! NCCL is what we compare with and fall back on; it is never linked. `TOPOFORGE_NCCL` names the library where the loader
//! does not find `libnccl.so.2`. Start at [`Communicators::new`].

use super::handles::{open, table};
use super::stream::Stream;
use super::user_stream::UserStream;
use super::{DriverError, call};
use crate::device::DeviceError;
use crate::registry::Element;
use libloading::Library;
use once_cell::sync::OnceCell;
use std::ffi::{c_int, c_void};

type Comm = *mut c_void;

table! {
    /// The functions of libnccl that topoforge uses.
    Nccl {
        version = "ncclGetVersion"(*mut c_int);
        init_all = "ncclCommInitAll"(*mut Comm, c_int, *const c_int);
        destroy = "ncclCommDestroy"(Comm);
        all_reduce = "ncclAllReduce"(*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void);
        group_start = "ncclGroupStart"();
        group_end = "ncclGroupEnd"();
    } optional {
    }
}

/// Element types by NCCL's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum NcclType {
    /// IEEE binary16.
    F16 = 6,
    /// IEEE binary32.
    F32 = 7,
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

const SUM: c_int = 0;

impl Nccl {
    /// The library, opened on the first call.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] where it is not to be found.
    pub fn open() -> Result<&'static Self, DeviceError> {
        static NCCL: OnceCell<Nccl> = OnceCell::new();
        NCCL.get_or_try_init(|| {
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

/// One communicator a device, all in this process.
pub struct Communicators {
    nccl: &'static Nccl,
    comms: Vec<Comm>,
}

// SAFETY: NCCL allows another thread each time.
unsafe impl Send for Communicators {}
// SAFETY: shared use is `all_reduce_one` of different ranks, each from its own thread, which NCCL allows: a rank's
// communicator is touched by that rank's thread only.
unsafe impl Sync for Communicators {}

impl Communicators {
    /// Joins devices, given by CUDA ordinal. Not while a collective is in flight.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] without NCCL or with a device twice; else NCCL's refusal.
    pub fn new(ordinals: &[usize]) -> Result<Self, DeviceError> {
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
        call!(nccl.init_all(comms.as_mut_ptr(), devices.len() as c_int, devices.as_ptr()))?;
        Ok(Self { nccl, comms })
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
        for ((&comm, &(send, receive)), stream) in self.comms.iter().zip(buffers).zip(streams) {
            let (send, receive) = (send as *const c_void, receive as *mut c_void);
            let (count, kind, stream) = (elements as usize, element as c_int, stream.handle().cast::<c_void>());
            outcome = call!(nccl.all_reduce(send, receive, count, kind, SUM, comm, stream));
            if outcome.is_err() {
                break;
            }
        }
        let end = call!(nccl.group_end());
        outcome.and(end)
    }
}

impl Communicators {
    /// Enqueues one rank's part of an all-reduce (sum) on the caller's stream. From one thread for several ranks only
    /// inside [`group`].
    ///
    /// # Errors
    /// NCCL refuses.
    pub(crate) fn all_reduce_one(
        &self,
        rank: usize,
        (send, receive): (u64, u64),
        elements: u64,
        element: NcclType,
        stream: &UserStream,
    ) -> Result<(), DriverError> {
        let nccl = self.nccl;
        let comm = self.comms.get(rank).copied().unwrap_or(std::ptr::null_mut());
        let (send, receive) = (send as *const c_void, receive as *mut c_void);
        let (count, kind, stream) = (elements as usize, element as c_int, stream.handle().cast::<c_void>());
        call!(nccl.all_reduce(send, receive, count, kind, SUM, comm, stream))
    }
}

/// Runs `calls` between NCCL's group marks, or plainly where there is no NCCL.
pub(crate) fn group<T, E>(calls: impl FnOnce() -> Result<T, E>, refused: impl Fn(DriverError) -> E) -> Result<T, E> {
    let Ok(nccl) = Nccl::open() else {
        return calls();
    };
    /// Ends the group even if the calls panic: the thread would stay in it for ever.
    struct Open(&'static Nccl);
    impl Drop for Open {
        fn drop(&mut self) {
            let nccl = self.0;
            let _ = call!(nccl.group_end());
        }
    }
    call!(nccl.group_start()).map_err(&refused)?;
    let open = Open(nccl);
    let done = calls();
    std::mem::forget(open);
    let end = call!(nccl.group_end()).map_err(refused);
    done.and_then(|value| end.map(|()| value))
}

impl Drop for Communicators {
    fn drop(&mut self) {
        let nccl = self.nccl;
        for &comm in &self.comms {
            let _ = call!(nccl.destroy(comm));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_share_a_gpu_are_refused_before_nccl_is_opened() {
        let e = Communicators::new(&[0, 1, 0]).err();
        assert!(
            matches!(&e, Some(DeviceError::Unavailable { reason }) if reason.contains("share")),
            "{e:?}"
        );
    }
}

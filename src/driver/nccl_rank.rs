//! One rank of an NCCL communicator, in this process or with peers in others: every call that is forwarded to NCCL.
//!
//! Buffers are plain device addresses and counts, streams plain handles: a call is as right as its arguments, which is
//! why calling stays inside the crate. Numbers of operations are NCCL's own. Start at [`NcclRank`].

use super::nccl::{Comm, Nccl, NcclType, UniqueId};
use super::{DriverError, call};
use crate::device::DeviceError;
use cudarc::driver::sys::CUstream;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// One rank's communicator.
pub struct NcclRank {
    nccl: &'static Nccl,
    comm: Comm,
    aborted: AtomicBool,
    /// Calls that a thread is inside of.
    busy: AtomicUsize,
}

/// A communicator that is not aborted while this lives.
struct InCall<'a> {
    handle: Comm,
    busy: &'a AtomicUsize,
}

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        self.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How long an abort waits for a call that another thread is inside of.
const CALL: Duration = Duration::from_secs(2);

// SAFETY: NCCL allows another thread each time.
unsafe impl Send for NcclRank {}
// SAFETY: a rank is called from that rank's thread only, which its owners see to: `comm::Communicator` is not `Sync`, and
// the executor's is behind its machine.
unsafe impl Sync for NcclRank {}

impl NcclRank {
    pub(super) const fn owning(nccl: &'static Nccl, comm: Comm) -> Self {
        Self {
            nccl,
            comm,
            aborted: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
        }
    }

    /// An id for [`NcclRank::join`]: one rank makes it, every rank must be given the same.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] without NCCL; else its refusal.
    pub fn unique_id() -> Result<[u8; 128], DeviceError> {
        let nccl = Nccl::open()?;
        let mut id = UniqueId([0; 128]);
        call!(nccl.unique_id(&mut id))?;
        Ok(id.0)
    }

    /// Joins as `rank` of `world`, on the GPU whose context is current. Waits, without bound, for all other ranks: first
    /// make sure that they are alive.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] without NCCL; else its refusal.
    pub fn join(id: &[u8; 128], rank: usize, world: usize) -> Result<Self, DeviceError> {
        let nccl = Nccl::open()?;
        let number = |n: usize| c_int::try_from(n).unwrap_or(c_int::MAX);
        let mut comm = std::ptr::null_mut();
        call!(nccl.init_rank(&mut comm, number(world), UniqueId(*id), number(rank)))?;
        Ok(Self::owning(nccl, comm))
    }

    /// Ends everything under way on this rank and frees it, for when a peer is gone; from any thread. Every later call is
    /// refused.
    pub fn abort(&self) {
        if !self.aborted.swap(true, Ordering::SeqCst) {
            let since = Instant::now();
            while self.busy.load(Ordering::SeqCst) != 0 && since.elapsed() < CALL {
                std::thread::sleep(Duration::from_micros(100));
            }
            let nccl = self.nccl;
            let _ = call!(nccl.abort(self.comm));
        }
    }

    /// NCCL's null handle is refused by NCCL itself, an aborted one would not be.
    fn comm(&self) -> Result<InCall<'_>, DriverError> {
        self.busy.fetch_add(1, Ordering::SeqCst);
        let (handle, busy) = (self.comm, &self.busy);
        let call = InCall { handle, busy };
        if self.aborted.load(Ordering::SeqCst) {
            return Err(DriverError {
                call: "ncclCommAbort",
                code: 5,
            });
        }
        Ok(call)
    }

    pub(crate) fn all_reduce(
        &self,
        (send, receive): (u64, u64),
        count: usize,
        kind: NcclType,
        op: c_int,
        stream: CUstream,
    ) -> Result<(), DriverError> {
        let (nccl, comm, kind) = (self.nccl, self.comm()?, kind as c_int);
        call!(nccl.all_reduce(
            source(send),
            target(receive),
            count,
            kind,
            op,
            comm.handle,
            stream.cast()
        ))
    }

    pub(crate) fn reduce(
        &self,
        (send, receive): (u64, u64),
        count: usize,
        kind: NcclType,
        op: c_int,
        root: c_int,
        stream: CUstream,
    ) -> Result<(), DriverError> {
        let (nccl, comm, kind) = (self.nccl, self.comm()?, kind as c_int);
        call!(nccl.reduce(
            source(send),
            target(receive),
            count,
            kind,
            op,
            root,
            comm.handle,
            stream.cast()
        ))
    }

    pub(crate) fn broadcast(
        &self,
        (send, receive): (u64, u64),
        count: usize,
        kind: NcclType,
        root: c_int,
        stream: CUstream,
    ) -> Result<(), DriverError> {
        let (nccl, comm, kind) = (self.nccl, self.comm()?, kind as c_int);
        call!(nccl.broadcast(
            source(send),
            target(receive),
            count,
            kind,
            root,
            comm.handle,
            stream.cast()
        ))
    }

    /// `count` elements of each rank.
    pub(crate) fn all_gather(
        &self,
        (send, receive): (u64, u64),
        count: usize,
        kind: NcclType,
        stream: CUstream,
    ) -> Result<(), DriverError> {
        let (nccl, comm, kind) = (self.nccl, self.comm()?, kind as c_int);
        call!(nccl.all_gather(source(send), target(receive), count, kind, comm.handle, stream.cast()))
    }

    /// `count` elements for each rank.
    pub(crate) fn reduce_scatter(
        &self,
        (send, receive): (u64, u64),
        count: usize,
        kind: NcclType,
        op: c_int,
        stream: CUstream,
    ) -> Result<(), DriverError> {
        let (nccl, comm, kind) = (self.nccl, self.comm()?, kind as c_int);
        call!(nccl.reduce_scatter(
            source(send),
            target(receive),
            count,
            kind,
            op,
            comm.handle,
            stream.cast()
        ))
    }

    pub(crate) fn send(
        &self,
        from: u64,
        count: usize,
        kind: NcclType,
        peer: c_int,
        stream: CUstream,
    ) -> Result<(), DriverError> {
        let (nccl, comm, kind) = (self.nccl, self.comm()?, kind as c_int);
        call!(nccl.send(source(from), count, kind, peer, comm.handle, stream.cast()))
    }

    pub(crate) fn recv(
        &self,
        to: u64,
        count: usize,
        kind: NcclType,
        peer: c_int,
        stream: CUstream,
    ) -> Result<(), DriverError> {
        let (nccl, comm, kind) = (self.nccl, self.comm()?, kind as c_int);
        call!(nccl.recv(target(to), count, kind, peer, comm.handle, stream.cast()))
    }
}

const fn source(address: u64) -> *const c_void {
    address as *const c_void
}

const fn target(address: u64) -> *mut c_void {
    address as *mut c_void
}

impl Drop for NcclRank {
    fn drop(&mut self) {
        if !self.aborted.load(Ordering::Relaxed) {
            let nccl = self.nccl;
            let _ = call!(nccl.destroy(self.comm));
        }
    }
}

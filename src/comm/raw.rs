//! Calls by plain addresses, counts, type numbers and stream handles: for bindings of other languages and for tensors
//! that are not cudarc's.
//!
//! The same dispatch, order and errors as the typed calls, which are made of these. Start at
//! [`Communicator::all_reduce_raw`].

#![allow(
    unsafe_code,
    reason = "the caller vouches for addresses; nothing here looks behind them"
)]

use super::cuda::Buffers;
use super::dispatch::Call;
use super::{CommError, Communicator, Dtype, ReduceOp};
use std::ffi::c_void;

/// A `CUstream` or `cudaStream_t`; null is the legacy default stream.
pub type StreamHandle = *mut c_void;

impl Communicator {
    /// Sums (or, by NCCL, reduces otherwise) `count` elements at `src` into `dst`, which may be `src`, enqueued on
    /// `stream`. An empty payload is no call.
    ///
    /// # Safety
    /// Both addresses are device memory of this rank's GPU, aligned for their type, valid for `count` elements until
    /// the call has ended on the device, and equal or disjoint. `stream` belongs to this rank's GPU; it and the stream of
    /// the call before are alive. The communicators of all ranks outlive every graph that captured a call.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`].
    pub unsafe fn all_reduce_raw(
        &self,
        src: u64,
        dst: u64,
        count: usize,
        dtype: Dtype,
        op: ReduceOp,
        stream: StreamHandle,
    ) -> Result<(), CommError> {
        self.enqueue_all_reduce((src, dst), count, dtype, op, stream)
    }

    /// Enqueues NCCL's reduce to `root`; `dst` counts on the root only.
    ///
    /// # Safety
    /// As [`Communicator::all_reduce_raw`].
    ///
    /// # Errors
    /// There is no such root or no NCCL, or an earlier call ran past its deadline.
    #[expect(clippy::too_many_arguments, reason = "NCCL's own")]
    pub unsafe fn reduce_raw(
        &self,
        src: u64,
        dst: u64,
        count: usize,
        dtype: Dtype,
        op: ReduceOp,
        root: i32,
        stream: StreamHandle,
    ) -> Result<(), CommError> {
        self.enqueue_reduce((src, dst), count, dtype, op, root, stream)
    }

    /// Enqueues NCCL's broadcast from `root`; `src` counts on the root only.
    ///
    /// # Safety
    /// As [`Communicator::all_reduce_raw`].
    ///
    /// # Errors
    /// As [`Communicator::reduce_raw`].
    pub unsafe fn broadcast_raw(
        &self,
        src: u64,
        dst: u64,
        count: usize,
        dtype: Dtype,
        root: i32,
        stream: StreamHandle,
    ) -> Result<(), CommError> {
        self.enqueue_broadcast((src, dst), count, dtype, root, stream)
    }

    /// Enqueues NCCL's all-gather of `count` elements a rank; `dst` has room for `world_size` times as many.
    ///
    /// # Safety
    /// As [`Communicator::all_reduce_raw`].
    ///
    /// # Errors
    /// There is no NCCL, or an earlier call ran past its deadline.
    pub unsafe fn all_gather_raw(
        &self,
        src: u64,
        dst: u64,
        count: usize,
        dtype: Dtype,
        stream: StreamHandle,
    ) -> Result<(), CommError> {
        self.enqueue_all_gather((src, dst), count, dtype, stream)
    }

    /// Enqueues NCCL's reduce-scatter of `count` elements a rank; `src` holds `world_size` times as many.
    ///
    /// # Safety
    /// As [`Communicator::all_reduce_raw`].
    ///
    /// # Errors
    /// As [`Communicator::all_gather_raw`].
    pub unsafe fn reduce_scatter_raw(
        &self,
        src: u64,
        dst: u64,
        count: usize,
        dtype: Dtype,
        op: ReduceOp,
        stream: StreamHandle,
    ) -> Result<(), CommError> {
        self.enqueue_reduce_scatter((src, dst), count, dtype, op, stream)
    }

    /// Enqueues NCCL's send to `peer`.
    ///
    /// # Safety
    /// As [`Communicator::all_reduce_raw`].
    ///
    /// # Errors
    /// There is no such peer or no NCCL, or an earlier call ran past its deadline.
    pub unsafe fn send_raw(
        &self,
        src: u64,
        count: usize,
        dtype: Dtype,
        peer: i32,
        stream: StreamHandle,
    ) -> Result<(), CommError> {
        self.enqueue_send(src, count, dtype, peer, stream)
    }

    /// Enqueues NCCL's receive from `peer`.
    ///
    /// # Safety
    /// As [`Communicator::all_reduce_raw`].
    ///
    /// # Errors
    /// As [`Communicator::send_raw`].
    pub unsafe fn recv_raw(
        &self,
        dst: u64,
        count: usize,
        dtype: Dtype,
        peer: i32,
        stream: StreamHandle,
    ) -> Result<(), CommError> {
        self.enqueue_recv(dst, count, dtype, peer, stream)
    }

    pub(crate) fn enqueue_all_reduce(
        &self,
        (from, to): (u64, u64),
        count: usize,
        dtype: Dtype,
        op: ReduceOp,
        stream: StreamHandle,
    ) -> Result<(), CommError> {
        let part = self.cuda()?;
        if let Some((which, address)) = [("source", from), ("destination", to)]
            .into_iter()
            .find(|(_, a)| count > 0 && (*a == 0 || !a.is_multiple_of(dtype.bytes() as u64)))
        {
            return Err(CommError::Misuse {
                reason: format!("the {which} address {address:#x} is null or no address of {dtype} elements"),
            });
        }
        let call = Call {
            count,
            dtype,
            op,
            aligned: (from | to).is_multiple_of(16),
        };
        let stream = stream.cast();
        part.all_reduce(&self.dispatch, call, Buffers { from, to, stream })
    }

    pub(crate) fn enqueue_reduce(
        &self,
        buffers: (u64, u64),
        count: usize,
        dtype: Dtype,
        op: ReduceOp,
        root: i32,
        stream: StreamHandle,
    ) -> Result<(), CommError> {
        self.is_rank("root", root)?;
        self.cuda()?.forward("reduce", stream.cast(), |nccl| {
            nccl.reduce(buffers, count, dtype, op as i32, root, stream.cast())
        })
    }

    pub(crate) fn enqueue_broadcast(
        &self,
        buffers: (u64, u64),
        count: usize,
        dtype: Dtype,
        root: i32,
        stream: StreamHandle,
    ) -> Result<(), CommError> {
        self.is_rank("root", root)?;
        self.cuda()?.forward("broadcast", stream.cast(), |nccl| {
            nccl.broadcast(buffers, count, dtype, root, stream.cast())
        })
    }

    pub(crate) fn enqueue_all_gather(
        &self,
        buffers: (u64, u64),
        count: usize,
        dtype: Dtype,
        stream: StreamHandle,
    ) -> Result<(), CommError> {
        self.cuda()?.forward("all-gather", stream.cast(), |nccl| {
            nccl.all_gather(buffers, count, dtype, stream.cast())
        })
    }

    pub(crate) fn enqueue_reduce_scatter(
        &self,
        buffers: (u64, u64),
        count: usize,
        dtype: Dtype,
        op: ReduceOp,
        stream: StreamHandle,
    ) -> Result<(), CommError> {
        self.cuda()?.forward("reduce-scatter", stream.cast(), |nccl| {
            nccl.reduce_scatter(buffers, count, dtype, op as i32, stream.cast())
        })
    }

    pub(crate) fn enqueue_send(
        &self,
        from: u64,
        count: usize,
        dtype: Dtype,
        peer: i32,
        stream: StreamHandle,
    ) -> Result<(), CommError> {
        self.is_rank("peer", peer)?;
        self.cuda()?.forward("send", stream.cast(), |nccl| {
            nccl.send(from, count, dtype, peer, stream.cast())
        })
    }

    pub(crate) fn enqueue_recv(
        &self,
        to: u64,
        count: usize,
        dtype: Dtype,
        peer: i32,
        stream: StreamHandle,
    ) -> Result<(), CommError> {
        self.is_rank("peer", peer)?;
        self.cuda()?.forward("receive", stream.cast(), |nccl| {
            nccl.recv(to, count, dtype, peer, stream.cast())
        })
    }

    fn is_rank(&self, what: &str, rank: i32) -> Result<(), CommError> {
        if usize::try_from(rank).is_ok_and(|r| r < self.world) {
            return Ok(());
        }
        Err(CommError::Misuse {
            reason: format!(
                "{what} {rank} is no rank of {}: give 0 to {}",
                self.world,
                self.world - 1
            ),
        })
    }
}

//! The typed calls: cudarc buffers on this rank's own stream, with the signatures of `cudarc::nccl::Comm`.
//!
//! They check lengths, devices and ranks and hand addresses on to `raw`. All-reduce is served by routes; what has no
//! kernels here is NCCL's. Start at [`Communicator::all_reduce`].

use super::raw::StreamHandle;
use super::{CommError, Communicator, ReduceOp, Scalar};
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceSlice};

impl Communicator {
    /// Reduces `src` over all ranks into `dst`, enqueued on this rank's stream. Allocates nothing and waits for nothing, so
    /// it may be captured into a graph; the communicators of all ranks must outlive every such graph and every call under
    /// way. A wait that runs past its deadline shows in the next call, or in [`Communicator::check`]. When one thread
    /// drives several ranks, wrap the ranks' calls in [`super::group`], as with NCCL.
    ///
    /// Sums go by the table of routes; other operations, types and sizes to NCCL. All ranks must call alike, and with
    /// buffers that are aligned alike.
    ///
    /// # Errors
    /// `dst` is shorter than `src`, nobody can serve the call, or an earlier call ran past its deadline: then the peer
    /// is named and the communicator stays dead.
    pub fn all_reduce<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Scalar>(
        &self,
        src: &S,
        dst: &mut R,
        op: &ReduceOp,
    ) -> Result<(), CommError> {
        let stream = self.for_buffer(src)?;
        self.for_buffer(dst)?;
        holds("destination", dst.len(), src.len())?;
        let (from, _read) = src.device_ptr(stream);
        let (to, _written) = dst.device_ptr_mut(stream);
        self.enqueue_all_reduce((from, to), src.len(), T::DTYPE, *op, handle(stream))
    }

    /// [`Communicator::all_reduce`] with one buffer.
    ///
    /// # Errors
    /// As there.
    pub fn all_reduce_in_place<R: DevicePtrMut<T>, T: Scalar>(
        &self,
        buffer: &mut R,
        op: &ReduceOp,
    ) -> Result<(), CommError> {
        let stream = self.for_buffer(buffer)?;
        let count = buffer.len();
        let (at, _written) = buffer.device_ptr_mut(stream);
        self.enqueue_all_reduce((at, at), count, T::DTYPE, *op, handle(stream))
    }

    /// Reduces to `root`, whose `dst` gets the result; other ranks may give none. By NCCL.
    ///
    /// # Errors
    /// Lengths or ranks do not fit, there is no NCCL, or an earlier call ran past its deadline.
    pub fn reduce<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Scalar>(
        &self,
        src: &S,
        dst: Option<&mut R>,
        op: &ReduceOp,
        root: i32,
    ) -> Result<(), CommError> {
        let stream = self.for_buffer(src)?;
        let (from, _read) = src.device_ptr(stream);
        if let Some(dst) = &dst {
            self.for_buffer(*dst)?;
            holds("destination", dst.len(), src.len())?;
        } else if usize::try_from(root) == Ok(self.rank) {
            return Err(missing("the root of a reduce needs a destination"));
        }
        let (to, _written) = dst.map(|d| d.device_ptr_mut(stream)).unzip();
        let buffers = (from, to.unwrap_or(0));
        self.enqueue_reduce(buffers, src.len(), T::DTYPE, *op, root, handle(stream))
    }

    /// [`Communicator::reduce`] with one buffer.
    ///
    /// # Errors
    /// As there.
    pub fn reduce_in_place<R: DevicePtrMut<T>, T: Scalar>(
        &self,
        buffer: &mut R,
        op: &ReduceOp,
        root: i32,
    ) -> Result<(), CommError> {
        let stream = self.for_buffer(buffer)?;
        let count = buffer.len();
        let (at, _written) = buffer.device_ptr_mut(stream);
        self.enqueue_reduce((at, at), count, T::DTYPE, *op, root, handle(stream))
    }

    /// Copies the root's `src` to every rank's `dst`; other ranks may give none. By NCCL.
    ///
    /// # Errors
    /// As [`Communicator::reduce`].
    pub fn broadcast<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Scalar>(
        &self,
        src: Option<&S>,
        dst: &mut R,
        root: i32,
    ) -> Result<(), CommError> {
        let stream = self.for_buffer(dst)?;
        let count = dst.len();
        if let Some(src) = src {
            self.for_buffer(src)?;
            holds("source", src.len(), count)?;
        } else if usize::try_from(root) == Ok(self.rank) {
            return Err(missing("the root of a broadcast needs a source"));
        }
        let (from, _read) = src.map(|s| s.device_ptr(stream)).unzip();
        let (to, _written) = dst.device_ptr_mut(stream);
        self.enqueue_broadcast((from.unwrap_or(0), to), count, T::DTYPE, root, handle(stream))
    }

    /// [`Communicator::broadcast`] with one buffer.
    ///
    /// # Errors
    /// As there.
    pub fn broadcast_in_place<R: DevicePtrMut<T>, T: Scalar>(
        &self,
        buffer: &mut R,
        root: i32,
    ) -> Result<(), CommError> {
        let stream = self.for_buffer(buffer)?;
        let count = buffer.len();
        let (at, _written) = buffer.device_ptr_mut(stream);
        self.enqueue_broadcast((at, at), count, T::DTYPE, root, handle(stream))
    }

    /// Every rank's `src` one after the other in every rank's `dst`. By NCCL.
    ///
    /// # Errors
    /// As [`Communicator::reduce`].
    pub fn all_gather<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Scalar>(
        &self,
        src: &S,
        dst: &mut R,
    ) -> Result<(), CommError> {
        let stream = self.for_buffer(src)?;
        self.for_buffer(dst)?;
        holds("destination", dst.len(), src.len().saturating_mul(self.world))?;
        let (from, _read) = src.device_ptr(stream);
        let (to, _written) = dst.device_ptr_mut(stream);
        self.enqueue_all_gather((from, to), src.len(), T::DTYPE, handle(stream))
    }

    /// Reduces `src` and gives rank `r` its `r`-th part. By NCCL.
    ///
    /// # Errors
    /// As [`Communicator::reduce`].
    pub fn reduce_scatter<S: DevicePtr<T>, R: DevicePtrMut<T>, T: Scalar>(
        &self,
        src: &S,
        dst: &mut R,
        op: &ReduceOp,
    ) -> Result<(), CommError> {
        let stream = self.for_buffer(src)?;
        self.for_buffer(dst)?;
        let count = dst.len();
        holds("source", src.len(), count.saturating_mul(self.world))?;
        let (from, _read) = src.device_ptr(stream);
        let (to, _written) = dst.device_ptr_mut(stream);
        self.enqueue_reduce_scatter((from, to), count, T::DTYPE, *op, handle(stream))
    }

    /// Sends to one rank, which must receive as much. By NCCL.
    ///
    /// # Errors
    /// As [`Communicator::reduce`].
    pub fn send<S: DevicePtr<T>, T: Scalar>(&self, src: &S, peer: i32) -> Result<(), CommError> {
        let stream = self.for_buffer(src)?;
        let (from, _read) = src.device_ptr(stream);
        self.enqueue_send(from, src.len(), T::DTYPE, peer, handle(stream))
    }

    /// Receives from one rank, which must send as much. By NCCL.
    ///
    /// # Errors
    /// As [`Communicator::reduce`].
    pub fn recv<R: DevicePtrMut<T>, T: Scalar>(&self, dst: &mut R, peer: i32) -> Result<(), CommError> {
        let stream = self.for_buffer(dst)?;
        let count = dst.len();
        let (to, _written) = dst.device_ptr_mut(stream);
        self.enqueue_recv(to, count, T::DTYPE, peer, handle(stream))
    }

    /// This rank's stream, if the buffer is on its GPU.
    pub(crate) fn for_buffer<T>(&self, buffer: &impl DeviceSlice<T>) -> Result<&CudaStream, CommError> {
        let part = self.cuda()?;
        part.at_home(buffer.stream().context().ordinal())?;
        Ok(part.stream())
    }
}

pub(crate) fn handle(stream: &CudaStream) -> StreamHandle {
    stream.cu_stream().cast()
}

pub(crate) fn holds(which: &str, length: usize, needed: usize) -> Result<(), CommError> {
    if length >= needed {
        return Ok(());
    }
    Err(CommError::Misuse {
        reason: format!("the {which} has {length} elements where {needed} are needed: give a longer one"),
    })
}

pub(crate) fn missing(what: &str) -> CommError {
    CommError::Misuse {
        reason: what.to_owned(),
    }
}

//! The drop-in for `cudarc::nccl`: the same names, the same calls. Change one `use` line:
//!
//! ```text
//! -use cudarc::nccl::{Comm, Id, ReduceOp};
//! +use topoforge::nccl::{Comm, Id, ReduceOp};
//! ```
//!
//! Programs that write `cudarc::nccl::Comm` in full say `use topoforge as cudarc;` there. With feature `cudarc-nccl` a [`Comm`]
//! takes cudarc's own `Id` and `ReduceOp` as well, so that only the module with the `Comm` changes. What differs: an error holds a
//! [`CommError`] where cudarc's holds a code, and is returned where cudarc panics; calls return nothing where cudarc returns a
//! status; there is no `NcclType` for `char`, which cudarc counts as one byte although it has four. All ranks must
//! change over together. Settings come from the environment ([`Options::from_env`]); for settings in the program take
//! [`Communicator`] itself. Start at [`Comm`].

pub use crate::comm::{Id, ReduceOp, Scalar as NcclType};

use crate::comm::{CommError, Communicator, Options, handle, holds, missing};
use crate::driver::nccl::{end_group, start_group};
use cudarc::driver::{CudaContext, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, SyncOnDrop};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

#[cfg(feature = "cudarc-nccl")]
mod mixed;

/// Where cudarc has its error.
pub mod result {
    pub use super::NcclError;
}

/// An error with the cause inside, as cudarc's has the code.
#[derive(Debug)]
pub struct NcclError(pub CommError);

impl fmt::Display for NcclError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for NcclError {}

impl From<CommError> for NcclError {
    fn from(error: CommError) -> Self {
        Self(error)
    }
}

/// A [`Communicator`] on a GPU, with its stream. `Send`, not `Sync`.
#[derive(Debug)]
pub struct Comm {
    inner: Communicator,
    stream: Arc<CudaStream>,
}

impl Comm {
    /// Joins streams of this process, one a rank.
    ///
    /// # Errors
    /// As [`Communicator::from_streams`].
    pub fn from_devices(streams: Vec<Arc<CudaStream>>) -> Result<Vec<Self>, NcclError> {
        let joined = Communicator::from_streams(&streams, &Options::from_env()?)?;
        let pairs = joined.into_iter().zip(streams);
        Ok(pairs.map(|(inner, stream)| Self { inner, stream }).collect())
    }

    /// Joins as `rank` of `world_size` processes of this machine, each with a GPU of its own.
    ///
    /// # Errors
    /// As [`Communicator::from_rank`].
    pub fn from_rank(
        stream: Arc<CudaStream>,
        rank: usize,
        world_size: usize,
        id: impl Into<Id>,
    ) -> Result<Self, NcclError> {
        let inner = Communicator::from_rank(&stream, rank, world_size, &id.into(), &Options::from_env()?)?;
        Ok(Self { inner, stream })
    }

    /// As [`Communicator::all_reduce`].
    ///
    /// # Errors
    /// As there.
    pub fn all_reduce<S: DevicePtr<T>, R: DevicePtrMut<T>, T: NcclType>(
        &self,
        sendbuff: &S,
        recvbuff: &mut R,
        reduce_op: impl Into<ReduceOp>,
    ) -> Result<(), CommError> {
        self.inner.all_reduce(sendbuff, recvbuff, &reduce_op.into())
    }

    /// As [`Communicator::all_reduce_in_place`].
    ///
    /// # Errors
    /// As there.
    pub fn all_reduce_in_place<R: DevicePtrMut<T>, T: NcclType>(
        &self,
        buff: &mut R,
        reduce_op: impl Into<ReduceOp>,
    ) -> Result<(), CommError> {
        self.inner.all_reduce_in_place(buff, &reduce_op.into())
    }

    /// The stream that calls are enqueued on.
    pub fn stream(&self) -> Arc<CudaStream> {
        self.stream.clone()
    }

    /// Its context.
    pub fn context(&self) -> &Arc<CudaContext> {
        self.stream.context()
    }

    /// Its GPU by CUDA's number.
    pub fn ordinal(&self) -> usize {
        self.context().ordinal()
    }

    /// Starts a group: calls of several ranks from one thread, or sends and receives that belong together. It ends when
    /// the guard is dropped; [`Group::finish`] also says how.
    pub fn group(&self) -> Group<'_> {
        Group {
            opened: group_start().is_ok(),
            comm: self,
            syncs: Vec::new(),
        }
    }
}

/// cudarc's calls take operations by reference.
impl From<&ReduceOp> for ReduceOp {
    fn from(op: &ReduceOp) -> Self {
        *op
    }
}

impl Deref for Comm {
    type Target = Communicator;

    fn deref(&self) -> &Communicator {
        &self.inner
    }
}

/// Starts a group on this thread; nothing without NCCL.
///
/// # Errors
/// NCCL refuses.
pub fn group_start() -> Result<(), CommError> {
    start_group().map_err(|e| CommError::Device(e.into()))
}

/// Ends the group that [`group_start`] started.
///
/// # Errors
/// NCCL refuses, or a call within the group failed.
pub fn group_end() -> Result<(), CommError> {
    end_group().map_err(|e| CommError::Device(e.into()))
}

/// A group of calls, which take views so that what they touch outlives the group.
#[derive(Debug)]
pub struct Group<'a> {
    comm: &'a Comm,
    opened: bool,
    syncs: Vec<SyncOnDrop<'a>>,
}

impl<'g> Group<'g> {
    /// Whose group it is.
    pub const fn comm(&self) -> &'g Comm {
        self.comm
    }

    /// Ends the group.
    ///
    /// # Errors
    /// It could not be started, NCCL refuses, or a call within it failed.
    pub fn finish(mut self) -> Result<(), CommError> {
        if std::mem::take(&mut self.opened) {
            group_end()
        } else {
            Err(missing("the group was not started: NCCL refused"))
        }
    }

    fn read<'s: 'g, T>(&mut self, view: CudaView<'s, T>) -> Result<(u64, usize), CommError> {
        let comm = self.comm;
        let (stream, length) = (comm.for_buffer(&view)?, view.len());
        let (at, sync) = view.view_ptr(stream);
        self.syncs.push(sync);
        Ok((at, length))
    }

    fn write<'r: 'g, T>(&mut self, view: CudaViewMut<'r, T>) -> Result<(u64, usize), CommError> {
        let comm = self.comm;
        let (stream, length) = (comm.for_buffer(&view)?, view.len());
        let (at, sync) = view.view_ptr_mut(stream);
        self.syncs.push(sync);
        Ok((at, length))
    }

    /// As [`Communicator::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send<'s: 'g, T: NcclType>(&mut self, data: CudaView<'s, T>, peer: i32) -> Result<(), CommError> {
        let (from, count) = self.read(data)?;
        self.comm
            .enqueue_send(from, count, T::DTYPE, peer, handle(&self.comm.stream))
    }

    /// As [`Communicator::recv`].
    ///
    /// # Errors
    /// As there.
    pub fn recv<'r: 'g, T: NcclType>(&mut self, buff: CudaViewMut<'r, T>, peer: i32) -> Result<(), CommError> {
        let (to, count) = self.write(buff)?;
        self.comm
            .enqueue_recv(to, count, T::DTYPE, peer, handle(&self.comm.stream))
    }

    /// As [`Communicator::broadcast`].
    ///
    /// # Errors
    /// As there.
    pub fn broadcast<'s: 'g, 'r: 'g, T: NcclType>(
        &mut self,
        sendbuff: Option<CudaView<'s, T>>,
        recvbuff: CudaViewMut<'r, T>,
        root: i32,
    ) -> Result<(), CommError> {
        let (to, count) = self.write(recvbuff)?;
        let from = match sendbuff.map(|view| self.read(view)).transpose()? {
            Some((from, length)) => {
                holds("source", length, count)?;
                from
            }
            None if usize::try_from(root) == Ok(self.comm.rank()) => {
                return Err(missing("the root of a broadcast needs a source"));
            }
            None => 0,
        };
        let stream = handle(&self.comm.stream);
        self.comm.enqueue_broadcast((from, to), count, T::DTYPE, root, stream)
    }

    /// As [`Communicator::broadcast_in_place`].
    ///
    /// # Errors
    /// As there.
    pub fn broadcast_in_place<'r: 'g, T: NcclType>(
        &mut self,
        recvbuff: CudaViewMut<'r, T>,
        root: i32,
    ) -> Result<(), CommError> {
        let (at, count) = self.write(recvbuff)?;
        let stream = handle(&self.comm.stream);
        self.comm.enqueue_broadcast((at, at), count, T::DTYPE, root, stream)
    }

    /// As [`Communicator::all_gather`].
    ///
    /// # Errors
    /// As there.
    pub fn all_gather<'s: 'g, 'r: 'g, T: NcclType>(
        &mut self,
        sendbuff: CudaView<'s, T>,
        recvbuff: CudaViewMut<'r, T>,
    ) -> Result<(), CommError> {
        let (from, count) = self.read(sendbuff)?;
        let (to, room) = self.write(recvbuff)?;
        holds("destination", room, count.saturating_mul(self.comm.world_size()))?;
        let stream = handle(&self.comm.stream);
        self.comm.enqueue_all_gather((from, to), count, T::DTYPE, stream)
    }

    /// As [`Communicator::all_reduce`].
    ///
    /// # Errors
    /// As there.
    pub fn all_reduce<'s: 'g, 'r: 'g, T: NcclType>(
        &mut self,
        sendbuff: CudaView<'s, T>,
        recvbuff: CudaViewMut<'r, T>,
        reduce_op: &ReduceOp,
    ) -> Result<(), CommError> {
        let (from, count) = self.read(sendbuff)?;
        let (to, room) = self.write(recvbuff)?;
        holds("destination", room, count)?;
        let stream = handle(&self.comm.stream);
        self.comm
            .enqueue_all_reduce((from, to), count, T::DTYPE, *reduce_op, stream)
    }

    /// As [`Communicator::all_reduce_in_place`].
    ///
    /// # Errors
    /// As there.
    pub fn all_reduce_in_place<'r: 'g, T: NcclType>(
        &mut self,
        buff: CudaViewMut<'r, T>,
        reduce_op: &ReduceOp,
    ) -> Result<(), CommError> {
        let (at, count) = self.write(buff)?;
        let stream = handle(&self.comm.stream);
        self.comm
            .enqueue_all_reduce((at, at), count, T::DTYPE, *reduce_op, stream)
    }

    /// As [`Communicator::reduce`].
    ///
    /// # Errors
    /// As there.
    pub fn reduce<'s: 'g, 'r: 'g, T: NcclType>(
        &mut self,
        sendbuff: CudaView<'s, T>,
        recvbuff: Option<CudaViewMut<'r, T>>,
        reduce_op: &ReduceOp,
        root: i32,
    ) -> Result<(), CommError> {
        let (from, count) = self.read(sendbuff)?;
        let to = match recvbuff.map(|view| self.write(view)).transpose()? {
            Some((to, room)) => {
                holds("destination", room, count)?;
                to
            }
            None if usize::try_from(root) == Ok(self.comm.rank()) => {
                return Err(missing("the root of a reduce needs a destination"));
            }
            None => 0,
        };
        let stream = handle(&self.comm.stream);
        self.comm
            .enqueue_reduce((from, to), count, T::DTYPE, *reduce_op, root, stream)
    }

    /// As [`Communicator::reduce_in_place`].
    ///
    /// # Errors
    /// As there.
    pub fn reduce_in_place<'r: 'g, T: NcclType>(
        &mut self,
        recvbuff: CudaViewMut<'r, T>,
        reduce_op: &ReduceOp,
        root: i32,
    ) -> Result<(), CommError> {
        let (at, count) = self.write(recvbuff)?;
        let stream = handle(&self.comm.stream);
        self.comm
            .enqueue_reduce((at, at), count, T::DTYPE, *reduce_op, root, stream)
    }

    /// As [`Communicator::reduce_scatter`].
    ///
    /// # Errors
    /// As there.
    pub fn reduce_scatter<'s: 'g, 'r: 'g, T: NcclType>(
        &mut self,
        sendbuff: CudaView<'s, T>,
        recvbuff: CudaViewMut<'r, T>,
        reduce_op: &ReduceOp,
    ) -> Result<(), CommError> {
        let (to, count) = self.write(recvbuff)?;
        let (from, length) = self.read(sendbuff)?;
        holds("source", length, count.saturating_mul(self.comm.world_size()))?;
        let stream = handle(&self.comm.stream);
        self.comm
            .enqueue_reduce_scatter((from, to), count, T::DTYPE, *reduce_op, stream)
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        // Nobody is there to hear a refusal: whoever wants to calls `finish`.
        if self.opened {
            let _ = group_end();
        }
    }
}

//! Every call of cudarc's `Comm` and `Group`, as engines write them. Compiled, not run: see `lib.rs`.

use super::nccl::result::NcclError;
use super::nccl::{Comm, Group, Id, NcclType, ReduceOp, group_end, group_start};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut};
use half::{bf16, f16};
use std::ffi::c_char;
use std::sync::Arc;

/// As engines hold it.
#[derive(Debug)]
pub struct Engine {
    pub comm: Comm,
}

/// A process a rank: the id goes by whatever means the engine has.
pub fn id() -> Result<[c_char; 128], NcclError> {
    Ok(*Id::new()?.internal())
}

pub fn join(stream: Arc<CudaStream>, rank: usize, world: usize, id: [c_char; 128]) -> Result<Engine, String> {
    let comm = Comm::from_rank(stream, rank, world, Id::uninit(id)).map_err(|e| format!("{:?}", e.0))?;
    Ok(Engine { comm })
}

/// One process.
pub fn all(streams: Vec<Arc<CudaStream>>) -> Result<Vec<Comm>, NcclError> {
    Comm::from_devices(streams)
}

pub fn who(comm: &Comm) -> (usize, usize, usize, Arc<CudaStream>, Arc<CudaContext>) {
    (comm.rank(), comm.world_size(), comm.ordinal(), comm.stream(), comm.context().clone())
}

/// A row-parallel layer's sum, in the three types of tensors.
pub fn sums(
    comm: &Comm,
    a: &CudaSlice<bf16>,
    b: &CudaSlice<f16>,
    c: &mut CudaSlice<f32>,
) -> Result<(CudaSlice<bf16>, CudaSlice<f16>), String> {
    let stream = comm.stream();
    let mut d = stream.alloc_zeros::<bf16>(a.len()).map_err(|e| e.to_string())?;
    comm.all_reduce(a, &mut d, &ReduceOp::Sum).map_err(|e| format!("{e:?}"))?;
    let mut e = stream.alloc_zeros::<f16>(b.len()).map_err(|e| e.to_string())?;
    // Views, as with tensors that begin behind the start of their storage.
    comm.all_reduce(&b.slice(8..), &mut e.slice_mut(8..), &ReduceOp::Sum)
        .map_err(|e| format!("{e:?}"))?;
    comm.all_reduce_in_place(c, &ReduceOp::Max).map_err(|e| format!("{e:?}"))?;
    Ok((d, e))
}

/// Generic code over cudarc's buffers.
pub fn generic<S: DevicePtr<T>, R: DevicePtrMut<T>, T: NcclType>(
    comm: &Comm,
    src: &S,
    dst: &mut R,
    root: i32,
) -> Result<(), NcclError> {
    comm.all_reduce(src, dst, &ReduceOp::Avg)?;
    comm.broadcast(Some(src), dst, root)?;
    comm.broadcast_in_place(dst, root)?;
    comm.reduce(src, Some(&mut *dst), &ReduceOp::Min, root)?;
    comm.reduce_in_place(dst, &ReduceOp::Prod, root)?;
    comm.all_gather(src, dst)?;
    comm.reduce_scatter(src, dst, &ReduceOp::Sum)?;
    comm.send(src, root)?;
    comm.recv(dst, root)?;
    Ok(())
}

/// Two halves of a pair swap buffers.
pub fn swap<'g>(
    comm: &'g Comm,
    mine: CudaView<'g, u8>,
    theirs: CudaViewMut<'g, u8>,
    peer: i32,
) -> Result<(), NcclError> {
    let mut group: Group<'g> = comm.group();
    group.send(mine, peer)?;
    group.recv(theirs, peer)?;
    assert_eq!(group.comm().rank(), comm.rank());
    Ok(())
}

/// One thread, several ranks.
pub fn several(comms: &[Comm], buffers: &mut [CudaSlice<f16>]) -> Result<(), NcclError> {
    group_start()?;
    for (comm, buffer) in comms.iter().zip(buffers) {
        comm.all_reduce_in_place(buffer, &ReduceOp::Sum)?;
    }
    group_end()?;
    Ok(())
}

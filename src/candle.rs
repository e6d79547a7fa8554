//! All-reduce as an operation on candle tensors: out of place (`CustomOp1`) and in place (`InplaceOp1`).
//!
//! On the CPU it takes a communicator of the host executor, with CUDA (feature `candle-cuda`) one of GPUs, enqueued on the
//! tensor's own stream. Tensors must be contiguous, anywhere in their storage; [`SumAllReduce::sum`] makes them so. No
//! gradient: sums over ranks belong to inference here. Start at [`SumAllReduce`].

use crate::comm::{CommError, Communicator, Scalar};
use candle_core::{CpuStorage, CustomOp1, InplaceOp1, Layout, Result, Shape, Tensor};
use std::sync::{Arc, Mutex, MutexGuard};

/// Sums a tensor over all ranks. Clones share one communicator; layers of a model keep one each.
#[derive(Clone, Debug)]
pub struct SumAllReduce {
    comm: Arc<Mutex<Communicator>>,
}

const NAME: &str = "topoforge-sum-all-reduce";

impl SumAllReduce {
    /// Over this rank's communicator.
    pub fn new(comm: Communicator) -> Self {
        Self {
            comm: Arc::new(Mutex::new(comm)),
        }
    }

    /// The sum in a new tensor. Makes the input contiguous first if it is not.
    ///
    /// # Errors
    /// Those of [`Communicator::all_reduce`], or a type without all-reduce.
    pub fn sum(&self, xs: &Tensor) -> Result<Tensor> {
        xs.contiguous()?.apply_op1_no_bwd(self)
    }

    /// The sum in place of the tensor: no new memory.
    ///
    /// # Errors
    /// As [`SumAllReduce::sum`]; also if the tensor is not contiguous.
    pub fn sum_in_place(&self, xs: &Tensor) -> Result<()> {
        xs.inplace_op1(self)
    }

    /// [`Communicator::explain`].
    pub fn explain(&self) -> Result<String> {
        Ok(self.rank()?.explain())
    }

    /// The communicator, for one call. Never waits: ranks call from one thread at a time.
    fn rank(&self) -> Result<MutexGuard<'_, Communicator>> {
        self.comm.try_lock().map_err(|_| {
            candle_core::Error::msg("another thread is in a call of this communicator: one thread at a time")
        })
    }
}

fn failed(error: CommError) -> candle_core::Error {
    candle_core::Error::wrap(error)
}

fn contiguous(layout: &Layout) -> Result<(usize, usize)> {
    layout.contiguous_offsets().ok_or_else(|| {
        candle_core::Error::msg("the tensor is not contiguous: call contiguous() first, or SumAllReduce::sum")
    })
}

fn unsupported(dtype: candle_core::DType) -> candle_core::Error {
    candle_core::Error::msg(format!(
        "{dtype:?} tensors have no all-reduce: convert to f16, bf16 or f32 first"
    ))
}

fn on_host<T: Scalar>(rank: &Communicator, values: &[T], layout: &Layout) -> Result<Vec<T>> {
    let (start, end) = contiguous(layout)?;
    let mut own = values[start..end].to_vec();
    sum_slice(rank, &mut own)?;
    Ok(own)
}

#[cfg(feature = "host-executor")]
fn sum_slice<T: Scalar>(rank: &Communicator, values: &mut [T]) -> Result<()> {
    rank.all_reduce_slice(values).map_err(failed)
}

#[cfg(not(feature = "host-executor"))]
fn sum_slice<T: Scalar>(_rank: &Communicator, _values: &mut [T]) -> Result<()> {
    Err(candle_core::Error::msg(
        "tensors on the CPU need the host executor: build topoforge with the feature host-executor",
    ))
}

impl CustomOp1 for SumAllReduce {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        use candle_core::backend::BackendStorage;
        let rank = self.rank()?;
        let summed = match storage {
            CpuStorage::F16(values) => CpuStorage::F16(on_host(&rank, values, layout)?),
            CpuStorage::BF16(values) => CpuStorage::BF16(on_host(&rank, values, layout)?),
            CpuStorage::F32(values) => CpuStorage::F32(on_host(&rank, values, layout)?),
            other => return Err(unsupported(other.dtype())),
        };
        Ok((summed, layout.shape().clone()))
    }

    #[cfg(feature = "candle-cuda")]
    fn cuda_fwd(
        &self,
        storage: &candle_core::CudaStorage,
        layout: &Layout,
    ) -> Result<(candle_core::CudaStorage, Shape)> {
        cuda::out_of_place(&*self.rank()?, storage, layout)
    }
}

impl InplaceOp1 for SumAllReduce {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        use candle_core::backend::BackendStorage;
        let rank = self.rank()?;
        let (start, end) = contiguous(layout)?;
        match storage {
            CpuStorage::F16(values) => sum_slice(&rank, &mut values[start..end]),
            CpuStorage::BF16(values) => sum_slice(&rank, &mut values[start..end]),
            CpuStorage::F32(values) => sum_slice(&rank, &mut values[start..end]),
            other => Err(unsupported(other.dtype())),
        }
    }

    #[cfg(feature = "candle-cuda")]
    fn cuda_fwd(&self, storage: &mut candle_core::CudaStorage, layout: &Layout) -> Result<()> {
        cuda::in_place(&*self.rank()?, storage, layout)
    }
}

/// Tensors on GPUs, by their addresses, on the stream of their device.
#[cfg(feature = "candle-cuda")]
mod cuda {
    use super::{Layout, Result, Shape, contiguous, failed, unsupported};
    use crate::comm::{Communicator, ReduceOp, Scalar, handle};
    use candle_core::backend::BackendStorage;
    use candle_core::cuda_backend::{CudaDType, CudaStorage};
    use candle_core::{DType, cuda_backend::cudarc::driver::DeviceRepr};
    use cudarc::driver::{DevicePtr, DevicePtrMut};
    use half::{bf16, f16};

    pub fn out_of_place(rank: &Communicator, storage: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let summed = match storage.dtype() {
            DType::F16 => fresh::<f16>(rank, storage, layout)?,
            DType::BF16 => fresh::<bf16>(rank, storage, layout)?,
            DType::F32 => fresh::<f32>(rank, storage, layout)?,
            other => return Err(unsupported(other)),
        };
        Ok((summed, layout.shape().clone()))
    }

    pub fn in_place(rank: &Communicator, storage: &mut CudaStorage, layout: &Layout) -> Result<()> {
        match storage.dtype() {
            DType::F16 => over::<f16>(rank, storage, layout),
            DType::BF16 => over::<bf16>(rank, storage, layout),
            DType::F32 => over::<f32>(rank, storage, layout),
            other => Err(unsupported(other)),
        }
    }

    fn fresh<T: Scalar + CudaDType + DeviceRepr>(
        rank: &Communicator,
        storage: &CudaStorage,
        layout: &Layout,
    ) -> Result<CudaStorage> {
        let (start, end) = contiguous(layout)?;
        let device = storage.device().clone();
        let stream = device.cuda_stream();
        let source = storage.as_cuda_slice::<T>()?.slice(start..end);
        rank.for_buffer(&source).map_err(failed)?;
        // Every element is written by the call.
        let mut sums = crate::driver::candle::unwritten::<T>(&device, end - start)?;
        {
            let (from, _read) = source.device_ptr(&stream);
            let (to, _written) = sums.device_ptr_mut(&stream);
            let done = rank.enqueue_all_reduce((from, to), end - start, T::DTYPE, ReduceOp::Sum, handle(&stream));
            done.map_err(failed)?;
        }
        Ok(CudaStorage::wrap_cuda_slice(sums, device))
    }

    fn over<T: Scalar + CudaDType + DeviceRepr>(
        rank: &Communicator,
        storage: &mut CudaStorage,
        layout: &Layout,
    ) -> Result<()> {
        let (start, end) = contiguous(layout)?;
        let stream = storage.device().cuda_stream();
        let mut values = storage.as_cuda_slice_mut::<T>()?.slice_mut(start..end);
        rank.for_buffer(&values).map_err(failed)?;
        let (at, _written) = values.device_ptr_mut(&stream);
        let done = rank.enqueue_all_reduce((at, at), end - start, T::DTYPE, ReduceOp::Sum, handle(&stream));
        done.map_err(failed)
    }
}

//! One rank's calls on a GPU: a table look-up, a retargeted parameter block, one launch.
//!
//! Allocates, locks and waits for nothing; what serves is made in `setup`. Start at [`CudaPart::call`].

use super::CommError;
use super::dispatch::{Call, Decision, Dispatch};
use crate::device::cuda::{CudaExecutor, ServedKernel};
use crate::device::{DeviceError, Geometry};
use crate::driver::nccl::{self, Communicators, NcclType};
use crate::driver::user_stream::UserStream;
use cudarc::driver::CudaStream;
use std::cell::RefCell;
use std::sync::{Arc, Mutex};

/// What a range is served by on this rank.
pub(super) struct Serving {
    pub kernel: ServedKernel,
    pub geometry: Geometry,
}

/// A rank's side.
pub(super) struct CudaPart {
    pub stream: UserStream,
    /// One a range; none where the comparator serves. Borrowed for the length of one launch, on one thread.
    pub ranges: Vec<Option<RefCell<Serving>>>,
    /// Where there is no NCCL: the range that serves anything, piece by piece.
    pub fallback: Option<usize>,
    pub nccl: Option<(Arc<Communicators>, usize)>,
    /// Owns scratch and modules; nobody calls it while communicators live.
    pub _executor: Arc<Mutex<CudaExecutor>>,
}

impl CudaPart {
    pub fn stream(&self) -> &CudaStream {
        self.stream.cudarc()
    }

    /// Enqueues one all-reduce of `count` elements.
    pub fn call(&self, dispatch: &Dispatch, from: u64, to: u64, count: usize) -> Result<(), CommError> {
        let bytes = count as u64 * 2;
        let aligned = (from | to).is_multiple_of(16);
        match dispatch.decide(Call { bytes, aligned }) {
            Decision::Nothing => Ok(()),
            Decision::Range(index) => self.launch(index, from, to, bytes),
            Decision::Comparator(why) => self.compare(dispatch, why, aligned, from, to, bytes),
        }
    }

    fn launch(&self, index: usize, from: u64, to: u64, bytes: u64) -> Result<(), CommError> {
        let serving = self
            .ranges
            .get(index)
            .and_then(Option::as_ref)
            .ok_or(DeviceError::Poisoned)?;
        let mut serving = serving.borrow_mut();
        let geometry = serving.geometry;
        Ok(serving.kernel.launch(&self.stream, geometry, from, to, bytes)?)
    }

    fn compare(
        &self,
        dispatch: &Dispatch,
        why: &str,
        aligned: bool,
        from: u64,
        to: u64,
        bytes: u64,
    ) -> Result<(), CommError> {
        if let Some((nccl, rank)) = &self.nccl {
            let call = nccl.all_reduce_one(*rank, (from, to), bytes / 2, NcclType::F16, &self.stream);
            return call.map_err(|e| CommError::Device(e.into()));
        }
        let fallback = self.fallback.filter(|_| aligned).ok_or_else(|| CommError::Unserved {
            reason: format!("{bytes} bytes: {why}, and no NCCL was found: install it or name it in TOPOFORGE_NCCL"),
        })?;
        let piece = dispatch.ranges()[fallback].up_to & !15;
        let mut done = 0;
        while done < bytes {
            let part = piece.min(bytes - done);
            self.launch(fallback, from + done, to + done, part)?;
            done += part;
        }
        Ok(())
    }
}

pub(super) fn group<T>(calls: impl FnOnce() -> Result<T, CommError>) -> Result<T, CommError> {
    nccl::group(calls, |e| CommError::Device(e.into()))
}

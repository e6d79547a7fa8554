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
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// NCCL and this rank, or why there is none.
    pub nccl: Result<(Arc<Communicators>, usize), Arc<str>>,
    /// Set by the first rank that sees a timeout: nothing is enqueued any more, by any rank, on any route.
    pub dead: Arc<AtomicBool>,
    /// Owns scratch and modules; nobody calls it while communicators live.
    pub _executor: Arc<Mutex<CudaExecutor>>,
}

impl CudaPart {
    pub fn stream(&self) -> &CudaStream {
        self.stream.cudarc()
    }

    /// Refuses a buffer of another device: its address means nothing here, and a fault would kill the context.
    pub fn at_home(&self, ordinal: usize) -> Result<(), CommError> {
        let here = self.stream().context().ordinal();
        if ordinal == here {
            return Ok(());
        }
        Err(CommError::Misuse {
            reason: format!("a buffer of GPU {ordinal} was given to the rank on GPU {here}"),
        })
    }

    /// Enqueues one all-reduce of `count` elements.
    pub fn call(&self, dispatch: &Dispatch, from: u64, to: u64, count: usize) -> Result<(), CommError> {
        let bytes = count as u64 * 2;
        let aligned = (from | to).is_multiple_of(16);
        if self.dead.load(Ordering::Relaxed) {
            self.check()?;
            return Err(DeviceError::Poisoned.into());
        }
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
        let launched = serving.kernel.launch(&self.stream, geometry, from, to, bytes);
        if matches!(launched, Err(DeviceError::Timeout { .. })) {
            self.dead.store(true, Ordering::Relaxed);
        }
        Ok(launched?)
    }

    /// What kernels have reported so far, on any rank and route: host memory, a load a rank and route.
    pub fn check(&self) -> Result<(), CommError> {
        for serving in self.ranges.iter().flatten() {
            if let Err(e) = serving.borrow().kernel.verdict() {
                self.dead.store(true, Ordering::Relaxed);
                return Err(e.into());
            }
        }
        Ok(())
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
        // A rank that is missing for our kernels would be missing for NCCL's, which wait without bound.
        self.check()?;
        if let Ok((nccl, rank)) = &self.nccl {
            let call = nccl.all_reduce_one(*rank, (from, to), bytes / 2, NcclType::F16, &self.stream);
            return call.map_err(|e| CommError::Device(e.into()));
        }
        let fallback = self.fallback.filter(|_| aligned).ok_or_else(|| CommError::Unserved {
            reason: format!("{bytes} bytes: {why}, and there is no NCCL: {}", self.nccl_fault()),
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

impl CudaPart {
    fn nccl_fault(&self) -> &str {
        self.nccl.as_ref().err().map_or("", |why| why)
    }
}

pub(super) fn group<T>(calls: impl FnOnce() -> Result<T, CommError>) -> Result<T, CommError> {
    nccl::group(calls, |e| CommError::Device(e.into()))
}

//! One rank's launches of a prepared variant on a stream of the caller's: what serving calls.
//!
//! A call retargets the parameter block and launches; it allocates, locks and waits for nothing. The executor that
//! prepared the variant owns the scratch and must outlive it. Start at [`ServedKernel::launch`].

use super::verdict::Reports;
use crate::device::abi::Params;
use crate::device::{DeviceError, Geometry};
use crate::driver::context::Context;
use crate::driver::launch as launching;
use crate::driver::module::Function;
use crate::registry::Variant;
use cudarc::driver::sys::CUstream;
use std::sync::Arc;

/// A rank's side of a prepared variant.
pub(crate) struct ServedKernel {
    pub(super) variant: &'static Variant,
    pub(super) context: Arc<Context>,
    pub(super) function: Function,
    pub(super) params: Params,
    pub(super) reports: Reports,
    /// What the caller calls rank `r` of the family.
    pub(super) names: Arc<[usize]>,
}

impl ServedKernel {
    /// Enqueues one call. One driver call where the stream's context is current on this thread.
    ///
    /// # Errors
    /// A timeout of an earlier call on any rank, or the driver refuses.
    pub fn launch(
        &mut self,
        stream: CUstream,
        geometry: Geometry,
        input: u64,
        output: u64,
        bytes: u64,
    ) -> Result<(), DeviceError> {
        self.verdict()?;
        let columns = u32::try_from(self.variant.columns(bytes)).unwrap_or(u32::MAX);
        self.params.retarget(input, output, bytes, columns);
        self.params.set_launch(geometry.launch);
        launching::block_at(
            stream,
            &self.context,
            &self.function,
            geometry,
            &self.params,
            geometry.launch,
        )?;
        Ok(())
    }

    #[cold]
    fn named(&self, error: DeviceError) -> DeviceError {
        let name = |rank: usize| self.names.get(rank).copied().unwrap_or(rank);
        match error {
            DeviceError::Timeout {
                rank,
                peer,
                stage,
                column,
            } => DeviceError::Timeout {
                rank: name(rank),
                peer: peer.map(name),
                stage,
                column,
            },
            error => error,
        }
    }

    /// What kernels of any rank have reported so far: host memory, a load a rank.
    pub fn verdict(&self) -> Result<(), DeviceError> {
        self.reports.verdict(self.variant).map_err(|error| self.named(error))
    }
}

//! A stream that belongs to the library's caller: kept alive, launched on, never synchronised.
//!
//! Start at [`UserStream::of`].

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;
use std::sync::Arc;

/// A caller's stream.
pub struct UserStream {
    stream: Arc<CudaStream>,
}

impl UserStream {
    /// Keeps the stream alive for as long as anything may be enqueued on it.
    pub fn of(stream: &Arc<CudaStream>) -> Self {
        Self { stream: stream.clone() }
    }

    /// As cudarc knows it.
    pub fn cudarc(&self) -> &CudaStream {
        &self.stream
    }

    pub(crate) fn handle(&self) -> CUstream {
        self.stream.cu_stream()
    }
}

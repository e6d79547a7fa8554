//! Captured graphs and their executable form.
//!
//! Instantiation and upload happen before anything spins; a launch afterwards allocates nothing. Start at [`Graph`],
//! which [`super::stream::Stream::end_capture`] gives.

use super::context::Context;
use super::stream::Stream;
use super::{DriverError, call};
use cudarc::driver::sys::{CUgraph, CUgraphExec};
use std::sync::Arc;

/// What a stream captured.
pub struct Graph {
    context: Arc<Context>,
    handle: CUgraph,
}

/// A graph that can be launched.
pub struct GraphExec {
    context: Arc<Context>,
    handle: CUgraphExec,
}

// SAFETY: graphs have no thread affinity; they are not used from two threads at once since neither type is Sync.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Send for GraphExec {}

impl Graph {
    pub(crate) fn from_raw(context: &Arc<Context>, handle: CUgraph) -> Self {
        Self {
            context: context.clone(),
            handle,
        }
    }

    /// Instantiates and uploads, so that the first launch is like the others. Enqueues the upload only.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn instantiate(&self, stream: &Stream) -> Result<GraphExec, DriverError> {
        self.context.bind()?;
        let mut handle = std::ptr::null_mut();
        let driver = self.context.driver;
        call!(driver.graph_instantiate(&mut handle, self.handle, 0))?;
        let exec = GraphExec {
            context: self.context.clone(),
            handle,
        };
        call!(driver.graph_upload(handle, stream.handle()))?;
        Ok(exec)
    }
}

impl GraphExec {
    /// Enqueues one replay.
    ///
    /// # Errors
    /// The driver refuses.
    pub(crate) fn launch(&self, stream: &Stream) -> Result<(), DriverError> {
        self.context.bind()?;
        let driver = self.context.driver;
        call!(driver.graph_launch(self.handle, stream.handle()))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let driver = self.context.driver;
        if !self.handle.is_null() && self.context.bind().is_ok() {
            let _ = call!(driver.graph_destroy(self.handle));
        }
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        let driver = self.context.driver;
        if self.context.bind().is_ok() {
            let _ = call!(driver.graph_exec_destroy(self.handle));
        }
    }
}

//! A stream of our own: copies, fills, bounded questions, capture.
//!
//! Not cudarc's stream, whose slices record events that break capture. Never the default stream: other libraries wait on
//! that. Host memory is borrowed only for the length of a call. Start at [`Stream`].

use super::context::Context;
use super::graph::Graph;
use super::{DriverError, NOT_READY, call};
use cudarc::driver::sys::CUstream;
use std::ffi::c_void;
use std::sync::Arc;

const NON_BLOCKING: u32 = 1;
/// Other threads and libraries may allocate meanwhile.
const RELAXED: i32 = 2;

/// A non-blocking stream of one context.
pub struct Stream {
    context: Arc<Context>,
    handle: CUstream,
}

// SAFETY: a stream may be used from any thread that has its context bound, and every call here binds it.
unsafe impl Send for Stream {}

impl Stream {
    /// Creates a stream.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new(context: &Arc<Context>) -> Result<Self, DriverError> {
        context.bind()?;
        let mut handle = std::ptr::null_mut();
        let driver = context.driver;
        call!(driver.stream_create(&mut handle, NON_BLOCKING))?;
        Ok(Self {
            context: context.clone(),
            handle,
        })
    }

    /// Its context.
    pub const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) const fn handle(&self) -> CUstream {
        self.handle
    }

    /// Whether everything enqueued has ended.
    ///
    /// # Errors
    /// An earlier fault of any kernel in this context.
    pub fn idle(&self) -> Result<bool, DriverError> {
        self.context.bind()?;
        let driver = self.context.driver;
        match call!(driver.stream_query(self.handle)) {
            Ok(()) => Ok(true),
            Err(DriverError { code: NOT_READY, .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Waits without bound. Only where no collective is in flight.
    ///
    /// # Errors
    /// An earlier fault of any kernel in this context.
    pub fn synchronise(&self) -> Result<(), DriverError> {
        self.context.bind()?;
        let driver = self.context.driver;
        call!(driver.stream_synchronise(self.handle))
    }

    /// Enqueues setting `bytes` bytes at a device address.
    ///
    /// # Errors
    /// The driver refuses.
    pub(crate) fn fill(&self, address: u64, value: u8, bytes: u64) -> Result<(), DriverError> {
        self.context.bind()?;
        let driver = self.context.driver;
        call!(driver.fill(address, value, bytes as usize, self.handle))
    }

    /// Enqueues a copy between device addresses of this context's device.
    ///
    /// # Errors
    /// The driver refuses.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), DriverError> {
        self.context.bind()?;
        let driver = self.context.driver;
        call!(driver.copy(to, from, bytes as usize, self.handle))
    }

    /// Copies to a device address and waits for it. Only where no collective is in flight.
    ///
    /// # Errors
    /// The driver refuses.
    pub(crate) fn upload(&self, address: u64, data: &[u8]) -> Result<(), DriverError> {
        if data.is_empty() {
            return Ok(());
        }
        self.context.bind()?;
        let driver = self.context.driver;
        call!(driver.upload(address, data.as_ptr().cast::<c_void>(), data.len(), self.handle))?;
        self.synchronise()
    }

    /// Copies from a device address and waits for it. Only where no collective is in flight.
    ///
    /// # Errors
    /// The driver refuses.
    pub(crate) fn download(&self, address: u64, data: &mut [u8]) -> Result<(), DriverError> {
        if data.is_empty() {
            return Ok(());
        }
        self.context.bind()?;
        let driver = self.context.driver;
        call!(driver.download(data.as_mut_ptr().cast::<c_void>(), address, data.len(), self.handle))?;
        self.synchronise()
    }

    /// From here on, work enqueued becomes graph nodes, until [`Stream::end_capture`].
    ///
    /// # Errors
    /// The driver refuses.
    pub fn begin_capture(&self) -> Result<(), DriverError> {
        self.context.bind()?;
        let driver = self.context.driver;
        call!(driver.begin_capture(self.handle, RELAXED))
    }

    /// The graph of what was enqueued since [`Stream::begin_capture`].
    ///
    /// # Errors
    /// The driver refuses, or something between broke the capture.
    pub fn end_capture(&self) -> Result<Graph, DriverError> {
        self.context.bind()?;
        let mut graph = std::ptr::null_mut();
        let driver = self.context.driver;
        call!(driver.end_capture(self.handle, &mut graph))?;
        Ok(Graph::from_raw(&self.context, graph))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let driver = self.context.driver;
        if self.context.bind().is_ok() {
            let _ = call!(driver.stream_destroy(self.handle));
        }
    }
}

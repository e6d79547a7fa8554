//! What is asked of streams that belong to the library's caller, known by their handles: copies, and events made beforehand
//! that put the work of one stream behind that of another.
//!
//! Nothing here waits on the host or keeps a stream alive. Start at [`OrderEvents`].

use super::context::Context;
use super::{DriverError, call};
use cudarc::driver::sys::{CUevent, CUstream};
use std::ffi::c_int;
use std::sync::Arc;

const DISABLE_TIMING: u32 = 2;

/// One event for work that runs, one for work that is captured: an event means what it was recorded for last.
pub(crate) struct OrderEvents {
    context: Arc<Context>,
    runs: CUevent,
    captured: CUevent,
}

// SAFETY: events may be used from any thread that has their context bound, and every call here binds it.
unsafe impl Send for OrderEvents {}

impl OrderEvents {
    /// # Errors
    /// The driver refuses.
    pub fn new(context: &Arc<Context>) -> Result<Self, DriverError> {
        context.bind()?;
        let driver = context.driver;
        let mut made = Self {
            context: context.clone(),
            runs: std::ptr::null_mut(),
            captured: std::ptr::null_mut(),
        };
        call!(driver.event_create(&mut made.runs, DISABLE_TIMING))?;
        call!(driver.event_create(&mut made.captured, DISABLE_TIMING))?;
        Ok(made)
    }

    /// What is enqueued on `to` from now on follows what is on `from`: both run, or both are in one capture. The driver
    /// refuses what crosses the border of a capture.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn chain(&self, from: CUstream, to: CUstream, captured: bool) -> Result<(), DriverError> {
        self.context.bind()?;
        let driver = self.context.driver;
        let event = if captured { self.captured } else { self.runs };
        call!(driver.event_record(event, from))?;
        call!(driver.stream_wait(to, event, 0))
    }

    /// The driver's status of a stream's capture (0 none, 1 active, 2 broken) and its number.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn capture(&self, stream: CUstream) -> Result<(i32, u64), DriverError> {
        self.context.bind()?;
        let driver = self.context.driver;
        let (mut status, mut id): (c_int, u64) = (0, 0);
        let (graph, nodes) = (std::ptr::null_mut(), std::ptr::null_mut());
        call!(driver.capture_info(stream, &mut status, &mut id, graph, nodes, nodes))?;
        Ok((status, id))
    }
}

/// Enqueues a copy between addresses of the context's device on a caller's stream.
///
/// # Errors
/// The driver refuses.
pub(crate) fn copy(context: &Context, stream: CUstream, to: u64, from: u64, bytes: u64) -> Result<(), DriverError> {
    context.bind()?;
    let driver = context.driver;
    call!(driver.copy(to, from, bytes as usize, stream))
}

impl Drop for OrderEvents {
    fn drop(&mut self) {
        let driver = self.context.driver;
        if self.context.bind().is_ok() {
            for event in [self.runs, self.captured] {
                if !event.is_null() {
                    let _ = call!(driver.event_destroy(event));
                }
            }
        }
    }
}

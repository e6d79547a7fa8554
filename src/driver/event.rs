//! Timing events.
//!
//! Elapsed time comes from the plain `cuEventElapsedTime`, which every driver has; the `_v2` that newer bindings take
//! exists since 12.8 only. Start at [`Event`].

use super::context::Context;
use super::stream::Stream;
use super::{DriverError, NOT_READY, call};
use cudarc::driver::sys::CUevent;
use std::sync::Arc;

/// An event that takes the time.
pub struct Event {
    context: Arc<Context>,
    handle: CUevent,
}

// SAFETY: an event may be used from any thread that has its context bound, and every call here binds it.
unsafe impl Send for Event {}

impl Event {
    /// Creates an event.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new(context: &Arc<Context>) -> Result<Self, DriverError> {
        context.bind()?;
        let mut handle = std::ptr::null_mut();
        let driver = context.driver;
        call!(driver.event_create(&mut handle, 0))?;
        Ok(Self {
            context: context.clone(),
            handle,
        })
    }

    /// Enqueues taking the time on a stream of the same context.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        self.context.bind()?;
        let driver = self.context.driver;
        call!(driver.event_record(self.handle, stream.handle()))
    }

    /// Whether the time was taken.
    ///
    /// # Errors
    /// An earlier fault of any kernel in this context.
    pub fn done(&self) -> Result<bool, DriverError> {
        self.context.bind()?;
        let driver = self.context.driver;
        match call!(driver.event_query(self.handle)) {
            Ok(()) => Ok(true),
            Err(DriverError { code: NOT_READY, .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Microseconds from `self` to `end`, both done.
    ///
    /// # Errors
    /// Either is not done or was never recorded.
    pub fn microseconds_to(&self, end: &Self) -> Result<f64, DriverError> {
        self.context.bind()?;
        let mut milliseconds = 0.0_f32;
        let driver = self.context.driver;
        call!(driver.event_elapsed(&mut milliseconds, self.handle, end.handle))?;
        Ok(f64::from(milliseconds) * 1000.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let driver = self.context.driver;
        if self.context.bind().is_ok() {
            let _ = call!(driver.event_destroy(self.handle));
        }
    }
}

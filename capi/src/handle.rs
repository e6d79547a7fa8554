//! Handles: a shell that is never freed around a communicator that is, so that a stale or doubly destroyed handle is told
//! so, and a lock that nobody waits for.
//!
//! A communicator may move between threads but serves one at a time; the shell's word sees to that. Some bytes stay for
//! each communicator ever made. Start at [`TfComm::with`].

use crate::result::{Failure, TfResult};
use engine::comm::Communicator;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

const MARK: u64 = 0x746f_706f_666f_7267;

const IDLE: u32 = 0;
const BUSY: u32 = 1;
const GONE: u32 = 2;

/// A communicator: one rank's part.
pub struct TfComm {
    mark: u64,
    state: AtomicU32,
    inner: UnsafeCell<Option<Communicator>>,
}

/// Gives the shell back when a call ends, however it ends.
struct Held<'a>(&'a TfComm, u32);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.state.store(self.1, Ordering::Release);
    }
}

impl TfComm {
    pub(crate) fn give_out(communicator: Communicator) -> *mut Self {
        Box::into_raw(Box::new(Self {
            mark: MARK,
            state: AtomicU32::new(IDLE),
            inner: UnsafeCell::new(Some(communicator)),
        }))
    }

    /// The shell behind a handle from C.
    ///
    /// # Safety
    /// If not null and aligned, `handle` points to readable memory: shells stay for ever.
    unsafe fn of<'a>(handle: *const Self) -> Result<&'a Self, Failure> {
        if handle.is_null() {
            return Err(Failure::invalid("the communicator is null: make one with tf_comm_init"));
        }
        if !handle.is_aligned() {
            return Err(Failure::invalid("the handle is no communicator: its address is odd"));
        }
        // SAFETY: the caller's promise; the mark is read before anything else is believed.
        let mark = unsafe { (&raw const (*handle).mark).read() };
        if mark != MARK {
            return Err(Failure::invalid("the handle is no communicator"));
        }
        // SAFETY: the mark says that it is a shell of ours, and shells are never freed.
        Ok(unsafe { &*handle })
    }

    fn hold(&self, until: u32) -> Result<Held<'_>, Failure> {
        match self
            .state
            .compare_exchange(IDLE, BUSY, Ordering::Acquire, Ordering::Acquire)
        {
            Ok(_) => Ok(Held(self, until)),
            Err(GONE) => Err(Failure::invalid("the communicator was destroyed")),
            Err(_) => Err(Failure {
                code: TfResult::TF_BUSY,
                words: "another thread is in a call of this communicator: one thread at a time".to_owned(),
            }),
        }
    }

    /// Calls the communicator behind a handle.
    ///
    /// # Safety
    /// As [`TfComm::of`].
    pub(crate) unsafe fn with<T>(
        handle: *const Self,
        call: impl FnOnce(&Communicator) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        // SAFETY: the caller's promise.
        let shell = unsafe { Self::of(handle) }?;
        let _held = shell.hold(IDLE)?;
        // SAFETY: whoever holds the shell is alone.
        match unsafe { &*shell.inner.get() } {
            Some(communicator) => call(communicator),
            None => Err(Failure::invalid("the communicator was destroyed")),
        }
    }

    /// Ends the communicator behind a handle. The shell stays.
    ///
    /// # Safety
    /// As [`TfComm::of`].
    pub(crate) unsafe fn end(handle: *const Self) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let shell = unsafe { Self::of(handle) }?;
        let _held = shell.hold(GONE)?;
        // SAFETY: whoever holds the shell is alone.
        drop(unsafe { &mut *shell.inner.get() }.take());
        Ok(())
    }
}

//! Codes that functions return, and the words behind the last failure of a thread.

use engine::comm::{CommError, JoinError};
use engine::device::DeviceError;
use std::cell::RefCell;
use std::ffi::{CString, c_char};

/// What a function returns.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TfResult {
    /// It worked.
    TF_OK = 0,
    /// An argument is null, no number that has a meaning, or does not fit the others.
    TF_INVALID = 1,
    /// No driver, no GPU, no kernels for it, or no NCCL where only NCCL could serve.
    TF_UNAVAILABLE = 2,
    /// A rank is missing or gone: it is named in tf_last_error().
    TF_TIMEOUT = 3,
    /// The communicator died in an earlier call: destroy it and make another one.
    TF_DEAD = 4,
    /// The driver or NCCL refused a call.
    TF_DEVICE = 5,
    /// The machine, its routes or another rank are not as the settings demand.
    TF_REFUSED = 6,
    /// The call cannot be put behind the earlier ones.
    TF_ORDER = 7,
    /// Another thread is in a call of this communicator.
    TF_BUSY = 8,
    /// A fault of topoforge itself.
    TF_INTERNAL = 99,
}

/// A failure on its way out.
pub(crate) struct Failure {
    pub code: TfResult,
    pub words: String,
}

impl Failure {
    pub fn invalid(words: impl Into<String>) -> Self {
        Self {
            code: TfResult::TF_INVALID,
            words: words.into(),
        }
    }
}

impl From<CommError> for Failure {
    fn from(error: CommError) -> Self {
        let code = match &error {
            CommError::Device(DeviceError::Timeout { .. } | DeviceError::Lost { .. })
            | CommError::Join(JoinError::Missing { .. } | JoinError::Lost { .. }) => TfResult::TF_TIMEOUT,
            CommError::Device(DeviceError::Poisoned) => TfResult::TF_DEAD,
            CommError::Device(DeviceError::Unavailable { .. }) | CommError::Unserved { .. } | CommError::Probe(_) => {
                TfResult::TF_UNAVAILABLE
            }
            CommError::Device(DeviceError::Misuse { .. })
            | CommError::Misuse { .. }
            | CommError::Join(JoinError::Misuse { .. }) => TfResult::TF_INVALID,
            CommError::Device(_) | CommError::Tune(_) => TfResult::TF_DEVICE,
            CommError::Order { .. } => TfResult::TF_ORDER,
            _ => TfResult::TF_REFUSED,
        };
        Self {
            code,
            words: error.to_string(),
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Keeps the words, whatever is in them.
pub(crate) fn remember(words: &str) {
    let clean: String = words.chars().filter(|c| *c != '\0').collect();
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(clean).unwrap_or_default());
}

/// What went wrong in the last failed call of this thread, in words that name the next step; empty before the first.
/// Valid until the next failure on this thread. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn tf_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

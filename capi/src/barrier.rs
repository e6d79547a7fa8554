//! Between the library and C: nothing unwinds through it, and every failure leaves its words.

use crate::result::{Failure, TfResult, remember};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of a function.
pub(crate) fn guarded(body: impl FnOnce() -> Result<(), Failure>) -> TfResult {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => TfResult::TF_OK,
        Ok(Err(failure)) => {
            remember(&failure.words);
            failure.code
        }
        Err(_) => {
            remember("a fault of topoforge itself: its words are on the standard error output");
            TfResult::TF_INTERNAL
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tf_last_error;
    use std::ffi::CStr;

    fn words() -> String {
        // SAFETY: never null, valid until the next failure of this thread.
        unsafe { CStr::from_ptr(tf_last_error()) }
            .to_string_lossy()
            .into_owned()
    }

    #[test]
    fn a_panic_ends_at_the_border_and_a_failure_leaves_its_words() {
        assert_eq!(guarded(|| panic!("on purpose")), TfResult::TF_INTERNAL);
        assert!(words().contains("fault of topoforge"));
        assert_eq!(guarded(|| Err(Failure::invalid("a\0b"))), TfResult::TF_INVALID);
        assert_eq!(words(), "ab");
        assert_eq!(guarded(|| Ok(())), TfResult::TF_OK);
    }
}

//! The boundary between C and Rust: errors become -1 and a sentence, and a panic ends here as one of them.

use std::{
    cell::RefCell,
    ffi::{CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
};

thread_local! {
    static SENTENCE: RefCell<CString> = RefCell::default();
}

/// The result of a call that failed.
const FAILED: i32 = -1;

/// Why a call failed, in a sentence.
pub(crate) struct Failure(pub(crate) String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Runs the body of a C function; what fails is remembered for [`sentence`].
pub(crate) fn guarded(body: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(body));
    let Failure(sentence) = match result {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(_) => Failure("the library has a fault; the call was given up".to_owned()),
    };
    // A sentence has no zero in it.
    SENTENCE.with_borrow_mut(|last| *last = CString::new(sentence).unwrap_or_default());
    FAILED
}

/// Why the last call of this thread failed.
pub(crate) fn sentence() -> *const c_char {
    SENTENCE.with_borrow(|last| last.as_ptr())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn a_panic_and_an_error_end_at_the_boundary_with_a_sentence() {
        assert_eq!(guarded(|| Ok(7)), 7);
        assert_eq!(guarded(|| panic!("on purpose")), FAILED);
        // SAFETY: the string is this thread's, and no call fails meanwhile.
        let last = || unsafe { CStr::from_ptr(sentence()) }.to_str().unwrap();
        assert!(last().contains("has a fault"), "{}", last());
        assert_eq!(guarded(|| Err(Failure("so it is".to_owned()))), FAILED);
        assert_eq!(last(), "so it is");
    }
}

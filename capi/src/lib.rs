//! The C interface: handles that survive misuse, numbers instead of types, codes and words instead of errors.
//!
//! Each function checks what it is given, calls the library inside a barrier against unwinding, and keeps the words of a
//! failure for `tf_last_error`. It decides nothing about collectives. The header is made from this crate; start at
//! `calls`, then `handle`.

#![allow(non_camel_case_types, reason = "names of the header")]

mod barrier;
mod calls;
mod handle;
mod init;
mod names;
mod result;

pub use calls::*;
pub use handle::TfComm;
pub use init::*;
pub use names::{TfDtype, TfOp};
pub use result::{TfResult, tf_last_error};

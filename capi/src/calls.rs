//! Calls of a communicator.

use crate::barrier::guarded;
use crate::handle::TfComm;
use crate::names::{dtype, op};
use crate::result::{Failure, TfResult};
use std::ffi::{c_char, c_int, c_void};

/// Version of the library, e.g. "0.1.0". Never null, valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn tf_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Reduces `count` elements at `src` over all ranks into `dst`, which may be `src`.
///
/// On a GPU both are device addresses of this rank's GPU; the call is enqueued on `stream` (a cudaStream_t; null is the
/// legacy default stream) and returns at once. It may be captured into a graph. Sums go by proven routes, everything else
/// by NCCL. All ranks call alike. On a communicator of tf_comm_init_host both are host addresses, `stream` is ignored, sums
/// only, and the call waits for the other ranks.
///
/// # Safety
/// `comm` came from tf_comm_init*. Both addresses are valid for `count` elements until the call has ended on the device,
/// and are equal or do not overlap. `stream` and the stream of the call before are alive. All communicators
/// of the group outlive every graph that captured a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tf_all_reduce(
    comm: *mut TfComm,
    src: *const c_void,
    dst: *mut c_void,
    count: usize,
    dtype: c_int,
    op: c_int,
    stream: *mut c_void,
) -> TfResult {
    guarded(|| {
        let (dtype, op) = (self::dtype(dtype)?, self::op(op)?);
        if count
            .checked_mul(dtype.bytes())
            .is_none_or(|b| isize::try_from(b).is_err())
        {
            return Err(Failure::invalid(format!("{count} elements of {dtype} are no payload")));
        }
        for (which, address) in [("src", src.addr()), ("dst", dst.addr())] {
            if count > 0 && (address == 0 || !address.is_multiple_of(dtype.bytes())) {
                return Err(Failure::invalid(format!(
                    "{which} is {address:#x}: null, or no address of {dtype} elements"
                )));
            }
        }
        // SAFETY: the caller's promises, word for word.
        unsafe {
            TfComm::with(comm, |c| {
                if c.stream().is_none() {
                    return crate::init::on_host(c, src, dst, count, dtype, op);
                }
                let (from, to) = (src.expose_provenance() as u64, dst.expose_provenance() as u64);
                Ok(c.all_reduce_raw(from, to, count, dtype, op, stream)?)
            })
        }
    })
}

/// Whether everything that has ended so far has ended in time: call it after synchronising, and after replaying a graph,
/// whose kernels can tell nobody else. TF_TIMEOUT names the missing rank.
///
/// # Safety
/// `comm` came from tf_comm_init*.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tf_check(comm: *mut TfComm) -> TfResult {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { TfComm::with(comm, |c| Ok(c.check()?)) })
}

/// Writes this rank and the number of ranks; either may be null.
///
/// # Safety
/// `comm` came from tf_comm_init*; what is not null can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tf_comm_rank(comm: *mut TfComm, rank: *mut c_int, world: *mut c_int) -> TfResult {
    let number = |n: usize| c_int::try_from(n).unwrap_or(c_int::MAX);
    // SAFETY: the caller's promises.
    guarded(|| unsafe {
        let (r, w) = TfComm::with(comm, |c| Ok((c.rank(), c.world_size())))?;
        if let Some(rank) = rank.as_mut() {
            *rank = number(r);
        }
        if let Some(world) = world.as_mut() {
            *world = number(w);
        }
        Ok(())
    })
}

/// Writes which route serves which size, how often and why, zero-ended, into `buffer` of `room` bytes, cut off if it is
/// longer. `needed`, if not null, gets the bytes that all of it takes, the zero included; so a first call with no
/// room asks for the size.
///
/// # Safety
/// `comm` came from tf_comm_init*; `buffer` has `room` bytes, or `room` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tf_explain(
    comm: *mut TfComm,
    buffer: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> TfResult {
    // SAFETY: the caller's promises.
    guarded(|| unsafe {
        let text = TfComm::with(comm, |c| Ok(c.explain()))?;
        if let Some(needed) = needed.as_mut() {
            *needed = text.len() + 1;
        }
        if room > 0 {
            if buffer.is_null() {
                return Err(Failure::invalid("buffer is null, but has room"));
            }
            // On a border of characters: a cut text is still UTF-8.
            let end = (0..=text.len().min(room - 1))
                .rev()
                .find(|i| text.is_char_boundary(*i))
                .unwrap_or(0);
            std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast::<u8>(), end);
            *buffer.add(end) = 0;
        }
        Ok(())
    })
}

/// Ends a communicator. Null is no error; a handle that was destroyed already is TF_INVALID. Not while its calls or
/// graphs run, on any rank.
///
/// # Safety
/// `comm` is null or came from tf_comm_init*.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tf_comm_destroy(comm: *mut TfComm) -> TfResult {
    if comm.is_null() {
        return TfResult::TF_OK;
    }
    // SAFETY: the caller's promise.
    guarded(|| unsafe { TfComm::end(comm) })
}

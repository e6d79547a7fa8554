//! Making communicators. Settings come from the environment, as `docs/environment.md` lists them.

use crate::barrier::guarded;
use crate::handle::TfComm;
use crate::result::{Failure, TfResult};
use cudarc::driver::{CudaContext, CudaStream};
use engine::comm::{CommError, Communicator, Dtype, Id, Options, ReduceOp, bootstrap};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// A stream of a GPU. First the library's own question: without a driver that is an error where cudarc would panic.
fn stream_on(device: c_int) -> Result<Arc<CudaStream>, Failure> {
    let found = engine::driver::context::Device::count().map_err(|e| Failure::from(CommError::from(e)))?;
    let ordinal = usize::try_from(device).ok().filter(|d| *d < found);
    let ordinal =
        ordinal.ok_or_else(|| Failure::invalid(format!("device {device}: there are {found}, counted from 0")))?;
    let driver = |e: cudarc::driver::DriverError| Failure {
        code: TfResult::TF_DEVICE,
        words: format!("no stream on device {device}: the driver's code is {}", e.0 as i32),
    };
    CudaContext::new(ordinal).and_then(|c| c.new_stream()).map_err(driver)
}

/// Joins `ranks` GPUs of this process; `comms` gets one communicator a rank, rank r on `devices[r]`. Proves and times routes
/// unless TOPOFORGE_ROUTES names a table: some seconds. One thread that calls several ranks gives each call a stream of
/// its GPU and calls none of NCCL's types or operations.
///
/// # Safety
/// `devices` and `comms` have `ranks` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tf_comm_init_devices(
    ranks: usize,
    devices: *const c_int,
    comms: *mut *mut TfComm,
) -> TfResult {
    guarded(|| {
        if ranks == 0 || devices.is_null() || comms.is_null() {
            return Err(Failure::invalid("no ranks, or devices or comms are null"));
        }
        if ranks > 64 {
            return Err(Failure::invalid(format!("{ranks} ranks: 64 are the most")));
        }
        // SAFETY: the caller's promise.
        let devices = unsafe { std::slice::from_raw_parts(devices, ranks) };
        let streams = devices.iter().map(|d| stream_on(*d)).collect::<Result<Vec<_>, _>>()?;
        let joined = Communicator::from_streams(&streams, &Options::from_env()?)?;
        hand_out(joined, comms)
    })
}

/// Writes 128 bytes by which ranks find each other: one rank makes them and gives them to all. Whoever knows them may
/// join.
///
/// # Safety
/// `id` has room for 128 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tf_id_new(id: *mut u8) -> TfResult {
    guarded(|| {
        if id.is_null() {
            return Err(Failure::invalid("id is null: give room for 128 bytes"));
        }
        let made = Id::new()?.bytes();
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(made.as_ptr(), id, made.len()) };
        Ok(())
    })
}

/// Joins as `rank` of `world` processes of this machine, each on a GPU of its own: `device`, counted from 0 among those
/// that are visible. All ranks give the same 128 bytes of tf_id_new. Waits for the others, up to a minute.
///
/// # Safety
/// `id` has 128 bytes; `comm` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tf_comm_init(
    id: *const u8,
    rank: c_int,
    world: c_int,
    device: c_int,
    comm: *mut *mut TfComm,
) -> TfResult {
    guarded(|| {
        if id.is_null() || comm.is_null() {
            return Err(Failure::invalid("id or comm is null"));
        }
        let (Ok(rank), Ok(world)) = (usize::try_from(rank), usize::try_from(world)) else {
            return Err(Failure::invalid(format!("rank {rank} of {world}: ranks go from 0")));
        };
        if rank >= world {
            return Err(Failure::invalid(format!(
                "rank {rank} of {world}: ranks go from 0 to {world} - 1"
            )));
        }
        let mut bytes = [0; 128];
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(id, bytes.as_mut_ptr(), bytes.len()) };
        let id = Id::from_bytes(bytes);
        if !id.is_ours() {
            return Err(Failure::invalid("these 128 bytes are no id of tf_id_new"));
        }
        let stream = stream_on(device)?;
        let joined = Communicator::from_rank(&stream, rank, world, &id, &Options::from_env()?)?;
        hand_out(vec![joined], comm)
    })
}

/// Joins by what torchrun puts into the environment: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT. `device` is
/// taken instead of LOCAL_RANK unless it is negative.
///
/// # Safety
/// `comm` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tf_comm_init_torchrun(device: c_int, comm: *mut *mut TfComm) -> TfResult {
    guarded(|| {
        if comm.is_null() {
            return Err(Failure::invalid("comm is null"));
        }
        let options = Options::from_env()?;
        let environment =
            bootstrap::torchrun::Environment::read("", |name| std::env::var(name).ok()).map_err(CommError::from)?;
        let device = if device < 0 {
            c_int::try_from(environment.local_rank).unwrap_or(c_int::MAX)
        } else {
            device
        };
        let stream = stream_on(device)?;
        let mut bootstrap = bootstrap::torchrun("", options.patience).map_err(CommError::from)?;
        let joined = Communicator::from_bootstrap(&stream, &mut bootstrap, &options)?;
        hand_out(vec![joined], comm)
    })
}

/// Joins the ranks of a family on the host executor: host memory, exact bits, no GPU, for tests of what calls this
/// library. `comms` gets `ranks` communicators, which must be as many as the family has; each is called from a thread of
/// its own. TF_UNAVAILABLE in a build without the host executor.
///
/// # Safety
/// `family` is a zero-ended string; `comms` has `ranks` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tf_comm_init_host(family: *const c_char, ranks: usize, comms: *mut *mut TfComm) -> TfResult {
    guarded(|| {
        if family.is_null() || comms.is_null() {
            return Err(Failure::invalid("family or comms is null"));
        }
        // SAFETY: the caller's promise.
        let family = unsafe { std::ffi::CStr::from_ptr(family) };
        let family = family
            .to_str()
            .map_err(|_| Failure::invalid("the family's name is no UTF-8"))?;
        host(family, ranks, comms)
    })
}

#[cfg(feature = "host-executor")]
fn host(family: &str, ranks: usize, comms: *mut *mut TfComm) -> Result<(), Failure> {
    let joined = Communicator::on_host(family, &Options::from_env()?)?;
    if joined.len() != ranks {
        let words = format!("family {family} has {} ranks, not {ranks}", joined.len());
        return Err(Failure::invalid(words));
    }
    hand_out(joined, comms)
}

#[cfg(not(feature = "host-executor"))]
fn host(_family: &str, _ranks: usize, _comms: *mut *mut TfComm) -> Result<(), Failure> {
    Err(Failure {
        code: TfResult::TF_UNAVAILABLE,
        words: "this build has no host executor: build topoforge-capi with that feature".to_owned(),
    })
}

/// `comms` has been checked and has room for all.
fn hand_out(joined: Vec<Communicator>, comms: *mut *mut TfComm) -> Result<(), Failure> {
    for (rank, communicator) in joined.into_iter().enumerate() {
        // SAFETY: the caller of the C function promised as many entries as ranks.
        unsafe { comms.add(rank).write(TfComm::give_out(communicator)) };
    }
    Ok(())
}

/// A sum on the host executor.
///
/// # Safety
/// As `tf_all_reduce`, on host memory.
#[cfg(feature = "host-executor")]
pub(crate) unsafe fn on_host(
    comm: &Communicator,
    src: *const c_void,
    dst: *mut c_void,
    count: usize,
    dtype: Dtype,
    op: ReduceOp,
) -> Result<(), Failure> {
    if op != ReduceOp::Sum {
        return Err(Failure::invalid(format!("{op}: the host executor sums only")));
    }
    if count == 0 {
        return Ok(());
    }
    if src != dst.cast_const() {
        // SAFETY: the caller's promise: both hold `count` elements and do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(src.cast::<u8>(), dst.cast::<u8>(), count * dtype.bytes()) };
    }
    macro_rules! sum {
        ($($dtype:ident = $type:ty),*) => {
            match dtype {
                $(Dtype::$dtype => {
                    // SAFETY: aligned, not null and valid for `count` elements, as was checked and promised.
                    let values = unsafe { std::slice::from_raw_parts_mut(dst.cast::<$type>(), count) };
                    Ok(comm.all_reduce_slice(values)?)
                })*
            }
        };
    }
    sum! {
        I8 = i8, U8 = u8, I32 = i32, U32 = u32, I64 = i64, U64 = u64, F16 = half::f16, F32 = f32, F64 = f64,
        Bf16 = half::bf16
    }
}

#[cfg(not(feature = "host-executor"))]
pub(crate) unsafe fn on_host(
    _comm: &Communicator,
    _src: *const c_void,
    _dst: *mut c_void,
    _count: usize,
    _dtype: Dtype,
    _op: ReduceOp,
) -> Result<(), Failure> {
    Err(Failure::invalid("this communicator serves no memory of this kind"))
}

//! One rank's calls on a GPU: ordering, a table look-up, a retargeted parameter block, one launch.
//!
//! Allocates, locks and waits for nothing; what serves is made in `setup`. Start at [`CudaPart::all_reduce`].

use super::CommError;
use super::dispatch::{Call, Decision, Dispatch, Why};
use super::order::{Capture, Order, Streams};
use super::shapes::Shapes;
use crate::device::cuda::ServedKernel;
use crate::device::verdict::{gone, together};
use crate::device::{DeviceError, Geometry};
use crate::driver::DriverError;
use crate::driver::context::Context;
use crate::driver::memory::DeviceBuffer;
use crate::driver::nccl;
use crate::driver::nccl_rank::NcclRank;
use crate::driver::user_stream::{OrderEvents, copy};
use crate::process::Seen;
use crate::tune::CallShape;
use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;
use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a range is served by on this rank.
pub(super) struct Serving {
    pub kernel: ServedKernel,
    pub geometry: Geometry,
}

/// What set-up hands over.
pub(super) struct Parts {
    pub stream: Arc<CudaStream>,
    /// One a range; none where the comparator serves.
    pub ranges: Vec<Option<Serving>>,
    /// NCCL as this rank, or why there is none.
    pub nccl: Result<Arc<NcclRank>, Arc<str>>,
    /// Set by the first rank that sees a timeout: nothing is enqueued any more, by any rank, on any route.
    pub dead: Arc<AtomicBool>,
    /// Count every call by its shape.
    pub traced: bool,
    /// There is no other rank: what NCCL does not serve is a copy.
    pub alone: bool,
    /// What is known of the other ranks' processes, where they are not all this one.
    pub seen: Option<Arc<Seen>>,
    /// Owns scratch and modules; dropped with the rank.
    pub keep: Box<dyn Any + Send>,
}

/// A rank's side.
pub(super) struct CudaPart {
    context: Arc<Context>,
    stream: Arc<CudaStream>,
    events: OrderEvents,
    order: Order,
    /// Borrowed for the length of one launch, on one thread.
    ranges: Vec<Option<RefCell<Serving>>>,
    /// Where NCCL does not serve them: what misaligned payloads go through.
    staging: Option<DeviceBuffer>,
    nccl: Result<Arc<NcclRank>, Arc<str>>,
    dead: Arc<AtomicBool>,
    shapes: Option<Shapes>,
    alone: bool,
    seen: Option<Arc<Seen>>,
    _keep: Box<dyn Any + Send>,
}

/// The largest piece of a payload that no range holds.
const PIECE: u64 = 1 << 20;

/// Where one call's payload lies, and how it is enqueued.
#[derive(Clone, Copy)]
pub(super) struct Buffers {
    pub from: u64,
    pub to: u64,
    pub stream: CUstream,
}

impl CudaPart {
    /// # Errors
    /// The driver refuses events or memory.
    pub fn new(parts: Parts, dispatch: &Dispatch) -> Result<Self, CommError> {
        let context = Context::new(parts.stream.context().ordinal())?;
        let events = OrderEvents::new(&context).map_err(DeviceError::from)?;
        let staging = match parts.nccl {
            Ok(_) if !dispatch.insists(Why::Misaligned) => None,
            _ => {
                let served = dispatch.ranges().iter().filter(|r| r.variant.is_some());
                let largest = served.map(|r| r.up_to).max();
                largest.map(|bytes| DeviceBuffer::new(&context, bytes.min(PIECE).next_multiple_of(16)))
            }
        };
        Ok(Self {
            events,
            stream: parts.stream,
            order: Order::default(),
            ranges: parts.ranges.into_iter().map(|r| r.map(RefCell::new)).collect(),
            staging: staging.transpose().map_err(DeviceError::from)?,
            nccl: parts.nccl,
            dead: parts.dead,
            shapes: parts.traced.then(Shapes::new),
            alone: parts.alone,
            seen: parts.seen,
            _keep: parts.keep,
            context,
        })
    }

    pub const fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    pub const fn shapes(&self) -> Option<&Shapes> {
        self.shapes.as_ref()
    }

    /// Refuses a buffer of another device: its address means nothing here, and a fault would kill the context.
    pub fn at_home(&self, ordinal: usize) -> Result<(), CommError> {
        let here = self.stream.context().ordinal();
        if ordinal == here {
            return Ok(());
        }
        Err(CommError::Misuse {
            reason: format!("a buffer of GPU {ordinal} was given to the rank on GPU {here}"),
        })
    }

    /// Enqueues one all-reduce.
    pub fn all_reduce(&self, dispatch: &Dispatch, call: Call, buffers: Buffers) -> Result<(), CommError> {
        if call.count == 0 {
            return Ok(());
        }
        self.enter(buffers.stream)?;
        self.note(call, buffers.stream)?;
        match dispatch.decide(call) {
            Decision::Nothing => Ok(()),
            Decision::Range(index) => self.launch(index, buffers, call.bytes().unwrap_or(0)),
            Decision::Comparator(why) => self.compare(dispatch, why, call, buffers),
        }
    }

    /// Enqueues a call that NCCL serves.
    pub fn forward(
        &self,
        what: &str,
        stream: CUstream,
        call: impl FnOnce(&NcclRank) -> Result<(), DriverError>,
    ) -> Result<(), CommError> {
        let nccl = self.nccl.as_ref().map_err(|why| CommError::Unserved {
            reason: format!("{what} is served by NCCL only, and there is none: {why}"),
        })?;
        self.enter(stream)?;
        // A rank that is missing for our kernels would be missing for NCCL's, which wait without bound.
        self.check()?;
        call(nccl).map_err(|e| CommError::Device(e.into()))
    }

    /// Refuses on a dead communicator, and puts what follows behind the earlier calls.
    fn enter(&self, stream: CUstream) -> Result<(), CommError> {
        if self.dead.load(Ordering::Relaxed) {
            self.check()?;
            return Err(DeviceError::Poisoned.into());
        }
        if let Some(seen) = &self.seen {
            together(seen)?;
        }
        self.order.enter(self, stream.expose_provenance())
    }

    fn note(&self, call: Call, stream: CUstream) -> Result<(), CommError> {
        let (Some(shapes), Some(element), Some(bytes)) = (&self.shapes, call.dtype.element(), call.bytes()) else {
            return Ok(());
        };
        let graph = self.capture(stream.expose_provenance())? != Capture::None;
        shapes.count(CallShape { bytes, element, graph });
        Ok(())
    }

    fn launch(&self, index: usize, at: Buffers, bytes: u64) -> Result<(), CommError> {
        let serving = self
            .ranges
            .get(index)
            .and_then(Option::as_ref)
            .ok_or(DeviceError::Poisoned)?;
        let mut serving = serving.borrow_mut();
        let geometry = serving.geometry;
        let launched = serving.kernel.launch(at.stream, geometry, at.from, at.to, bytes);
        if matches!(launched, Err(DeviceError::Timeout { .. } | DeviceError::Lost { .. })) {
            self.dead.store(true, Ordering::Relaxed);
        }
        Ok(launched?)
    }

    /// What kernels have reported so far, on any rank and route: host memory, a load a rank and route.
    pub fn check(&self) -> Result<(), CommError> {
        if let Some(seen) = &self.seen {
            gone(seen)?;
        }
        for serving in self.ranges.iter().flatten() {
            if let Err(e) = serving.borrow().kernel.verdict() {
                self.dead.store(true, Ordering::Relaxed);
                return Err(e.into());
            }
        }
        Ok(())
    }

    fn compare(&self, dispatch: &Dispatch, why: Why, call: Call, at: Buffers) -> Result<(), CommError> {
        self.check()?;
        if let Ok(nccl) = self.nccl.as_ref()
            && !dispatch.insists(why)
        {
            let op = call.op as i32;
            let done = nccl.all_reduce((at.from, at.to), call.count, call.dtype, op, at.stream);
            return done.map_err(|e| CommError::Device(e.into()));
        }
        if let (true, Some(bytes)) = (self.alone, call.bytes()) {
            // Every reduction of one value is that value.
            if at.from == at.to {
                return Ok(());
            }
            let copied = copy(&self.context, at.stream, at.to, at.from, bytes);
            return Ok(copied.map_err(DeviceError::from)?);
        }
        match (why, call.dtype.element(), call.bytes()) {
            (Why::Op | Why::Dtype, ..) | (_, None, _) | (.., None) => Err(self.unserved(why, call)),
            (_, Some(element), Some(bytes)) => {
                let index = dispatch
                    .piecewise(element, bytes)
                    .ok_or_else(|| self.unserved(why, call))?;
                self.pieces(index, dispatch.ranges()[index].up_to, at, bytes, call.aligned)
            }
        }
    }

    /// A payload in parts that the range holds, misaligned ones by way of memory of our own. All ranks cut alike.
    fn pieces(&self, index: usize, up_to: u64, at: Buffers, bytes: u64, aligned: bool) -> Result<(), CommError> {
        let staging = self.staging.as_ref().ok_or(DeviceError::Poisoned)?;
        let piece = if bytes <= up_to.min(PIECE) {
            bytes
        } else {
            up_to.min(PIECE) & !15
        };
        let mut done = 0;
        while done < bytes {
            let part = piece.min(bytes - done);
            let (from, to) = (at.from + done, at.to + done);
            if aligned {
                self.launch(index, Buffers { from, to, ..at }, part)?;
            } else {
                let ours = staging.address();
                let moved = |to, from| copy(&self.context, at.stream, to, from, part).map_err(DeviceError::from);
                moved(ours, from)?;
                self.launch(
                    index,
                    Buffers {
                        from: ours,
                        to: ours,
                        ..at
                    },
                    part,
                )?;
                moved(to, ours)?;
            }
            done += part;
        }
        Ok(())
    }

    fn unserved(&self, why: Why, call: Call) -> CommError {
        let nccl = self.nccl.as_ref().err().map_or("", |why| why);
        CommError::Unserved {
            reason: format!(
                "{} of {} {}: {why}, and there is no NCCL: {nccl}",
                call.op, call.count, call.dtype
            ),
        }
    }
}

impl Streams for CudaPart {
    fn capture(&self, stream: usize) -> Result<Capture, CommError> {
        let (status, id) = self.events.capture(handle(stream)).map_err(DeviceError::from)?;
        Ok(match status {
            0 => Capture::None,
            1 => Capture::Active(id),
            _ => Capture::Broken,
        })
    }

    fn chain(&self, from: usize, to: usize, captured: bool) -> Result<(), CommError> {
        let chained = self.events.chain(handle(from), handle(to), captured);
        Ok(chained.map_err(DeviceError::from)?)
    }
}

fn handle(stream: usize) -> CUstream {
    std::ptr::with_exposed_provenance_mut(stream)
}

pub(super) fn group<T>(calls: impl FnOnce() -> Result<T, CommError>) -> Result<T, CommError> {
    nccl::group(calls, |e| CommError::Device(e.into()))
}

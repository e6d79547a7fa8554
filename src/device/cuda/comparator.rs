//! NCCL's all-reduce in the place of a collective.
//!
//! With f32 partials of 16-bit elements NCCL gets f32 tensors and both conversions belong to the call, since a caller would
//! pay for them.
//! Warmed before anything is captured or spins. Start at [`NcclAllReduce`].

use super::machine::Machine;
use crate::device::{DeviceError, NcclSetting};
use crate::driver::memory::DeviceBuffer;
use crate::driver::nccl::{Communicators, Nccl, NcclType};
use crate::driver::nccl_rank::NcclRank;
use crate::driver::stream::Stream;
use crate::registry::{Element, Partials};
use std::time::Duration;

/// NCCL on every rank's stream.
pub(super) struct NcclAllReduce {
    setting: NcclSetting,
    element: Element,
    /// One f32 tensor a rank; empty where sums are of the element type.
    wide: Vec<DeviceBuffer>,
}

/// How long NCCL may take to join processes.
const JOINING: Duration = Duration::from_secs(60);

/// NCCL connects each algorithm at its first use: one payload out of each range.
const WARM_BYTES: [u64; 5] = [256, 4 << 10, 64 << 10, 1 << 20, 16 << 20];

impl NcclAllReduce {
    pub fn new(
        machine: &mut Machine,
        setting: NcclSetting,
        element: Element,
        partials: Partials,
        max_bytes: u64,
    ) -> Result<Self, DeviceError> {
        if max_bytes < element.bytes() as u64 {
            return Err(DeviceError::Misuse {
                reason: format!("prepare for a payload of at least one element of {element}"),
            });
        }
        if !machine.nccl.contains_key(&setting) && machine.is_joint() {
            let made = joined(machine, setting)?;
            machine.nccl.insert(setting, made);
        }
        if !machine.nccl.contains_key(&setting) {
            let ordinals: Vec<usize> = machine
                .ranks
                .iter()
                .map(|r| machine.gpus[r.gpu].context.device().ordinal())
                .collect();
            let made = Communicators::told(&ordinals, setting.variable())?;
            machine.nccl.insert(setting, made);
        }
        let wide = if partials.sums(element) == element {
            Vec::new()
        } else {
            (0..machine.ranks.len())
                .map(|r| DeviceBuffer::new(machine.context(r), 2 * max_bytes))
                .collect::<Result<_, _>>()?
        };
        let nccl = Self { setting, element, wide };
        match nccl.warm(machine, max_bytes) {
            Ok(()) => Ok(nccl),
            Err(e) => {
                if machine.wedged() {
                    // Freeing would wait for a kernel that never ends.
                    std::mem::forget(nccl);
                }
                Err(e)
            }
        }
    }

    pub const fn element(&self) -> Element {
        self.element
    }

    fn warm(&self, machine: &mut Machine, max_bytes: u64) -> Result<(), DeviceError> {
        machine.reserve(max_bytes, max_bytes)?;
        let buffers: Vec<_> = (0..machine.world()).map(|r| machine.buffers(r)).collect();
        for rank in &machine.ranks {
            rank.stream.fill(rank.input.address(), 0, max_bytes)?;
        }
        for bytes in WARM_BYTES
            .into_iter()
            .filter(|b| *b < max_bytes)
            .chain([max_bytes & !3])
            .filter(|b| *b > 0)
        {
            let enqueued = self.enqueue(machine, bytes, &buffers);
            let settled = machine.settle(Duration::from_secs(60));
            machine.agree("warming NCCL", enqueued.and(settled).map(|()| Vec::new()))?;
        }
        Ok(())
    }

    pub fn enqueue(&self, machine: &Machine, bytes: u64, buffers: &[(u64, u64)]) -> Result<(), DeviceError> {
        let Some(nccl) = machine.nccl.get(&self.setting) else {
            return Err(DeviceError::Poisoned);
        };
        let streams: Vec<&Stream> = machine.ranks.iter().map(|r| &r.stream).collect();
        let buffers = &buffers[machine.first..machine.first + machine.ranks.len()];
        let elements = bytes / self.element.bytes() as u64;
        if self.wide.is_empty() {
            return Ok(nccl.all_reduce(buffers, elements, self.element.into(), &streams)?);
        }
        for (r, wide) in self.wide.iter().enumerate() {
            machine.widen(self.element, r, buffers[r].0, wide.address(), elements)?;
        }
        let in_place: Vec<_> = self.wide.iter().map(|w| (w.address(), w.address())).collect();
        nccl.all_reduce(&in_place, elements, NcclType::F32, &streams)?;
        for (r, wide) in self.wide.iter().enumerate() {
            machine.narrow(self.element, r, wide.address(), buffers[r].1, elements)?;
        }
        Ok(())
    }
}

/// This process's rank of a communicator over all of them: rank 0 makes the id, and waiting for the others has a bound.
fn joined(machine: &Machine, setting: NcclSetting) -> Result<Communicators, DeviceError> {
    if setting != NcclSetting::AsFound {
        let reason = "NCCL is told how to work in one process that has all ranks".to_owned();
        return Err(DeviceError::Unavailable { reason });
    }
    if !machine.info().timed {
        let reason = "NCCL needs a GPU of its own for each rank; here several ranks share one".to_owned();
        return Err(DeviceError::Unavailable { reason });
    }
    // Those without NCCL say so before the others wait for them inside it.
    let id = if machine.first == 0 {
        NcclRank::unique_id().map(|id| id.to_vec())
    } else {
        Nccl::open().map(|_| Vec::new())
    };
    let ids = machine.agree("NCCL's id", id)?;
    let context = machine.context(0).clone();
    let lost = machine.with_joint(|j| j.seen.clone()).unwrap_or_default();
    Communicators::join(&context, (machine.first, machine.world()), &ids[0], JOINING, || {
        lost.lost().is_some()
    })
}

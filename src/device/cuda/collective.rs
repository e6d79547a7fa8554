//! A prepared collective: scratch on every rank, parameter blocks, and how one call of it is enqueued everywhere.
//!
//! Everything is loaded, allocated, zeroed and synchronised in [`Compiled::new`]; a call only retargets parameter blocks.
//! Start at [`Compiled`].

use super::comparator::NcclAllReduce;
use super::machine::Machine;
use super::served::ServedKernel;
use super::verdict::{self, STATUS_WORDS};
use crate::device::abi::{Control, Header, MAX_THREADS, PULL_MAX_BLOCKS, Params, ScratchLayout, ports};
use crate::device::{DeviceError, Fault, Geometry, Preparation};
use crate::driver::launch;
use crate::driver::memory::{DeviceBuffer, MappedHost};
use crate::driver::module::Function;
use crate::registry::{Memory, Protocol, Variant};
use std::sync::Arc;

/// What a [`crate::device::Prepared`] stands for.
pub(super) struct Collective {
    pub work: Work,
    pub max_bytes: u64,
    /// Since an error.
    pub dead: bool,
}

pub(super) enum Work {
    Compiled(Box<Compiled>),
    Nccl(NcclAllReduce),
}

impl Work {
    /// Enqueues one call on every rank; `buffers[rank]` is `(input, output)`.
    pub fn enqueue(
        &self,
        machine: &Machine,
        geometry: Geometry,
        bytes: u64,
        buffers: &[(u64, u64)],
    ) -> Result<(), DeviceError> {
        match self {
            Self::Compiled(compiled) => compiled.enqueue(machine, geometry, bytes, buffers),
            Self::Nccl(nccl) => nccl.enqueue(machine, bytes, buffers),
        }
    }

    /// What kernels reported since, once all streams are idle.
    pub fn verdict(&self) -> Result<(), DeviceError> {
        match self {
            Self::Compiled(compiled) => compiled.verdict(),
            Self::Nccl(_) => Ok(()),
        }
    }
}

/// Slot regions, one allocation a rank; kept for their addresses.
enum Slots {
    Peer(Vec<DeviceBuffer>),
    Host(Vec<MappedHost>),
}

/// A variant with scratch.
pub(super) struct Compiled {
    pub variant: &'static Variant,
    pub preparation: Preparation,
    functions: Vec<Function>,
    params: Vec<Params>,
    state: Vec<DeviceBuffer>,
    counters: u64,
    status: Arc<MappedHost>,
    /// What rank 0 contributes under [`Fault::DroppedContribution`].
    zeros: Option<DeviceBuffer>,
    _slots: Slots,
}

// A rank's state buffer: what peers store to and what it polls lie on lines of their own.
const CONTROL_AT: u64 = 0;
const ABORT_AT: u64 = 1024;
const COUNTERS_AT: u64 = 2048;

impl Compiled {
    pub fn new(
        machine: &mut Machine,
        variant: &'static Variant,
        preparation: &Preparation,
    ) -> Result<Self, DeviceError> {
        check(variant, preparation, machine.ranks.len())?;
        let ranks = machine.ranks.len();
        connect(machine, variant)?;
        let functions = (0..ranks)
            .map(|r| machine.kernel(r, variant.kernel))
            .collect::<Result<Vec<_>, _>>()?;

        let Preparation {
            max_bytes,
            threads,
            fault,
        } = *preparation;
        let layouts: Vec<_> = (0..ranks)
            .map(|r| ScratchLayout::new(variant, r, max_bytes, threads))
            .collect();
        let counters = layouts.iter().map(ScratchLayout::counters_bytes).max().unwrap_or(0);
        let slots = slots(machine, variant, &layouts)?;
        let state = (0..ranks)
            .map(|r| DeviceBuffer::new(machine.context(r), COUNTERS_AT + counters))
            .collect::<Result<Vec<_>, _>>()?;
        let status = Arc::new(MappedHost::new(machine.context(0), (ranks * STATUS_WORDS * 4) as u64)?);
        let zeros = match fault {
            Some(Fault::DroppedContribution) => {
                Some(DeviceBuffer::new(machine.context(0), max_bytes.next_multiple_of(16))?)
            }
            _ => None,
        };

        let mut params = Vec::new();
        for (r, mine) in variant.ranks.iter().enumerate() {
            let context = machine.context(r);
            let base = match &slots {
                Slots::Peer(buffers) => buffers.iter().map(DeviceBuffer::address).collect::<Vec<_>>(),
                Slots::Host(hosts) => hosts
                    .iter()
                    .map(|h| h.device_address(context))
                    .collect::<Result<Vec<_>, _>>()?,
            };
            let at = state[r].address();
            let header = Header {
                input: 0,
                output: 0,
                counters: at + COUNTERS_AT,
                abort: at + ABORT_AT,
                control: at + CONTROL_AT,
                bytes: 0,
                columns: 0,
                stride: layouts[r].stride,
                rank: r as u32,
                program: mine.program,
                flags: 0,
                reserved: 0,
            };
            params.push(Params::new(
                header,
                &ports(variant, r, |p| layouts[p], |p| base[p], |_| 0),
            ));

            let mut peer_abort = [0; 64];
            let reachable = (0..ranks).filter(|q| *q != r && machine.reaches(r, *q));
            let mut peers = 0;
            for (word, q) in peer_abort.iter_mut().zip(reachable) {
                *word = state[q].address() + ABORT_AT;
                peers += 1;
            }
            let control = Control {
                deadline_ns: u64::try_from(machine.options.deadline.as_nanos()).unwrap_or(u64::MAX),
                status: status.device_address(context)? + (r * STATUS_WORDS * 4) as u64,
                claimed: 0,
                peers,
                peer_abort,
            };
            let stream = &machine.ranks[r].stream;
            stream.fill(at, 0, state[r].bytes())?;
            stream.upload(at + CONTROL_AT, &control.to_bytes())?;
            if let Slots::Peer(buffers) = &slots {
                stream.fill(
                    buffers[r].address(),
                    ScratchLayout::fill(variant.protocol),
                    buffers[r].bytes(),
                )?;
            }
            if fault == Some(Fault::SwappedCounter) && r == 0 {
                let ones = 1_u32.to_ne_bytes().repeat(layouts[r].counters as usize);
                stream.upload(at + COUNTERS_AT, &ones)?;
            }
        }
        if let Some(zeros) = &zeros {
            machine.ranks[0].stream.fill(zeros.address(), 0, zeros.bytes())?;
        }
        // No rank may put into scratch that is still being zeroed.
        machine.synchronise()?;
        let preparation = *preparation;
        Ok(Self {
            variant,
            preparation,
            functions,
            params,
            state,
            counters,
            status,
            zeros,
            _slots: slots,
        })
    }

    fn enqueue(
        &self,
        machine: &Machine,
        geometry: Geometry,
        bytes: u64,
        buffers: &[(u64, u64)],
    ) -> Result<(), DeviceError> {
        let columns = u32::try_from(self.variant.columns(bytes)).unwrap_or(u32::MAX);
        let kernel = self.variant.kernel;
        let first_input = (kernel.puts + kernel.gets) as usize;
        let input_of = |r: usize| match &self.zeros {
            Some(zeros) if r == 0 => zeros.address(),
            _ => buffers[r].0,
        };
        for (r, rank) in machine.ranks.iter().enumerate() {
            let mut params = self.params[r].clone();
            params.retarget(input_of(r), buffers[r].1, bytes, columns);
            params.set_launch(geometry.launch);
            for q in 0..(kernel.inputs as usize).min(buffers.len()) {
                params.set_port(first_input + q, input_of(q));
            }
            launch::block(&rank.stream, &self.functions[r], geometry, &params, geometry.launch)?;
            if self.preparation.fault == Some(Fault::FrozenCounter) {
                rank.stream
                    .fill(self.state[r].address() + COUNTERS_AT, 0, self.counters)?;
            }
        }
        Ok(())
    }

    /// One rank's launches, for serving on a caller's stream.
    pub fn served(&self, machine: &Machine, rank: usize) -> ServedKernel {
        ServedKernel {
            variant: self.variant,
            context: machine.context(rank).clone(),
            function: self.functions[rank].clone(),
            params: self.params[rank].clone(),
            status: self.status.clone(),
        }
    }

    fn verdict(&self) -> Result<(), DeviceError> {
        let dead = (0..self.variant.ranks.len())
            .find_map(|r| verdict::timeout(self.variant, r, &verdict::status(&self.status, r)));
        dead.map_or(Ok(()), Err)
    }

    pub fn max_blocks(&self, machine: &Machine, threads: u32) -> Result<u32, DeviceError> {
        let mut most = if self.variant.protocol == Protocol::Pull {
            PULL_MAX_BLOCKS
        } else {
            u32::MAX
        };
        for (rank, function) in machine.ranks.iter().zip(&self.functions) {
            let gpu = &machine.gpus[rank.gpu];
            let resident = function
                .blocks_a_multiprocessor(threads)?
                .saturating_mul(gpu.multiprocessors);
            most = most.min(resident / gpu.ranks.max(1));
        }
        Ok(most)
    }
}

fn check(variant: &Variant, preparation: &Preparation, ranks: usize) -> Result<(), DeviceError> {
    let misuse = |reason: String| Err(DeviceError::Misuse { reason });
    if variant.ranks.len() != ranks {
        return misuse(format!(
            "`{}` is for {} ranks, not {ranks}",
            variant.name,
            variant.ranks.len()
        ));
    }
    if preparation.threads == 0 || preparation.threads > MAX_THREADS {
        return misuse(format!(
            "blocks of {} threads: give 1 to {MAX_THREADS}",
            preparation.threads
        ));
    }
    // A thread speaks to a peer.
    if variant.protocol == Protocol::Pull && preparation.threads < variant.kernel.puts {
        let (threads, puts) = (preparation.threads, variant.kernel.puts);
        return misuse(format!(
            "`{}` needs at least {puts} threads a block, not {threads}",
            variant.name
        ));
    }
    if preparation.max_bytes == 0 {
        return misuse("prepare for a payload of at least 2 bytes".to_owned());
    }
    if variant.kernel.images.is_empty() {
        let reason = format!(
            "`{}` has no GPU code in this build: rebuild where nvcc can be found",
            variant.name
        );
        return Err(DeviceError::Unavailable { reason });
    }
    Ok(())
}

/// Enables the edges that the variant uses and no other: devices have room for few peers.
fn connect(machine: &mut Machine, variant: &Variant) -> Result<(), DeviceError> {
    if variant.memory == Memory::Peer {
        for (r, mine) in variant.ranks.iter().enumerate() {
            for put in mine.puts {
                machine.connect(r, put.peer as usize)?;
            }
        }
    }
    // Inputs lie in device memory wherever slots are.
    if variant.kernel.inputs > 0 {
        for (r, mine) in variant.ranks.iter().enumerate() {
            for &peer in mine.gets {
                machine.connect(r, peer as usize)?;
            }
        }
    }
    Ok(())
}

fn slots(machine: &Machine, variant: &Variant, layouts: &[ScratchLayout]) -> Result<Slots, DeviceError> {
    let sized = layouts.iter().map(ScratchLayout::slots_bytes).enumerate();
    Ok(match variant.memory {
        Memory::Peer => Slots::Peer(
            sized
                .map(|(r, b)| DeviceBuffer::new(machine.context(r), b))
                .collect::<Result<_, _>>()?,
        ),
        Memory::Host => Slots::Host(
            sized
                .map(|(r, b)| MappedHost::filled(machine.context(r), b, ScratchLayout::fill(variant.protocol)))
                .collect::<Result<_, _>>()?,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_peers_store_to_does_not_overlap_the_control_block() {
        const { assert!(CONTROL_AT + size_of::<Control>() as u64 <= ABORT_AT && ABORT_AT + 4 <= COUNTERS_AT) }
    }
}

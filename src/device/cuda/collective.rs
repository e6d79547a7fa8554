//! A prepared collective: scratch on every rank, parameter blocks, and how one call of it is enqueued everywhere.
//!
//! Everything is loaded, allocated, zeroed and synchronised in [`Compiled::new`]; a call only retargets parameter blocks.
//! Start at [`Compiled`].

use super::comparator::NcclAllReduce;
use super::joint::Joint;
use super::machine::Machine;
use super::served::ServedKernel;
use super::two_stage_pull::TwoStagePull;
use super::verdict::{Reports, STATUS_WORDS};
use crate::device::abi::{Control, Header, MAX_THREADS, PULL_MAX_BLOCKS, Params, ScratchLayout, check_threads, ports};
use crate::device::verdict::gone;
use crate::device::{DeviceError, Fault, Geometry, Preparation};
use crate::driver::launch;
use crate::driver::memory::{DeviceBuffer, MappedHost};
use crate::driver::module::Function;
use crate::process::heap::Block;
use crate::registry::{Element, Memory, Protocol, Variant};
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
    TwoStagePull(TwoStagePull),
}

impl Work {
    /// Type of inputs and outputs.
    pub fn element(&self) -> Element {
        match self {
            Self::Compiled(compiled) => compiled.variant.element,
            Self::Nccl(nccl) => nccl.element(),
            Self::TwoStagePull(_) => Element::F16,
        }
    }

    /// Enqueues one call on every rank of this process; `buffers[rank]` is `(input, output)` of every rank there is.
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
            Self::TwoStagePull(pull) => pull.enqueue(machine, bytes, buffers),
        }
    }

    /// What kernels reported since, once all streams are idle.
    pub fn verdict(&self, machine: &Machine) -> Result<(), DeviceError> {
        match self {
            Self::Compiled(compiled) => compiled.reports.verdict(compiled.variant),
            Self::Nccl(_) => machine.with_joint(|j| gone(&j.seen)).unwrap_or(Ok(())),
            Self::TwoStagePull(pull) => pull.verdict(),
        }
    }

    /// Gives back what other processes map too; the rest goes by itself. Nobody may use it any more.
    pub fn free(self, machine: &Machine) {
        if let Self::Compiled(compiled) = self {
            compiled.free(machine);
        }
    }
}

/// One area a rank: all of them here, or one here and the others in other processes.
enum Areas {
    Device(Vec<DeviceBuffer>),
    Host(Vec<MappedHost>),
    Shared(Block),
    SharedHost(Block),
}

impl Areas {
    /// Where a rank's area lies for kernels of a rank here; none where they cannot reach it.
    fn address(&self, machine: &Machine, here: usize, rank: usize) -> Result<u64, DeviceError> {
        let own = rank.checked_sub(machine.first);
        Ok(match self {
            Self::Device(buffers) => own.and_then(|r| buffers.get(r)).map_or(0, DeviceBuffer::address),
            Self::Host(hosts) => match own.and_then(|r| hosts.get(r)) {
                Some(host) => host.device_address(machine.context(here))?,
                None => 0,
            },
            Self::Shared(block) => machine
                .with_joint(|j| j.device.as_ref().map_or(0, |heap| heap.address(block, rank)))
                .unwrap_or(0),
            Self::SharedHost(block) => machine.with_joint(|j| j.host.address(block, rank)).unwrap_or(0),
        })
    }
}

/// A variant with scratch.
pub(super) struct Compiled {
    pub variant: &'static Variant,
    pub preparation: Preparation,
    /// One a rank of this process, as all lists here.
    functions: Vec<Function>,
    params: Vec<Params>,
    /// First byte of the state of each.
    state: Vec<u64>,
    counters: u64,
    reports: Reports,
    /// The most blocks that every rank's device holds.
    agreed_blocks: u32,
    /// What rank 0 contributes under [`Fault::DroppedContribution`].
    zeros: Option<DeviceBuffer>,
    areas: Vec<Areas>,
}

// A rank's state buffer: what peers store to and what it polls lie on lines of their own.
const CONTROL_AT: u64 = 0;
const ABORT_AT: u64 = 1024;
const COUNTERS_AT: u64 = 2048;

impl Compiled {
    /// A step where ranks are of several processes.
    pub fn new(
        machine: &mut Machine,
        variant: &'static Variant,
        preparation: &Preparation,
    ) -> Result<Self, DeviceError> {
        let world = machine.world();
        check(variant, preparation, world)?;
        connect(machine, variant)?;
        let functions = (0..machine.ranks.len())
            .map(|here| machine.kernel(here, variant.kernel))
            .collect::<Result<Vec<_>, _>>()?;
        let layouts: Vec<_> = (0..world)
            .map(|r| ScratchLayout::new(variant, r, preparation.max_bytes, preparation.threads))
            .collect();
        let counters = layouts.iter().map(ScratchLayout::counters_bytes).max().unwrap_or(0);
        let mut areas = Vec::new();
        let made = Self::areas(machine, variant, &layouts, counters, &mut areas)
            .and_then(|reports| Self::build(machine, variant, preparation, &layouts, (functions, &areas, reports)));
        match made {
            Ok(mut made) => {
                made.areas = areas;
                Ok(made)
            }
            Err(e) => {
                give_back(machine, areas);
                Err(e)
            }
        }
    }

    /// State, then slots, then reports; what there is already when one fails stays in `areas`.
    fn areas(
        machine: &Machine,
        variant: &Variant,
        layouts: &[ScratchLayout],
        counters: u64,
        areas: &mut Vec<Areas>,
    ) -> Result<Reports, DeviceError> {
        let state = COUNTERS_AT + counters;
        let here = machine.first..machine.first + machine.ranks.len();
        // Blocks are alike on all ranks.
        let most = layouts.iter().map(ScratchLayout::slots_bytes).max().unwrap_or(0);
        let shared = |bytes: u64| {
            let allot = |j: &mut Joint| {
                let Joint { steps, device, .. } = j;
                device.as_mut().map(|heap| heap.allot(steps, bytes)).transpose()
            };
            machine.with_joint(allot).transpose().map(Option::flatten)
        };
        let shared_host = |bytes: u64| {
            let allot = |j: &mut Joint| {
                let Joint { steps, host, .. } = j;
                host.allot(steps, bytes)
            };
            machine.with_joint(allot).transpose()
        };
        areas.push(match shared(state)? {
            Some(block) => Areas::Shared(block),
            None => Areas::Device(
                here.clone()
                    .map(|r| DeviceBuffer::new(machine.context(r - machine.first), state))
                    .collect::<Result<_, _>>()?,
            ),
        });
        let slots = match variant.memory {
            Memory::Peer => shared(most)?.map(Areas::Shared),
            Memory::Host => shared_host(most)?.map(Areas::SharedHost),
        };
        let own = here.map(|r| (r - machine.first, layouts[r].slots_bytes()));
        let fill = ScratchLayout::fill(variant.protocol);
        areas.push(match (slots, variant.memory) {
            (Some(slots), _) => slots,
            (None, Memory::Peer) => Areas::Device(
                own.map(|(h, b)| DeviceBuffer::new(machine.context(h), b))
                    .collect::<Result<_, _>>()?,
            ),
            (None, Memory::Host) => Areas::Host(
                own.map(|(h, b)| MappedHost::filled(machine.context(h), b, fill))
                    .collect::<Result<_, _>>()?,
            ),
        });
        match shared_host((STATUS_WORDS * 4) as u64)? {
            Some(block) => {
                areas.push(Areas::SharedHost(block));
                let parts = machine.with_joint(|j| (j.host_parts(&block), j.seen.clone()));
                let (parts, seen) = parts.ok_or(DeviceError::Poisoned)?;
                if let Some((memory, at)) = parts.get(machine.first) {
                    memory.fill(*at, STATUS_WORDS * 4, 0);
                }
                if let (Some(Areas::SharedHost(block)), Memory::Host) = (areas.get(1), variant.memory) {
                    machine.with_joint(|j| {
                        if let Some((memory, at)) = j.host.host(block, machine.first) {
                            memory.fill(at, usize::try_from(block.bytes()).unwrap_or(0), fill);
                        }
                    });
                }
                Ok(Reports::Shared(parts.into(), seen))
            }
            None => {
                let bytes = (machine.world() * STATUS_WORDS * 4) as u64;
                Ok(Reports::Here(Arc::new(MappedHost::new(machine.context(0), bytes)?)))
            }
        }
    }

    fn build(
        machine: &Machine,
        variant: &'static Variant,
        preparation: &Preparation,
        layouts: &[ScratchLayout],
        (functions, areas, reports): (Vec<Function>, &[Areas], Reports),
    ) -> Result<Self, DeviceError> {
        let [state, slots, ..] = areas else {
            return Err(DeviceError::Poisoned);
        };
        let Preparation { max_bytes, fault, .. } = *preparation;
        let world = machine.world();
        let counters = layouts.iter().map(ScratchLayout::counters_bytes).max().unwrap_or(0);
        let zeros = match fault {
            Some(Fault::DroppedContribution) => {
                Some(DeviceBuffer::new(machine.context(0), max_bytes.next_multiple_of(16))?)
            }
            _ => None,
        };
        let mut params = Vec::new();
        let mut states = Vec::new();
        for here in 0..machine.ranks.len() {
            let r = machine.first + here;
            let context = machine.context(here);
            let base = (0..world)
                .map(|q| slots.address(machine, here, q))
                .collect::<Result<Vec<_>, _>>()?;
            let at = state.address(machine, here, r)?;
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
                program: variant.ranks[r].program,
                flags: 0,
                reserved: 0,
            };
            params.push(Params::new(
                header,
                &ports(variant, r, |p| layouts[p], |p| base[p], |_| 0),
            ));

            let mut peer_abort = [0; 64];
            let reachable = (0..world).filter(|q| *q != r && machine.reaches(r, *q));
            let mut peers = 0;
            for (word, q) in peer_abort.iter_mut().zip(reachable) {
                *word = state.address(machine, here, q)? + ABORT_AT;
                peers += 1;
            }
            let status = match (&reports, areas.get(2)) {
                (Reports::Here(host), _) => host.device_address(context)? + (r * STATUS_WORDS * 4) as u64,
                (Reports::Shared(..), Some(area)) => area.address(machine, here, r)?,
                (Reports::Shared(..), None) => return Err(DeviceError::Poisoned),
            };
            let control = Control {
                deadline_ns: u64::try_from(machine.options.deadline.as_nanos()).unwrap_or(u64::MAX),
                status,
                claimed: 0,
                peers,
                peer_abort,
            };
            let stream = &machine.ranks[here].stream;
            stream.fill(at, 0, COUNTERS_AT + counters)?;
            stream.upload(at + CONTROL_AT, &control.to_bytes())?;
            if variant.memory == Memory::Peer {
                let fill = ScratchLayout::fill(variant.protocol);
                stream.fill(base[r], fill, layouts[r].slots_bytes())?;
            }
            if fault == Some(Fault::SwappedCounter) && r == 0 {
                let ones = 1_u32.to_ne_bytes().repeat(layouts[r].counters as usize);
                stream.upload(at + COUNTERS_AT, &ones)?;
            }
            states.push(at);
        }
        if let Some(zeros) = &zeros {
            machine.ranks[0].stream.fill(zeros.address(), 0, zeros.bytes())?;
        }
        // No rank may put into scratch that is still being zeroed: other processes wait for this step, too.
        machine.synchronise()?;
        let mut made = Self {
            variant,
            preparation: *preparation,
            functions,
            params,
            state: states,
            counters,
            reports,
            agreed_blocks: 0,
            zeros,
            areas: Vec::new(),
        };
        let most = made.max_blocks(machine, preparation.threads);
        let all = machine.agree("scratch", most.map(|most| most.to_le_bytes().to_vec()))?;
        let number = |b: &Vec<u8>| b.as_slice().try_into().map_or(0, u32::from_le_bytes);
        made.agreed_blocks = all.iter().map(number).min().unwrap_or(0);
        for at in &made.state {
            machine.with_joint(|j| j.guard(at + ABORT_AT));
        }
        Ok(made)
    }

    /// Gives back what other processes map too.
    fn free(mut self, machine: &Machine) {
        for at in &self.state {
            machine.with_joint(|j| j.unguard(at + ABORT_AT));
        }
        give_back(machine, std::mem::take(&mut self.areas));
    }

    /// The most blocks of `threads` threads that may spin at once on every rank's device, as ranks have agreed.
    pub fn agreed_blocks(&self, threads: u32) -> Result<u32, DeviceError> {
        if threads == self.preparation.threads {
            return Ok(self.agreed_blocks);
        }
        let prepared = self.preparation.threads;
        let reason = format!("prepared for blocks of {prepared} threads, not {threads}");
        Err(DeviceError::Misuse { reason })
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
        for (here, rank) in machine.ranks.iter().enumerate() {
            let r = machine.first + here;
            let mut params = self.params[here].clone();
            params.retarget(input_of(r), buffers[r].1, bytes, columns);
            params.set_launch(geometry.launch);
            for q in 0..(kernel.inputs as usize).min(buffers.len()) {
                params.set_port(first_input + q, input_of(q));
            }
            launch::block(&rank.stream, &self.functions[here], geometry, &params, geometry.launch)?;
            if self.preparation.fault == Some(Fault::FrozenCounter) {
                rank.stream.fill(self.state[here] + COUNTERS_AT, 0, self.counters)?;
            }
        }
        Ok(())
    }

    /// One rank's launches, for serving on a caller's stream.
    pub fn served(&self, machine: &Machine, here: usize, names: Arc<[usize]>) -> ServedKernel {
        ServedKernel {
            variant: self.variant,
            context: machine.context(here).clone(),
            function: self.functions[here].clone(),
            params: self.params[here].clone(),
            reports: self.reports.clone(),
            names,
        }
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
            // Ranks of other processes may share it, too.
            most = most.min(resident / gpu.ranks.max(machine.sharing).max(1));
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
    check_threads(variant, preparation.threads)?;
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
    let here = machine.first..machine.first + machine.ranks.len();
    let ranks = || variant.ranks.iter().enumerate().filter(|(r, _)| here.contains(r));
    if variant.memory == Memory::Peer {
        for (r, mine) in ranks() {
            for put in mine.puts {
                machine.connect(r, put.peer as usize)?;
            }
        }
    }
    // Inputs lie in device memory wherever slots are.
    if variant.kernel.inputs > 0 {
        for (r, mine) in ranks() {
            for &peer in mine.gets {
                machine.connect(r, peer as usize)?;
            }
        }
    }
    Ok(())
}

/// Blocks that other processes have, too. Every rank does so in the same order.
fn give_back(machine: &Machine, areas: Vec<Areas>) {
    for area in areas {
        machine.with_joint(|j| match &area {
            Areas::Shared(block) => {
                if let Some(heap) = &mut j.device {
                    heap.give_back(*block);
                }
            }
            Areas::SharedHost(block) => j.host.give_back(*block),
            Areas::Device(_) | Areas::Host(_) => {}
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_peers_store_to_does_not_overlap_the_control_block() {
        const { assert!(CONTROL_AT + size_of::<Control>() as u64 <= ABORT_AT && ABORT_AT + 4 <= COUNTERS_AT) }
    }
}

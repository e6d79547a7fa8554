//! The GPUs and ranks of an executor together: peer access, kernels, buffers, capture, bounded waiting.
//!
//! Knows no collective. Buffers grow only between runs, when nothing is in flight. Start at [`Machine`].

use super::CudaOptions;
use super::gpu::{Buffer, Gpu, Rank, enough_queues};
use super::joint::{Joint, Member};
use super::share::Way;
use crate::device::{DeviceError, DeviceInfo, NcclSetting};
use crate::driver::context::Context;
use crate::driver::graph::GraphExec;
use crate::driver::memory::{DeviceBuffer, MappedHost};
use crate::driver::module::{Function, Module};
use crate::driver::nccl::Communicators;
use crate::driver::peer::{self, Edge};
use crate::process::link::Steps;
use crate::registry::Kernel;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Everything an executor has besides collectives.
pub(super) struct Machine {
    /// Made by the first comparator of a setting; they go first, while all contexts are alive.
    pub nccl: BTreeMap<NcclSetting, Communicators>,
    /// The ranks of this process.
    pub ranks: Vec<Rank>,
    /// Number of the first of them.
    pub first: usize,
    /// Of all ranks, those of other processes too.
    info: DeviceInfo,
    /// Ranks of all processes on this process's GPU.
    pub sharing: u32,
    /// What there is in common with other processes, where there are any.
    joint: Option<RefCell<Joint>>,
    pub gpus: Vec<Gpu>,
    pub options: CudaOptions,
    /// Word 0 is what start gates wait for, where there are no other processes.
    gate: MappedHost,
    token: u32,
    /// Ordered pairs of GPUs with access enabled.
    peers: BTreeSet<(usize, usize)>,
    kernels: BTreeMap<(usize, &'static str), Function>,
    wedged: Cell<bool>,
}

impl Machine {
    pub fn new(devices: &[usize], ranks: usize, options: CudaOptions) -> Result<Self, DeviceError> {
        let misuse = |reason: &str| {
            Err(DeviceError::Misuse {
                reason: reason.to_owned(),
            })
        };
        if devices.is_empty() {
            return misuse("an executor needs at least one GPU: give CUDA ordinals");
        }
        if ranks == 0 || ranks > 64 {
            return misuse("an executor has 1 to 64 ranks");
        }
        refuse_blocking(ranks)?;
        let ordinals: Vec<usize> = (0..ranks).map(|r| devices[r * devices.len() / ranks]).collect();
        let mut distinct = ordinals.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let mut gpus = Vec::new();
        for &ordinal in &distinct {
            let sharing = ordinals.iter().filter(|o| **o == ordinal).count();
            enough_queues(sharing, std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").ok().as_deref())?;
            gpus.push(Gpu::new(ordinal, sharing)?);
        }
        let mut made = Vec::new();
        for ordinal in &ordinals {
            let gpu = distinct.binary_search(ordinal).unwrap_or(0);
            made.push(Rank::new(gpu, &gpus[gpu].context)?);
        }
        let gate = MappedHost::new(&gpus[0].context, 64)?;
        let info = info(&made, &gpus)?;
        let machine = Self {
            nccl: BTreeMap::new(),
            ranks: made,
            first: 0,
            info,
            sharing: 0,
            joint: None,
            gpus,
            options,
            gate,
            token: 0,
            peers: BTreeSet::new(),
            kernels: BTreeMap::new(),
            wedged: Cell::new(false),
        };
        machine.warm()?;
        Ok(machine)
    }

    /// One rank here, on `ordinal`; `members` are all ranks. A step: all ranks call it.
    pub fn joined(
        ordinal: usize,
        members: &[Member],
        mut steps: Steps,
        options: CudaOptions,
    ) -> Result<Self, DeviceError> {
        let made = (|| {
            let mut machine = Self::new(&[ordinal], 1, options)?;
            machine.first = steps.rank();
            machine.info = joint_info(members);
            let own = members.get(steps.rank()).ok_or(DeviceError::Poisoned)?;
            machine.sharing = members.iter().filter(|m| m.uuid == own.uuid).count() as u32;
            refuse_blocking(members.len())?;
            Ok(machine)
        })();
        let mut machine = steps.finish("opening GPUs", made)?;
        let context = machine.gpus[0].context.clone();
        let best = if options.staged {
            Way::Staged
        } else {
            options.share.unwrap_or_else(|| Way::best(&context))
        };
        let joint = Joint::open(steps, &context, best)?;
        machine.joint = Some(RefCell::new(joint));
        Ok(machine)
    }

    pub const fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// How many ranks there are, those of other processes too.
    pub fn world(&self) -> usize {
        self.info.names.len()
    }

    /// Does something with what there is in common; none in a process that has all ranks.
    pub fn with_joint<T>(&self, act: impl FnOnce(&mut Joint) -> T) -> Option<T> {
        self.joint.as_ref().map(|joint| act(&mut joint.borrow_mut()))
    }

    pub const fn is_joint(&self) -> bool {
        self.joint.is_some()
    }

    /// Takes a step with the ranks of other processes, where there are any. Everybody's bytes then.
    ///
    /// # Errors
    /// Any rank's, on all ranks.
    pub fn agree(&self, what: &str, mine: Result<Vec<u8>, DeviceError>) -> Result<Vec<Vec<u8>>, DeviceError> {
        match &self.joint {
            None => mine.map(|bytes| vec![bytes]),
            Some(joint) => joint.borrow_mut().steps.agree(what, mine),
        }
    }

    /// Ends an operation that may have taken steps: any rank's error becomes everybody's.
    pub fn finish<T>(&self, what: &str, outcome: Result<T, DeviceError>) -> Result<T, DeviceError> {
        match &self.joint {
            None => outcome,
            Some(joint) => joint.borrow_mut().steps.finish(what, outcome),
        }
    }

    /// Where a rank's input and output lie as this process's kernels address them; 0 where they cannot.
    pub fn buffers(&self, rank: usize) -> (u64, u64) {
        if let Some(here) = rank.checked_sub(self.first).and_then(|r| self.ranks.get(r)) {
            return (here.input.address(), here.output.address());
        }
        let Some(here) = self.ranks.first() else { return (0, 0) };
        let there = |buffer: &Buffer| match buffer {
            Buffer::Own(_) => 0,
            Buffer::Shared { block, .. } => self
                .with_joint(|j| j.device.as_ref().map_or(0, |heap| heap.address(block, rank)))
                .unwrap_or(0),
        };
        (there(&here.input), there(&here.output))
    }

    /// Where gates look, as kernels of a context address it.
    pub fn gate_word(&self, context: &Context) -> Result<u64, DeviceError> {
        match self.with_joint(|j| j.host.address(&j.gate, 0)) {
            Some(word) => Ok(word),
            None => Ok(self.gate.device_address(context)?),
        }
    }

    fn open_gate(&self) {
        let shared = self.with_joint(|j| {
            // One opens for all.
            if let (0, Some((memory, at))) = (j.steps.rank(), j.host.host(&j.gate, 0)) {
                memory.store(at, self.token);
            }
        });
        if shared.is_none() {
            self.gate.write_u32(0, self.token);
        }
    }

    /// Of a rank of this process, counted from the first one here.
    pub fn context(&self, here: usize) -> &Arc<Context> {
        &self.gpus[self.ranks[here].gpu].context
    }

    pub fn wedged(&self) -> bool {
        self.wedged.get()
    }

    /// Waits, without bound, for everything on every device. Only where nothing spins.
    pub fn synchronise(&self) -> Result<(), DeviceError> {
        for gpu in &self.gpus {
            gpu.context.synchronise()?;
        }
        Ok(())
    }

    /// Waits until every rank's stream is idle, at most `allowed` and the time that dead waits may take.
    ///
    /// # Errors
    /// A kernel faulted, or one never ended: then nothing may be freed any more.
    pub fn settle(&self, allowed: Duration) -> Result<(), DeviceError> {
        // A rank that peers cannot tell of a death finds out by its own deadline, so deaths may follow each other.
        let bound = 3 * self.options.deadline + Duration::from_secs(10) + allowed;
        let since = Instant::now();
        let mut polls = 0_u32;
        for (r, rank) in self.ranks.iter().enumerate() {
            while !rank.stream.idle()? {
                if since.elapsed() > bound {
                    self.wedged.set(true);
                    return Err(DeviceError::Timeout {
                        rank: self.first + r,
                        peer: None,
                        stage: 0,
                        column: 0,
                    });
                }
                polls = polls.saturating_add(1);
                if polls > 1000 {
                    self.release_from_nccl(polls);
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        }
        Ok(())
    }

    /// NCCL's kernels wait for ever for a rank whose process is gone.
    fn release_from_nccl(&self, polls: u32) {
        if !self.nccl.is_empty() && polls.is_multiple_of(1000) && self.with_joint(|j| j.seen.lost()).flatten().is_some()
        {
            self.nccl.values().for_each(Communicators::abort);
        }
    }

    /// Makes every rank's input and output buffer at least so large. What they held is lost. A step where memory is
    /// shared with other processes.
    pub fn reserve(&mut self, input: u64, output: u64) -> Result<(), DeviceError> {
        if self.with_joint(|j| j.device.is_some()) == Some(true) {
            return self.reserve_shared(input, output);
        }
        for rank in &mut self.ranks {
            let context = &self.gpus[rank.gpu].context;
            if rank.input.bytes() < input {
                rank.input = Buffer::Own(DeviceBuffer::new(context, input.next_power_of_two())?);
            }
            if rank.output.bytes() < output {
                rank.output = Buffer::Own(DeviceBuffer::new(context, output)?);
            }
        }
        Ok(())
    }

    fn reserve_shared(&mut self, input: u64, output: u64) -> Result<(), DeviceError> {
        let Self { ranks, gpus, joint, .. } = self;
        let (Some(rank), Some(joint)) = (ranks.first_mut(), joint) else {
            return Ok(());
        };
        let Joint { steps, device, .. } = joint.get_mut();
        let Some(heap) = device else { return Ok(()) };
        let own = steps.rank();
        for (buffer, wanted) in [(&mut rank.input, input.next_power_of_two()), (&mut rank.output, output)] {
            if matches!(buffer, Buffer::Shared { .. }) && buffer.bytes() >= wanted {
                continue;
            }
            let none = Buffer::Own(DeviceBuffer::new(&gpus[rank.gpu].context, 0)?);
            if let Buffer::Shared { block, .. } = std::mem::replace(buffer, none) {
                heap.give_back(block);
                heap.trim();
            }
            let block = heap.allot(steps, wanted)?;
            let address = heap.address(&block, own);
            *buffer = Buffer::Shared { block, address };
        }
        Ok(())
    }

    /// Gives buffers back that were reserved and lets go of memory that holds nothing. Every rank does so.
    pub fn trim(&mut self) -> Result<(), DeviceError> {
        let Self { ranks, gpus, joint, .. } = self;
        for rank in ranks.iter_mut() {
            for buffer in [&mut rank.input, &mut rank.output] {
                let none = Buffer::Own(DeviceBuffer::new(&gpus[rank.gpu].context, 0)?);
                if let (Buffer::Shared { block, .. }, Some(joint)) = (std::mem::replace(buffer, none), joint.as_mut())
                    && let Some(heap) = &mut joint.get_mut().device
                {
                    heap.give_back(block);
                }
            }
        }
        if let Some(joint) = joint {
            let Joint { device, host, .. } = joint.get_mut();
            device.iter_mut().for_each(crate::process::heap::Heap::trim);
            host.trim();
        }
        Ok(())
    }

    /// Lets kernels of rank `from` address memory of rank `to`.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] names both and the reason.
    pub fn connect(&mut self, from: usize, to: usize) -> Result<(), DeviceError> {
        if self.is_joint() {
            // All of it is mapped, or nothing.
            return if self.reaches(from, to) {
                Ok(())
            } else {
                let reason = "these processes share no device memory: use a host-staged variant".to_owned();
                Err(DeviceError::Unavailable { reason })
            };
        }
        let (a, b) = (self.ranks[from].gpu, self.ranks[to].gpu);
        if self.reaches(from, to) {
            return Ok(());
        }
        let why = if self.options.staged {
            "this executor never enables peer access: use a host-staged variant"
        } else {
            match peer::enable(&self.gpus[a].context, &self.gpus[b].context)? {
                Edge::Usable => {
                    self.peers.insert((a, b));
                    return Ok(());
                }
                edge => edge.reason(),
            }
        };
        let ordinal = |gpu: usize| self.gpus[gpu].context.device().ordinal();
        let (a, b) = (ordinal(a), ordinal(b));
        let reason = format!("rank {from} on GPU {a} cannot reach rank {to} on GPU {b}: {why}");
        Err(DeviceError::Unavailable { reason })
    }

    /// Whether kernels of rank `from` can address memory of rank `to` now.
    pub fn reaches(&self, from: usize, to: usize) -> bool {
        if let Some(shares) = self.with_joint(|j| j.device.is_some()) {
            return shares;
        }
        let pair = (self.ranks[from].gpu, self.ranks[to].gpu);
        pair.0 == pair.1 || self.peers.contains(&pair)
    }

    /// The loaded kernel for a rank; loads it the first time on each GPU.
    pub fn kernel(&mut self, rank: usize, kernel: &'static Kernel) -> Result<Function, DeviceError> {
        let key = (self.ranks[rank].gpu, kernel.hash);
        if let Some(function) = self.kernels.get(&key) {
            return Ok(function.clone());
        }
        let module = Module::load(&self.gpus[key.0].context, kernel.images)?;
        let function = module.function(kernel.symbol)?;
        self.kernels.insert(key, function.clone());
        Ok(function)
    }

    /// Starts one graph a rank.
    pub fn start(&self, graphs: &[GraphExec]) -> Result<(), DeviceError> {
        for (rank, graph) in self.ranks.iter().zip(graphs) {
            graph.launch(&rank.stream)?;
        }
        Ok(())
    }

    /// Starts one graph a rank at the same moment and times each on its stream. Wait, then ask the events.
    pub fn start_together(&mut self, graphs: &[GraphExec]) -> Result<(), DeviceError> {
        self.token = self.token.wrapping_add(1);
        let enqueue = || -> Result<(), DeviceError> {
            for (rank, graph) in self.ranks.iter().zip(graphs) {
                self.gate_at(rank, self.token)?;
                rank.start.record(&rank.stream)?;
                graph.launch(&rank.stream)?;
                rank.end.record(&rank.stream)?;
            }
            Ok(())
        };
        let enqueued = enqueue();
        let enqueued = self.agree("starting together", enqueued.map(|()| Vec::new()));
        // Also after a failure, so that nothing waits for nobody.
        self.open_gate();
        enqueued.map(|_| ())
    }

    /// [`Machine::capture`] for what needs the machine itself.
    pub fn capture_with(
        &self,
        enqueue: impl Fn(&Self) -> Result<(), DeviceError>,
    ) -> Result<Vec<GraphExec>, DeviceError> {
        self.capture(|| enqueue(self))
    }

    /// Captures what `enqueue` enqueues on every rank's stream, one graph a rank, instantiated and uploaded.
    pub fn capture(&self, enqueue: impl FnOnce() -> Result<(), DeviceError>) -> Result<Vec<GraphExec>, DeviceError> {
        let mut begun = Ok(());
        let mut capturing = 0;
        for rank in &self.ranks {
            begun = rank.stream.begin_capture();
            if begun.is_err() {
                break;
            }
            capturing += 1;
        }
        let enqueued = if begun.is_ok() { enqueue() } else { Ok(()) };
        // Whatever happened, no stream stays in capture.
        let ended: Vec<_> = self.ranks[..capturing].iter().map(|r| r.stream.end_capture()).collect();
        begun?;
        enqueued?;
        let mut graphs = Vec::new();
        for (rank, graph) in self.ranks.iter().zip(ended) {
            graphs.push(graph?.instantiate(&rank.stream)?);
        }
        self.synchronise()?;
        Ok(graphs)
    }
}

fn refuse_blocking(ranks: usize) -> Result<(), DeviceError> {
    let blocking = std::env::var("CUDA_LAUNCH_BLOCKING").is_ok_and(|v| !matches!(v.as_str(), "" | "0"));
    if blocking && ranks > 1 {
        let reason = "CUDA_LAUNCH_BLOCKING makes each launch wait for its kernel, which waits for the next rank's launch: unset it";
        return Err(DeviceError::Unavailable {
            reason: reason.to_owned(),
        });
    }
    Ok(())
}

fn info(ranks: &[Rank], gpus: &[Gpu]) -> Result<DeviceInfo, DeviceError> {
    let mut arch = u32::MAX;
    let mut names = Vec::new();
    let mut ordinals = Vec::new();
    for rank in ranks {
        let device = gpus[rank.gpu].context.device();
        arch = arch.min(device.arch()?);
        names.push(device.name()?);
        ordinals.push(device.ordinal());
    }
    Ok(DeviceInfo {
        kind: "cuda",
        names,
        ordinals,
        arch,
        timed: gpus.iter().all(|g| g.ranks == 1),
    })
}

/// Of ranks in several processes, whose ordinals say nothing: GPUs are numbered in the order of the ranks.
fn joint_info(members: &[Member]) -> DeviceInfo {
    let mut gpus: Vec<[u8; 16]> = Vec::new();
    let mut ordinals = Vec::new();
    for member in members {
        let known = gpus.iter().position(|u| *u == member.uuid);
        ordinals.push(known.unwrap_or_else(|| {
            gpus.push(member.uuid);
            gpus.len() - 1
        }));
    }
    DeviceInfo {
        kind: "cuda",
        names: members.iter().map(|m| m.name.clone()).collect(),
        ordinals,
        arch: members.iter().map(|m| m.arch).min().unwrap_or(0),
        timed: gpus.len() == members.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_processes_share_a_gpu_when_its_uuid_is_the_same() {
        let member = |uuid: u8, arch| Member {
            name: format!("GPU {uuid}"),
            uuid: [uuid; 16],
            pci: String::new(),
            arch,
        };
        let apart = joint_info(&[member(7, 90), member(3, 80)]);
        assert_eq!((apart.ordinals, apart.arch, apart.timed), (vec![0, 1], 80, true));
        let together = joint_info(&[member(7, 90), member(3, 90), member(7, 90)]);
        assert_eq!((together.ordinals, together.timed), (vec![0, 1, 0], false));
    }
}

//! One rank a process on the processor: the same kernels, real shared memory, real time.
//!
//! For tests with real processes, sockets and kills, and for programs without GPUs. All ranks go step by step as those of
//! the CUDA executor do. It finds no missing fence: that is the adversarial executor's business. Start at
//! [`PlainExecutor::joined`].

use super::MAX_BLOCK_THREADS;
use super::ffi::plain::run_grid;
use crate::device::abi::{self, Control, Header, Params, ScratchLayout};
use crate::device::verdict::{decode, gone, missing, together};
use crate::device::{
    Chain, Comparator, DeviceError, DeviceInfo, Executor, Fault, Geometry, Mode, Outputs, Preparation, Prepared,
    Sampling, Timed,
};
use crate::driver::memfd::SharedMemory;
use crate::process::Seen;
use crate::process::heap::{Block, Heap, PlainMemory};
use crate::process::link::Steps;
use crate::process::watch::Kept;
use crate::qualify::mix::Mixing;
use crate::registry::{HostKernel, Variant};
use corosensei::stack::DefaultStack;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Words that stop a rank's kernels.
type Aborts = Arc<Mutex<Vec<(Arc<SharedMemory>, usize)>>>;

/// This process's rank.
pub struct PlainExecutor {
    info: DeviceInfo,
    steps: Steps,
    heap: Heap,
    collectives: BTreeMap<usize, Collective>,
    next: usize,
    deadline: Duration,
    seen: Arc<Seen>,
    aborts: Aborts,
    stacks: Vec<DefaultStack>,
    _kept: Option<Kept>,
}

struct Collective {
    variant: &'static Variant,
    kernel: HostKernel,
    preparation: Preparation,
    block: Block,
    place: Places,
    params: Params,
    dead: bool,
}

/// Offsets in a rank's part of the block.
#[derive(Clone, Copy)]
struct Places {
    counters: u64,
    abort: u64,
    control: u64,
    status: u64,
    input: u64,
    output: u64,
    bytes: u64,
}

impl Places {
    fn new(layouts: &[ScratchLayout], max_bytes: u64) -> Self {
        let most = |of: fn(&ScratchLayout) -> u64| layouts.iter().map(of).max().unwrap_or(0);
        let line = |at: u64| at.next_multiple_of(128);
        let counters = line(most(ScratchLayout::slots_bytes));
        let abort = line(counters + most(ScratchLayout::counters_bytes));
        let control = abort + 128;
        let status = line(control + size_of::<Control>() as u64);
        let input = status + 128;
        let output = line(input + max_bytes) + 128;
        Self {
            counters,
            abort,
            control,
            status,
            input,
            output,
            bytes: line(output + max_bytes) + 128,
        }
    }
}

const SEGMENT: u64 = 1 << 20;
const MAX_THREADS: u32 = 2048;
const MAX_BLOCKS: u32 = 4;

impl PlainExecutor {
    /// This process's rank, together with those that `steps` joins. Every rank must then ask for the same things in the
    /// same order.
    pub fn joined(steps: Steps, deadline: Duration) -> Self {
        let ranks = steps.world();
        let aborts = Aborts::default();
        let words = aborts.clone();
        let hook = move || {
            for (memory, at) in words.lock().unwrap_or_else(|e| e.into_inner()).iter() {
                memory.store(*at, 1);
            }
        };
        let kept = steps.mesh().and_then(|m| m.watch()).map(|w| w.on_loss(hook));
        Self {
            info: DeviceInfo {
                kind: "host",
                names: vec!["host executor, a process a rank".into(); ranks],
                ordinals: (0..ranks).collect(),
                arch: 0,
                timed: false,
            },
            seen: steps.seen(),
            steps,
            heap: Heap::new(Box::new(PlainMemory), SEGMENT),
            collectives: BTreeMap::new(),
            next: 0,
            deadline,
            aborts,
            stacks: Vec::new(),
            _kept: kept,
        }
    }

    /// Takes a step with the other ranks: everybody's bytes.
    pub(crate) fn agree(
        &mut self,
        what: &str,
        mine: Result<Vec<u8>, DeviceError>,
    ) -> Result<Vec<Vec<u8>>, DeviceError> {
        self.steps.agree(what, mine)
    }

    /// What was seen of the other processes.
    pub(crate) const fn seen(&self) -> &Arc<Seen> {
        &self.seen
    }

    fn unknown(id: Prepared) -> DeviceError {
        DeviceError::Misuse {
            reason: format!("collective {} is not prepared on this executor", id.0),
        }
    }

    fn new_collective(
        &mut self,
        variant: &'static Variant,
        preparation: &Preparation,
    ) -> Result<Collective, DeviceError> {
        let misuse = |reason: String| Err(DeviceError::Misuse { reason });
        let ranks = self.ranks();
        if variant.ranks.len() != ranks {
            let (name, wants) = (variant.name, variant.ranks.len());
            return misuse(format!("`{name}` is for {wants} ranks, not {ranks}"));
        }
        if preparation.threads == 0 || preparation.threads > MAX_BLOCK_THREADS || preparation.max_bytes == 0 {
            return misuse(format!(
                "blocks of {} threads for {} bytes: give 1 to {MAX_BLOCK_THREADS} and a payload",
                preparation.threads, preparation.max_bytes
            ));
        }
        abi::check_threads(variant, preparation.threads)?;
        let kernel = variant.kernel.host.ok_or_else(|| DeviceError::Unavailable {
            reason: format!("`{}` has no host form in this build", variant.name),
        })?;
        let layout = |r| ScratchLayout::new(variant, r, preparation.max_bytes, preparation.threads);
        let layouts: Vec<ScratchLayout> = (0..ranks).map(layout).collect();
        let place = Places::new(&layouts, preparation.max_bytes);
        let block = self.heap.allot(&mut self.steps, place.bytes)?;
        let own = self.steps.rank();
        let base: Vec<u64> = (0..ranks).map(|r| self.heap.address(&block, r)).collect();
        let header = Header {
            input: base[own] + place.input,
            output: base[own] + place.output,
            counters: base[own] + place.counters,
            abort: base[own] + place.abort,
            control: base[own] + place.control,
            stride: layouts[own].stride,
            rank: own as u32,
            program: variant.ranks[own].program,
            ..Header::default()
        };
        let ports = abi::ports(variant, own, |p| layouts[p], |p| base[p], |p| base[p] + place.input);
        let mut peer_abort = [0; 64];
        let peers = (0..ranks).filter(|r| *r != own);
        for (word, peer) in peer_abort.iter_mut().zip(peers) {
            *word = base[peer] + place.abort;
        }
        let control = Control {
            deadline_ns: u64::try_from(self.deadline.as_nanos()).unwrap_or(u64::MAX),
            status: base[own] + place.status,
            claimed: 0,
            peers: ranks as u32 - 1,
            peer_abort,
        };
        let made = Collective {
            variant,
            kernel,
            preparation: *preparation,
            block,
            place,
            params: Params::new(header, &ports),
            dead: false,
        };
        let Some((memory, at)) = self.heap.host(&block, own) else {
            return Err(DeviceError::Poisoned);
        };
        memory.fill(at, place.bytes as usize, 0);
        memory.fill(
            at,
            layouts[own].slots_bytes() as usize,
            ScratchLayout::fill(variant.protocol),
        );
        memory.write(at + place.control as usize, &control.to_bytes());
        let word = (memory.clone(), at + place.abort as usize);
        self.aborts.lock().unwrap_or_else(|e| e.into_inner()).push(word);
        Ok(made)
    }

    /// One grid of this rank: input and output lie in the block, or are the same.
    fn grid(&mut self, id: Prepared, geometry: Geometry, bytes: u64, in_place: bool) -> Result<(), DeviceError> {
        let collective = self.collectives.get_mut(&id.0).ok_or_else(|| Self::unknown(id))?;
        let base = self.heap.address(&collective.block, self.steps.rank());
        let input = base + collective.place.input;
        let output = if in_place {
            input
        } else {
            base + collective.place.output
        };
        let columns = u32::try_from(collective.variant.columns(bytes)).unwrap_or(u32::MAX);
        collective.params.retarget(input, output, bytes, columns);
        if run_grid(collective.kernel, &collective.params, geometry, &mut self.stacks) {
            Ok(())
        } else {
            let reason = "no memory for another fiber's stack: use a smaller geometry".to_owned();
            Err(DeviceError::Unavailable { reason })
        }
    }

    /// What kernels of any rank have reported, and whether all processes are there.
    fn verdict(&self, id: Prepared) -> Result<(), DeviceError> {
        gone(&self.seen)?;
        let collective = self.collectives.get(&id.0).ok_or_else(|| Self::unknown(id))?;
        let status = |rank: usize| {
            decode(|word| match self.heap.host(&collective.block, rank) {
                Some((memory, at)) => memory.load(at + collective.place.status as usize + 4 * word),
                None => 0,
            })
        };
        if let Some(timeout) = missing(collective.variant, status) {
            return Err(timeout);
        }
        let own = self.heap.host(&collective.block, self.steps.rank());
        match own.map(|(memory, at)| memory.load(at + collective.place.abort as usize)) {
            Some(0) | None => Ok(()),
            Some(_) => Err(DeviceError::Poisoned),
        }
    }

    fn copy_in(&self, id: Prepared, bytes: &[u8]) {
        if let Some(c) = self.collectives.get(&id.0)
            && let Some((memory, at)) = self.heap.host(&c.block, self.steps.rank())
        {
            memory.write(at + c.place.input as usize, bytes);
        }
    }

    fn copy_out(&self, id: Prepared, in_place: bool, bytes: &mut [u8]) {
        if let Some(c) = self.collectives.get(&id.0)
            && let Some((memory, at)) = self.heap.host(&c.block, self.steps.rank())
        {
            let place = if in_place { c.place.input } else { c.place.output };
            memory.read(at + place as usize, bytes);
        }
    }

    /// One call of this rank, in place; the others call too. Takes no step: this is how serving calls.
    ///
    /// # Errors
    /// A rank is gone or stayed away past the deadline: it is named, and the collective is dead.
    pub(crate) fn call(&mut self, id: Prepared, geometry: Geometry, buffer: &mut [u8]) -> Result<(), DeviceError> {
        together(&self.seen)?;
        self.verdict(id)?;
        self.copy_in(id, buffer);
        self.grid(id, geometry, buffer.len() as u64, true)?;
        self.verdict(id)?;
        self.copy_out(id, true, buffer);
        Ok(())
    }

    fn check(&self, chain: &Chain<'_>) -> Result<(), DeviceError> {
        let misuse = |reason: String| Err(DeviceError::Misuse { reason });
        let id = chain.collective;
        let collective = self.collectives.get(&id.0).ok_or_else(|| Self::unknown(id))?;
        if collective.dead {
            return Err(DeviceError::Poisoned);
        }
        let Preparation { max_bytes, threads, .. } = collective.preparation;
        let Geometry { blocks, .. } = chain.geometry;
        if chain.bytes == 0 || chain.bytes > max_bytes || chain.calls == 0 {
            return misuse(format!(
                "{} calls of {} bytes, prepared for {max_bytes}",
                chain.calls, chain.bytes
            ));
        }
        if chain.geometry.threads != threads || blocks == 0 || blocks * threads > MAX_THREADS {
            return misuse(format!(
                "geometry {}: prepared for blocks of {threads} threads",
                chain.geometry
            ));
        }
        if chain.inputs.len() != self.ranks() || chain.inputs.iter().any(|i| i.len() as u64 != chain.bytes) {
            return misuse(format!(
                "{} inputs for {} ranks of {} bytes",
                chain.inputs.len(),
                self.ranks(),
                chain.bytes
            ));
        }
        if chain.in_place && !collective.variant.in_place() {
            return misuse(format!("`{}` cannot run in place", collective.variant.name));
        }
        Ok(())
    }

    /// This rank's outputs, call after call.
    fn chain(&mut self, chain: &Chain<'_>) -> Result<Vec<u8>, DeviceError> {
        let (id, own) = (chain.collective, self.steps.rank());
        let size = chain.bytes as usize;
        let replays = match chain.mode {
            Mode::Eager => 1,
            Mode::Graph { replays } => replays,
        };
        self.copy_in(id, &chain.inputs[own]);
        // Peers may read inputs.
        self.steps.agree("inputs", Ok(Vec::new()))?;
        let mut outputs = Vec::new();
        let (mut output, mut mixed) = (vec![0; size], Vec::new());
        let element = self.collectives.get(&id.0).map(|c| c.variant.element);
        let mixing = Mixing {
            element: element.ok_or_else(|| Self::unknown(id))?,
            seed: chain.mix_seed,
            specials: chain.specials,
        };
        for number in 0..chain.calls * replays {
            if let Some((late, ns)) = chain.skew
                && late == own
            {
                std::thread::sleep(Duration::from_nanos(ns));
            }
            self.grid(id, chain.geometry, chain.bytes, chain.in_place)?;
            self.verdict(id)?;
            self.copy_out(id, chain.in_place, &mut output);
            outputs.extend(&output);
            let call = number % chain.calls;
            mixing.buffer(&output, own, call, &mut mixed);
            self.copy_in(id, &mixed);
        }
        Ok(outputs)
    }

    fn run_all(&mut self, chain: &Chain<'_>) -> Result<Outputs, DeviceError> {
        let own = self.chain(chain)?;
        let all = self.steps.agree("outputs", Ok(own))?;
        let size = chain.bytes as usize;
        let calls = all.iter().map(Vec::len).min().unwrap_or(0) / size.max(1);
        let of = |call: usize| all.iter().map(|o| o[call * size..(call + 1) * size].to_vec()).collect();
        Ok((0..calls).map(of).collect())
    }

    fn bury(&mut self, id: Prepared) {
        if let Some(collective) = self.collectives.get_mut(&id.0) {
            collective.dead = true;
        }
    }
}

impl Executor for PlainExecutor {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn ranks(&self) -> usize {
        self.info.names.len()
    }

    fn prepare(&mut self, variant: &'static Variant, preparation: &Preparation) -> Result<Prepared, DeviceError> {
        let made = match preparation.fault {
            Some(fault) => Err(DeviceError::Unavailable {
                reason: format!("{fault:?} cannot be planted between processes"),
            }),
            None => self.new_collective(variant, preparation),
        };
        let made = self.steps.finish("preparing", made)?;
        let id = self.next;
        self.next += 1;
        self.collectives.insert(id, made);
        Ok(Prepared(id))
    }

    fn prepare_comparator(&mut self, _comparator: Comparator, _max_bytes: u64) -> Result<Prepared, DeviceError> {
        let reason = "comparators run on GPUs only: compare on the CUDA executor".to_owned();
        Err(DeviceError::Unavailable { reason })
    }

    fn release(&mut self, collective: Prepared) {
        if let Some(old) = self.collectives.remove(&collective.0) {
            if let Some((memory, at)) = self.heap.host(&old.block, self.steps.rank()) {
                let at = at + old.place.abort as usize;
                let mut words = self.aborts.lock().unwrap_or_else(|e| e.into_inner());
                words.retain(|(m, a)| !(Arc::ptr_eq(m, memory) && *a == at));
            }
            self.heap.give_back(old.block);
        }
    }

    fn max_blocks(&self, collective: Prepared, threads: u32) -> Result<u32, DeviceError> {
        if !self.collectives.contains_key(&collective.0) {
            return Err(Self::unknown(collective));
        }
        Ok((MAX_THREADS / threads.max(1)).clamp(1, MAX_BLOCKS))
    }

    fn run(&mut self, chain: &Chain<'_>) -> Result<Outputs, DeviceError> {
        // All ranks ask alike, so all are refused alike.
        self.check(chain)?;
        let outcome = self.run_all(chain);
        let outcome = self.steps.finish("running", outcome);
        if outcome.is_err() {
            self.bury(chain.collective);
        }
        outcome
    }

    fn time(&mut self, candidates: &[Timed], sampling: &Sampling) -> Result<Vec<Vec<f64>>, DeviceError> {
        let mut times = vec![Vec::new(); candidates.len()];
        for sample in 0..sampling.warmups + sampling.samples {
            for (times, timed) in times.iter_mut().zip(candidates) {
                let inputs = vec![vec![0; timed.bytes as usize]; self.ranks()];
                let since = Instant::now();
                self.run(&Chain {
                    collective: timed.collective,
                    geometry: timed.geometry,
                    bytes: timed.bytes,
                    calls: sampling.calls.min(4),
                    inputs: &inputs,
                    mix_seed: sample,
                    specials: false,
                    mode: Mode::Eager,
                    skew: None,
                    in_place: false,
                })?;
                let own = since.elapsed().as_secs_f64() * 1e6;
                // Everybody's, so that all ranks choose alike.
                let all = self.steps.agree("a sample", Ok(own.to_le_bytes().to_vec()))?;
                let number = |b: &Vec<u8>| b.as_slice().try_into().map_or(f64::NAN, f64::from_le_bytes);
                if sample >= sampling.warmups {
                    times.push(all.iter().map(number).fold(0.0, f64::max));
                }
            }
        }
        Ok(times)
    }

    fn plants(&self, _fault: Fault) -> bool {
        false
    }
}

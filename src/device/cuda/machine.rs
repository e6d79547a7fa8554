//! The GPUs and ranks of an executor together: peer access, kernels, buffers, capture, bounded waiting.
//!
//! Knows no collective. Buffers grow only between runs, when nothing is in flight. Start at [`Machine`].

use super::CudaOptions;
use super::gpu::{Gpu, Rank, enough_queues};
use crate::device::{DeviceError, DeviceInfo};
use crate::driver::context::Context;
use crate::driver::graph::GraphExec;
use crate::driver::memory::{DeviceBuffer, MappedHost};
use crate::driver::module::{Function, Module};
use crate::driver::nccl::Communicators;
use crate::driver::peer::{self, Edge};
use crate::registry::Kernel;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Everything an executor has besides collectives.
pub(super) struct Machine {
    /// Made by the first comparator; goes first, while all contexts are alive.
    pub nccl: Option<Communicators>,
    pub ranks: Vec<Rank>,
    pub gpus: Vec<Gpu>,
    pub options: CudaOptions,
    /// Word 0 is what start gates wait for.
    pub gate: MappedHost,
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
        let blocking = std::env::var("CUDA_LAUNCH_BLOCKING").is_ok_and(|v| !matches!(v.as_str(), "" | "0"));
        if blocking && ranks > 1 {
            let reason = "CUDA_LAUNCH_BLOCKING makes each launch wait for its kernel, which waits for the next rank's launch: unset it";
            return Err(DeviceError::Unavailable {
                reason: reason.to_owned(),
            });
        }
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
        let machine = Self {
            nccl: None,
            ranks: made,
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

    pub fn info(&self) -> Result<DeviceInfo, DeviceError> {
        let mut arch = u32::MAX;
        let mut names = Vec::new();
        let mut ordinals = Vec::new();
        for rank in &self.ranks {
            let device = self.gpus[rank.gpu].context.device();
            arch = arch.min(device.arch()?);
            names.push(device.name()?);
            ordinals.push(device.ordinal());
        }
        Ok(DeviceInfo {
            kind: "cuda",
            names,
            ordinals,
            arch,
            timed: self.gpus.iter().all(|g| g.ranks == 1),
        })
    }

    pub fn context(&self, rank: usize) -> &Arc<Context> {
        &self.gpus[self.ranks[rank].gpu].context
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
                        rank: r,
                        peer: None,
                        stage: 0,
                        column: 0,
                    });
                }
                polls = polls.saturating_add(1);
                if polls > 1000 {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        }
        Ok(())
    }

    /// Makes every rank's input and output buffer at least so large. What they held is lost.
    pub fn reserve(&mut self, input: u64, output: u64) -> Result<(), DeviceError> {
        for rank in &mut self.ranks {
            let context = &self.gpus[rank.gpu].context;
            if rank.input.bytes() < input {
                rank.input = DeviceBuffer::new(context, input.next_power_of_two())?;
            }
            if rank.output.bytes() < output {
                rank.output = DeviceBuffer::new(context, output)?;
            }
        }
        Ok(())
    }

    /// Lets kernels of rank `from` address memory of rank `to`.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] names both and the reason.
    pub fn connect(&mut self, from: usize, to: usize) -> Result<(), DeviceError> {
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
        // Also after a failure, so that nothing waits for nobody.
        self.gate.write_u32(0, self.token);
        enqueued
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

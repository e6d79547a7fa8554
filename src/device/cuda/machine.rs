//! The GPUs and ranks of an executor: contexts, tool kernels, streams, the caller-side buffers, bounded waiting.
//!
//! Knows no collective. Buffers grow only between runs, when nothing is in flight. Start at [`Machine`].

use super::CudaOptions;
use crate::device::{DeviceError, DeviceInfo, Geometry};
use crate::driver::context::{Attribute, Context};
use crate::driver::event::Event;
use crate::driver::graph::GraphExec;
use crate::driver::launch;
use crate::driver::memory::{DeviceBuffer, MappedHost};
use crate::driver::module::{Function, Module};
use crate::driver::nccl::Communicators;
use crate::driver::peer::{self, Edge};
use crate::driver::stream::Stream;
use crate::registry::Kernel;
use crate::tools;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Kernels of kernels/tools.cu on one device.
pub(super) struct Tools {
    mix: Function,
    gate: Function,
    delay: Function,
    widen: Function,
    narrow: Function,
}

/// A device and what is loaded on it.
pub(super) struct Gpu {
    pub context: Arc<Context>,
    pub multiprocessors: u32,
    /// Ranks that live here.
    pub ranks: u32,
    tools: Tools,
}

/// A rank: its stream and the buffers a caller would own.
pub(super) struct Rank {
    /// Index into [`Machine::gpus`].
    pub gpu: usize,
    pub stream: Stream,
    pub start: Event,
    pub end: Event,
    pub input: DeviceBuffer,
    pub output: DeviceBuffer,
}

/// Everything an executor has besides collectives.
pub(super) struct Machine {
    /// Made by the first comparator; goes first, while all contexts are alive.
    pub nccl: Option<Communicators>,
    pub ranks: Vec<Rank>,
    pub gpus: Vec<Gpu>,
    pub options: CudaOptions,
    /// Word 0 is what start gates wait for.
    gate: MappedHost,
    token: u32,
    /// Ordered pairs of GPUs with access enabled.
    peers: BTreeSet<(usize, usize)>,
    kernels: BTreeMap<(usize, &'static str), Function>,
    wedged: Cell<bool>,
}

/// How long a start gate holds a stream at most.
const GATE: Duration = Duration::from_secs(5);
/// Hardware queues of a device unless the environment says otherwise; streams that share one wait for each other.
const QUEUES: usize = 8;

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

    /// Each tool once, so that nothing is loaded or resized while kernels spin.
    fn warm(&self) -> Result<(), DeviceError> {
        for rank in &self.ranks {
            let tools = &self.gpus[rank.gpu].tools;
            let one = Geometry { blocks: 1, threads: 32 };
            let (a, b) = (rank.input.address(), rank.output.address());
            launch::values(&rank.stream, &tools.mix, one, &[a, b, 0, 0, 0, 0, 0])?;
            launch::values(&rank.stream, &tools.widen, one, &[a, b, 0])?;
            launch::values(&rank.stream, &tools.narrow, one, &[a, b, 0])?;
            launch::values(&rank.stream, &tools.delay, one, &[0])?;
            self.gate_at(rank, 0)?;
        }
        self.synchronise()
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
        let edge = if self.options.staged {
            Edge::NoAccess
        } else {
            peer::enable(&self.gpus[a].context, &self.gpus[b].context)?
        };
        if edge == Edge::Usable {
            self.peers.insert((a, b));
            return Ok(());
        }
        let ordinal = |gpu: usize| self.gpus[gpu].context.device().ordinal();
        let reason = format!(
            "rank {from} on GPU {} cannot reach rank {to} on GPU {}: {}",
            ordinal(a),
            ordinal(b),
            edge.reason()
        );
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

    /// Enqueues the mixing node: `input` from `output`.
    pub fn mix(&self, rank: usize, mix: &Mix, input: u64, output: u64) -> Result<(), DeviceError> {
        let count = mix.bytes / 2;
        let values = [
            input,
            output,
            count,
            rank as u64,
            u64::from(mix.call),
            u64::from(mix.seed),
            u64::from(mix.specials),
        ];
        let rank = &self.ranks[rank];
        Ok(launch::values(
            &rank.stream,
            &self.gpus[rank.gpu].tools.mix,
            spread(count),
            &values,
        )?)
    }

    /// Enqueues f16 to f32.
    pub fn widen(&self, rank: usize, from: u64, to: u64, count: u64) -> Result<(), DeviceError> {
        let rank = &self.ranks[rank];
        Ok(launch::values(
            &rank.stream,
            &self.gpus[rank.gpu].tools.widen,
            spread(count),
            &[from, to, count],
        )?)
    }

    /// Enqueues f32 to f16.
    pub fn narrow(&self, rank: usize, from: u64, to: u64, count: u64) -> Result<(), DeviceError> {
        let rank = &self.ranks[rank];
        Ok(launch::values(
            &rank.stream,
            &self.gpus[rank.gpu].tools.narrow,
            spread(count),
            &[from, to, count],
        )?)
    }

    /// Enqueues doing nothing for so long.
    pub fn delay(&self, rank: usize, ns: u64) -> Result<(), DeviceError> {
        let rank = &self.ranks[rank];
        let one = Geometry { blocks: 1, threads: 1 };
        Ok(launch::values(
            &rank.stream,
            &self.gpus[rank.gpu].tools.delay,
            one,
            &[ns],
        )?)
    }

    fn gate_at(&self, rank: &Rank, token: u32) -> Result<(), DeviceError> {
        let gpu = &self.gpus[rank.gpu];
        let word = self.gate.device_address(&gpu.context)?;
        let one = Geometry { blocks: 1, threads: 1 };
        let values = [word, u64::from(token), GATE.as_nanos() as u64];
        Ok(launch::values(&rank.stream, &gpu.tools.gate, one, &values)?)
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

/// Arguments of a mixing node.
pub(super) struct Mix {
    pub bytes: u64,
    pub call: u32,
    pub seed: u32,
    pub specials: bool,
}

/// Enough threads for an elementwise kernel, few enough to leave room for kernels that spin.
fn spread(count: u64) -> Geometry {
    let blocks = count.div_ceil(256).clamp(1, 64);
    Geometry {
        blocks: blocks as u32,
        threads: 256,
    }
}

/// Streams that share a hardware queue wait for each other, so spinning kernels would never meet.
fn enough_queues(sharing: usize, connections: Option<&str>) -> Result<(), DeviceError> {
    let queues = connections.and_then(|c| c.trim().parse().ok()).unwrap_or(QUEUES);
    if sharing <= queues {
        return Ok(());
    }
    let reason = format!(
        "{sharing} virtual ranks share a GPU that has {queues} hardware queues: set CUDA_DEVICE_MAX_CONNECTIONS=32 \
         before this process starts (32 is the most), or use more GPUs"
    );
    Err(DeviceError::Unavailable { reason })
}

impl Gpu {
    fn new(ordinal: usize, sharing: usize) -> Result<Self, DeviceError> {
        let context = Context::new(ordinal)?;
        if context.device().attribute(Attribute::MapsHostMemory)? == 0 {
            let reason = format!("GPU {ordinal} cannot address host memory, which deadlines need");
            return Err(DeviceError::Unavailable { reason });
        }
        let module = Module::load(&context, tools::images())?;
        let tools = Tools {
            mix: module.function("tf_mix")?,
            gate: module.function("tf_gate")?,
            delay: module.function("tf_delay")?,
            widen: module.function("tf_widen_f16")?,
            narrow: module.function("tf_narrow_f32")?,
        };
        let multiprocessors = u32::try_from(context.device().attribute(Attribute::Multiprocessors)?).unwrap_or(1);
        Ok(Self {
            context,
            multiprocessors,
            ranks: sharing as u32,
            tools,
        })
    }
}

impl Rank {
    fn new(gpu: usize, context: &Arc<Context>) -> Result<Self, DeviceError> {
        Ok(Self {
            gpu,
            stream: Stream::new(context)?,
            start: Event::new(context)?,
            end: Event::new(context)?,
            input: DeviceBuffer::new(context, 0)?,
            output: DeviceBuffer::new(context, 0)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_virtual_ranks_than_queues_are_refused_before_they_hang() {
        assert!(enough_queues(8, None).is_ok());
        assert!(enough_queues(16, Some("32")).is_ok());
        let e = enough_queues(9, None);
        assert!(
            matches!(&e, Err(DeviceError::Unavailable { reason }) if reason.contains("CONNECTIONS=32")),
            "{e:?}"
        );
    }

    #[test]
    fn elementwise_grids_cover_small_counts_and_stay_small() {
        assert_eq!(
            spread(1),
            Geometry {
                blocks: 1,
                threads: 256
            }
        );
        assert_eq!(spread(257).blocks, 2);
        assert_eq!(spread(u64::from(u32::MAX)).blocks, 64);
    }
}

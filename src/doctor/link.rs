//! Two ranks that exchange patterns through the compiled kernels of two-rank families.
//!
//! An all-reduce of two is an exchange: what arrived is the sum less the own part, and the patterns add up exactly. It says
//! nothing about good or bad. Start at [`PairLink`]; [`KernelLink`] is the one over an executor.

use crate::device::lines::LineTally;
use crate::device::{Chain, DeviceError, Executor, Fault, Geometry, Mode, Preparation, Prepared};
use crate::qualify::{QualifyPlan, qualify};
use crate::registry::{Element, Memory, Partials, Protocol, Registry, Variant};
use half::f16;

/// Who acts on foreign memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The sender stores into the receiver's memory.
    Write,
    /// The sender stores 128-byte lines there that must arrive whole.
    Lines,
    /// The receiver loads from the sender's memory.
    Read,
}

/// One kind of kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// E.g. `packet`.
    pub name: String,
    /// What it does to the edge.
    pub verb: Verb,
}

/// Two ranks and the ways between them.
pub trait PairLink {
    /// The ways, tried in this order.
    fn paths(&self) -> &[Path];

    /// Both ranks send at once; what arrived at each.
    ///
    /// # Errors
    /// [`DeviceError::Timeout`] names the rank that waited; anything else means that the way is closed.
    fn exchange(&mut self, path: usize, round: u32, sent: [&[u16]; 2]) -> Result<[Vec<u16>; 2], DeviceError>;

    /// What the other rank sees of 128-byte lines that `actor` keeps overwriting; `None` where lines are not tried, or
    /// nothing can be told by looking.
    fn watch_lines(&mut self, _actor: usize) -> Option<Result<LineTally, DeviceError>> {
        None
    }

    /// Chains of dependent calls with a late rank through kernels that reset what they have read; `None` without such.
    fn reset_against_put(&mut self) -> Option<Result<(), String>>;
}

/// Threads of a block; two blocks, so that tiles end inside the payload.
const GEOMETRY: Geometry = Geometry::new(2, 64);
/// Largest payload of a round, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// The kernels of two-rank families on an executor of two ranks.
pub struct KernelLink<E> {
    executor: E,
    variants: Vec<&'static Variant>,
    paths: Vec<Path>,
    prepared: Vec<Option<Prepared>>,
    fault: Option<Fault>,
}

impl<E: Executor> KernelLink<E> {
    /// One variant a protocol: the one with the fewest stages. `fault` is planted in each, for controls.
    pub fn new(registry: &Registry, executor: E, fault: Option<Fault>) -> Self {
        Self::of(registry, executor, fault, Protocol::ALL)
    }

    /// [`KernelLink::new`] with these protocols only.
    pub fn of(registry: &Registry, executor: E, fault: Option<Fault>, protocols: &[Protocol]) -> Self {
        let mut variants: Vec<&'static Variant> = Vec::new();
        for protocol in protocols {
            let fits = |v: &&Variant| {
                v.protocol == *protocol
                    && v.memory == Memory::Peer
                    && v.ranks.len() == 2
                    && v.element == Element::F16
                    && v.partials.contains(&Partials::Element)
                    && (v.stages, v.chunks) <= (1, 1)
            };
            let all = registry.families().into_iter().flat_map(|f| f.variants);
            variants.extend(all.filter(fits).min_by_key(|v| (v.stages, v.chunks, v.name)));
        }
        let path = |v: &&Variant| Path {
            name: v.protocol.name().to_owned(),
            verb: match v.protocol {
                Protocol::Pull => Verb::Read,
                Protocol::Packet128 => Verb::Lines,
                Protocol::Packet | Protocol::Sentinel | Protocol::Flag => Verb::Write,
            },
        };
        Self {
            executor,
            paths: variants.iter().map(path).collect(),
            prepared: variants.iter().map(|_| None).collect(),
            variants,
            fault,
        }
    }

    fn prepare(&mut self, path: usize) -> Result<Prepared, DeviceError> {
        if let Some(known) = self.prepared[path] {
            return Ok(known);
        }
        let preparation = Preparation {
            max_bytes: MAX_BYTES,
            threads: GEOMETRY.threads,
            fault: self.fault,
        };
        let made = self.executor.prepare(self.variants[path], &preparation)?;
        self.prepared[path] = Some(made);
        Ok(made)
    }
}

impl<E: Executor> PairLink for KernelLink<E> {
    fn paths(&self) -> &[Path] {
        &self.paths
    }

    fn exchange(&mut self, path: usize, round: u32, sent: [&[u16]; 2]) -> Result<[Vec<u16>; 2], DeviceError> {
        let collective = self.prepare(path)?;
        let bytes = |values: &[u16]| -> Vec<u8> {
            let words = values.iter().map(|v| f16::from_f32(f32::from(*v)).to_bits());
            words.flat_map(u16::to_le_bytes).collect()
        };
        let inputs = sent.map(bytes);
        let chain = Chain {
            collective,
            geometry: GEOMETRY,
            bytes: inputs[0].len() as u64,
            calls: 1,
            inputs: &inputs,
            mix_seed: 1,
            specials: false,
            mode: Mode::Eager,
            // Each rank is late in turn, so that a wait is really waited.
            skew: (!round.is_multiple_of(3)).then_some((round as usize % 2, 50_000)),
            in_place: false,
        };
        let mut outputs = self.executor.run(&chain)?;
        let last = outputs.pop().unwrap_or_default();
        let arrived = |rank: usize| -> Vec<u16> {
            let sums = last.get(rank).map(Vec::as_slice).unwrap_or_default().chunks_exact(2);
            sums.zip(sent[rank])
                .map(|(pair, own)| part(u16::from_le_bytes([pair[0], pair[1]]), *own))
                .collect()
        };
        Ok([arrived(0), arrived(1)])
    }

    fn watch_lines(&mut self, actor: usize) -> Option<Result<LineTally, DeviceError>> {
        self.variants.iter().find(|v| v.protocol == Protocol::Packet128)?;
        self.executor.watch_lines(actor, 1 - actor.min(1)).transpose()
    }

    fn reset_against_put(&mut self) -> Option<Result<(), String>> {
        let at = self.variants.iter().position(|v| v.protocol == Protocol::Sentinel)?;
        let plan = QualifyPlan {
            calls: 48,
            payloads: vec![2048, 18, 16_386],
            skews: vec![1_000, 20_000, 400_000],
            seeds: vec![1],
            ..QualifyPlan::quick()
        };
        let outcome = qualify(&mut self.executor, self.variants[at], &plan);
        Some(outcome.map(|_| ()).map_err(|refusal| refusal.reason.to_string()))
    }
}

/// The sum less the own part; a value that no pattern has, where the sum is none of whole numbers.
fn part(sum: u16, own: u16) -> u16 {
    let other = f16::from_bits(sum).to_f32() - f32::from(own);
    let whole = other.is_finite() && other >= 0.0 && other.fract() == 0.0 && other < 32_768.0;
    if whole { other as u16 } else { u16::MAX }
}

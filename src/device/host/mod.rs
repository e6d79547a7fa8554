//! The host executor: kernels compiled for the CPU, every block thread of every rank a fiber under a seeded scheduler.
//!
//! Stores of peers arrive as late and in as wild an order as the kernel's declared memory order allows, so a missing
//! fence, barrier or wait shows as a wrong result or a timeout, without a GPU. It never uses threads, clocks or unseeded
//! randomness: equal seeds give equal runs. Its times mean nothing. Start at [`HostExecutor`]; the memory model is in
//! `memory`, what kernels call in `machine`, who runs next in `schedule`.
//!
//! [`PlainExecutor`] is the other kind: one rank a process, real shared memory, real time, and nothing in wild order.

mod chain;
mod collective;
mod faults;
#[allow(unsafe_code, reason = "the border to compiled kernels and fibers")]
mod ffi;
mod layout;
mod machine;
mod memory;
mod plain;
mod rng;
mod schedule;
#[cfg(test)]
mod tests;
mod warp;

use super::{
    Chain, Comparator, DeviceError, DeviceInfo, Executor, Fault, Mode, Outputs, Preparation, Prepared, Sampling, Timed,
};
use crate::device::abi::{MAX_THREADS as MAX_BLOCK_THREADS, check_threads};
use crate::registry::Variant;
use collective::Collective;
pub use plain::PlainExecutor;
use rng::Rng;
use schedule::{Pace, Stacks};
use std::collections::BTreeMap;
use std::time::Instant;

/// When stores under way reach their rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// Soon, in random order.
    Eager,
    /// At random times, in random order.
    Random,
    /// Only when no thread can go on without, one by one, in random order.
    Lazy,
}

impl Delivery {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Eager, Self::Random, Self::Lazy];
}

/// How a host executor behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// Of every random choice.
    pub seed: u64,
    /// When stores arrive.
    pub delivery: Delivery,
    /// Scheduling steps after which a run is given up.
    pub max_steps: u64,
    /// Virtual nanoseconds that a wait may last.
    pub deadline_ns: u64,
    /// Value of all use counters before the first call; near `u32::MAX` to see them wrap.
    pub first_counter: u32,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            delivery: Delivery::Random,
            max_steps: 200_000_000,
            deadline_ns: 30_000_000_000,
            first_counter: 0,
        }
    }
}

/// Threads of one rank's grid: a fiber each.
const MAX_THREADS: u32 = 2048;
/// Blocks that [`Executor::max_blocks`] offers: enough to see blocks interleave.
const MAX_BLOCKS: u32 = 8;

/// Runs collectives on the CPU, adversarially.
pub struct HostExecutor {
    device: DeviceInfo,
    options: HostOptions,
    collectives: BTreeMap<usize, Collective>,
    next: usize,
    runs: u64,
    stacks: Stacks,
}

impl HostExecutor {
    /// An executor of so many ranks.
    pub fn new(ranks: usize, options: HostOptions) -> Self {
        let device = DeviceInfo {
            kind: "host",
            names: vec!["host executor".into(); ranks],
            ordinals: (0..ranks).collect(),
            arch: 0,
            timed: false,
        };
        Self {
            device,
            options,
            collectives: BTreeMap::new(),
            next: 0,
            runs: 0,
            stacks: Stacks::default(),
        }
    }

    /// The options it was made with.
    pub fn options(&self) -> &HostOptions {
        &self.options
    }

    /// Goes on with another seed and delivery; what is prepared stays.
    pub fn reseed(&mut self, seed: u64, delivery: Delivery) {
        self.options.seed = seed;
        self.options.delivery = delivery;
        self.runs = 0;
    }

    fn unknown(collective: Prepared) -> DeviceError {
        DeviceError::Misuse {
            reason: format!("collective {} is not prepared on this executor", collective.0),
        }
    }
}

impl Executor for HostExecutor {
    fn device(&self) -> &DeviceInfo {
        &self.device
    }

    fn ranks(&self) -> usize {
        self.device.names.len()
    }

    fn prepare(&mut self, variant: &'static Variant, preparation: &Preparation) -> Result<Prepared, DeviceError> {
        let misuse = |reason: String| Err(DeviceError::Misuse { reason });
        if variant.ranks.len() != self.ranks() {
            return misuse(format!(
                "`{}` is for {} ranks, not {}",
                variant.name,
                variant.ranks.len(),
                self.ranks()
            ));
        }
        if preparation.threads == 0 || preparation.threads > MAX_BLOCK_THREADS {
            return misuse(format!(
                "blocks of {} threads: give 1 to {MAX_BLOCK_THREADS}",
                preparation.threads
            ));
        }
        check_threads(variant, preparation.threads)?;
        if preparation.max_bytes == 0 {
            return misuse("prepare for a payload of at least 2 bytes".into());
        }
        let HostOptions {
            deadline_ns,
            first_counter,
            ..
        } = self.options;
        let made = Collective::new(variant, preparation, deadline_ns, first_counter)?;
        let id = self.next;
        self.next += 1;
        self.collectives.insert(id, made);
        Ok(Prepared(id))
    }

    fn prepare_comparator(&mut self, comparator: Comparator, _max_bytes: u64) -> Result<Prepared, DeviceError> {
        let what = match comparator {
            Comparator::Nccl(..) => "NCCL runs",
            Comparator::TwoStagePull(_) => "peer reads in two stages run",
        };
        let reason = format!("{what} on GPUs only: compare on the CUDA executor");
        Err(DeviceError::Unavailable { reason })
    }

    fn release(&mut self, collective: Prepared) {
        self.collectives.remove(&collective.0);
    }

    fn max_blocks(&self, collective: Prepared, threads: u32) -> Result<u32, DeviceError> {
        if !self.collectives.contains_key(&collective.0) {
            return Err(Self::unknown(collective));
        }
        Ok((MAX_THREADS / threads.max(1)).clamp(1, MAX_BLOCKS))
    }

    fn run(&mut self, chain: &Chain<'_>) -> Result<Outputs, DeviceError> {
        let HostOptions {
            seed,
            delivery,
            max_steps,
            deadline_ns,
            ..
        } = self.options;
        let id = chain.collective;
        let collective = self.collectives.get_mut(&id.0).ok_or_else(|| Self::unknown(id))?;
        chain::check(collective, chain, MAX_THREADS)?;
        self.runs += 1;
        let rng = Rng::new(seed, self.runs);
        chain::run(
            collective,
            chain,
            rng,
            Pace {
                delivery,
                deadline_ns,
                max_steps,
            },
            &mut self.stacks,
        )
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
                    calls: sampling.calls,
                    inputs: &inputs,
                    mix_seed: sample,
                    specials: false,
                    mode: Mode::Eager,
                    skew: None,
                    in_place: timed.in_place,
                })?;
                if sample >= sampling.warmups {
                    times.push(since.elapsed().as_secs_f64() * 1e6 / f64::from(sampling.calls.max(1)));
                }
            }
        }
        Ok(times)
    }

    fn plants(&self, _fault: Fault) -> bool {
        true
    }
}

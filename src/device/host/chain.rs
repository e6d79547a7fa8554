//! A chain of dependent calls as one stream of operations a rank: hold, launch, copy out, mix.
//!
//! The input of a call is mixed from the output of the call before; the first input of a later replay from the last
//! output of the replay before it, with that call's index. Nothing is scheduled here. Start at [`run`].

use super::collective::Collective;
use super::layout::POISON;
use super::machine::Machine;
use super::rng::Rng;
use super::schedule::{self, Grid, Next, Pace, Stacks, Streams};
use crate::device::{Chain, DeviceError, Mode, Outputs, whole};
use crate::qualify::mix::Mixing;
use crate::registry::Protocol;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Before the hold, if any.
    Arrive,
    Launch,
    /// The grid has ended.
    Collect,
    Mix,
}

struct Rank {
    phase: Phase,
    /// Calls that have ended.
    done: usize,
    outputs: Vec<Vec<u8>>,
}

struct ChainStreams<'a> {
    collective: &'a Collective,
    chain: &'a Chain<'a>,
    total: usize,
    ranks: Vec<Rank>,
    mixed: Vec<u8>,
}

impl ChainStreams<'_> {
    fn output(&self, rank: usize) -> usize {
        let r = &self.collective.map.ranks[rank];
        if self.chain.in_place { r.map.input } else { r.output }
    }
}

impl Streams for ChainStreams<'_> {
    fn next(&mut self, rank: usize, machine: &mut Machine) -> Next {
        let bytes = self.chain.bytes as usize;
        let output = self.output(rank);
        let state = &mut self.ranks[rank];
        if state.done == self.total || self.collective.aborted(rank, machine) {
            return Next::End;
        }
        match state.phase {
            Phase::Arrive => {
                state.phase = Phase::Launch;
                match self.chain.skew {
                    Some((late, ns)) if late == rank => Next::Hold(ns),
                    _ => Next::Did,
                }
            }
            Phase::Launch => {
                state.phase = Phase::Collect;
                Next::Launch
            }
            Phase::Collect => {
                let mut copy = vec![0; bytes];
                machine.arena.read(output, &mut copy);
                state.outputs.push(copy);
                state.done += 1;
                state.phase = Phase::Mix;
                self.collective.after_grid(rank, machine);
                Next::Did
            }
            Phase::Mix => {
                state.phase = Phase::Arrive;
                let call = ((state.done - 1) % self.chain.calls as usize) as u32;
                if let Some(last) = state.outputs.last() {
                    let mixing = Mixing {
                        element: self.collective.variant.element,
                        seed: self.chain.mix_seed,
                        specials: self.chain.specials,
                    };
                    mixing.buffer(last, rank, call, &mut self.mixed);
                }
                let input = self.collective.map.ranks[rank].map.input;
                if self.collective.variant.protocol == Protocol::Pull {
                    machine.write_between_grids(input, &self.mixed);
                } else {
                    machine.arena.write(input, &self.mixed);
                }
                if !self.chain.in_place {
                    machine.arena.fill(output, bytes, POISON);
                }
                Next::Did
            }
        }
    }
}

/// Runs a chain that [`check`] has let through.
///
/// # Errors
/// What the kernels did or reported; the collective is dead then.
pub(super) fn run(
    collective: &mut Collective,
    chain: &Chain<'_>,
    rng: Rng,
    pace: Pace,
    stacks: &mut Stacks,
) -> Result<Outputs, DeviceError> {
    let ranks = collective.map.ranks.len();
    let bytes = chain.bytes as usize;
    let machine = collective.machine.clone();
    {
        let mut machine = machine.borrow_mut();
        machine.rng = rng;
        collective.map.use_payload(bytes, &mut machine.arena);
        for (r, input) in collective.map.ranks.iter().zip(chain.inputs) {
            machine.arena.fill(r.output, bytes, POISON);
            machine.arena.write(r.map.input, input);
        }
    }
    let params = collective.params(chain.bytes, chain.in_place);
    let total = chain.calls as usize * replays(chain.mode) as usize;
    let state = |_| Rank {
        phase: Phase::Arrive,
        done: 0,
        outputs: Vec::with_capacity(total),
    };
    let mut streams = ChainStreams {
        collective: &*collective,
        chain,
        total,
        ranks: (0..ranks).map(state).collect(),
        mixed: Vec::new(),
    };
    let grid = Grid {
        kernel: collective.kernel,
        params: &params,
        geometry: chain.geometry,
    };
    schedule::drive(&machine, &grid, pace, stacks, &mut streams);
    let mut by_rank = streams
        .ranks
        .into_iter()
        .map(|r| r.outputs.into_iter())
        .collect::<Vec<_>>();
    if let Err(error) = collective.verdict() {
        collective.dead = true;
        return Err(error);
    }
    Ok((0..total)
        .map(|_| by_rank.iter_mut().filter_map(Iterator::next).collect())
        .collect())
}

fn replays(mode: Mode) -> u32 {
    match mode {
        Mode::Eager => 1,
        Mode::Graph { replays } => replays,
    }
}

/// # Errors
/// [`DeviceError::Misuse`] for a chain that cannot be, [`DeviceError::Poisoned`] after an earlier error.
pub(super) fn check(collective: &Collective, chain: &Chain<'_>, max_threads: u32) -> Result<(), DeviceError> {
    let misuse = |reason: String| Err(DeviceError::Misuse { reason });
    let Chain { bytes, geometry, .. } = *chain;
    let (ranks, prepared) = (collective.map.ranks.len(), &collective.preparation);
    if collective.dead {
        return Err(DeviceError::Poisoned);
    }
    whole(bytes, collective.variant.element)?;
    if bytes > prepared.max_bytes {
        return misuse(format!(
            "{bytes} bytes are more than the {} prepared for",
            prepared.max_bytes
        ));
    }
    if chain.calls == 0 || replays(chain.mode) == 0 {
        return misuse("a chain has at least one call and one replay".into());
    }
    if chain.inputs.len() != ranks {
        return misuse(format!("{} inputs for {ranks} ranks", chain.inputs.len()));
    }
    if let Some((rank, input)) = chain.inputs.iter().enumerate().find(|(_, i)| i.len() as u64 != bytes) {
        return misuse(format!(
            "the input of rank {rank} has {} bytes instead of {bytes}",
            input.len()
        ));
    }
    if chain.in_place && !collective.variant.in_place() {
        return misuse(format!(
            "`{}` reads peers' inputs: it cannot run in place",
            collective.variant.name
        ));
    }
    if geometry.threads != prepared.threads {
        return misuse(format!(
            "blocks of {} threads, but prepared for {}",
            geometry.threads, prepared.threads
        ));
    }
    if geometry.blocks == 0 || u64::from(geometry.blocks) * u64::from(geometry.threads) > u64::from(max_threads) {
        return misuse(format!(
            "geometry {geometry}: at least one block, at most {max_threads} threads a rank here"
        ));
    }
    if chain.skew.is_some_and(|(rank, _)| rank >= ranks) {
        return misuse(format!("skew of a rank that is not among {ranks}"));
    }
    Ok(())
}

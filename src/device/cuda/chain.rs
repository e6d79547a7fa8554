//! Chains of dependent calls, eager or captured, and the collection of their outputs.
//!
//! A rank's stream holds for each call: [delay] launch [copy out, if in place] mix. Every call has an output of its own,
//! poisoned before and fenced by guards that are checked after. Start at [`run`].

use super::collective::{Collective, Work};
use super::machine::Machine;
use super::nodes::Mix;
use crate::device::{Chain, DeviceError, Mode, Outputs};
use std::time::Duration;

/// Outputs hold this before a run; as f16 or bf16 a value that no pattern makes, and hardly as f32.
const POISON: u8 = 0xa5;
/// Bytes before and behind every buffer that nobody may write.
const GUARD: u64 = 256;

/// Where the buffers of one rank's arena lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arena {
    bytes: u64,
    /// From one buffer to the next, guards included.
    pitch: u64,
}

impl Arena {
    const fn new(bytes: u64) -> Self {
        Self {
            bytes,
            pitch: bytes.next_multiple_of(256) + 2 * GUARD,
        }
    }

    /// First byte of buffer `index`.
    const fn at(self, index: u64) -> u64 {
        index * self.pitch + GUARD
    }

    /// Buffer `index` out of a downloaded arena.
    ///
    /// # Errors
    /// The offset from the buffer of a guard byte that was written.
    fn take(self, arena: &[u8], index: u64) -> Result<Vec<u8>, i64> {
        let whole = &arena[(index * self.pitch) as usize..((index + 1) * self.pitch) as usize];
        let (start, end) = (GUARD as usize, (GUARD + self.bytes) as usize);
        let written = |(i, b): (usize, &u8)| (*b != POISON && !(start..end).contains(&i)).then_some(i);
        match whole.iter().enumerate().find_map(written) {
            Some(i) => Err(i as i64 - GUARD as i64),
            None => Ok(whole[start..end].to_vec()),
        }
    }
}

/// # Errors
/// [`DeviceError::Misuse`] for a chain that cannot be.
pub(super) fn check(collective: &Collective, chain: &Chain<'_>, ranks: usize) -> Result<(), DeviceError> {
    let misuse = |reason: String| Err(DeviceError::Misuse { reason });
    if chain.calls == 0 || chain.mode == (Mode::Graph { replays: 0 }) {
        return misuse("a chain has at least one call and one replay".to_owned());
    }
    if chain.inputs.len() != ranks {
        return misuse(format!("{} inputs for {ranks} ranks", chain.inputs.len()));
    }
    if let Some((rank, input)) = chain
        .inputs
        .iter()
        .enumerate()
        .find(|(_, i)| i.len() as u64 != chain.bytes)
    {
        return misuse(format!(
            "the input of rank {rank} has {} bytes instead of {}",
            input.len(),
            chain.bytes
        ));
    }
    if chain.skew.is_some_and(|(rank, _)| rank >= ranks) {
        return misuse(format!("skew of a rank that is not among {ranks}"));
    }
    if let Work::Compiled(compiled) = &collective.work
        && chain.in_place
        && !compiled.variant.in_place()
    {
        return misuse(format!(
            "`{}` reads peers' inputs: it cannot run in place",
            compiled.variant.name
        ));
    }
    Ok(())
}

/// Runs a chain that [`check`] has let through, with nothing else in flight.
///
/// # Errors
/// What the kernels reported or the driver refused; the collective is dead then.
pub(super) fn run(machine: &mut Machine, collective: &Collective, chain: &Chain<'_>) -> Result<Outputs, DeviceError> {
    let arena = Arena::new(chain.bytes);
    let calls = u64::from(chain.calls);
    machine.reserve(arena.pitch, calls * arena.pitch)?;
    let machine = &*machine;
    for (rank, input) in machine.ranks.iter().zip(chain.inputs.iter().skip(machine.first)) {
        rank.stream.fill(rank.input.address(), POISON, arena.pitch)?;
        rank.stream.upload(rank.input.address() + arena.at(0), input)?;
    }
    let allowed = allowed(chain);
    let mut outputs = Vec::new();
    match chain.mode {
        Mode::Eager => {
            poison(machine, arena, calls)?;
            let enqueued = enqueue(machine, &collective.work, chain, arena);
            // Also after a failure: what was launched must end before anything else happens.
            let settled = machine.settle(allowed);
            collective.work.verdict(machine)?;
            enqueued?;
            settled?;
            collect(machine, arena, calls, &mut outputs)?;
        }
        Mode::Graph { replays } => {
            let graphs = machine.capture(|| enqueue(machine, &collective.work, chain, arena))?;
            for _ in 0..replays {
                poison(machine, arena, calls)?;
                let launched = machine.start(&graphs);
                let settled = machine.settle(allowed);
                if machine.wedged() {
                    // Destroying them would wait for a kernel that never ends.
                    std::mem::forget(graphs);
                    collective.work.verdict(machine)?;
                    return settled.map(|()| outputs);
                }
                collective.work.verdict(machine)?;
                launched?;
                settled?;
                collect(machine, arena, calls, &mut outputs)?;
            }
        }
    }
    Ok(outputs)
}

/// Time that a healthy chain may take besides waits.
fn allowed(chain: &Chain<'_>) -> Duration {
    let held = chain
        .skew
        .map_or(0, |(_, ns)| ns)
        .saturating_mul(2 * u64::from(chain.calls));
    Duration::from_nanos(held) + Duration::from_millis(10) * chain.calls
}

/// Before any rank starts: a peer that is early finds nothing half done.
fn poison(machine: &Machine, arena: Arena, calls: u64) -> Result<(), DeviceError> {
    for rank in &machine.ranks {
        rank.stream.fill(rank.output.address(), POISON, calls * arena.pitch)?;
    }
    let done = machine.synchronise();
    machine.agree("poisoned outputs", done.map(|()| Vec::new())).map(|_| ())
}

/// The operations of a chain, call by call across ranks: no rank is ever a whole call ahead in launches, so a full launch
/// queue cannot keep a peer's kernel from being launched.
fn enqueue(machine: &Machine, work: &Work, chain: &Chain<'_>, arena: Arena) -> Result<(), DeviceError> {
    let bytes = chain.bytes;
    for call in 0..chain.calls {
        if let Some((late, ns)) = chain.skew {
            machine.delay(late, ns)?;
        }
        let at = arena.at(u64::from(call));
        let buffer_of = |rank: usize| {
            let (input, output) = machine.buffers(rank);
            let input = input + arena.at(0);
            (input, if chain.in_place { input } else { output + at })
        };
        let buffers: Vec<(u64, u64)> = (0..machine.world()).map(buffer_of).collect();
        work.enqueue(machine, chain.geometry, bytes, &buffers)?;
        let mix = Mix {
            element: work.element(),
            bytes,
            call,
            seed: chain.mix_seed,
            specials: chain.specials,
            launch: chain.geometry.launch,
        };
        for (r, rank) in machine.ranks.iter().enumerate() {
            let (input, kept) = (buffers[machine.first + r].0, rank.output.address() + at);
            if chain.in_place {
                rank.stream.copy(kept, input, bytes)?;
            }
            machine.mix(r, &mix, input, kept)?;
        }
    }
    Ok(())
}

fn collect(machine: &Machine, arena: Arena, calls: u64, outputs: &mut Outputs) -> Result<(), DeviceError> {
    let broken = |rank: usize, what: &str, at: i64| DeviceError::KernelFault {
        reason: format!(
            "rank {rank}: a kernel wrote outside of its {what}, at byte {at} of {}",
            arena.bytes
        ),
    };
    let mut bytes = vec![0; (calls * arena.pitch) as usize];
    // By rank, call after call.
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for (here, rank) in machine.ranks.iter().enumerate() {
        let r = machine.first + here;
        rank.stream.download(rank.output.address(), &mut bytes)?;
        let mut own = Vec::with_capacity((calls * arena.bytes) as usize);
        for call in 0..calls {
            own.extend(arena.take(&bytes, call).map_err(|at| broken(r, "output", at))?);
        }
        kept.push(own);
        let input = &mut bytes[..arena.pitch as usize];
        rank.stream.download(rank.input.address(), input)?;
        arena.take(input, 0).map_err(|at| broken(r, "input", at))?;
    }
    if machine.is_joint() {
        let own = kept.pop().unwrap_or_default();
        kept = machine.agree("outputs", Ok(own))?;
    }
    let size = arena.bytes as usize;
    for call in 0..calls as usize {
        let of_rank = |all: &Vec<u8>| all.get(call * size..(call + 1) * size).map(<[u8]>::to_vec);
        let call: Option<Vec<_>> = kept.iter().map(of_rank).collect();
        outputs.push(call.ok_or(DeviceError::Poisoned)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_fenced() {
        for bytes in [2, 254, 256, 258, 4096] {
            let arena = Arena::new(bytes);
            for index in 0..3 {
                assert_eq!(arena.at(index) % 16, 0);
                assert!(arena.at(index) >= index * arena.pitch + GUARD);
                assert!(arena.at(index) + bytes + GUARD <= (index + 1) * arena.pitch);
            }
        }
    }

    #[test]
    fn a_byte_written_before_or_behind_a_buffer_is_found() {
        let arena = Arena::new(10);
        let mut bytes = vec![POISON; 2 * arena.pitch as usize];
        bytes[arena.at(1) as usize..][..10].fill(7);
        assert_eq!(arena.take(&bytes, 1), Ok(vec![7; 10]));
        for offset in [-1, 10, 265] {
            let mut bytes = bytes.clone();
            bytes[(arena.at(1) as i64 + offset) as usize] = 0;
            assert_eq!(arena.take(&bytes, 1), Err(offset));
            assert_eq!(arena.take(&bytes, 0), Ok(vec![POISON; 10]));
        }
    }
}

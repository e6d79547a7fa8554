//! A soak on GPUs: between two calls a node checks every word of the one and makes the inputs of the next.
//!
//! Inputs are a function of seed, rank, call and element, so each rank computes the declared sum by itself; the host only
//! reads counters, once in some thousand calls. The nodes are `tf_soak_*` in kernels/tools.cu, one an element type. Start at [`run`].

use super::collective::Work;
use super::machine::Machine;
use crate::device::soak::{Soak, Tally, WrongWord};
use crate::device::{DeviceError, Geometry, Launch};
use crate::driver::graph::GraphExec;
use crate::driver::launch;
use crate::driver::memory::DeviceBuffer;
use crate::registry::Partials;
use std::time::Duration;

/// Calls of one graph, so that replaying costs the host next to nothing.
const GRAPH_CALLS: u64 = 256;
/// Replays enqueued before the host looks at counters.
const REPLAYS: u64 = 16;
/// Mirrors `TfSoak`.
const STATE_BYTES: u64 = 64;

/// A rank's counters and its declared expressions.
struct Checker {
    state: DeviceBuffer,
    programs: DeviceBuffer,
    starts: DeviceBuffer,
    chunks: u64,
}

/// Runs a soak that has been let through, with nothing else in flight. Ends early, with what it has, once words are wrong.
pub(super) fn run(
    machine: &mut Machine,
    work: &Work,
    soak: &Soak<'_>,
    progress: &mut dyn FnMut(&Tally),
) -> Result<Tally, DeviceError> {
    let misuse = |reason: &str| DeviceError::Misuse {
        reason: reason.to_owned(),
    };
    let largest = soak.shapes.iter().map(|(bytes, _)| *bytes).max();
    let largest = largest.ok_or_else(|| misuse("a soak has at least one payload"))?;
    if soak.calls == 0 || soak.programs.len() != machine.ranks.len() {
        return Err(misuse("a soak has at least one call and a list of expressions a rank"));
    }
    let room = largest.next_multiple_of(16);
    machine.reserve(room, room)?;
    let checkers = checkers(machine, soak)?;
    // The inputs of the first call.
    for (r, checker) in checkers.iter().enumerate() {
        node(machine, checker, r, soak, (None, Some(0)))?;
    }
    machine.settle(Duration::from_secs(5))?;
    let calls = soak.calls.min(GRAPH_CALLS);
    let graphs = machine.capture_with(|m| enqueue(m, work, &checkers, soak, calls))?;
    let outcome = replay(
        machine,
        work,
        &checkers,
        &graphs,
        soak.calls.div_ceil(calls),
        calls,
        progress,
    );
    if machine.wedged() {
        // Freeing would wait for a kernel that never ends.
        std::mem::forget((graphs, checkers));
    }
    outcome
}

fn replay(
    machine: &Machine,
    work: &Work,
    checkers: &[Checker],
    graphs: &[GraphExec],
    replays: u64,
    calls: u64,
    progress: &mut dyn FnMut(&Tally),
) -> Result<Tally, DeviceError> {
    let mut done = 0;
    loop {
        let now = REPLAYS.min(replays - done);
        let started = (0..now).try_for_each(|_| machine.start(graphs));
        let settled = machine.settle(Duration::from_millis(10) * u32::try_from(now * calls).unwrap_or(u32::MAX));
        work.verdict(machine)?;
        started?;
        settled?;
        done += now;
        let tally = tally(machine, checkers, done * calls)?;
        progress(&tally);
        if tally.wrong > 0 || done == replays {
            return Ok(tally);
        }
    }
}

fn checkers(machine: &Machine, soak: &Soak<'_>) -> Result<Vec<Checker>, DeviceError> {
    let mut all = Vec::new();
    for (r, chunks) in soak.programs.iter().enumerate() {
        let mut programs = Vec::new();
        let mut starts = Vec::new();
        for program in chunks {
            starts.extend((programs.len() as u32).to_le_bytes());
            programs.extend_from_slice(program);
        }
        let (context, stream) = (machine.context(r), &machine.ranks[r].stream);
        let checker = Checker {
            state: DeviceBuffer::new(context, STATE_BYTES)?,
            programs: DeviceBuffer::new(context, programs.len() as u64)?,
            starts: DeviceBuffer::new(context, starts.len() as u64)?,
            chunks: chunks.len().max(1) as u64,
        };
        stream.upload(checker.state.address(), &[0; STATE_BYTES as usize])?;
        stream.upload(checker.programs.address(), &programs)?;
        stream.upload(checker.starts.address(), &starts)?;
        all.push(checker);
    }
    machine.synchronise()?;
    Ok(all)
}

/// `(checked, made)` are indices into the shapes: the call that has ended and the one to come.
fn node(
    machine: &Machine,
    checker: &Checker,
    rank: usize,
    soak: &Soak<'_>,
    (checked, made): (Option<usize>, Option<usize>),
) -> Result<(), DeviceError> {
    let bytes = |shape: Option<usize>| shape.map_or(0, |s| soak.shapes[s % soak.shapes.len()].0);
    let (checked, made) = (bytes(checked), bytes(made));
    let at = &machine.ranks[rank];
    let launch = soak.shapes[0].1.launch;
    let size = soak.element.bytes() as u64;
    let blocks = (checked.max(made) / size).div_ceil(256).clamp(1, 64);
    // A chunk is a whole number of 16-byte vectors.
    let chunk = 16 / size * checked.div_ceil(16).div_ceil(checker.chunks).max(1);
    let values = [
        at.output.address(),
        checked / size,
        at.input.address(),
        made / size,
        rank as u64,
        checker.state.address(),
        u64::from(soak.seed),
        checker.programs.address(),
        checker.starts.address(),
        chunk,
        u64::from(soak.partials == Partials::Element),
        u64::from(launch == Launch::Early),
    ];
    let geometry = Geometry::new(blocks as u32, 256).launched(launch);
    Ok(launch::values(
        &at.stream,
        machine.gpus[at.gpu].tools.soak(soak.element),
        geometry,
        &values,
    )?)
}

/// Call by call across ranks, as chains are.
fn enqueue(
    machine: &Machine,
    work: &Work,
    checkers: &[Checker],
    soak: &Soak<'_>,
    calls: u64,
) -> Result<(), DeviceError> {
    let buffers: Vec<_> = (machine.ranks.iter())
        .map(|r| (r.input.address(), r.output.address()))
        .collect();
    for call in 0..calls as usize {
        let (bytes, geometry) = soak.shapes[call % soak.shapes.len()];
        work.enqueue(machine, geometry, bytes, &buffers)?;
        // A replay begins with the first shape again.
        let next = if call + 1 == calls as usize { 0 } else { call + 1 };
        for (r, checker) in checkers.iter().enumerate() {
            node(machine, checker, r, soak, (Some(call), Some(next)))?;
        }
    }
    Ok(())
}

fn tally(machine: &Machine, checkers: &[Checker], calls: u64) -> Result<Tally, DeviceError> {
    let mut all = Tally {
        calls,
        ..Tally::default()
    };
    for (rank, checker) in checkers.iter().enumerate() {
        let mut state = [0; STATE_BYTES as usize];
        machine.ranks[rank]
            .stream
            .download(checker.state.address(), &mut state)?;
        let one = read(rank, &state);
        // Every rank counts its calls by itself: a node that did not run would check nothing.
        if one.calls != calls {
            let reason = format!("rank {rank} checked {} calls of {calls}", one.calls);
            return Err(DeviceError::KernelFault { reason });
        }
        all.words += one.words;
        all.wrong += one.wrong;
        all.first = all.first.or(one.first);
    }
    Ok(all)
}

/// A `TfSoak` as it lies in memory.
fn read(rank: usize, state: &[u8; STATE_BYTES as usize]) -> Tally {
    let word = |at: usize| u32::from_le_bytes([state[at], state[at + 1], state[at + 2], state[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let first = WrongWord {
        rank,
        call: long(32),
        element: word(40),
        expected: word(44),
        got: word(48),
    };
    Tally {
        calls: long(0),
        wrong: long(8),
        words: long(16),
        first: (word(28) != 0).then_some(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_the_kernel_writes_it() {
        let mut state = [0_u8; STATE_BYTES as usize];
        let mut put = |at: usize, value: u64, bytes: usize| {
            state[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        };
        // In the order of TfSoak in kernels/tools.cu.
        put(0, 5_000_000_000, 8);
        put(8, 3, 8);
        put(16, 9_000_000_000, 8);
        put(28, 1, 4);
        put(32, 4_999_999_999, 8);
        put(40, 77, 4);
        put(44, 0x3c00, 4);
        put(48, 0x3c01, 4);
        let first = WrongWord {
            rank: 1,
            call: 4_999_999_999,
            element: 77,
            expected: 0x3c00,
            got: 0x3c01,
        };
        assert_eq!(
            read(1, &state),
            Tally {
                calls: 5_000_000_000,
                words: 9_000_000_000,
                wrong: 3,
                first: Some(first)
            }
        );
        assert_eq!(read(0, &[0; 64]).first, None);
    }
}

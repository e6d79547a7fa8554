//! Measures the floor of a machine on ranks 0 and 1. See [`crate::device::floor`] for what it means.
//!
//! Graphs of dependent nodes, as collectives are timed; nothing else is in flight. Start at [`measure`].

use super::machine::Machine;
use crate::device::floor::{Copy, Floor};
use crate::device::{DeviceError, Geometry, Launch, Sampling};
use crate::driver::graph::GraphExec;
use crate::driver::launch;
use crate::driver::module::Function;
use std::time::Duration;

/// Round trips of one latency sample.
const ROUNDS: u32 = 2000;
/// Bytes of one bandwidth sample.
pub(super) const BULK: u64 = 64 << 20;
const SECOND: u64 = 1_000_000_000;

pub(super) fn measure(
    machine: &mut Machine,
    payloads: &[u64],
    launches: &[Launch],
    sampling: &Sampling,
) -> Result<Floor, DeviceError> {
    if machine.ranks.len() < 2 {
        let reason = "a floor is measured between two ranks: give two devices".to_owned();
        return Err(DeviceError::Misuse { reason });
    }
    machine.connect(0, 1)?;
    machine.connect(1, 0)?;
    machine.reserve(BULK, BULK)?;
    let mut nodes = Vec::new();
    let mut copies = Vec::new();
    for &launch in launches {
        let one = Geometry::new(1, 32).launched(launch);
        let us = nodes_us(machine, sampling, |m, r, _| {
            let rank = &m.ranks[r];
            values(m, r, &m.gpus[rank.gpu].tools.nop, one, &[])
        })?;
        nodes.push((launch, us));
        for &bytes in payloads {
            copies.push(Copy {
                bytes,
                launch,
                us: copy_us(machine, sampling, bytes, launch)?,
            });
        }
    }
    Ok(Floor {
        nodes,
        copies,
        wire_us: wire_us(machine, sampling, 0, 1)?,
        gb_per_s: bandwidth(machine, sampling)?,
    })
}

fn values(
    machine: &Machine,
    rank: usize,
    function: &Function,
    geometry: Geometry,
    list: &[u64],
) -> Result<(), DeviceError> {
    let mut list = list.to_vec();
    list.push(u64::from(geometry.launch == Launch::Early));
    Ok(launch::values(&machine.ranks[rank].stream, function, geometry, &list)?)
}

/// The best geometry of one vector a thread.
fn copy_us(machine: &mut Machine, sampling: &Sampling, bytes: u64, launch: Launch) -> Result<f64, DeviceError> {
    let vectors = bytes.div_ceil(16);
    let mut best = f64::INFINITY;
    for threads in crate::tune::geometry::THREADS {
        if threads > 32 && u64::from(threads) >= 2 * vectors {
            continue;
        }
        let blocks = u32::try_from(vectors.div_ceil(u64::from(threads))).unwrap_or(u32::MAX);
        let geometry = Geometry::new(blocks, threads).launched(launch);
        let us = nodes_us(machine, sampling, |m, r, call| {
            let rank = &m.ranks[r];
            let (x, y) = (rank.input.address(), rank.output.address());
            let (from, to) = if call % 2 == 0 { (x, y) } else { (y, x) };
            values(m, r, &m.gpus[rank.gpu].tools.copy, geometry, &[from, to, vectors])
        })?;
        best = best.min(us);
    }
    Ok(best)
}

/// Two ranks play with one word in each one's own memory.
pub(super) fn wire_us(machine: &mut Machine, sampling: &Sampling, a: usize, b: usize) -> Result<f64, DeviceError> {
    let word = |r: usize| machine.ranks[r].input.address();
    let words = [(a, word(a), word(b)), (b, word(b), word(a))];
    let graphs = machine.capture_with(|m| {
        for (r, mine, theirs) in words {
            let rank = &m.ranks[r];
            rank.stream.fill(rank.input.address(), 0, 256)?;
            // Nobody starts before both words are zero.
            m.delay(r, 20_000)?;
            let arguments = [mine, theirs, u64::from(ROUNDS), u64::from(r == a), SECOND];
            launch::values(
                &rank.stream,
                &m.gpus[rank.gpu].tools.ping,
                Geometry::new(1, 1),
                &arguments,
            )?;
        }
        Ok(())
    })?;
    let total = median(machine, &graphs, sampling)?;
    Ok((total - 20.0).max(0.0) / f64::from(2 * ROUNDS))
}

/// Rank 0 stores a large buffer into rank 1's memory.
fn bandwidth(machine: &mut Machine, sampling: &Sampling) -> Result<f64, DeviceError> {
    let graphs = machine.capture_with(|m| {
        let (rank, to) = (&m.ranks[0], m.ranks[1].output.address());
        let blocks = m.gpus[rank.gpu].multiprocessors * 4;
        for _ in 0..4 {
            let arguments = [rank.input.address(), to, BULK / 16];
            values(
                m,
                0,
                &m.gpus[rank.gpu].tools.copy,
                Geometry::new(blocks, 512),
                &arguments,
            )?;
        }
        Ok(())
    })?;
    let us = median(machine, &graphs, sampling)?;
    Ok(4.0 * BULK as f64 / (us * 1e3))
}

/// Microseconds a node: `enqueue(machine, rank, call)` on every rank.
fn nodes_us(
    machine: &mut Machine,
    sampling: &Sampling,
    enqueue: impl Fn(&Machine, usize, u32) -> Result<(), DeviceError>,
) -> Result<f64, DeviceError> {
    let graphs = machine.capture_with(|m| {
        for r in 0..m.ranks.len() {
            (0..sampling.calls).try_for_each(|call| enqueue(m, r, call))?;
        }
        Ok(())
    })?;
    Ok(median(machine, &graphs, sampling)? / f64::from(sampling.calls))
}

/// Microseconds of the slowest rank.
pub(super) fn median(machine: &mut Machine, graphs: &[GraphExec], sampling: &Sampling) -> Result<f64, DeviceError> {
    let mut times = Vec::new();
    for sample in 0..sampling.warmups.max(1) + sampling.samples {
        // The first time without a gate, as in `timing`.
        let started = if sample == 0 {
            machine.start(graphs)
        } else {
            machine.start_together(graphs)
        };
        let settled = machine.settle(Duration::from_secs(10));
        started?;
        settled?;
        if sample >= sampling.warmups.max(1) {
            let mut slowest = 0.0_f64;
            for rank in &machine.ranks {
                slowest = slowest.max(rank.start.microseconds_to(&rank.end)?);
            }
            times.push(slowest);
        }
    }
    crate::tune::select::median(&times).ok_or_else(|| DeviceError::Misuse {
        reason: "a timing has at least one sample".to_owned(),
    })
}

//! Measures the floor of a machine on ranks 0 and 1. See [`crate::device::floor`] for what it means.
//!
//! Graphs of dependent nodes, as collectives are timed; nothing else is in flight. Copy nodes of all payloads, geometries
//! and launch modes take turns, and all of them are captured several times over, so that neither clocks nor a graph that
//! came out badly make a payload look slow. Start at [`measure`].

use super::host_way;
use super::machine::Machine;
use crate::device::floor::{Copy, Floor, Wire};
use crate::device::{DeviceError, Geometry, Launch, Sampling};
use crate::driver::graph::GraphExec;
use crate::driver::launch;
use crate::driver::module::Function;
use std::time::Duration;

/// Round trips of one latency sample.
pub(super) const ROUNDS: u32 = 2000;
/// Bytes of one bandwidth sample.
pub(super) const BULK: u64 = 64 << 20;
pub(super) const SECOND: u64 = 1_000_000_000;
/// How long a rank waits after it has cleared its word.
const BOTH_ARE_ZERO_US: u64 = 30;
/// How often every node is captured anew.
const PASSES: usize = 3;

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
    let staged = machine.options.staged;
    machine.reserve(BULK, BULK)?;
    let (nodes, copies) = nodes(machine, payloads, launches, sampling)?;
    let wires = if staged { Vec::new() } else { wires(machine, sampling)? };
    let host = host_way::measure(machine, sampling);
    let (wire_us, gb_per_s) = if staged {
        let host = host.as_ref().map_err(Clone::clone)?;
        let loads = host.loads.iter().map(|(_, alone, _)| *alone);
        // The best way to issue loads, unless stores are what limits.
        let loads = loads.fold(0.0, f64::max);
        (host.word_us().unwrap_or(f64::NAN), loads.min(host.store_gb_per_s))
    } else {
        (wire_us(machine, sampling, 0, 1)?, bandwidth(machine, sampling)?)
    };
    Ok(Floor {
        nodes,
        copies,
        staged,
        wire_us,
        gb_per_s,
        wires,
        host: host.ok(),
    })
}

/// A node that is measured: a payload and its geometry, or none for an empty one.
#[derive(Clone, Copy)]
struct Node {
    bytes: u64,
    geometry: Geometry,
}

type Nodes = (Vec<(Launch, f64)>, Vec<Copy>);

fn nodes(
    machine: &mut Machine,
    payloads: &[u64],
    launches: &[Launch],
    sampling: &Sampling,
) -> Result<Nodes, DeviceError> {
    let mut all = Vec::new();
    for &launch in launches {
        let empty = Geometry::new(1, 32).launched(launch);
        all.push(Node {
            bytes: 0,
            geometry: empty,
        });
        for &bytes in payloads {
            let shapes = shapes(bytes).into_iter();
            all.extend(shapes.map(|g| Node {
                bytes,
                geometry: g.launched(launch),
            }));
        }
    }
    let short = Sampling {
        warmups: 1,
        samples: sampling.samples.div_ceil(PASSES as u32).max(3),
        ..*sampling
    };
    let mut figures: Vec<Vec<f64>> = vec![Vec::new(); all.len()];
    for _ in 0..PASSES {
        for (passes, us) in figures.iter_mut().zip(pass(machine, &all, &short)?) {
            passes.push(us);
        }
    }
    let best = |i: usize| figures[i].iter().copied().fold(f64::INFINITY, f64::min);
    let worst = |i: usize| figures[i].iter().copied().fold(0.0, f64::max);
    let (mut empties, mut copies) = (Vec::new(), Vec::new());
    for &launch in launches {
        let of = |bytes: u64| {
            let mine = all.iter().enumerate();
            let mine = mine.filter(move |(_, n)| n.bytes == bytes && n.geometry.launch == launch);
            mine.map(|(i, n)| (i, n.geometry))
                .min_by(|a, b| best(a.0).total_cmp(&best(b.0)))
        };
        empties.extend(of(0).map(|(i, _)| (launch, best(i))));
        copies.extend(payloads.iter().filter_map(|&bytes| {
            let (i, geometry) = of(bytes)?;
            Some(Copy {
                bytes,
                geometry,
                us: best(i),
                worst_us: worst(i),
            })
        }));
    }
    Ok((empties, copies))
}

/// One vector a thread, in blocks of every size.
fn shapes(bytes: u64) -> Vec<Geometry> {
    let vectors = bytes.div_ceil(16);
    let threads = crate::tune::geometry::THREADS.into_iter();
    let useful = threads.filter(|t| *t == 32 || u64::from(*t) < 2 * vectors);
    let blocks = |t: u32| u32::try_from(vectors.div_ceil(u64::from(t))).unwrap_or(u32::MAX);
    useful.map(|t| Geometry::new(blocks(t), t)).collect()
}

/// Captures all nodes anew and samples them in turns: medians, microseconds a node, of the slowest rank.
fn pass(machine: &mut Machine, all: &[Node], sampling: &Sampling) -> Result<Vec<f64>, DeviceError> {
    let mut graphs = Vec::new();
    for node in all {
        graphs.push(machine.capture_with(|m| {
            for r in 0..m.ranks.len() {
                (0..sampling.calls).try_for_each(|call| enqueue(m, r, call, *node))?;
            }
            Ok(())
        })?);
    }
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); all.len()];
    for round in 0..=sampling.warmups + sampling.samples {
        for (times, graphs) in times.iter_mut().zip(&graphs) {
            // The first time without a gate, as in `timing`.
            let us = once(machine, graphs, round > 0)?;
            if round > sampling.warmups {
                times.push(us / f64::from(sampling.calls));
            }
        }
    }
    times.iter().map(|t| middle(t)).collect()
}

fn enqueue(machine: &Machine, rank: usize, call: u32, node: Node) -> Result<(), DeviceError> {
    let at = &machine.ranks[rank];
    let tools = &machine.gpus[at.gpu].tools;
    if node.bytes == 0 {
        return values(machine, rank, &tools.nop, node.geometry, &[]);
    }
    let (x, y) = (at.input.address(), at.output.address());
    let (from, to) = if call.is_multiple_of(2) { (x, y) } else { (y, x) };
    values(
        machine,
        rank,
        &tools.copy,
        node.geometry,
        &[from, to, node.bytes.div_ceil(16)],
    )
}

pub(super) fn values(
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

/// A word over every pair of ranks that the driver lets meet.
fn wires(machine: &mut Machine, sampling: &Sampling) -> Result<Vec<Wire>, DeviceError> {
    machine.connect(0, 1)?;
    machine.connect(1, 0)?;
    let mut wires = Vec::new();
    for from in 0..machine.ranks.len() {
        for to in from + 1..machine.ranks.len() {
            if machine.connect(from, to).is_ok() && machine.connect(to, from).is_ok() {
                let us = wire_us(machine, sampling, from, to)?;
                wires.push(Wire { from, to, us });
            }
        }
    }
    Ok(wires)
}

/// Two ranks play with one word in each one's own memory.
pub(super) fn wire_us(machine: &mut Machine, sampling: &Sampling, a: usize, b: usize) -> Result<f64, DeviceError> {
    let word = |r: usize| machine.ranks[r].input.address();
    let sides = [(a, word(a), word(b)), (b, word(b), word(a))];
    ping_us(machine, sampling, sides, None)
}

/// Two ranks play with a word each: which rank, the word that it polls, the word that it writes. The first one begins.
/// Microseconds one way. `gap` are the clocks between two polls in flight, for words that are far away.
pub(super) fn ping_us(
    machine: &mut Machine,
    sampling: &Sampling,
    sides: [(usize, u64, u64); 2],
    gap: Option<u32>,
) -> Result<f64, DeviceError> {
    let graphs = machine.capture_with(|m| {
        for (turn, (r, mine, theirs)) in sides.into_iter().enumerate() {
            let rank = &m.ranks[r];
            let tools = &m.gpus[rank.gpu].tools;
            let zero = rank.input.address();
            rank.stream.fill(zero, 0, 256)?;
            if mine != zero {
                // By a kernel: a captured fill is for device memory.
                values(m, r, &tools.copy, Geometry::new(1, 32), &[zero, mine, 1])?;
            }
            // Nobody starts before both words are zero.
            m.delay(r, BOTH_ARE_ZERO_US * 1000)?;
            let mut arguments = vec![mine, theirs, u64::from(ROUNDS), u64::from(turn == 0), SECOND];
            arguments.extend(gap.map(u64::from));
            let kernel = if gap.is_some() { &tools.ping_far } else { &tools.ping };
            launch::values(&rank.stream, kernel, Geometry::new(1, 1), &arguments)?;
        }
        Ok(())
    })?;
    let total = median(machine, &graphs, sampling)?;
    Ok((total - BOTH_ARE_ZERO_US as f64).max(0.0) / f64::from(2 * ROUNDS))
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

/// One run of a graph a rank: microseconds of the slowest.
fn once(machine: &mut Machine, graphs: &[GraphExec], together: bool) -> Result<f64, DeviceError> {
    let started = if together {
        machine.start_together(graphs)
    } else {
        machine.start(graphs)
    };
    let settled = machine.settle(Duration::from_secs(10));
    started?;
    settled?;
    let mut slowest = 0.0_f64;
    if together {
        for rank in &machine.ranks {
            slowest = slowest.max(rank.start.microseconds_to(&rank.end)?);
        }
    }
    Ok(slowest)
}

/// Microseconds of the slowest rank.
pub(super) fn median(machine: &mut Machine, graphs: &[GraphExec], sampling: &Sampling) -> Result<f64, DeviceError> {
    let mut times = Vec::new();
    for sample in 0..sampling.warmups.max(1) + sampling.samples {
        // The first time without a gate, as in `timing`.
        let us = once(machine, graphs, sample > 0)?;
        if sample >= sampling.warmups.max(1) {
            times.push(us);
        }
    }
    middle(&times)
}

fn middle(times: &[f64]) -> Result<f64, DeviceError> {
    crate::tune::select::median(times).ok_or_else(|| DeviceError::Misuse {
        reason: "a timing has at least one sample".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_tried_with_one_vector_a_thread_in_every_block_size_that_is_not_idle() {
        let names = |bytes| shapes(bytes).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(1 << 10), ["2x32", "1x64"]);
        assert_eq!(names(5 << 10), ["10x32", "5x64", "3x128", "2x256", "1x512"]);
        assert_eq!(names(2), ["1x32"]);
    }
}

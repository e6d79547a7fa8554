//! Measures every directed edge between ranks: latency and rate of stores and loads, alone and to all peers at once.
//!
//! One edge at a time, nothing else in flight; edges without peer access are left out. Start at [`measure`].

use super::floor::{BULK, median, wire_us};
use super::machine::Machine;
use crate::device::edges::{EdgeFigures, FanOut, Measured};
use crate::device::{DeviceError, Geometry, Sampling};
use crate::driver::launch;

const LOADS: u32 = 2000;
const FAN: usize = 8;

pub(super) fn measure(machine: &mut Machine, sampling: &Sampling) -> Result<Measured, DeviceError> {
    let ranks = machine.ranks.len();
    machine.reserve(BULK, BULK)?;
    let mut measured = Measured::default();
    for from in 0..ranks {
        let mut peers = Vec::new();
        for to in (0..ranks).filter(|to| *to != from) {
            // Latency takes both directions; an edge that the driver refuses is no edge.
            if machine.connect(from, to).is_err() || machine.connect(to, from).is_err() {
                continue;
            }
            peers.push(to);
            measured.edges.push(EdgeFigures {
                from,
                to,
                write_ns: 1e3 * wire_us(machine, sampling, from, to)?,
                read_ns: read_ns(machine, sampling, from, to)?,
                write_gb_per_s: rate(machine, sampling, from, |m| {
                    (m.ranks[from].input.address(), m.ranks[to].output.address())
                })?,
                read_gb_per_s: rate(machine, sampling, from, |m| {
                    (m.ranks[to].input.address(), m.ranks[from].output.address())
                })?,
            });
        }
        peers.truncate(FAN);
        if !peers.is_empty() {
            let gb_per_s = fan_out(machine, sampling, from, &peers)?;
            measured.fan_out.push(FanOut {
                from,
                peers: peers.len(),
                gb_per_s,
            });
        }
    }
    Ok(measured)
}

fn read_ns(machine: &mut Machine, sampling: &Sampling, from: usize, to: usize) -> Result<f64, DeviceError> {
    machine.ranks[to]
        .stream
        .fill(machine.ranks[to].input.address(), 0, 256)?;
    machine.synchronise()?;
    let graphs = machine.capture_with(|m| {
        let rank = &m.ranks[from];
        let arguments = [m.ranks[to].input.address(), u64::from(LOADS), rank.output.address()];
        launch::values(
            &rank.stream,
            &m.gpus[rank.gpu].tools.chase,
            Geometry::new(1, 1),
            &arguments,
        )?;
        Ok(())
    })?;
    Ok(1e3 * median(machine, &graphs, sampling)? / f64::from(LOADS))
}

/// `ends(machine)` is (source, destination) of a bulk copy by `by`.
fn rate(
    machine: &mut Machine,
    sampling: &Sampling,
    by: usize,
    ends: impl Fn(&Machine) -> (u64, u64),
) -> Result<f64, DeviceError> {
    let graphs = machine.capture_with(|m| {
        let (rank, (source, destination)) = (&m.ranks[by], ends(m));
        let geometry = Geometry::new(m.gpus[rank.gpu].multiprocessors * 4, 512);
        for _ in 0..4 {
            let arguments = [source, destination, BULK / 16, 0];
            launch::values(&rank.stream, &m.gpus[rank.gpu].tools.copy, geometry, &arguments)?;
        }
        Ok(())
    })?;
    Ok(4.0 * BULK as f64 / (median(machine, &graphs, sampling)? * 1e3))
}

fn fan_out(machine: &mut Machine, sampling: &Sampling, from: usize, peers: &[usize]) -> Result<f64, DeviceError> {
    let graphs = machine.capture_with(|m| {
        let rank = &m.ranks[from];
        let mut arguments = vec![rank.input.address(), BULK / 16, peers.len() as u64];
        arguments.extend((0..FAN).map(|k| peers.get(k).map_or(0, |p| m.ranks[*p].output.address())));
        let blocks = m.gpus[rank.gpu].multiprocessors * 4 / peers.len() as u32 * peers.len() as u32;
        launch::values(
            &rank.stream,
            &m.gpus[rank.gpu].tools.fan,
            Geometry::new(blocks, 512),
            &arguments,
        )?;
        Ok(())
    })?;
    let bytes = BULK as f64 * peers.len() as f64;
    Ok(bytes / (median(machine, &graphs, sampling)? * 1e3))
}

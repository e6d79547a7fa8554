//! Samples: graphs of dependent calls between two buffers, all ranks released at once, the slowest rank's time.
//!
//! Every graph is instantiated and uploaded before the first sample, and samples of all candidates take turns, so that
//! clocks and temperature favour nobody. Inputs are zeros, which sums keep finite. Start at [`time`].

use super::collective::Work;
use super::load::Load;
use super::machine::Machine;
use crate::device::{DeviceError, Prepared, Sampling, Timed};
use crate::driver::graph::GraphExec;
use std::time::Duration;

/// An error and the collective that died of it, if one did.
type Death = (Option<Prepared>, DeviceError);

/// Microseconds a call, `times[candidate][rank]`, of all processes' ranks. Nothing else is in flight but `load`, which
/// works during samples only.
pub(super) fn time(
    machine: &mut Machine,
    candidates: &[(Timed, &Work)],
    sampling: &Sampling,
    load: Option<&Load>,
) -> Result<Vec<Vec<Vec<f64>>>, Death> {
    let blameless = |e: DeviceError| (None, e);
    if sampling.calls == 0 || sampling.samples == 0 {
        let reason = "a sample has at least one call, a timing at least one sample".to_owned();
        return Err((None, DeviceError::Misuse { reason }));
    }
    let bytes = candidates
        .iter()
        .map(|(t, _)| t.bytes)
        .max()
        .unwrap_or(0)
        .next_multiple_of(16);
    machine.reserve(bytes, bytes).map_err(blameless)?;
    zero(machine, bytes).map_err(blameless)?;
    let mut graphs = Vec::new();
    for (timed, work) in candidates {
        let graph = machine.capture(|| enqueue(machine, work, timed, sampling.calls));
        graphs.push(graph.map_err(blameless)?);
    }
    machine.agree("graphs", Ok(Vec::new())).map_err(blameless)?;
    match samples(machine, candidates, &graphs, sampling, load) {
        Ok(times) => Ok(times),
        Err(death) => {
            if machine.wedged() {
                // Destroying them would wait for a kernel that never ends.
                std::mem::forget(graphs);
            }
            Err(death)
        }
    }
}

fn samples(
    machine: &mut Machine,
    candidates: &[(Timed, &Work)],
    graphs: &[Vec<GraphExec>],
    sampling: &Sampling,
    load: Option<&Load>,
) -> Result<Vec<Vec<Vec<f64>>>, Death> {
    // Once without a gate: a first launch may have to wait for an idle device, and a gate that it waits for never opens.
    for ((timed, work), graphs) in candidates.iter().zip(graphs) {
        let started = machine.start(graphs);
        let ended = ended(machine, work, sampling.calls, started);
        let agreed = machine.agree("a first sample", ended.map(|()| Vec::new()));
        agreed.map_err(|e| (Some(timed.collective), e))?;
    }
    let mut times = vec![vec![Vec::new(); machine.world()]; candidates.len()];
    for sample in 0..sampling.warmups.saturating_add(sampling.samples) {
        for (i, (timed, work)) in candidates.iter().enumerate() {
            let us = sample_of(machine, work, &graphs[i], sampling.calls, load);
            let us = us.map_err(|e| (Some(timed.collective), e))?;
            if sample >= sampling.warmups {
                times[i].iter_mut().zip(us).for_each(|(rank, us)| rank.push(us));
            }
        }
    }
    Ok(times)
}

fn zero(machine: &Machine, bytes: u64) -> Result<(), DeviceError> {
    for rank in &machine.ranks {
        rank.stream.fill(rank.input.address(), 0, bytes)?;
        rank.stream.fill(rank.output.address(), 0, bytes)?;
    }
    machine.synchronise()
}

/// From one buffer into the other and back, or in one buffer: each call depends on the one before.
fn enqueue(machine: &Machine, work: &Work, timed: &Timed, calls: u32) -> Result<(), DeviceError> {
    let there: Vec<_> = (0..machine.world()).map(|r| machine.buffers(r)).collect();
    let back: Vec<_> = there.iter().map(|&(x, y)| (y, x)).collect();
    let over: Vec<_> = there.iter().map(|&(x, _)| (x, x)).collect();
    for call in 0..calls {
        let buffers = match (timed.in_place, call % 2) {
            (true, _) => &over,
            (false, 0) => &there,
            (false, _) => &back,
        };
        work.enqueue(machine, timed.geometry, timed.bytes, buffers)?;
    }
    Ok(())
}

/// One sample, under load where there is any.
fn sample_of(
    machine: &mut Machine,
    work: &Work,
    graphs: &[GraphExec],
    calls: u32,
    load: Option<&Load>,
) -> Result<Vec<f64>, DeviceError> {
    let Some(load) = load else {
        return one(machine, work, graphs, calls);
    };
    load.start()?;
    let us = one(machine, work, graphs, calls);
    let busy = load.end();
    let us = us?;
    if busy? {
        return Ok(us);
    }
    let slowest = us.iter().copied().fold(0.0, f64::max);
    let reason =
        format!("the load ended before {calls} calls did ({slowest:.1} us a call): time fewer calls under load");
    Err(DeviceError::Unavailable { reason })
}

/// One sample: microseconds a call of every rank.
fn one(machine: &mut Machine, work: &Work, graphs: &[GraphExec], calls: u32) -> Result<Vec<f64>, DeviceError> {
    let started = machine.start_together(graphs);
    ended(machine, work, calls, started)?;
    let mut mine = Vec::new();
    for rank in &machine.ranks {
        mine.extend(rank.start.microseconds_to(&rank.end)?.to_le_bytes());
    }
    // Everybody's, so that all ranks choose alike.
    let all = machine.agree("a sample", Ok(mine))?.concat();
    let number = |bytes: &[u8]| bytes.try_into().map_or(f64::NAN, f64::from_le_bytes);
    Ok(all.chunks(8).map(|bytes| number(bytes) / f64::from(calls)).collect())
}

/// Waits for what was started; what kernels reported goes before what the driver did.
fn ended(machine: &Machine, work: &Work, calls: u32, started: Result<(), DeviceError>) -> Result<(), DeviceError> {
    let settled = machine.settle(Duration::from_secs(5) + Duration::from_millis(10) * calls);
    work.verdict(machine)?;
    started?;
    settled
}

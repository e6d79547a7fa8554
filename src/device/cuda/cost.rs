//! What a served launch costs the thread that makes it, in time and in driver calls.
//!
//! The raw layer as `Communicator` uses it: look at the status words, retarget the parameter block, launch; the context is
//! current. Start at [`measure`].

use super::collective::{Compiled, Work};
use super::machine::Machine;
use crate::device::floor::LaunchCost;
use crate::device::{DeviceError, Timed};
use crate::driver::calls_here;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Launches in a row: fewer than a stream takes before it makes its caller wait.
const CALLS: u32 = 128;
const ROUNDS: usize = 9;

pub(super) fn measure(
    machine: &mut Machine,
    work: &Work,
    compiled: &Compiled,
    timed: &Timed,
) -> Result<LaunchCost, DeviceError> {
    let room = timed.bytes.next_multiple_of(16);
    machine.reserve(room, room)?;
    for rank in &machine.ranks {
        rank.stream.fill(rank.input.address(), 0, room)?;
    }
    machine.synchronise()?;
    let machine = &*machine;
    let names: Arc<[usize]> = (0..machine.ranks.len()).collect();
    let mut kernels: Vec<_> = (0..machine.ranks.len())
        .map(|r| compiled.served(machine, r, names.clone()))
        .collect();
    let (mut ns, mut calls) = (Vec::new(), 0);
    for round in 0..=ROUNDS {
        let mut launched = Ok(());
        // Rank after rank: the first one's kernels wait on the device for the last one's.
        for (rank, kernel) in machine.ranks.iter().zip(&mut kernels) {
            machine.gpus[rank.gpu].context.bind()?;
            let (input, output) = (rank.input.address(), rank.output.address());
            let (before, since) = (calls_here(), Instant::now());
            for _ in 0..CALLS {
                launched = launched
                    .and_then(|()| kernel.launch(rank.stream.handle(), timed.geometry, input, output, timed.bytes));
            }
            let (took, made) = (since.elapsed(), calls_here() - before);
            if round > 0 {
                ns.push(took.as_nanos() as f64 / f64::from(CALLS));
                calls = calls.max(made);
            }
        }
        let settled = machine.settle(Duration::from_secs(5));
        work.verdict(machine)?;
        launched?;
        settled?;
    }
    let ns = crate::tune::select::median(&ns).unwrap_or(f64::NAN);
    Ok(LaunchCost {
        ns,
        driver_calls: calls as f64 / f64::from(CALLS),
    })
}

//! Serving on the host executor: every rank calls from a thread of its own, one thread owns the executor.
//!
//! For tests, and for programs that want the same calls without a GPU. Emulation: bits are exact, times mean nothing.
//! A rank that stays away for longer than the deadline is named in everybody's error. Start at [`HostPart`].

use super::dispatch::Range;
use super::{CommError, Options};
use crate::device::host::{HostExecutor, HostOptions};
use crate::device::{Chain, DeviceError, Executor, Geometry, Mode, Preparation, Prepared};
use crate::qualify::{QualifyPlan, qualify};
use crate::registry::{Family, Protocol, Variant};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// One rank's call.
struct Job {
    rank: usize,
    /// Index into the ranges.
    range: usize,
    input: Vec<u8>,
    in_place: bool,
    reply: Sender<Result<Vec<u8>, DeviceError>>,
}

/// A rank's side.
pub(super) struct HostPart {
    jobs: Sender<Job>,
}

impl HostPart {
    /// Hands the input over and waits for the output, in place of it.
    pub fn call(&self, rank: usize, range: usize, buffer: &mut [u8], in_place: bool) -> Result<(), CommError> {
        let gone = || CommError::Device(DeviceError::Poisoned);
        let (reply, answer) = channel();
        let input = buffer.to_vec();
        let job = Job {
            rank,
            range,
            input,
            in_place,
            reply,
        };
        self.jobs.send(job).map_err(|_| gone())?;
        let output = answer.recv().map_err(|_| gone())??;
        buffer.copy_from_slice(&output);
        Ok(())
    }
}

const GEOMETRY: Geometry = Geometry::new(2, 32);

/// Ranges for a family, one a size class, each the first variant of its shortlist that is proven here.
fn choose(
    exec: &mut HostExecutor,
    family: &'static Family,
    options: &Options,
) -> Result<Vec<(Range, &'static Variant)>, CommError> {
    let mut bounds: Vec<u64> = family.variants.iter().flat_map(|v| v.classes).copied().collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut refused = Vec::new();
    let mut chosen: Vec<(Range, &'static Variant)> = Vec::new();
    for bound in bounds {
        let listed = |v: &&'static Variant| {
            v.classes.contains(&bound) && v.partials.contains(&options.partials) && v.protocol != Protocol::Pull
        };
        for variant in family.variants.iter().filter(listed) {
            match qualify(exec, variant, &QualifyPlan::quick()) {
                Ok(proof) => {
                    let reason = format!("first on its shortlist, proven over {} words; not timed", proof.words);
                    let range = Range {
                        up_to: bound,
                        variant: Some(variant.name.into()),
                        geometry: Some(GEOMETRY),
                        reason,
                    };
                    chosen.push((range, variant));
                    break;
                }
                Err(refusal) => refused.push(refusal.to_string()),
            }
        }
    }
    if chosen.is_empty() || (options.strict && !refused.is_empty()) {
        return Err(CommError::Refused { reasons: refused });
    }
    Ok(chosen)
}

/// Starts the executor's thread and returns the agreed ranges and one part a rank.
pub(super) fn start(
    family: &'static Family,
    ranks: usize,
    options: &Options,
) -> Result<(Vec<Range>, Vec<HostPart>), CommError> {
    let (jobs, queue) = channel();
    let (ready, agreed) = channel();
    let options = options.clone();
    let spawned = thread::Builder::new().name("topoforge-host".into()).spawn(move || {
        // Made here: fibers stay on the thread that made them.
        let mut exec = HostExecutor::new(ranks, HostOptions::default());
        let served = choose(&mut exec, family, &options).and_then(|chosen| {
            let prepared = chosen
                .iter()
                .map(|(range, variant)| {
                    let preparation = Preparation {
                        max_bytes: range.up_to,
                        threads: GEOMETRY.threads,
                        fault: None,
                    };
                    exec.prepare(variant, &preparation).map_err(CommError::Device)
                })
                .collect::<Result<Vec<_>, _>>()?;
            Ok((chosen.into_iter().map(|(range, _)| range).collect::<Vec<_>>(), prepared))
        });
        match served {
            Err(e) => drop(ready.send(Err(e))),
            Ok((ranges, prepared)) => {
                if ready.send(Ok(ranges)).is_ok() {
                    serve(&mut exec, &prepared, &queue, options.deadline);
                }
            }
        }
    });
    spawned.map_err(|e| CommError::Misuse {
        reason: format!("no thread for the host executor: {e}"),
    })?;
    let ranges = agreed.recv().map_err(|_| CommError::Device(DeviceError::Poisoned))??;
    let parts = (0..ranks).map(|_| HostPart { jobs: jobs.clone() }).collect();
    Ok((ranges, parts))
}

/// Runs a collective whenever every rank has called, in each rank's order, until all ranks are gone.
fn serve(exec: &mut HostExecutor, prepared: &[Prepared], queue: &Receiver<Job>, deadline: Duration) {
    let ranks = exec.ranks();
    let mut waiting: Vec<VecDeque<Job>> = (0..ranks).map(|_| VecDeque::new()).collect();
    let mut since = Instant::now();
    loop {
        let idle = waiting.iter().all(VecDeque::is_empty);
        let patience = if idle {
            Duration::from_secs(3600)
        } else {
            deadline.saturating_sub(since.elapsed())
        };
        match queue.recv_timeout(patience) {
            Ok(job) => {
                if idle {
                    since = Instant::now();
                }
                waiting[job.rank].push_back(job);
            }
            Err(RecvTimeoutError::Timeout) if idle => continue,
            Err(RecvTimeoutError::Timeout) => return missing(&mut waiting),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while waiting.iter().all(|w| !w.is_empty()) {
            let jobs: Vec<Job> = waiting.iter_mut().filter_map(VecDeque::pop_front).collect();
            let outcome = run(exec, prepared, &jobs);
            let failed = outcome.is_err();
            for job in jobs {
                let answer = outcome.as_ref().map(|o| o[job.rank].clone()).map_err(Clone::clone);
                // A caller that no longer waits needs no answer.
                let _ = job.reply.send(answer);
            }
            if failed {
                return;
            }
            since = Instant::now();
        }
    }
}

fn run(exec: &mut HostExecutor, prepared: &[Prepared], jobs: &[Job]) -> Result<Vec<Vec<u8>>, DeviceError> {
    let first = &jobs[0];
    if let Some(other) = jobs
        .iter()
        .find(|j| (j.range, j.input.len()) != (first.range, first.input.len()))
    {
        let reason = format!(
            "rank {} reduces {} bytes, rank {} reduces {}: all ranks must call alike",
            first.rank,
            first.input.len(),
            other.rank,
            other.input.len()
        );
        return Err(DeviceError::Misuse { reason });
    }
    let inputs: Vec<Vec<u8>> = jobs.iter().map(|j| j.input.clone()).collect();
    let outputs = exec.run(&Chain {
        collective: prepared[first.range],
        geometry: GEOMETRY,
        bytes: first.input.len() as u64,
        calls: 1,
        inputs: &inputs,
        mix_seed: 0,
        specials: false,
        mode: Mode::Eager,
        skew: None,
        in_place: first.in_place,
    })?;
    outputs.into_iter().next().ok_or(DeviceError::Poisoned)
}

/// Tells everybody who waits which rank never came.
fn missing(waiting: &mut [VecDeque<Job>]) {
    let peer = waiting.iter().position(VecDeque::is_empty);
    for (rank, queue) in waiting.iter_mut().enumerate() {
        for job in queue.drain(..) {
            let timeout = DeviceError::Timeout {
                rank,
                peer,
                stage: 0,
                column: 0,
            };
            let _ = job.reply.send(Err(timeout));
        }
    }
}

//! Runs a schedule call after call under a seeded scheduler, puts arriving in any order into few buffers, and keeps every
//! sum as the list of what went into it. It shares nothing with the verifier.
#![allow(dead_code)]

use super::Seeded;
use std::collections::BTreeMap;
use topoforge_planner::schedule::{Schedule, Transfer, Value, ValueId};

const CALLS: usize = 6;

/// What a value is made of: `(call, rank)` of each input, in the order of the sum.
type Parts = Vec<(usize, usize)>;

#[derive(Debug, PartialEq)]
pub enum Wrong {
    /// A rank is told to send what it cannot work out.
    NotHeld,
    /// A put landed on a slot that was still full.
    Overwritten,
    /// An output could not be worked out, or is not each rank's input of this call once.
    Output,
}

/// One thread: it handles one chunk of one rank and moves through calls and stages.
#[derive(Clone, Default)]
struct Thread {
    call: usize,
    stage: usize,
    /// Reads of the stage still to do, once its puts are out.
    reads: Option<Vec<Transfer>>,
    held: BTreeMap<ValueId, Parts>,
    at_end: bool,
}

/// `(from, to, stage, chunk, value)`: the transfer is the channel.
type Channel = (usize, Transfer);

struct Machine<'a> {
    schedule: &'a Schedule,
    buffers: usize,
    threads: Vec<Vec<Thread>>,
    in_flight: Vec<(Channel, usize, Parts)>,
    slots: BTreeMap<(Channel, usize), Parts>,
}

fn work_out(schedule: &Schedule, held: &BTreeMap<ValueId, Parts>, own: (usize, usize), id: ValueId) -> Option<Parts> {
    if let Some(parts) = held.get(&id) {
        return Some(parts.clone());
    }
    match schedule.value(id) {
        Value::Input(rank) => (rank == own.1).then(|| vec![own]),
        Value::Rounded(a) => work_out(schedule, held, own, a),
        Value::Sum(a, b) => {
            let mut parts = work_out(schedule, held, own, a)?;
            parts.extend(work_out(schedule, held, own, b)?);
            Some(parts)
        }
    }
}

impl<'a> Machine<'a> {
    fn new(schedule: &'a Schedule, buffers: usize) -> Self {
        let threads = vec![vec![Thread::default(); schedule.chunks as usize]; schedule.ranks];
        Self {
            schedule,
            buffers,
            threads,
            in_flight: Vec::new(),
            slots: BTreeMap::new(),
        }
    }

    fn of_stage(&self, stage: usize, chunk: usize) -> impl Iterator<Item = Transfer> {
        self.schedule.stages[stage]
            .transfers
            .iter()
            .copied()
            .filter(move |t| t.chunk as usize == chunk)
    }

    /// One step of one thread; false where it has to wait.
    fn step(&mut self, rank: usize, chunk: usize, random: &mut Seeded) -> Result<bool, Wrong> {
        let schedule = self.schedule;
        let mut thread = self.threads[rank][chunk].clone();
        let own = (thread.call, rank);
        if thread.at_end || thread.call == CALLS {
            return Ok(false);
        }
        if thread.stage == schedule.stages.len() {
            let output = work_out(schedule, &thread.held, own, schedule.outputs[rank][chunk]).ok_or(Wrong::Output)?;
            let mut sorted = output;
            sorted.sort_unstable();
            if !sorted.into_iter().eq((0..schedule.ranks).map(|r| (thread.call, r))) {
                return Err(Wrong::Output);
            }
            thread.at_end = true;
            self.threads[rank][chunk] = thread;
            // The next call starts when all of the rank's threads have ended.
            if self.threads[rank].iter().all(|t| t.at_end) {
                let call = own.0 + 1;
                self.threads[rank].fill(Thread {
                    call,
                    ..Thread::default()
                });
            }
            return Ok(true);
        }
        match &mut thread.reads {
            None => {
                for t in self
                    .of_stage(thread.stage, chunk)
                    .filter(|t| t.from == rank)
                    .collect::<Vec<_>>()
                {
                    let parts = work_out(schedule, &thread.held, own, t.value).ok_or(Wrong::NotHeld)?;
                    self.in_flight
                        .push(((thread.stage, t), thread.call % self.buffers, parts));
                }
                thread.reads = Some(self.of_stage(thread.stage, chunk).filter(|t| t.to == rank).collect());
            }
            Some(reads) if reads.is_empty() => {
                thread.stage += 1;
                thread.reads = None;
            }
            Some(reads) => {
                let t = reads[random.below(reads.len())];
                let Some(parts) = self.slots.remove(&((thread.stage, t), thread.call % self.buffers)) else {
                    return Ok(false);
                };
                reads.retain(|other| *other != t);
                thread.held.insert(t.value, parts);
            }
        }
        self.threads[rank][chunk] = thread;
        Ok(true)
    }

    fn deliver(&mut self, random: &mut Seeded) -> Result<(), Wrong> {
        let (channel, buffer, parts) = self.in_flight.swap_remove(random.below(self.in_flight.len()));
        match self.slots.insert((channel, buffer), parts) {
            None => Ok(()),
            Some(_) => Err(Wrong::Overwritten),
        }
    }
}

/// Runs all calls. One rank in three seeds is slow, so that others get ahead as far as they can.
pub fn run(schedule: &Schedule, buffers: usize, seed: u64) -> Result<(), Wrong> {
    let mut random = Seeded(seed);
    let slow = seed.is_multiple_of(3).then(|| random.below(schedule.ranks));
    let mut machine = Machine::new(schedule, buffers);
    let mut idle = 0;
    while machine.threads.iter().flatten().any(|t| t.call < CALLS) {
        if !machine.in_flight.is_empty() && random.below(3) == 0 {
            machine.deliver(&mut random)?;
        }
        let (rank, chunk) = (random.below(schedule.ranks), random.below(schedule.chunks as usize));
        if slow == Some(rank) && random.below(50) != 0 {
            continue;
        }
        let moved = machine.step(rank, chunk, &mut random)?;
        idle = if moved { 0 } else { idle + 1 };
        assert!(idle < 1_000_000, "{} stands still", schedule.name);
    }
    Ok(())
}

//! An interpreter that knows nothing of the verifier: ranks run many calls under a seeded scheduler, puts arrive in any
//! order into few buffers, and every sum is kept as the list of what went into it. What the verifier accepts must come
//! out right under every seed; what it refuses for what ranks can know must go wrong here too.

mod schedule_support;

use schedule_support::{PIX, Seeded, complete};
use std::collections::BTreeMap;
use topoforge_planner::schedule::{
    EdgePolicy, Edges, Schedule, Transfer, Value, ValueId, VerifyError, declared, generate, verify,
};

const CALLS: usize = 6;

/// What a value is made of: `(call, rank)` of each input, in the order of the sum.
type Parts = Vec<(usize, usize)>;

#[derive(Debug, PartialEq)]
enum Wrong {
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
fn run(schedule: &Schedule, buffers: usize, seed: u64) -> Result<(), Wrong> {
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

#[test]
fn accepted_schedules_come_out_right_under_every_order_of_delivery() {
    for n in [2, 3, 4, 5, 6] {
        let topology = complete(n, PIX);
        let candidates = generate(&Edges::new(&topology, EdgePolicy::Peer), 24);
        for schedule in candidates
            .into_iter()
            .map(|c| c.schedule)
            .filter(|s| s.name != "one-shot-pull")
        {
            let verified = verify(schedule, &topology, EdgePolicy::Peer, 2).expect("generated");
            for seed in 0..3 {
                assert_eq!(run(&verified, 2, seed), Ok(()), "{} of {n}, seed {seed}", verified.name);
            }
            let expression = &declared(&verified)[0][0];
            assert_eq!(expression.contributions(n), vec![1; n], "{}", verified.name);
        }
    }
}

#[test]
fn a_refused_buffer_count_does_lose_data_under_some_order() {
    for n in 2..=4 {
        let topology = complete(n, PIX);
        for schedule in generate(&Edges::new(&topology, EdgePolicy::Peer), 12)
            .into_iter()
            .map(|c| c.schedule)
        {
            if schedule.name == "one-shot-pull" {
                continue;
            }
            let lost = (0..60).any(|seed| run(&schedule, 1, seed) == Err(Wrong::Overwritten));
            let name = schedule.name.clone();
            let refused = matches!(
                verify(schedule, &topology, EdgePolicy::Peer, 1),
                Err(VerifyError::SlotReuse { buffers: 1, .. })
            );
            assert_eq!(lost, refused, "{name} of {n} with one buffer");
        }
    }
}

/// One random change.
fn mutate(schedule: &mut Schedule, random: &mut Seeded) {
    let stage = random.below(schedule.stages.len());
    let values = schedule.values.len();
    let transfers = &mut schedule.stages[stage].transfers;
    if transfers.is_empty() {
        return;
    }
    let at = random.below(transfers.len());
    match random.below(7) {
        0 => drop(transfers.remove(at)),
        1 => transfers[at].chunk = random.below(schedule.chunks as usize) as u32,
        2 => transfers[at].value = ValueId(random.below(values) as u32),
        3 => transfers[at].to = random.below(schedule.ranks),
        4 => {
            let moved = transfers.remove(at);
            let to = random.below(schedule.stages.len());
            schedule.stages[to].transfers.push(moved);
        }
        5 => {
            let rank = random.below(schedule.ranks);
            let chunk = random.below(schedule.chunks as usize);
            schedule.outputs[rank][chunk] = ValueId(random.below(values) as u32);
        }
        _ => {
            let other = random.below(schedule.stages.len());
            schedule.stages.swap(stage, other);
        }
    }
}

#[test]
fn verifier_and_interpreter_agree_on_random_mutants() {
    let mut random = Seeded(11);
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..700 {
        let n = 2 + round % 5;
        let topology = complete(n, PIX);
        let candidates = generate(&Edges::new(&topology, EdgePolicy::Peer), 10);
        let at = 1 + random.below(candidates.len() - 1);
        let mut mutant = candidates[at].schedule.clone();
        for _ in 0..1 + random.below(2) {
            mutate(&mut mutant, &mut random);
        }
        let ran = || {
            (0..4)
                .map(|seed| run(&mutant, 2, seed))
                .find(Result::is_err)
                .unwrap_or(Ok(()))
        };
        match verify(mutant.clone(), &topology, EdgePolicy::Peer, 2) {
            Ok(_) => {
                assert_eq!(ran(), Ok(()), "round {round}: {mutant:?}");
                accepted += 1;
            }
            Err(VerifyError::Transfer { fault, .. })
                if fault != topoforge_planner::schedule::verify::TransferFault::NotHeld => {}
            Err(VerifyError::SlotReuse { .. }) => {}
            Err(error) => {
                assert!(
                    ran().is_err(),
                    "round {round}: refused as {error}, but it works: {mutant:?}"
                );
                refused += 1;
            }
        }
    }
    assert!(accepted > 25 && refused > 250, "{accepted} accepted, {refused} refused");
}

//! Mutants: valid schedules of every generator with one or two faults put in. An interpreter that knows nothing of the
//! verifier says which are harmful; every harmful one must be refused, and what is accepted must come out right.

mod schedule_support;

use schedule_support::interpreter::run;
use schedule_support::{NVLINK, PIX, SYS, Seeded, complete, cube_mesh};
use std::collections::BTreeMap;
use topoforge_planner::schedule::{Delivery, EdgePolicy, Edges, Schedule, ValueId, generate, verify};
use topoforge_planner::topology::Topology;

/// What can be done to a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Drop,
    Duplicate,
    Reorder,
    ReuseSlot,
    SwapChunk,
    OtherValue,
    OtherReceiver,
    SwapStages,
    OtherOutput,
    RemoveBuffer,
}

const FAULTS: [Fault; 10] = [
    Fault::Drop,
    Fault::Duplicate,
    Fault::Reorder,
    Fault::ReuseSlot,
    Fault::SwapChunk,
    Fault::OtherValue,
    Fault::OtherReceiver,
    Fault::SwapStages,
    Fault::OtherOutput,
    Fault::RemoveBuffer,
];

/// Puts the fault in; the number of buffers is what `RemoveBuffer` changes.
fn mutate(schedule: &mut Schedule, buffers: &mut u32, fault: Fault, random: &mut Seeded) {
    let stage = random.below(schedule.stages.len());
    let stages = schedule.stages.len();
    let values = schedule.values.len();
    let transfers = &mut schedule.stages[stage].transfers;
    if transfers.is_empty() {
        return;
    }
    let at = random.below(transfers.len());
    match fault {
        Fault::Drop => drop(transfers.remove(at)),
        // Into some stage: the same one, or one where it comes early or late.
        Fault::Duplicate => {
            let copy = transfers[at];
            schedule.stages[random.below(stages)].transfers.push(copy);
        }
        Fault::Reorder => {
            let moved = transfers.remove(at);
            schedule.stages[random.below(stages)].transfers.push(moved);
        }
        // Two messages of one stage and edge in one slot: the later one stands for both.
        Fault::ReuseSlot => {
            let first = transfers[at];
            if let Some(other) = transfers
                .iter_mut()
                .find(|t| **t != first && (t.from, t.to) == (first.from, first.to))
            {
                *other = first;
            } else {
                transfers.push(first);
            }
        }
        Fault::SwapChunk => transfers[at].chunk = random.below(schedule.chunks as usize) as u32,
        Fault::OtherValue => transfers[at].value = ValueId(random.below(values) as u32),
        Fault::OtherReceiver => transfers[at].to = random.below(schedule.ranks),
        Fault::SwapStages => schedule.stages.swap(stage, random.below(stages)),
        Fault::OtherOutput => {
            let (rank, chunk) = (random.below(schedule.ranks), random.below(schedule.chunks as usize));
            schedule.outputs[rank][chunk] = ValueId(random.below(values) as u32);
        }
        Fault::RemoveBuffer => *buffers = 1,
    }
}

/// Schedules of every idea, on machines that have a use for it.
fn pool() -> Vec<Schedule> {
    let path = Topology::new("path", 3).with_pair(0, 1, PIX).with_pair(1, 2, PIX);
    let islands = |a: usize, b: usize| {
        let (left, right): (Vec<usize>, Vec<usize>) = ((0..a).collect(), (a..a + b).collect());
        complete(a + b, SYS)
            .with_all_pairs(&left, NVLINK)
            .with_all_pairs(&right, NVLINK)
    };
    let machines = [
        complete(2, PIX),
        complete(3, PIX),
        complete(4, PIX),
        complete(5, PIX),
        path,
        islands(2, 1),
        islands(4, 2),
        cube_mesh(),
    ];
    let mut pool: Vec<Schedule> = Vec::new();
    for machine in machines {
        let mut seen = Vec::new();
        for candidate in generate(&Edges::new(&machine, EdgePolicy::Peer), 400) {
            if candidate.schedule.delivery == Delivery::Push && !seen.contains(&candidate.shape) {
                seen.push(candidate.shape);
                pool.push(candidate.schedule);
            }
        }
    }
    pool
}

#[test]
fn every_harmful_mutant_is_refused() {
    let pool = pool();
    for idea in [
        "ring",
        "tree",
        "trees-disjoint",
        "islands",
        "fold-in",
        "one-shot-relay",
        "two-shot-relay",
        "halving",
    ] {
        assert!(pool.iter().any(|s| s.name.starts_with(idea)), "no {idea} in the pool");
    }
    let mut random = Seeded(29);
    let (mut harmful, mut harmless) = (0, 0);
    let mut tally: BTreeMap<Fault, (u32, u32)> = BTreeMap::new();
    for round in 0..1000 {
        let original = &pool[round % pool.len()];
        let (mut mutant, mut buffers) = (original.clone(), 2);
        let fault = FAULTS[random.below(FAULTS.len())];
        mutate(&mut mutant, &mut buffers, fault, &mut random);
        if random.below(4) == 0 {
            let second = FAULTS[random.below(FAULTS.len())];
            mutate(&mut mutant, &mut buffers, second, &mut random);
        }
        let verdict = verify(mutant.clone(), &complete(mutant.ranks, PIX), EdgePolicy::Peer, buffers);
        let ran = (0..4)
            .map(|seed| run(&mutant, buffers as usize, seed))
            .find(Result::is_err)
            .unwrap_or(Ok(()));
        let count = tally.entry(fault).or_default();
        match (&ran, &verdict) {
            (Err(wrong), Ok(_)) => panic!("round {round}, {fault:?}: accepted, but {wrong:?}: {mutant:?}"),
            (Err(_), Err(_)) => {
                harmful += 1;
                count.0 += 1;
            }
            (Ok(()), _) => {
                harmless += 1;
                count.1 += 1;
            }
        }
    }
    println!("{harmful} harmful mutants, all refused; {harmless} harmless ones");
    for (fault, (harmful, harmless)) in &tally {
        println!("  {fault:?}: {harmful} harmful, {harmless} harmless");
        assert!(
            *harmful > 20,
            "{fault:?} was hardly ever harmful: a mutation that proves nothing"
        );
    }
    assert!(harmful > 500 && harmless > 40, "{harmful} harmful, {harmless} harmless");
}

#[test]
fn untouched_schedules_of_every_idea_come_out_right_under_random_delivery() {
    for schedule in pool() {
        for seed in 0..2 {
            assert_eq!(run(&schedule, 2, seed), Ok(()), "{}, seed {seed}", schedule.name);
        }
    }
}

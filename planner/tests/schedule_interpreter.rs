//! An interpreter that knows nothing of the verifier: ranks run many calls under a seeded scheduler, puts arrive in any
//! order into few buffers, and every sum is kept as the list of what went into it. What the verifier accepts must come
//! out right under every seed; what it refuses for what ranks can know must go wrong here too.

mod schedule_support;

use schedule_support::interpreter::{Wrong, run};
use schedule_support::{PIX, complete};
use topoforge_planner::schedule::{EdgePolicy, Edges, VerifyError, declared, generate, verify};

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

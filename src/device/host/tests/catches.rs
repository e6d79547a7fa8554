//! Faulty kernels and planted faults are caught within a few seeds, with the right name for who is at fault.

use super::kit::{Case, one_shot};
use crate::device::host::{Delivery, HostExecutor, HostOptions};
use crate::device::{DeviceError, Fault, Geometry, Mode};
use crate::registry::{Protocol, Variant};

const SEEDS: u64 = 24;

fn executor(ranks: usize, seed: u64, delivery: Delivery) -> HostExecutor {
    HostExecutor::new(
        ranks,
        HostOptions {
            seed,
            delivery,
            ..HostOptions::default()
        },
    )
}

/// In how many of `SEEDS` the outputs are wrong or never come.
fn caught(case: &Case, variant: &'static Variant, delivery: Delivery, fault: Option<Fault>) -> u64 {
    let seen = |seed: &u64| {
        let mut exec = executor(variant.ranks.len(), *seed, delivery);
        match case.run(&mut exec, variant, fault) {
            Ok(outputs) => !case.right(&outputs),
            Err(DeviceError::Timeout { .. }) => true,
            Err(other) => panic!("{fault:?}: {other}"),
        }
    };
    (0..SEEDS).filter(seen).count() as u64
}

#[test]
fn every_planted_fault_is_seen_where_it_matters() {
    use Fault::*;
    use Protocol::*;
    // Faults that no schedule can hide, and how often at least the others must show in 24 seeds.
    let table = [
        (Packet, DroppedContribution, SEEDS),
        (Packet, StaleHalf, SEEDS),
        (Packet, SwappedCounter, SEEDS),
        (Packet, NoWait, SEEDS),
        (Packet, FrozenCounter, SEEDS),
        (Packet, SingleBuffer, 4),
        (Packet128, DroppedContribution, SEEDS),
        (Packet128, StaleHalf, SEEDS),
        (Packet128, SwappedCounter, SEEDS),
        (Packet128, NoWait, SEEDS),
        (Packet128, FrozenCounter, SEEDS),
        (Packet128, SingleBuffer, 4),
        (Packet128, TornLine, SEEDS / 2),
        (Flag, DroppedContribution, SEEDS),
        (Flag, StaleHalf, SEEDS),
        (Flag, SwappedCounter, SEEDS / 2),
        (Flag, NoWait, SEEDS / 2),
        (Flag, FrozenCounter, SEEDS / 2),
        (Flag, SingleBuffer, 4),
        (Flag, NoFence, SEEDS / 2),
        (Flag, NoBarrier, SEEDS / 2),
        (Pull, DroppedContribution, SEEDS),
        (Pull, StaleHalf, SEEDS),
        (Pull, SwappedCounter, SEEDS),
        (Pull, NoWait, SEEDS / 2),
        (Pull, FrozenCounter, SEEDS / 2),
        (Pull, NoFence, SEEDS / 2),
        (Pull, NoBarrier, SEEDS / 2),
    ];
    let mut weak = Vec::new();
    for (protocol, fault, least) in table {
        // A thread with several columns cannot lose one to the next call: its peer's next round waits for it.
        let threads = if fault == SingleBuffer { 10 } else { 4 };
        let geometry = Geometry::new(1, threads);
        let case = Case {
            calls: 6,
            geometry,
            ..Case::default()
        }
        .of(protocol);
        let variant = one_shot(protocol, 2, &[]);
        let seen = Delivery::ALL.map(|delivery| caught(&case, variant, delivery, Some(fault)));
        println!("{protocol} {fault:?}: {seen:?} of {SEEDS}");
        if seen.iter().max().is_none_or(|most| *most < least) {
            weak.push((protocol, fault, seen));
        }
    }
    assert!(weak.is_empty(), "{weak:?}");
}

#[test]
fn missing_orders_in_a_kernel_show() {
    let case = Case {
        calls: 6,
        ..Case::default()
    };
    for (protocol, define) in [
        (Protocol::Flag, "WITHOUT_RELEASE"),
        (Protocol::Flag, "WITHOUT_ACQUIRE"),
        (Protocol::Pull, "WITHOUT_CLOSE"),
    ] {
        let variant = one_shot(protocol, 2, &[define]);
        let seen = Delivery::ALL.map(|delivery| caught(&case, variant, delivery, None));
        println!("{protocol} {define}: {seen:?} of {SEEDS}");
        assert!(seen.iter().max() >= Some(&(SEEDS / 2)), "{define}: {seen:?}");
    }
}

#[test]
fn a_timeout_names_the_rank_that_never_came_and_the_collective_is_dead() {
    for protocol in [Protocol::Packet, Protocol::Packet128, Protocol::Pull] {
        let variant = one_shot(protocol, 4, &[]);
        for delivery in Delivery::ALL {
            let mut exec = executor(4, 3, delivery);
            let case = Case::default().of(protocol);
            // The counters of rank 3 are one ahead: nobody gets what he waits for from it.
            let collective = case.prepare(&mut exec, variant, Some(Fault::SwappedCounter)).unwrap();
            match case.run_on(&mut exec, collective) {
                Err(DeviceError::Timeout {
                    rank,
                    peer: Some(peer),
                    // A late rank of a pull may still open before it learns that all is over.
                    stage: 0 | 1,
                    ..
                }) => {
                    assert!(
                        (rank == 3) != (peer == 3),
                        "{protocol} {delivery:?}: rank {rank}, peer {peer}"
                    );
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(case.run_on(&mut exec, collective), Err(DeviceError::Poisoned));
            // The executor itself goes on.
            let good = case.run(&mut exec, variant, None).unwrap();
            assert!(case.right(&good));
        }
    }
}

#[test]
fn a_warp_whose_threads_part_is_named() {
    let case = Case {
        calls: 2,
        bytes: 1024,
        ..Case::default()
    }
    .of(Protocol::Packet128);
    for (define, words) in [("LEAVES_ALONE", "thread 3 "), ("VOTES_ALONE", "different steps")] {
        let variant = one_shot(Protocol::Packet128, 2, &[define]);
        match case.run(&mut executor(2, 0, Delivery::Random), variant, None) {
            Err(DeviceError::KernelFault { reason }) => assert!(reason.contains(words), "{reason}"),
            other => panic!("{define}: {other:?}"),
        }
    }
}

#[test]
fn writes_behind_a_buffer_are_named() {
    let case = Case {
        calls: 1,
        ..Case::default()
    };
    for define in ["OVERRUN=0", "OVERRUN=130"] {
        let variant = one_shot(Protocol::Packet, 2, &[define]);
        match case.run(&mut executor(2, 0, Delivery::Eager), variant, None) {
            Err(DeviceError::KernelFault { reason }) => {
                assert!(reason.contains("behind the output of rank 1"), "{reason}")
            }
            other => panic!("{other:?}"),
        }
    }
    let variant = one_shot(Protocol::Packet, 2, &["WILD"]);
    match case.run(&mut executor(2, 0, Delivery::Eager), variant, None) {
        Err(DeviceError::KernelFault { reason }) => {
            assert!(reason.contains("rank 1") && reason.contains("outside"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_out_of_steps_is_given_up_and_leaves_nothing_behind() {
    let variant = one_shot(Protocol::Flag, 3, &[]);
    let options = HostOptions {
        max_steps: 40,
        ..HostOptions::default()
    };
    let mut exec = HostExecutor::new(3, options);
    let case = Case {
        geometry: Geometry::new(2, 4),
        mode: Mode::Eager,
        ..Case::default()
    };
    for _ in 0..10 {
        match case.run(&mut exec, variant, None) {
            Err(DeviceError::KernelFault { reason }) => assert!(reason.contains("max_steps"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}

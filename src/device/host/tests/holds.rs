//! Correct kernels give correct results, whatever the seed, the delivery and the shape of the call.

use super::kit::{Case, one_shot};
use crate::device::host::{Delivery, HostExecutor, HostOptions};
use crate::device::{DeviceError, Executor, Geometry, Mode};
use crate::registry::Protocol;

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

fn check(case: &Case, exec: &mut HostExecutor, variant: &'static crate::registry::Variant) {
    let case = &case.of(variant.protocol);
    let options = *exec.options();
    let outputs = case
        .run(exec, variant, None)
        .unwrap_or_else(|e| panic!("{}: {options:?}: {e}", variant.name));
    assert!(
        case.right(&outputs),
        "{}: {options:?}: wrong for {} bytes",
        variant.name,
        case.bytes
    );
}

#[test]
fn any_seed_and_delivery_gives_the_declared_sum() {
    for protocol in Protocol::ALL {
        let variant = one_shot(*protocol, 2, &[]);
        for delivery in Delivery::ALL {
            let mut exec = executor(2, 0, delivery);
            for seed in 0..50 {
                exec.reseed(seed, delivery);
                for bytes in [2, 14, 16, 18, 150, 1024] {
                    check(
                        &Case {
                            bytes,
                            ..Case::default()
                        },
                        &mut exec,
                        variant,
                    );
                }
            }
        }
    }
}

#[test]
fn many_ranks_blocks_replays_skew_and_in_place() {
    for protocol in Protocol::ALL {
        for ranks in [3, 5, 8] {
            let variant = one_shot(*protocol, ranks, &[]);
            for delivery in Delivery::ALL {
                for seed in 0..4 {
                    let mut exec = executor(ranks as usize, seed, delivery);
                    let geometry = Geometry::new(1 + seed as u32, 8);
                    let mode = Mode::Graph { replays: 2 };
                    let skew = Some((seed as usize % ranks as usize, 1_000_000));
                    let in_place = variant.in_place() && seed % 2 == 1;
                    let case = Case {
                        geometry,
                        mode,
                        skew,
                        in_place,
                        specials: true,
                        ..Case::default()
                    };
                    check(&case, &mut exec, variant);
                }
            }
        }
    }
}

#[test]
fn one_preparation_serves_calls_of_many_sizes_and_grids() {
    for protocol in Protocol::ALL {
        let variant = one_shot(*protocol, 3, &[]);
        let mut exec = executor(3, 11, Delivery::Random);
        let collective = Case {
            bytes: 600,
            ..Case::default()
        }
        .of(*protocol)
        .prepare(&mut exec, variant, None)
        .unwrap();
        for (bytes, blocks) in [(600, 1), (2, 3), (38, 2), (600, 4), (16, 1), (600, 2)] {
            // A pull kernel's counters belong to blocks: all ranks launch alike, so any number of them may take part.
            let geometry = Geometry::new(blocks, 4);
            let case = Case {
                bytes,
                geometry,
                calls: 3,
                ..Case::default()
            }
            .of(*protocol);
            assert!(
                case.right(&case.run_on(&mut exec, collective).unwrap()),
                "{protocol} {bytes} {blocks}"
            );
        }
    }
}

#[test]
fn counters_may_wrap() {
    for protocol in Protocol::ALL {
        let variant = one_shot(*protocol, 2, &[]);
        for first_counter in [u32::MAX - 3, u32::MAX - 2, i32::MAX as u32 - 2] {
            for delivery in Delivery::ALL {
                let options = HostOptions {
                    delivery,
                    first_counter,
                    ..HostOptions::default()
                };
                let mut exec = HostExecutor::new(2, options);
                check(
                    &Case {
                        calls: 8,
                        ..Case::default()
                    },
                    &mut exec,
                    variant,
                );
            }
        }
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    let variant = one_shot(Protocol::Flag, 3, &["WITHOUT_ACQUIRE"]);
    let case = Case::default();
    let run = |seed| case.run(&mut executor(3, seed, Delivery::Random), variant, None);
    // The racy kernel's wrong results tell schedules apart.
    assert_eq!(run(5), run(5));
    assert!((6..20).any(|seed| run(seed) != run(5)));
}

#[test]
fn misuse_is_refused_with_a_reason() {
    let variant = one_shot(Protocol::Pull, 2, &[]);
    let mut exec = executor(2, 0, Delivery::Eager);
    let collective = Case::default().prepare(&mut exec, variant, None).unwrap();
    let wide = Geometry::new(1, 8);
    let many = Geometry::new(4096, 4);
    let cases = [
        (
            Case {
                bytes: 3,
                ..Case::default()
            },
            "multiple of 2",
        ),
        (
            Case {
                bytes: 0,
                ..Case::default()
            },
            "positive",
        ),
        (
            Case {
                bytes: 4096,
                ..Case::default()
            },
            "prepared",
        ),
        (
            Case {
                calls: 0,
                ..Case::default()
            },
            "one call",
        ),
        (
            Case {
                in_place: true,
                ..Case::default()
            },
            "in place",
        ),
        (
            Case {
                geometry: wide,
                ..Case::default()
            },
            "prepared for 4",
        ),
        (
            Case {
                geometry: many,
                ..Case::default()
            },
            "at most",
        ),
        (
            Case {
                skew: Some((2, 1)),
                ..Case::default()
            },
            "skew",
        ),
    ];
    for (case, word) in cases {
        let Err(DeviceError::Misuse { reason }) = case.run_on(&mut exec, collective) else {
            panic!("{word}")
        };
        assert!(reason.contains(word), "{reason}");
    }
    exec.release(collective);
    exec.release(collective);
    assert!(matches!(
        Case::default().run_on(&mut exec, collective),
        Err(DeviceError::Misuse { .. })
    ));
    let other = one_shot(Protocol::Pull, 3, &[]);
    assert!(matches!(
        Case::default().prepare(&mut exec, other, None),
        Err(DeviceError::Misuse { .. })
    ));
    let lines = one_shot(Protocol::Packet128, 2, &[]);
    match Case::default().prepare(&mut exec, lines, None) {
        Err(DeviceError::Misuse { reason }) => assert!(reason.contains("whole warps"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "prints figures; run by hand"]
fn how_fast() {
    for ranks in [2, 8] {
        for protocol in Protocol::ALL {
            let variant = one_shot(*protocol, ranks, &[]);
            for delivery in Delivery::ALL {
                let mut exec = executor(ranks as usize, 0, delivery);
                let geometry = Geometry::new(1, 64);
                let case = Case {
                    bytes: 1024,
                    geometry,
                    calls: 8,
                    ..Case::default()
                };
                let collective = Case { bytes: 1024, ..case }.prepare(&mut exec, variant, None).unwrap();
                let since = std::time::Instant::now();
                for _ in 0..4 {
                    case.run_on(&mut exec, collective).unwrap();
                }
                let calls = 32.0 / since.elapsed().as_secs_f64();
                println!("{ranks} ranks, {protocol}, {delivery:?}: {calls:.0} calls of 1 KiB a second");
            }
        }
    }
}

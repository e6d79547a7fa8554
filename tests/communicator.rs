//! Serving on the host executor: the same calls, table and errors as on GPUs, with exact bits.
#![cfg(feature = "host-executor")]

use half::f16;
use std::thread;
use std::time::Duration;
use topoforge::comm::{CommError, Communicator, Options, Why};
use topoforge::device::DeviceError;
use topoforge::registry::Element;
use topoforge::tune::CallTrace;

fn input(rank: usize, elements: usize) -> Vec<f16> {
    // Sixteenths below 64 are exact in f16, in any order.
    (0..elements)
        .map(|i| f16::from_f32(((i * 7 + rank * 13) % 17) as f32 / 16.0))
        .collect()
}

fn sum(ranks: usize, i: usize, elements: usize) -> f16 {
    f16::from_f32((0..ranks).map(|r| input(r, elements)[i].to_f32()).sum())
}

#[test]
fn every_rank_gets_the_sum_at_every_size_of_the_table() {
    for family in ["nvlink-pair", "nvlink-quad", "no-peer-pair"] {
        let communicators = Communicator::on_host(family, &Options::default()).unwrap();
        let ranks = communicators.len();
        let threads: Vec<_> = communicators
            .into_iter()
            .map(|c| {
                thread::spawn(move || {
                    for elements in [0, 1, 7, 512, 2560, 9000] {
                        let mut buffer = input(c.rank(), elements);
                        c.all_reduce_slice(&mut buffer).unwrap();
                        for i in (0..elements).step_by(97) {
                            assert_eq!(
                                buffer[i],
                                sum(ranks, i, elements),
                                "{elements} elements, rank {}",
                                c.rank()
                            );
                        }
                    }
                    let (hits, misses) = c.dispatch().counts();
                    assert_eq!(
                        (hits.iter().sum::<u64>(), misses),
                        (5, 0),
                        "an empty payload is no call"
                    );
                    c.explain()
                })
            })
            .collect();
        let texts: Vec<String> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        assert!(texts.iter().all(|t| *t == texts[0]), "ranks must decide alike");
        assert!(
            texts[0].contains("emulation") && texts[0].contains("proven over"),
            "{}",
            texts[0]
        );
    }
}

#[test]
fn a_rank_that_stays_away_is_named_and_nobody_hangs() {
    let options = Options {
        deadline: Duration::from_millis(200),
        ..Options::default()
    };
    let mut communicators = Communicator::on_host("nvlink-quad", &options).unwrap();
    let absent = communicators.remove(2);
    let waiting: Vec<_> = communicators
        .into_iter()
        .map(|c| {
            thread::spawn(move || {
                let mut buffer = input(c.rank(), 64);
                let error = c.all_reduce_slice(&mut buffer).unwrap_err();
                let again = c.all_reduce_slice(&mut buffer).unwrap_err();
                (error, again)
            })
        })
        .collect();
    for thread in waiting {
        let (error, again) = thread.join().unwrap();
        assert!(
            matches!(error, CommError::Device(DeviceError::Timeout { peer: Some(2), .. })),
            "{error}"
        );
        assert!(matches!(again, CommError::Device(DeviceError::Poisoned)), "{again}");
    }
    drop(absent);
}

#[test]
fn ranks_that_call_with_different_sizes_are_told_so() {
    let communicators = Communicator::on_host("nvlink-pair", &Options::default()).unwrap();
    let threads: Vec<_> = communicators
        .into_iter()
        .map(|c| {
            thread::spawn(move || {
                let mut buffer = input(c.rank(), 64 + c.rank());
                c.all_reduce_slice(&mut buffer).unwrap_err().to_string()
            })
        })
        .collect();
    for thread in threads {
        let text = thread.join().unwrap();
        assert!(text.contains("rank 0 reduces 128 bytes, rank 1 reduces 130"), "{text}");
    }
}

#[test]
fn a_payload_that_no_range_holds_comes_out_right_in_pieces() {
    let communicators = Communicator::on_host("nvlink-pair", &Options::default()).unwrap();
    let largest = communicators[0].dispatch().ranges().last().unwrap().up_to as usize / 2;
    let elements = 2 * largest + 1003;
    let threads: Vec<_> = communicators
        .into_iter()
        .map(|c| {
            thread::spawn(move || {
                let mut buffer = input(c.rank(), elements);
                c.all_reduce_slice(&mut buffer).unwrap();
                for i in (0..elements).step_by(997).chain([elements - 1]) {
                    assert_eq!(buffer[i], sum(2, i, elements), "element {i}");
                }
                assert_eq!(c.dispatch().misses(Why::TooLarge), 1);
                assert!(
                    c.explain().contains("1 larger than every tuned size"),
                    "{}",
                    c.explain()
                );
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn a_type_without_routes_is_refused_with_the_reason_and_nobody_waits() {
    let communicators = Communicator::on_host("nvlink-pair", &Options::default()).unwrap();
    let error = communicators[0].all_reduce_slice(&mut [1_i32, 2, 3]).unwrap_err();
    assert!(
        matches!(&error, CommError::Unserved { reason } if reason.contains("3 i32") && reason.contains("no comparator")),
        "{error}"
    );
}

#[test]
fn calls_on_gpu_memory_are_refused_by_a_communicator_of_host_memory() {
    let communicators = Communicator::on_host("nvlink-pair", &Options::default()).unwrap();
    assert!(communicators[0].stream().is_none());
    assert!(communicators[0].check().is_ok());
}

#[test]
fn every_shape_is_counted_and_the_trace_names_what_to_tune() {
    let path = std::env::temp_dir().join(format!("topoforge-calls-{}.ron", std::process::id()));
    let options = Options {
        trace: Some(path.clone()),
        ..Options::default()
    };
    let communicators = Communicator::on_host("nvlink-pair", &options).unwrap();
    let threads: Vec<_> = communicators
        .into_iter()
        .map(|c| {
            thread::spawn(move || {
                for elements in [0, 8, 512, 8, 2560] {
                    c.all_reduce_slice(&mut vec![f16::ONE; elements]).unwrap();
                }
                let (trace, left_out) = c.shapes();
                assert_eq!(trace.counts(Element::F16), [(16, 2), (1024, 1), (5120, 1)]);
                assert_eq!(left_out, 0);
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    let written = CallTrace::read(&path).unwrap();
    assert_eq!(written.payloads(Element::F16).unwrap().bytes(), [16, 1024, 5120]);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_communicator_goes_to_another_thread_but_not_to_two_at_once() {
    // Ambiguous, hence no program, if the type were `Sync`.
    trait NotSync<A> {
        fn holds() {}
    }
    impl<T> NotSync<()> for T {}
    impl<T: Sync> NotSync<u8> for T {}
    fn is_send<T: Send>() {}
    is_send::<Communicator>();
    <Communicator as NotSync<_>>::holds();
}

#[test]
fn an_unknown_family_is_an_error_with_the_way_to_the_known_ones() {
    let error = Communicator::on_host("nvlink-pear", &Options::default())
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("nvlink-pear") && error.contains("topoforge families"),
        "{error}"
    );
}

#[test]
fn without_a_driver_gpu_set_up_fails_with_a_reason_and_no_panic() {
    // With a GPU this proves nothing, and the rest of the suite does.
    let error = Communicator::from_streams(&[], &Options::default()).err().unwrap();
    assert!(!error.to_string().is_empty());
}

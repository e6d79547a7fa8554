//! With `batch_invariant` an element's bits depend on the ranks' inputs to it and on nothing else: not on the payload's
//! size, not on where in the payload it stands.
#![cfg(feature = "host-executor")]

use half::f16;
use std::thread;
use topoforge::comm::{Communicator, Options};

/// Elements of which each has the same inputs wherever it stands.
const KINDS: usize = 61;

/// Inputs whose sum depends on the order of additions: magnitudes over twelve binary orders, both signs.
fn input(kind: usize, rank: usize) -> f16 {
    let mixed = (kind * 2654435761 + rank * 40503 + 12345) % 65521;
    let magnitude = f32::from(1 + (mixed % 1023) as u16) * 2_f32.powi((mixed / 1023 % 13) as i32 - 8);
    f16::from_f32(if mixed.is_multiple_of(3) { -magnitude } else { magnitude })
}

/// Which kind stands where in a payload: elsewhere in each.
fn kind(at: usize, payload: usize) -> usize {
    (at * 7 + payload * 17) % KINDS
}

/// Bits of each kind on each rank over payloads of these sizes, and how often bits differed from those seen first.
fn differences(family: &str, sizes: &'static [usize]) -> (Vec<[Option<u16>; KINDS]>, usize) {
    let options = Options {
        batch_invariant: true,
        ..Options::default()
    };
    let communicators = Communicator::on_host(family, &options).expect("proven routes");
    let threads: Vec<_> = communicators
        .into_iter()
        .map(|c| {
            thread::spawn(move || {
                let (mut seen, mut differ) = ([None; KINDS], 0);
                for (payload, elements) in sizes.iter().enumerate() {
                    let values = (0..*elements).map(|at| input(kind(at, payload), c.rank()));
                    let mut buffer: Vec<f16> = values.collect();
                    c.all_reduce_slice(&mut buffer).expect("a sum");
                    for (at, sum) in buffer.iter().enumerate() {
                        let first = seen[kind(at, payload)].get_or_insert(sum.to_bits());
                        differ += usize::from(*first != sum.to_bits());
                    }
                }
                (seen, differ)
            })
        })
        .collect();
    let results: Vec<_> = threads.into_iter().map(|t| t.join().expect("no panic")).collect();
    let differ = results.iter().map(|r| r.1).sum();
    (results.into_iter().map(|r| r.0).collect(), differ)
}

#[test]
fn an_element_has_the_same_bits_in_payloads_of_every_size_over_2_4_and_8_ranks() {
    for (family, sizes) in [
        ("nvlink-pair", &[1, 8, 100, 512, 2560, 9000, 60_000, 600_000][..]),
        ("nvlink-quad", &[1, 8, 100, 512, 2560, 9000, 60_000]),
        ("nvswitch-8", &[1, 8, 100, 512, 2560, 9000]),
    ] {
        let (seen, differ) = differences(family, sizes);
        assert_eq!(differ, 0, "{family}");
        assert!(seen[0].iter().all(Option::is_some), "{family}: every kind occurs");
        assert!(
            seen.iter().all(|rank| *rank == seen[0]),
            "{family}: and the same on all ranks"
        );
    }
}

/// The test above sees what it is for: in another order of additions these inputs give other bits.
#[test]
fn the_inputs_tell_orders_of_additions_apart() {
    let add = |a: f16, b: f16| f16::from_f32(a.to_f32() + b.to_f32());
    let differs = |kind: &usize| {
        let x = |rank| input(*kind, rank);
        let chain = add(add(add(x(0), x(1)), x(2)), x(3));
        let tree = add(add(x(0), x(1)), add(x(2), x(3)));
        chain.to_bits() != tree.to_bits()
    };
    assert!((0..KINDS).filter(differs).count() > KINDS / 8);
}

#[test]
fn the_expression_is_said_and_what_no_range_holds_stays_with_it() {
    let options = Options {
        batch_invariant: true,
        ..Options::default()
    };
    let communicators = Communicator::on_host("nvlink-quad", &options).expect("proven routes");
    let text = communicators[0].explain();
    assert!(
        text.contains("one expression for all sizes: (") && text.contains("the same routes, in pieces"),
        "{text}"
    );
    assert!(
        text.contains("scratch: ") && text.contains(" KiB a rank for these routes"),
        "{text}"
    );
}

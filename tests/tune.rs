//! Tuning on scripted times: what is chosen, against what, and what is left out with its reason.

#[path = "qualify_support/fake.rs"]
mod fake;

use fake::{Fake, Wrong, family, left_fold, variant};
use topoforge::device::{DeviceError, Geometry, Launch};
use topoforge::registry::{Family, Memory, Partials};
use topoforge::tune::{Compare, Payloads, Progress, TuneError, TuneOptions, TuneReport, bench, geometry, tune};

const BOTH: &[Partials] = &[Partials::F16, Partials::F32];
const ALL: &[u64] = &[16 << 10, 128 << 10];
const SMALL: &[u64] = &[16 << 10];
const LARGE: &[u64] = &[128 << 10];

fn pair() -> &'static Family {
    let sum = || left_fold(0..2);
    let variants = vec![
        variant("one-shot/packet/f16", BOTH, sum(), SMALL),
        variant("one-shot/flag/f16", BOTH, sum(), LARGE),
        variant("two-shot/packet/f16", BOTH, sum(), ALL),
        variant("one-shot/packet/f16@host", BOTH, sum(), ALL),
        variant("one-shot/pull/f16", BOTH, sum(), &[]),
    ];
    family("nvlink-pair", variants)
}

fn options(kib: &[u64], comparators: &[Compare]) -> TuneOptions {
    let bytes: Vec<u64> = kib.iter().map(|k| k << 10).collect();
    let payloads = Payloads::from_bytes(&bytes).expect("sizes");
    TuneOptions {
        payloads,
        comparators: comparators.to_vec(),
        ..TuneOptions::default()
    }
}

/// Times by name; blocks of 64 threads are the fastest everywhere.
fn clock(times: &'static [(&'static str, f64)]) -> fake::Clock {
    Box::new(move |name, geometry, _| {
        let us = times.iter().find(|(n, _)| *n == name).map_or(9.0, |(_, us)| *us);
        let ours = !name.starts_with("nccl") && name != "two-stage-pull";
        if ours && geometry.threads != 64 { us + 0.5 } else { us }
    })
}

fn run(exec: &mut Fake, options: &TuneOptions) -> TuneReport {
    let report = tune(exec, pair(), options, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
    assert!(exec.live.is_empty(), "everything is released");
    report
}

#[test]
fn the_fastest_proven_variant_of_the_class_is_selected_in_its_best_geometry() {
    let mut exec = Fake::new(2);
    exec.clock = clock(&[
        ("one-shot/packet/f16", 1.5),
        ("one-shot/flag/f16", 1.2),
        ("two-shot/packet/f16", 1.8),
        ("one-shot/packet/f16@host", 0.1),
        ("one-shot/pull/f16", 4.0),
        ("nccl", 7.5),
    ]);
    let report = run(&mut exec, &options(&[5, 40], &[Compare::Nccl]));
    let names: Vec<_> = report
        .rows
        .iter()
        .map(|r| (r.bytes, r.route.as_deref(), r.geometry))
        .collect();
    // flag is faster, but not on the small class's list; @host is not for machines with peer access.
    let blocks = |blocks| Some(Geometry::new(blocks, 64));
    assert_eq!(names[0], (5 << 10, Some("one-shot/packet/f16"), blocks(5)));
    assert_eq!(names[1], (40 << 10, Some("one-shot/flag/f16"), blocks(16)));
    let row = &report.rows[0];
    assert!(row.selected && row.reason.contains("5.00x faster"), "{row:?}");
    assert_eq!(
        (row.us, row.comparator_us, row.ratio),
        (Some(1.5), Some(7.5), Some(5.0))
    );
    let comparators: Vec<_> = row
        .comparators
        .iter()
        .map(|c| (c.name.as_str(), c.us, c.requested))
        .collect();
    assert_eq!(
        comparators,
        [("one-shot/pull/f16", 4.0, false), ("nccl/f16", 7.5, true)]
    );
    assert!(!report.emulation && report.left_out.is_empty());
}

#[test]
fn a_comparator_half_a_percent_slower_than_ours_is_kept() {
    let mut exec = Fake::new(2);
    exec.clock = clock(&[
        ("one-shot/packet/f16", 2.0),
        ("two-shot/packet/f16", 3.0),
        ("nccl", 2.01),
    ]);
    let report = run(&mut exec, &options(&[5], &[Compare::Nccl]));
    let row = &report.rows[0];
    assert!(!row.selected && row.reason.contains("within the margin"), "{row:?}");
    assert_eq!((row.route.as_deref(), row.us), (Some("one-shot/packet/f16"), Some(2.0)));
    exec.clock = clock(&[
        ("one-shot/packet/f16", 2.0),
        ("two-shot/packet/f16", 3.0),
        ("nccl", 2.03),
    ]);
    assert!(run(&mut exec, &options(&[5], &[Compare::Nccl])).rows[0].selected);
}

#[test]
fn the_fastest_of_the_requested_comparators_must_be_beaten() {
    let mut exec = Fake::new(2);
    exec.clock = clock(&[("one-shot/packet/f16", 2.0), ("one-shot/pull/f16", 1.9), ("nccl", 7.0)]);
    let both = run(&mut exec, &options(&[5], &[Compare::Nccl, Compare::Pull]));
    assert_eq!(
        (both.rows[0].comparator.as_deref(), both.rows[0].selected),
        (Some("one-shot/pull/f16"), false)
    );
    let nccl = run(&mut exec, &options(&[5], &[Compare::Nccl]));
    assert_eq!(
        (nccl.rows[0].comparator.as_deref(), nccl.rows[0].selected),
        (Some("nccl/f16"), true)
    );
    let none = run(&mut exec, &options(&[5], &[Compare::None]));
    let row = &none.rows[0];
    assert!(
        row.comparator.is_none() && row.selected && row.reason.contains("none was asked for"),
        "{row:?}"
    );
    assert_eq!(row.comparators.len(), 1, "pull is always timed");
}

#[test]
fn a_missing_or_broken_comparator_is_recorded_and_not_fatal() {
    let mut exec = Fake::new(2);
    exec.has_nccl = false;
    let report = run(&mut exec, &options(&[5], &[Compare::Nccl]));
    assert!(
        report
            .left_out
            .iter()
            .any(|l| l.name == "nccl/f16" && l.reason.contains("libnccl")),
        "{:?}",
        report.left_out
    );
    assert!(report.rows[0].selected && report.rows[0].reason.contains("no comparator that was asked for"));
    exec.has_nccl = true;
    exec.nccl = Some(Wrong::Dropped { from: 1, to: 0 });
    let report = run(&mut exec, &options(&[5], &[Compare::Nccl]));
    assert!(
        report.left_out.iter().any(|l| l.name == "nccl/f16"),
        "{:?}",
        report.left_out
    );
}

#[test]
fn what_does_not_qualify_is_left_out_with_its_reason_however_fast() {
    let mut exec = Fake::new(2);
    exec.clock = clock(&[
        ("one-shot/packet/f16", 0.1),
        ("two-shot/packet/f16", 2.0),
        ("nccl", 7.0),
    ]);
    exec.wrong.insert("one-shot/packet/f16", Wrong::Stale);
    let mut told = Vec::new();
    let mut progress = |p| {
        if let Progress::LeftOut(left_out) = p {
            told.push(left_out);
        }
    };
    let report = tune(&mut exec, pair(), &options(&[5], &[Compare::Nccl]), &mut progress).expect("others pass");
    assert_eq!(report.rows[0].route.as_deref(), Some("two-shot/packet/f16"));
    assert!(
        report
            .left_out
            .iter()
            .any(|l| l.name == "one-shot/packet/f16" && l.reason.contains("wrong bits"))
    );
    assert_eq!(told, report.left_out);

    for name in ["one-shot/packet/f16", "two-shot/packet/f16", "one-shot/flag/f16"] {
        exec.wrong.insert(name, Wrong::Stale);
    }
    let report = run(&mut exec, &options(&[5], &[Compare::Nccl]));
    let row = &report.rows[0];
    assert!(
        !row.selected && row.route.is_none() && row.comparator_us == Some(7.0),
        "{row:?}"
    );
}

#[test]
fn the_winner_is_proven_in_the_payload_and_geometry_in_which_it_serves() {
    let mut exec = Fake::new(2);
    exec.clock = clock(&[
        ("one-shot/packet/f16", 1.0),
        ("two-shot/packet/f16", 2.0),
        ("nccl", 7.0),
    ]);
    let report = run(&mut exec, &options(&[10], &[Compare::Nccl]));
    let geometry = report.rows[0].geometry.expect("a route");
    assert!(exec.ran.contains(&("one-shot/packet/f16", 10 << 10, geometry)));

    // Passes the quick plan (no payload of 2049 bytes or more), fails where it would serve.
    exec.wrong.insert(
        "one-shot/packet/f16",
        Wrong::Bit {
            call: 0,
            rank: 0,
            element: 1030,
        },
    );
    let report = run(&mut exec, &options(&[10], &[Compare::Nccl]));
    assert_eq!(
        report.rows[0].route.as_deref(),
        Some("two-shot/packet/f16"),
        "{:?}",
        report.left_out
    );
}

#[test]
fn a_candidate_whose_timing_fails_is_left_out_and_the_rest_goes_on() {
    let mut exec = Fake::new(2);
    exec.untimed = Some("one-shot/packet/f16");
    let report = run(&mut exec, &options(&[5, 10], &[Compare::Nccl]));
    assert!(
        report
            .rows
            .iter()
            .all(|r| r.route.as_deref() == Some("two-shot/packet/f16"))
    );
    assert!(
        report
            .left_out
            .iter()
            .any(|l| l.name.starts_with("one-shot/packet/f16 at") && l.reason.contains("deadline"))
    );
}

#[test]
fn requests_that_cannot_be_met_are_errors() {
    let mut exec = Fake::new(4);
    let error = tune(&mut exec, pair(), &options(&[5], &[]), &mut |_| {}).expect_err("4 ranks");
    assert!(matches!(error, TuneError::Misuse { .. }), "{error}");
    let narrow = family(
        "narrow",
        vec![variant("one-shot/packet/f16", &[Partials::F16], left_fold(0..2), ALL)],
    );
    let wide = TuneOptions {
        partials: Partials::F32,
        ..options(&[5], &[])
    };
    let error = tune(&mut Fake::new(2), narrow, &wide, &mut |_| {}).expect_err("no f32");
    assert!(
        error
            .to_string()
            .contains("narrow has no compiled variants of f16 elements with f32 partials"),
        "{error}"
    );
}

#[test]
fn a_machine_without_peer_access_takes_host_variants_only() {
    let options = TuneOptions {
        memory: Memory::Host,
        ..options(&[5], &[Compare::Nccl])
    };
    let report = run(&mut Fake::new(2), &options);
    assert_eq!(report.rows[0].route.as_deref(), Some("one-shot/packet/f16@host"));
    assert_eq!(report.rows[0].comparators.len(), 1, "no peer reads either");
}

#[test]
fn emulation_is_marked() {
    let mut exec = Fake::new(2);
    exec.info.timed = false;
    assert!(run(&mut exec, &options(&[5], &[Compare::None])).emulation);
}

#[test]
fn candidates_are_few_and_bounded() {
    let mut exec = Fake::new(2);
    let limited = TuneOptions {
        max_candidates: 2,
        finalists: 1,
        ..options(&[5], &[Compare::Nccl])
    };
    let mut timed = 0;
    tune(&mut exec, pair(), &limited, &mut |p| {
        if let Progress::Timing { candidates, .. } = p {
            timed = candidates;
        }
    })
    .expect("tunes");
    assert_eq!(timed, 2 + 2, "two of ours, and peer reads in two shapes");
    assert_eq!(exec.times, 3, "two coarse rounds, one last round");
}

#[test]
fn a_payload_costs_few_timings_whatever_the_geometries() {
    let mut exec = Fake::new(2);
    exec.max_blocks = 64;
    exec.clock = clock(&[("one-shot/packet/f16", 1.0), ("nccl", 9.0)]);
    let mut many = options(&[5, 40], &[Compare::Nccl]);
    many.launches = vec![Launch::Plain, Launch::Programmatic];
    let report = run(&mut exec, &many);
    for row in &report.rows {
        // Three variants in two shapes; then each, in both launch modes, in the shapes beside and the other mode in its own.
        assert!(
            row.candidates <= 3 * 2 + 3 * 5,
            "{} for {} bytes",
            row.candidates,
            row.bytes
        );
        // Every shape of 64 threads is the fastest, wherever the first round looked.
        assert_eq!(row.geometry.map(|g| g.threads), Some(64));
    }
    let names: Vec<&str> = report.phases.list().iter().map(|p| p.name).collect();
    for name in [
        "comparator",
        "proofs",
        "loading and scratch",
        "geometry search",
        "last rounds",
        "last proofs",
    ] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
}

#[test]
fn a_shape_beside_the_first_ones_is_found() {
    for best in [32, 64, 128, 256, 512] {
        let mut exec = Fake::new(2);
        exec.clock = Box::new(move |name, geometry, _| match name {
            "nccl" => 9.0,
            _ => 1.0 + (f64::from(geometry.threads) / f64::from(best)).log2().abs(),
        });
        let report = run(&mut exec, &options(&[40], &[Compare::Nccl]));
        assert_eq!(report.rows[0].geometry.map(|g| g.threads), Some(best));
    }
}

#[test]
fn a_device_without_programmatic_launches_is_tuned_with_plain_ones() {
    let mut exec = Fake::new(2);
    exec.info.arch = 80;
    let mut both = options(&[5], &[Compare::Nccl]);
    both.launches = Launch::ALL.to_vec();
    exec.clock = clock(&[("one-shot/packet/f16", 1.0), ("nccl", 9.0)]);
    let row = run(&mut exec, &both).rows.remove(0);
    assert_eq!(
        (row.selected, row.geometry.map(|g| g.launch)),
        (true, Some(Launch::Plain))
    );
}

#[test]
fn only_variants_of_the_tuned_sizes_are_proven() {
    let mut exec = Fake::new(2);
    run(&mut exec, &options(&[5], &[Compare::Nccl]));
    let ran = |name: &str| exec.ran.iter().any(|(n, _, _)| *n == name);
    assert!(ran("one-shot/packet/f16") && ran("two-shot/packet/f16") && ran("one-shot/pull/f16"));
    assert!(!ran("one-shot/flag/f16"), "it is listed for larger payloads only");
}

#[test]
fn each_setting_of_nccl_is_a_comparator_of_its_own() {
    let mut exec = Fake::new(2);
    exec.clock = clock(&[
        ("one-shot/packet/f16", 4.0),
        ("nccl", 7.0),
        ("nccl-ll", 5.0),
        ("nccl-ring", 3.5),
    ]);
    let report = run(&mut exec, &options(&[5], &[Compare::NcclLl, Compare::Nccl]));
    let row = &report.rows[0];
    assert_eq!(
        (row.comparator.as_deref(), row.comparator_us),
        (Some("nccl-ll/f16"), Some(5.0))
    );
    assert!(row.selected && row.comparators.iter().any(|c| c.name == "nccl/f16" && c.us == 7.0));
    let all = [Compare::Nccl, Compare::NcclLl, Compare::NcclRing];
    let row = run(&mut exec, &options(&[5], &all)).rows.remove(0);
    assert_eq!(
        (row.comparator.as_deref(), row.selected),
        (Some("nccl-ring/f16"), false)
    );
}

#[test]
fn peer_reads_are_compared_in_one_stage_and_in_two() {
    let mut exec = Fake::new(2);
    exec.clock = clock(&[
        ("one-shot/packet/f16", 2.0),
        ("one-shot/pull/f16", 4.0),
        ("two-stage-pull", 3.0),
        ("nccl", 7.0),
    ]);
    let row = run(&mut exec, &options(&[5], &[Compare::Pull])).rows.remove(0);
    assert_eq!(
        (row.comparator.as_deref(), row.selected),
        (Some("two-stage-pull/f16"), true)
    );
    let names: Vec<_> = row.comparators.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["two-stage-pull/f16", "one-shot/pull/f16"]);
}

#[test]
fn a_route_that_loses_under_load_is_not_taken_and_says_so() {
    let mut exec = Fake::new(2);
    let idle: &[_] = &[
        ("one-shot/packet/f16", 1.0),
        ("two-shot/packet/f16", 2.0),
        ("nccl", 7.0),
    ];
    exec.clock = clock(idle);
    exec.loaded = Some(clock(&[
        ("one-shot/packet/f16", 20.0),
        ("two-shot/packet/f16", 9.0),
        ("nccl", 10.0),
    ]));
    let busy = TuneOptions {
        concurrency: 3,
        ..options(&[5], &[Compare::Nccl])
    };
    let report = run(&mut exec, &busy);
    let row = &report.rows[0];
    assert_eq!(
        (row.route.as_deref(), row.selected),
        (Some("two-shot/packet/f16"), true),
        "{row:?}"
    );
    let loaded = row.loaded.as_ref().expect("it was tried");
    assert_eq!((loaded.streams, loaded.comparator_us), (3, Some(10.0)));
    let said = "beside 3 busy streams it takes 20.";
    assert!(
        report
            .left_out
            .iter()
            .any(|l| l.name.starts_with("one-shot/packet/f16 at") && l.reason.contains(said)),
        "{:?}",
        report.left_out
    );

    exec.loaded = Some(clock(&[
        ("one-shot/packet/f16", 20.0),
        ("two-shot/packet/f16", 11.0),
        ("nccl", 10.0),
    ]));
    let row = run(&mut exec, &busy).rows.remove(0);
    assert!(!row.selected && row.reason.contains("beside 3 busy streams"), "{row:?}");
    assert_eq!(row.comparator_us, Some(7.0), "figures of the idle machine stay");

    // Without the option nothing is tried.
    assert!(run(&mut exec, &options(&[5], &[Compare::Nccl])).rows[0].selected);
}

#[test]
fn one_thread_a_column_until_the_device_is_full() {
    let v = variant("one-shot/packet/f16", BOTH, left_fold(0..2), ALL);
    let shapes = |bytes, most| {
        geometry::candidates(&v, bytes, |_| most)
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(shapes(2, 100), ["1x32"]);
    assert_eq!(shapes(1 << 10, 100), ["2x32", "1x64"]);
    assert_eq!(shapes(5 << 10, 100), ["10x32", "5x64", "3x128", "2x256", "1x512"]);
    assert_eq!(
        shapes(1 << 20, 132),
        ["132x32", "132x64", "132x128", "132x256", "128x512"]
    );
    assert_eq!(shapes(5 << 10, 0), [""; 0]);
    let pull = variant("one-shot/pull/f16", BOTH, left_fold(0..2), &[]);
    assert!(
        geometry::candidates(&pull, 1 << 20, |_| 4096)
            .iter()
            .all(|g| g.blocks <= 512)
    );
}

#[test]
fn bench_has_one_column_a_variant_and_chooses_nothing() {
    let mut exec = Fake::new(2);
    exec.clock = clock(&[("one-shot/packet/f16", 1.5), ("one-shot/pull/f16", 4.0), ("nccl", 7.5)]);
    exec.wrong.insert("two-shot/packet/f16", Wrong::Order);
    exec.wrong.insert("one-shot/flag/f16", Wrong::Stale);
    let report = bench(&mut exec, pair(), &options(&[1, 5], &[Compare::Nccl]), &mut |_| {}).expect("times");
    assert_eq!(
        report.columns,
        [
            "one-shot/packet/f16",
            "two-shot/packet/f16",
            "one-shot/pull/f16",
            "nccl/f16"
        ]
    );
    assert_eq!(report.left_out.len(), 1);
    for row in &report.rows {
        let us: Vec<_> = row.figures.iter().map(|f| f.map(|f| f.us)).collect();
        assert_eq!(us, [Some(1.5), Some(9.0), Some(4.0), Some(7.5)], "{}", row.bytes);
        assert!(row.figures[0].is_some_and(|f| f.geometry.is_some_and(|g| g.threads == 64)));
        assert!(row.figures[3].is_some_and(|f| f.geometry.is_none()));
    }
    assert!(exec.live.is_empty());
}

#[test]
fn a_dead_device_is_an_error_and_not_an_empty_report() {
    let one = family("one", vec![variant("one-shot/packet/f16", BOTH, left_fold(0..2), ALL)]);
    let mut exec = Fake::new(2);
    exec.untimed = Some("one-shot/packet/f16");
    let error = tune(&mut exec, one, &options(&[5], &[Compare::None]), &mut |_| {}).expect_err("nothing can be timed");
    assert!(
        matches!(error, TuneError::Device(DeviceError::Timeout { .. })),
        "{error}"
    );
    assert!(exec.live.is_empty());
}

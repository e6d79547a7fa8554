//! Doctor's verdicts: every fault of an edge is told from the others, on a model, on the real kernels, and in a child that
//! hangs.

use std::process::Command;
use std::time::{Duration, Instant};
use topoforge::doctor::simulated::{EdgeFault, SimulatedLink};
use topoforge::doctor::{Verdict, child, judge};

#[test]
fn a_good_pair_is_right_both_ways() {
    let reports = judge(&mut SimulatedLink::new(None), [3, 5], 8);
    assert_eq!(
        [(reports[0].from, reports[0].to), (reports[1].from, reports[1].to)],
        [(3, 5), (5, 3)]
    );
    assert!(
        reports
            .iter()
            .all(|r| r.write == Verdict::Right && r.read == Verdict::Right)
    );
}

#[test]
fn every_fault_of_one_edge_has_its_verdict_and_the_other_direction_stays_right() {
    let cases = [
        (EdgeFault::Zeroes, Verdict::Zeros),
        (EdgeFault::Delays, Verdict::Stale),
        (EdgeFault::Tears, Verdict::Torn),
        (EdgeFault::Garbles, Verdict::Wrong),
        (EdgeFault::Swallows, Verdict::Hang),
    ];
    for rank in 0..2 {
        for (fault, verdict) in &cases {
            let reports = judge(&mut SimulatedLink::new(Some((rank, *fault))), [0, 1], 8);
            assert_eq!(
                reports[rank].write, *verdict,
                "{fault:?} of rank {rank}: {:?}",
                reports[rank]
            );
            assert_eq!(reports[rank].read, *verdict, "{fault:?} of rank {rank}");
            assert_eq!(reports[rank].lines, *verdict, "{fault:?} of rank {rank}");
            let other = &reports[1 - rank];
            assert!(
                !other.write.is_bad() && !other.read.is_bad() && !other.lines.is_bad(),
                "{fault:?} of rank {rank}: {other:?}"
            );
        }
    }
}

#[test]
fn lines_torn_under_a_reader_are_told_with_their_number() {
    let reports = judge(&mut SimulatedLink::new(Some((1, EdgeFault::Tears))), [0, 1], 4);
    let words = |r: usize| reports[r].detail.iter().find(|d| d.contains("under a reader")).cloned();
    assert_eq!(
        words(0).as_deref(),
        Some("lines under a reader: 1000 changes, none torn")
    );
    assert_eq!(
        words(1).as_deref(),
        Some("lines under a reader: 3 torn beside 1000 changes")
    );
}

#[test]
fn dropped_writes_show_as_zeros_first() {
    let reports = judge(&mut SimulatedLink::new(Some((0, EdgeFault::Drops))), [0, 1], 8);
    assert!(
        matches!(reports[0].write, Verdict::Zeros | Verdict::Stale),
        "{:?}",
        reports[0]
    );
    assert!(
        reports[0].detail.iter().any(|d| d.contains("round 0")),
        "{:?}",
        reports[0]
    );
}

#[test]
fn a_child_that_hangs_is_killed_and_is_a_hang() {
    let mut command = Command::new("sleep");
    command.arg("600");
    let start = Instant::now();
    let reports = child::run(command, [0, 1], Duration::from_millis(200));
    assert!(start.elapsed() < Duration::from_secs(20));
    assert!(reports.conclusive && reports.reports.len() == 2);
    assert!(reports.reports.iter().all(|r| r.write == Verdict::Hang));
}

#[test]
fn a_child_that_dies_is_a_refusal_with_its_last_words() {
    let mut command = Command::new("sh");
    command.args(["-c", "echo first >&2; echo 'no such device' >&2; exit 3"]);
    let reports = child::run(command, [0, 1], Duration::from_secs(30));
    assert!(!reports.conclusive, "a crash is told but not kept");
    let reports = reports.reports;
    assert!(
        reports
            .iter()
            .all(|r| r.write == Verdict::Refused("no such device".into())),
        "{reports:?}"
    );
    let reports = child::run(Command::new("/nowhere/at/all"), [0, 1], Duration::from_secs(1));
    assert!(!reports.conclusive && reports.reports.iter().all(|r| r.write.is_bad()));
}

#[test]
fn what_a_child_prints_comes_back() {
    let reports = judge(&mut SimulatedLink::new(Some((1, EdgeFault::Tears))), [2, 7], 4);
    let text = format!("a library's banner\n{}", child::lines(&reports));
    assert_eq!(child::parse(&text), reports);
    let mut command = Command::new("sh");
    command.args(["-c", "printf '%s' \"$1\"", "sh", &text]);
    assert_eq!(child::run(command, [2, 7], Duration::from_secs(30)).reports, reports);
}

#[cfg(feature = "host-executor")]
mod kernels {
    use topoforge::device::Fault;
    use topoforge::device::host::{Delivery, HostExecutor, HostOptions};
    use topoforge::doctor::link::{KernelLink, PairLink};
    use topoforge::doctor::{Verdict, judge};
    use topoforge::registry::{Protocol, Registry};

    fn executor() -> HostExecutor {
        let options = HostOptions {
            seed: 5,
            delivery: Delivery::Random,
            ..HostOptions::default()
        };
        HostExecutor::new(2, options)
    }

    fn link(fault: Option<Fault>) -> KernelLink<HostExecutor> {
        KernelLink::new(&Registry::builtin(), executor(), fault)
    }

    #[test]
    fn the_compiled_kernels_exchange_patterns_and_are_right() {
        let mut link = link(None);
        assert!(link.paths().len() >= 2, "{:?}", link.paths());
        let reports = judge(&mut link, [0, 1], 2);
        for report in &reports {
            assert!(!report.write.is_bad() && !report.read.is_bad(), "{report:?}");
            assert_eq!(report.write, Verdict::Right, "{report:?}");
            assert_eq!(report.lines, Verdict::Right, "{report:?}");
        }
    }

    #[test]
    fn lines_that_arrive_in_parts_are_seen_and_counted_and_speak_against_nothing_else() {
        let mut found = KernelLink::of(
            &Registry::builtin(),
            executor(),
            Some(Fault::TornLine),
            &[Protocol::Packet128],
        );
        let reports = judge(&mut found, [0, 1], 8);
        assert!(reports.iter().any(|r| r.lines.is_bad()), "{reports:?}");
        for report in &reports {
            assert_eq!(
                (&report.write, &report.read),
                (&Verdict::NotRun, &Verdict::NotRun),
                "{report:?}"
            );
            if report.lines == Verdict::Torn {
                assert!(report.detail.iter().any(|d| d.contains(" torn")), "{report:?}");
            }
        }
    }

    #[test]
    fn a_contribution_dropped_by_the_compiled_kernels_is_seen() {
        let reports = judge(&mut link(Some(Fault::DroppedContribution)), [0, 1], 2);
        assert!(
            reports
                .iter()
                .any(|r| r.write == Verdict::Zeros || r.read == Verdict::Zeros),
            "{reports:?}"
        );
    }
}

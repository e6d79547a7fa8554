//! Timelines add up to the prediction and name what holds a call up; bounds lie below every prediction; symmetries are
//! real.

mod schedule_support;

use schedule_support::{NVLINK, PIX, SYS, complete, cube_mesh, mixed};
use topoforge_planner::schedule::bound::Bound;
use topoforge_planner::schedule::cost::Profile;
use topoforge_planner::schedule::simulate::{Place, simulate};
use topoforge_planner::schedule::symmetry::{Symmetry, is_symmetry};
use topoforge_planner::schedule::{EdgePolicy, Edges, Protocol, Widths, generate};
use topoforge_planner::topology::Topology;

#[test]
fn a_timeline_adds_up_to_what_was_predicted() {
    let wide = Widths {
        element: 2,
        partials: 4,
    };
    for machine in [mixed(), cube_mesh(), complete(5, PIX)] {
        let edges = Edges::new(&machine, EdgePolicy::Peer);
        for candidate in generate(&edges, 60) {
            let schedule = candidate.schedule;
            for &protocol in Protocol::for_delivery(schedule.delivery) {
                for (widths, bytes) in [(Widths::default(), 5 << 10), (wide, 1 << 20)] {
                    let timeline = simulate(&schedule, &machine, EdgePolicy::Peer, widths, protocol, bytes);
                    let predicted = Profile::of(&schedule, &edges, widths).predict(protocol, bytes);
                    assert!(
                        (timeline.total_us - predicted).abs() < 1e-9 * predicted,
                        "{}",
                        schedule.name
                    );
                    assert_eq!(timeline.stages.len(), schedule.stages.len());
                    let mut now = timeline.launch_us;
                    for stage in &timeline.stages {
                        assert_eq!(stage.begins_us, now);
                        now = stage.ends_us;
                    }
                }
            }
        }
    }
}

#[test]
fn the_most_loaded_place_is_the_narrow_one() {
    let across = vec![(0, 2), (0, 3), (1, 2), (1, 3)];
    let narrow = complete(4, PIX).with_resource("uplink", 3.0, across);
    let candidates = generate(&Edges::new(&narrow, EdgePolicy::Peer), 60);
    let one_shot = &candidates
        .iter()
        .find(|c| c.shape == "one-shot")
        .expect("complete")
        .schedule;
    let timeline = simulate(
        one_shot,
        &narrow,
        EdgePolicy::Peer,
        Widths::default(),
        Protocol::Flag,
        3000,
    );
    let load = timeline.most_loaded.clone().expect("messages");
    assert_eq!(load.place, Place::Resource("uplink".into()));
    assert!((load.bytes - 12_000.0).abs() < 1e-6 && (load.busy_us - 4.0).abs() < 1e-6);
    let text = timeline.to_string();
    assert!(
        text.contains("stage 0: 12 transfers") && text.contains("most loaded: uplink, busy 4.00"),
        "{text}"
    );
}

#[test]
fn a_schedule_for_another_machine_has_no_stages() {
    let candidates = generate(&Edges::new(&complete(4, PIX), EdgePolicy::Peer), 60);
    let other = complete(5, PIX);
    let timeline = simulate(
        &candidates[1].schedule,
        &other,
        EdgePolicy::Peer,
        Widths::default(),
        Protocol::Flag,
        64,
    );
    assert!(timeline.stages.is_empty() && timeline.most_loaded.is_none());
}

#[test]
fn no_prediction_is_below_the_bound() {
    let path = Topology::new("path", 3).with_pair(0, 1, PIX).with_pair(1, 2, SYS);
    let narrow = complete(4, PIX).with_resource("up", 3.0, vec![(0, 2), (0, 3), (1, 2), (1, 3)]);
    for machine in [path, narrow, mixed(), cube_mesh(), complete(16, NVLINK)] {
        let edges = Edges::new(&machine, EdgePolicy::Peer);
        let bound = Bound::of(&edges);
        for candidate in generate(&edges, 200) {
            let profile = Profile::of(&candidate.schedule, &edges, Widths::default());
            for bytes in [16, 64 << 10, 4 << 20] {
                let best = profile.best(bytes).1;
                assert!(best > bound.at(bytes), "{}, {bytes} bytes", candidate.schedule.name);
            }
        }
    }
}

#[test]
fn bounds_are_those_one_works_out_by_hand() {
    let path = Topology::new("path", 3).with_pair(0, 1, PIX).with_pair(1, 2, PIX);
    let bound = Bound::of(&Edges::new(&path, EdgePolicy::Peer));
    assert!((bound.latency_us - 1.8).abs() < 1e-9, "two hops");
    assert!((bound.us_per_byte - 1e-3 / 12.0).abs() < 1e-12);
    let narrow = complete(4, PIX).with_resource("up", 3.0, vec![(0, 2), (0, 3), (1, 2), (1, 3)]);
    let bound = Bound::of(&Edges::new(&narrow, EdgePolicy::Peer));
    assert!(
        (bound.us_per_byte - 1e-3 / 3.0).abs() < 1e-12,
        "all of one half's bytes cross it"
    );
    let mesh = Bound::of(&Edges::new(&complete(4, NVLINK), EdgePolicy::Peer));
    assert!(
        (mesh.us_per_byte - 1e-3 / 75.0).abs() < 1e-12,
        "three links leave a rank"
    );
    let apart = Bound::of(&Edges::new(&Topology::new("apart", 2), EdgePolicy::Peer));
    assert!(apart.at(1).is_infinite());
}

#[test]
fn symmetries_are_as_many_as_one_counts_and_each_is_checked() {
    let count = |machine: &Topology| {
        let edges = Edges::new(machine, EdgePolicy::Peer);
        let symmetry = Symmetry::of(&edges);
        assert!(
            symmetry.generators().iter().all(|g| is_symmetry(&edges, g)),
            "{}",
            machine.name
        );
        symmetry.order()
    };
    assert_eq!(count(&complete(5, PIX)), 120);
    assert_eq!(count(&complete(8, PIX)), 40_320);
    let path = Topology::new("path", 3).with_pair(0, 1, PIX).with_pair(1, 2, PIX);
    assert_eq!(count(&path), 2);
    let one_way = Topology::new("uneven", 3).with_pair(0, 1, PIX).with_pair(1, 2, NVLINK);
    assert_eq!(count(&one_way), 1);
    // A capacity that only one of two equal halves crosses tells them apart.
    let halves = complete(4, SYS).with_pair(0, 1, NVLINK).with_pair(2, 3, NVLINK);
    assert_eq!(count(&halves), 8);
    let told_apart = halves.with_resource("up", 9.0, vec![(0, 2), (0, 3), (1, 2), (1, 3)]);
    assert_eq!(count(&told_apart), 4);
}

#[test]
fn renaming_a_machine_changes_neither_the_number_of_candidates_nor_the_best_prediction() {
    let machine = mixed();
    let renamed = machine.relabelled(&[3, 7, 1, 5, 0, 4, 2, 6]).expect("a permutation");
    let best = |machine: &Topology| {
        let edges = Edges::new(machine, EdgePolicy::Peer);
        let candidates = generate(&edges, usize::MAX);
        let us = candidates
            .iter()
            .map(|c| Profile::of(&c.schedule, &edges, Widths::default()).best(48 << 10).1);
        (
            candidates.iter().filter(|c| c.shape == "exchange-2x4").count(),
            us.fold(f64::INFINITY, f64::min),
        )
    };
    let (a, b) = (best(&machine), best(&renamed));
    assert!(a.0 == b.0 && (a.1 - b.1).abs() < 1e-9, "{a:?} {b:?}");
}

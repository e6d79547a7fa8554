//! What generators make: every candidate verifies, shares one expression, stays on the graph and has a name of its own.

mod schedule_support;

use schedule_support::{NVLINK, PIX, complete, cube_mesh, mixed};
use std::collections::BTreeSet;
use topoforge_planner::schedule::generate::mixed_radix::{Mode, Shape, build, shapes};
use topoforge_planner::schedule::verify::verify_on;
use topoforge_planner::schedule::{Delivery, EdgePolicy, Edges, declared, generate, replicated, verify};
use topoforge_planner::topology::{Link, LinkClass, Topology};

#[test]
fn every_candidate_verifies_with_one_expression_on_all_ranks() {
    for n in [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 64] {
        let edges = Edges::new(&complete(n, PIX), EdgePolicy::Peer);
        let candidates = generate(&edges, 2048);
        assert!(
            candidates.len() >= 3,
            "{n} ranks: one-shot, two-shot and one-shot-pull at least"
        );
        let names: BTreeSet<_> = candidates.iter().map(|c| c.schedule.name.clone()).collect();
        assert_eq!(names.len(), candidates.len(), "{n} ranks: names are unique");
        for candidate in candidates {
            let name = candidate.schedule.name.clone();
            assert!(name.starts_with(&candidate.shape), "{name}: {}", candidate.shape);
            let verified =
                verify_on(candidate.schedule, &edges, 2).unwrap_or_else(|e| panic!("{n} ranks, {name}: {e}"));
            assert!(replicated(&verified), "{n} ranks, {name}");
        }
    }
}

#[test]
fn a_single_rank_and_an_oversized_group_have_no_candidates() {
    for n in [0, 1, 65] {
        assert_eq!(
            generate(&Edges::new(&Topology::new("any", n), EdgePolicy::Host), 2048),
            []
        );
    }
}

#[test]
fn shapes_are_all_ordered_factorisations_with_all_modes() {
    let names: Vec<String> = shapes(4).iter().map(Shape::name).collect();
    assert_eq!(
        names,
        [
            "one-shot",
            "two-shot",
            "exchange-2x2",
            "exchange-2s2r",
            "exchange-2r2s",
            "halving-2x2"
        ]
    );
    // 8 = 8, 2*4, 4*2, 2*2*2; two modes a stage.
    assert_eq!(shapes(8).len(), 2 + 4 + 4 + 8);
    assert_eq!(shapes(7).len(), 2, "a prime has no grid");
    assert!(shapes(8).iter().any(|s| s.name() == "exchange-2x2x2"));
    assert!(shapes(8).iter().any(|s| s.name() == "halving-2x2x2"));
    assert!(shapes(8).iter().any(|s| s.name() == "exchange-2s4r"));
}

#[test]
fn sums_follow_the_grid() {
    let expression = |modes: &[(usize, Mode)], placement: &[usize]| {
        let n = placement.len();
        let schedule = build(&Shape(modes.to_vec()), placement, "any".into()).expect("a permutation");
        let verified = verify(schedule, &complete(n, NVLINK), EdgePolicy::Peer, 2).expect("valid");
        declared(&verified)[n - 1][0].to_string()
    };
    use Mode::{Replicate, Scatter};
    assert_eq!(expression(&[(4, Replicate)], &[0, 1, 2, 3]), "(((x0+x1)+x2)+x3)");
    assert_eq!(expression(&[(4, Scatter)], &[0, 1, 2, 3]), "(((x0+x1)+x2)+x3)");
    assert_eq!(
        expression(&[(2, Replicate), (2, Replicate)], &[0, 1, 2, 3]),
        "((x0+x1)+(x2+x3))"
    );
    assert_eq!(
        expression(&[(2, Replicate), (2, Scatter)], &[0, 2, 1, 3]),
        "((x0+x2)+(x1+x3))"
    );
    assert_eq!(
        expression(&[(3, Replicate), (2, Scatter)], &[0, 1, 2, 3, 4, 5]),
        "(((x0+x1)+x2)+((x3+x4)+x5))"
    );
}

#[test]
fn scattering_divides_what_each_rank_sends() {
    let sent = |modes: &[(usize, Mode)]| {
        let schedule = build(&Shape(modes.to_vec()), &[0, 1, 2, 3, 4, 5, 6, 7], "any".into()).expect("a permutation");
        let of_rank = schedule.transfers().filter(|t| t.from == 3).count();
        (schedule.chunks as usize, schedule.stages.len(), of_rank)
    };
    use Mode::{Replicate, Scatter};
    assert_eq!(sent(&[(8, Replicate)]), (1, 1, 7));
    assert_eq!(sent(&[(8, Scatter)]), (8, 2, 7 + 7), "7/8 of the payload twice");
    assert_eq!(
        sent(&[(2, Scatter), (2, Scatter), (2, Scatter)]),
        (8, 6, 2 * (4 + 2 + 1))
    );
    assert_eq!(sent(&[(2, Replicate), (2, Replicate), (2, Replicate)]), (1, 3, 3));
    assert_eq!(sent(&[(4, Scatter), (2, Replicate)]), (4, 3, 3 + 1 + 3));
}

#[test]
fn ranks_begin_with_different_receivers() {
    for candidate in generate(&Edges::new(&complete(8, PIX), EdgePolicy::Peer), 30) {
        let schedule = candidate.schedule;
        for stage in &schedule.stages {
            let first = |rank: usize| {
                stage.transfers.iter().find(|t| if schedule.delivery == Delivery::Push { t.from } else { t.to } == rank)
            };
            let others: BTreeSet<_> = (0..8)
                .filter_map(first)
                .map(|t| {
                    if schedule.delivery == Delivery::Push {
                        t.to
                    } else {
                        t.from
                    }
                })
                .collect();
            assert_eq!(others.len(), 8, "{}", schedule.name);
        }
    }
}

#[test]
fn a_placement_that_is_no_permutation_is_refused() {
    let shape = Shape(vec![(2, Mode::Replicate), (2, Mode::Scatter)]);
    for placement in [&[0, 1, 2][..], &[0, 1, 2, 2], &[0, 1, 2, 4], &[0, 1, 2, 3, 4]] {
        assert_eq!(build(&shape, placement, "any".into()), None);
    }
}

#[test]
fn candidates_stay_on_the_edges_of_the_graph() {
    let mesh = cube_mesh();
    let edges = Edges::new(&mesh, EdgePolicy::Peer);
    let candidates = generate(&edges, 2048);
    assert!(
        candidates.iter().any(|c| c.shape == "exchange-2x2x2") && candidates.iter().any(|c| c.shape == "halving-4x2")
    );
    assert!(
        !candidates
            .iter()
            .any(|c| c.shape.starts_with("one-shot") || c.shape == "two-shot"),
        "the mesh has holes"
    );
    for c in candidates {
        assert!(
            c.schedule.used_edges().iter().all(|&(a, b)| mesh.can_write(a, b)),
            "{}",
            c.schedule.name
        );
        verify_on(c.schedule, &edges, 2).expect("on the graph");
    }
}

#[test]
fn one_way_links_and_missing_capabilities_are_respected() {
    let one_way = Topology::new("one-way", 2).with_link(Link::new(0, 1, PIX));
    assert_eq!(generate(&Edges::new(&one_way, EdgePolicy::Peer), 2048), []);
    let link = |from, to, read, write| Link {
        read,
        write,
        ..Link::new(from, to, PIX)
    };
    let shapes = |topology: &Topology| -> Vec<String> {
        generate(&Edges::new(topology, EdgePolicy::Peer), 2048)
            .into_iter()
            .map(|c| c.shape)
            .collect()
    };
    let write_only = Topology::new("w", 2)
        .with_link(link(0, 1, false, true))
        .with_link(link(1, 0, false, true));
    assert_eq!(shapes(&write_only), ["one-shot", "two-shot"]);
    let read_only = Topology::new("r", 2)
        .with_link(link(0, 1, true, false))
        .with_link(link(1, 0, true, false));
    assert_eq!(shapes(&read_only), ["one-shot-pull"]);
}

#[test]
fn host_policy_gives_every_topology_the_whole_choice_and_keeps_to_host_links() {
    let apart = Topology::new("apart", 4);
    let staged = Edges::new(&apart, EdgePolicy::Host);
    let shapes: BTreeSet<_> = generate(&staged, 2048).into_iter().map(|c| c.shape).collect();
    assert!(
        shapes.contains("one-shot") && shapes.contains("exchange-2x2"),
        "{shapes:?}"
    );
    assert_eq!(generate(&Edges::new(&apart, EdgePolicy::Peer), 2048), []);
    let host_links = Topology::new("host", 2).with_pair(0, 1, LinkClass::Host);
    assert_eq!(
        generate(&Edges::new(&host_links, EdgePolicy::Peer), 2048),
        [],
        "host links are no peer links"
    );
}

#[test]
fn peer_limits_leave_only_what_needs_fewer_peers() {
    let mut limited = complete(16, PIX);
    limited.peer_degree_limit = Some(8);
    let edges = Edges::new(&limited, EdgePolicy::Peer);
    let candidates = generate(&edges, 2048);
    assert!(candidates.iter().any(|c| c.shape == "exchange-4x4"));
    for c in candidates {
        verify_on(c.schedule, &edges, 2).expect("within the limit");
    }
}

#[test]
fn the_budget_is_kept_and_every_shape_gets_its_turn() {
    let edges = Edges::new(&mixed(), EdgePolicy::Peer);
    for budget in [0, 1, 19, 100, 2048] {
        let candidates = generate(&edges, budget);
        assert_eq!(
            candidates.len(),
            budget,
            "a complete graph of 8 has more than 2,048 placements"
        );
        let shapes: BTreeSet<_> = candidates.iter().map(|c| c.shape.clone()).collect();
        assert_eq!(shapes.len(), budget.min(19));
    }
}

#[test]
fn placements_of_eight_ranks_are_counted_up_to_symmetry() {
    // 8! / (2!*2!*2!) for the cube, 8! / (2!*4!) for 2x4 and 4x2; pull, one-shot and two-shot have one each.
    let all = generate(&Edges::new(&complete(8, PIX), EdgePolicy::Peer), usize::MAX);
    let of = |shape: &str| all.iter().filter(|c| c.shape == shape).count();
    assert_eq!((of("one-shot-pull"), of("one-shot"), of("two-shot")), (1, 1, 1));
    assert_eq!(
        (of("exchange-2x4"), of("halving-4x2"), of("exchange-2x2x2")),
        (840, 840, 5040)
    );
}

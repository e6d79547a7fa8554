//! What generators make: every candidate verifies, shares one expression, stays on the graph and has a name of its own.

mod schedule_support;

use schedule_support::{NVLINK, PIX, SYS, Seeded, complete, cube_mesh, mixed};
use std::collections::BTreeSet;
use topoforge_planner::schedule::generate::mixed_radix::{Mode, Shape, build, shapes};
use topoforge_planner::schedule::verify::verify_on;
use topoforge_planner::schedule::{Candidate, Delivery, EdgePolicy, Edges, declared, generate, replicated, verify};
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
    for candidate in generate(&Edges::new(&complete(8, PIX), EdgePolicy::Peer), 60) {
        let schedule = candidate.schedule;
        // Trees, rings and leaders leave no choice.
        if !["one-shot", "two-shot", "exchange", "halving"]
            .iter()
            .any(|idea| schedule.name.starts_with(idea))
        {
            continue;
        }
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
            .any(|c| ["one-shot", "one-shot-pull", "two-shot"].contains(&c.shape.as_str())),
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
    let all: BTreeSet<_> = generate(&edges, 2048).into_iter().map(|c| c.shape).collect();
    for budget in [0, 1, 19, 60, 200] {
        let candidates = generate(&edges, budget);
        assert_eq!(candidates.len(), budget, "there are more placements than that");
        let shapes: BTreeSet<_> = candidates.iter().map(|c| c.shape.clone()).collect();
        // A ring may take more than one place.
        assert!(shapes.len() + 6 >= budget.min(all.len()), "{budget}: {shapes:?}");
    }
}

#[test]
fn placements_of_eight_ranks_are_counted_up_to_symmetry() {
    // Every placement of a complete uniform group is a renaming of one.
    let all = generate(&Edges::new(&complete(8, PIX), EdgePolicy::Peer), usize::MAX);
    let of = |all: &[Candidate], shape: &str| all.iter().filter(|c| c.shape == shape).count();
    for shape in [
        "one-shot-pull",
        "one-shot",
        "two-shot",
        "exchange-2x4",
        "halving-4x2",
        "exchange-2x2x2",
    ] {
        assert_eq!(of(&all, shape), 1, "{shape}");
    }
    // One edge that differs from all others leaves 8!/(2!*6!) ways less: the cube has 8!/(2!*2!*2!) placements in
    // all, of which those stay that differ in where the edge lies: along one of three axes, or across two or three.
    let odd = complete(8, PIX).with_pair(0, 1, NVLINK);
    let odd = generate(&Edges::new(&odd, EdgePolicy::Peer), usize::MAX);
    assert_eq!(of(&odd, "exchange-2x2x2"), 3 + 3 + 1);
    // Eight ranks of which no two are alike keep all of them.
    let mut unlike = complete(8, PIX);
    for (at, link) in unlike.links.iter_mut().enumerate() {
        link.latency_ns = Some(1000 + at as u32);
    }
    let unlike = generate(&Edges::new(&unlike, EdgePolicy::Peer), usize::MAX);
    assert_eq!(
        (of(&unlike, "exchange-2x4"), of(&unlike, "exchange-2x2x2")),
        (840, 5040)
    );
}

/// Graphs with holes, slow bridges, odd sizes and limits: what real machines look like.
fn partly_linked(ranks: usize, random: &mut Seeded) -> Topology {
    // A random tree keeps it connected; then some more edges, of random classes.
    let classes = [NVLINK, PIX, SYS, LinkClass::NvLink { lanes: 2, r#gen: 3 }];
    let mut topology = Topology::new("random", ranks);
    for rank in 1..ranks {
        topology = topology.with_pair(random.below(rank), rank, classes[random.below(4)]);
    }
    for _ in 0..random.below(2 * ranks) {
        let (a, b) = (random.below(ranks), random.below(ranks));
        if a != b {
            topology = topology.with_pair(a, b, classes[random.below(4)]);
        }
    }
    topology
}

#[test]
fn every_connected_machine_has_verified_schedules_over_its_own_edges() {
    let mut random = Seeded(3);
    let (mut machines, mut schedules) = (0, 0);
    for ranks in (3..=16).chain([32, 64]) {
        for _ in 0..6 {
            let topology = partly_linked(ranks, &mut random);
            let edges = Edges::new(&topology, EdgePolicy::Peer);
            let candidates = generate(&edges, 2048);
            assert!(candidates.iter().any(|c| c.shape.starts_with("tree-")), "{topology:?}");
            for candidate in candidates {
                let name = candidate.schedule.name.clone();
                let verified = verify_on(candidate.schedule, &edges, 2)
                    .unwrap_or_else(|e| panic!("{ranks} ranks, {name}: {e}\n{topology:?}"));
                assert!(replicated(&verified), "{ranks} ranks, {name}");
                schedules += 1;
            }
            machines += 1;
        }
    }
    println!("{machines} machines, {schedules} schedules");
}

#[test]
fn a_missing_edge_is_bridged_through_other_ranks() {
    let path = Topology::new("path", 3).with_pair(0, 1, PIX).with_pair(1, 2, PIX);
    let edges = Edges::new(&path, EdgePolicy::Peer);
    let candidates = generate(&edges, 2048);
    let relay = candidates
        .iter()
        .find(|c| c.shape == "one-shot-relay")
        .expect("two hops");
    assert_eq!(relay.schedule.stages.len(), 2);
    let last: Vec<_> = relay.schedule.stages[1]
        .transfers
        .iter()
        .map(|t| (t.from, t.to))
        .collect();
    assert_eq!(
        last,
        [(1, 2), (1, 0)],
        "rank 1 passes on what 0 and 2 say to each other"
    );
}

#[test]
fn one_way_links_that_join_all_ranks_carry_a_tree_and_a_ring() {
    let mut circle = Topology::new("circle", 4);
    for rank in 0..4 {
        circle = circle.with_link(Link::new(rank, (rank + 1) % 4, PIX));
    }
    let edges = Edges::new(&circle, EdgePolicy::Peer);
    let shapes: Vec<_> = generate(&edges, 2048).into_iter().map(|c| c.shape).collect();
    assert_eq!(shapes, ["tree-one-way", "ring"]);
}

#[test]
fn disjoint_trees_share_no_edge_and_are_found_wherever_they_exist() {
    // The cube mesh has sixteen edges: two trees of seven, never three.
    let edges = Edges::new(&cube_mesh(), EdgePolicy::Peer);
    let candidates = generate(&edges, 2048);
    let two = candidates
        .iter()
        .find(|c| c.shape == "trees-disjoint-2")
        .expect("16 edges");
    let of_chunk = |chunk: u32| -> BTreeSet<(usize, usize)> {
        let transfers = two.schedule.transfers().filter(|t| t.chunk == chunk);
        transfers.map(|t| (t.from.min(t.to), t.from.max(t.to))).collect()
    };
    assert_eq!((of_chunk(0).len(), of_chunk(1).len()), (7, 7));
    assert!(of_chunk(0).is_disjoint(&of_chunk(1)));
    assert!(!candidates.iter().any(|c| c.shape == "trees-disjoint-3"));
    // Eight ranks all joined have 28 edges: exactly four trees.
    let all = generate(&Edges::new(&complete(8, NVLINK), EdgePolicy::Peer), 2048);
    assert!(all.iter().any(|c| c.shape == "trees-disjoint-4"));
}

#[test]
fn islands_of_unequal_sizes_send_each_chunk_across_once_each_way() {
    for (first, second) in [(4, 2), (2, 6), (3, 1), (2, 1), (4, 3)] {
        let n = first + second;
        let (a, b): (Vec<usize>, Vec<usize>) = ((0..first).collect(), (first..n).collect());
        let topology = complete(n, SYS).with_all_pairs(&a, NVLINK).with_all_pairs(&b, NVLINK);
        let edges = Edges::new(&topology, EdgePolicy::Peer);
        let name = format!("islands-scatter-{first}-{second}");
        let candidates = generate(&edges, 2048);
        let islands = candidates
            .iter()
            .find(|c| c.shape == name)
            .unwrap_or_else(|| panic!("{name}"));
        let schedule = verify(islands.schedule.clone(), &topology, EdgePolicy::Peer, 2).expect("valid");
        assert!(replicated(&schedule));
        let across = schedule
            .transfers()
            .filter(|t| (t.from < first) != (t.to < first))
            .count();
        assert_eq!(across as u32, 2 * schedule.chunks, "{name}");
    }
}

#[test]
fn rings_visit_everybody_over_the_best_edges() {
    // Two islands: a good ring crosses between them once each way.
    let topology = complete(6, SYS)
        .with_all_pairs(&[0, 2, 4], NVLINK)
        .with_all_pairs(&[1, 3, 5], NVLINK);
    let narrow = {
        let (even, odd) = ([0, 2, 4], [1, 3, 5]);
        let across = |from: [usize; 3], to: [usize; 3]| from.iter().flat_map(|&a| to.map(|b| (a, b))).collect();
        topology
            .with_resource("out", 8.0, across(even, odd))
            .with_resource("in", 8.0, across(odd, even))
    };
    let candidates = generate(&Edges::new(&narrow, EdgePolicy::Peer), 2048);
    let ring = candidates.iter().find(|c| c.schedule.name == "ring").expect("complete");
    let across = ring
        .schedule
        .used_edges()
        .iter()
        .filter(|(a, b)| a % 2 != b % 2)
        .count();
    assert_eq!((across, ring.schedule.stages.len(), ring.schedule.chunks), (2, 10, 6));
    let both = candidates
        .iter()
        .find(|c| c.schedule.name == "ring-both-ways")
        .expect("complete");
    assert_eq!((both.schedule.used_edges().len(), both.schedule.chunks), (12, 12));
}

#[test]
fn a_rank_too_many_lends_its_input_and_gets_the_total_back() {
    for (n, core) in [(3, 2), (5, 4), (6, 4), (7, 4), (7, 6), (9, 8), (11, 8), (13, 12)] {
        let edges = Edges::new(&complete(n, PIX), EdgePolicy::Peer);
        let prefix = format!("fold-in-{core}-");
        let candidates = generate(&edges, 2048);
        let found = candidates
            .iter()
            .find(|c| c.shape.starts_with(&prefix))
            .unwrap_or_else(|| panic!("{n}: {prefix}"));
        let first = &found.schedule.stages[0].transfers;
        assert!(first.iter().all(|t| t.from > t.to));
        let lenders: BTreeSet<_> = first.iter().map(|t| t.from).collect();
        assert_eq!(lenders.len(), n - core);
    }
}

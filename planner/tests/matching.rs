//! Matching: what fits what, how near, and why not.

use topoforge_planner::matching::{Devices, Kind, Match, Options, Pattern, Reason, Use, distance, nearest, place};
use topoforge_planner::topology::{Link, LinkClass, PcieClass, Topology, parse_descriptor};

const PIX: LinkClass = LinkClass::Pcie(PcieClass::Pix);
const SYS: LinkClass = LinkClass::Pcie(PcieClass::Sys);

fn nv(lanes: u8) -> LinkClass {
    LinkClass::NvLink { lanes, r#gen: 2 }
}

fn pair(name: &str, class: LinkClass) -> Topology {
    Topology::new(name, 2).with_pair(0, 1, class)
}

fn mixed_8() -> Topology {
    parse_descriptor(include_str!("../../topologies/mixed-8.ron"), "mixed-8.ron").unwrap()
}

fn fit(family: &Topology, live: &Topology) -> Match {
    place(&Pattern::all_links(family), live, &Options::default())
}

/// Both directions of each neighbourhood of a ring.
fn ring_links(ranks: usize) -> Vec<(usize, usize)> {
    (0..ranks)
        .flat_map(|a| [(a, (a + 1) % ranks), ((a + 1) % ranks, a)])
        .collect()
}

#[test]
fn equal_machines_match_exactly_in_place() {
    for machine in [
        pair("p", PIX),
        Topology::new("q", 4).with_all_pairs(&[0, 1, 2, 3], nv(1)),
        mixed_8(),
    ] {
        let found = fit(&machine, &machine);
        assert_eq!(
            (found.kind, found.distance, found.optimal),
            (Kind::Exact, Some(0), true)
        );
        assert_eq!(
            found.placement,
            (0..machine.ranks).collect::<Vec<_>>(),
            "the least placement wins a tie"
        );
    }
}

#[test]
fn better_links_are_compatible_and_worse_ones_degraded() {
    let kind = |family, live| fit(&pair("f", family), &pair("l", live)).kind;
    assert_eq!(kind(nv(2), nv(18)), Kind::Compatible);
    assert_eq!(kind(nv(2), nv(1)), Kind::Compatible, "fewer lanes are the same class");
    assert_eq!(kind(PIX, nv(2)), Kind::Compatible);
    assert_eq!(kind(SYS, PIX), Kind::Compatible);
    assert_eq!(kind(PIX, SYS), Kind::Degraded);
    assert_eq!(kind(nv(2), PIX), Kind::Degraded);
    assert_eq!(
        kind(LinkClass::Host, PIX),
        Kind::Compatible,
        "host memory is there on any machine"
    );
}

#[test]
fn a_family_that_needs_peer_access_does_not_fit_where_it_is_refused() {
    let found = fit(&pair("f", PIX), &pair("l", LinkClass::Host));
    let reason = Reason::NoLink {
        from: 0,
        to: 1,
        class: PIX,
        alone: true,
    };
    assert_eq!(found.kind, Kind::Infeasible(reason));
    assert_eq!(
        (found.distance, found.placement.len(), found.is_feasible()),
        (None, 0, false)
    );
    assert_eq!(
        found.to_string(),
        "f: infeasible: no live link can serve the family's link 0 to 1, Pcie(Pix)"
    );
}

#[test]
fn capabilities_are_asked_for_as_used() {
    let no_reads = Link {
        read: false,
        ..Link::new(0, 1, PIX)
    };
    let live = Topology::new("l", 2).with_link(no_reads).with_link(Link {
        from: 1,
        to: 0,
        ..no_reads
    });
    let family = pair("f", PIX);
    assert!(matches!(
        fit(&family, &live).kind,
        Kind::Infeasible(Reason::NoLink { alone: true, .. })
    ));
    let writes = |(from, to)| Use {
        from,
        to,
        read: false,
        write: true,
    };
    let pushing = Pattern::of_uses(&family, [(0, 1), (1, 0)].map(writes).to_vec());
    assert_eq!(place(&pushing, &live, &Options::default()).kind, Kind::Exact);
}

#[test]
fn one_way_machines_do_not_serve_two_way_families() {
    let one_way = Topology::new("l", 3)
        .with_link(Link::new(0, 1, PIX))
        .with_link(Link::new(1, 2, PIX));
    let family = Topology::new("f", 3).with_pair(0, 1, PIX);
    let expected = Reason::NoLink {
        from: 0,
        to: 1,
        class: PIX,
        alone: false,
    };
    assert_eq!(fit(&family, &one_way).kind, Kind::Infeasible(expected));
}

#[test]
fn other_rank_counts_are_infeasible_for_that_reason() {
    let found = fit(&pair("f", nv(2)), &mixed_8());
    assert_eq!(found.kind, Kind::Infeasible(Reason::RankCount { family: 2, live: 8 }));
}

#[test]
fn a_family_is_placed_on_the_listed_devices_only() {
    let live = mixed_8();
    let family = pair("f", nv(2));
    let on = |devices| {
        place(
            &Pattern::all_links(&family),
            &live,
            &Options {
                devices,
                ..Options::default()
            },
        )
    };
    assert_eq!(on(Devices::These(vec![4, 0])).placement, [0, 4]);
    assert_eq!(on(Devices::These(vec![4, 0])).kind, Kind::Exact);
    assert_eq!(
        on(Devices::These(vec![0, 5])).kind,
        Kind::Degraded,
        "0 and 5 share no NVLink"
    );
    assert_eq!(
        on(Devices::AnyOf((0..8).collect())).placement,
        [0, 3],
        "the first pair with two lanes"
    );
    assert_eq!(
        on(Devices::These(vec![0, 8])).kind,
        Kind::Infeasible(Reason::BadDevice { device: 8 })
    );
    assert_eq!(
        on(Devices::These(vec![1, 1])).kind,
        Kind::Infeasible(Reason::BadDevice { device: 1 })
    );
    let three = Kind::Infeasible(Reason::RankCount { family: 2, live: 3 });
    assert_eq!(on(Devices::These(vec![0, 1, 2])).kind, three);
}

#[test]
fn a_ring_is_found_in_a_mesh_although_the_mesh_has_more_links() {
    // Single lanes close one ring through all eight: 0-1-3-7-5-4-6-2. Plain order would leave NVLink.
    let ring = Topology::new("ring", 8);
    let ring = ring_links(8)
        .into_iter()
        .fold(ring, |ring, (a, b)| ring.with_link(Link::new(a, b, nv(1))));
    let found = fit(&ring, &mixed_8());
    assert_eq!(
        (found.kind, found.placement),
        (Kind::Exact, vec![0, 1, 3, 7, 5, 4, 6, 2])
    );
}

#[test]
fn unused_links_are_not_asked_for() {
    let family = Topology::new("f", 4).with_all_pairs(&[0, 1, 2, 3], PIX);
    let live = Topology::new("l", 4)
        .with_pair(0, 2, PIX)
        .with_pair(2, 1, PIX)
        .with_pair(1, 3, PIX)
        .with_pair(3, 0, PIX);
    assert!(!fit(&family, &live).is_feasible());
    let found = place(&Pattern::of_links(&family, &ring_links(4)), &live, &Options::default());
    assert_eq!((found.kind, found.placement), (Kind::Exact, vec![0, 2, 1, 3]));
}

#[test]
fn a_link_that_fits_alone_but_not_with_the_others_is_named() {
    // A triangle does not fit into a star, though each of its links does.
    let family = Topology::new("f", 4).with_all_pairs(&[0, 1, 2], PIX);
    let live = Topology::new("l", 4)
        .with_pair(0, 1, PIX)
        .with_pair(0, 2, PIX)
        .with_pair(0, 3, PIX);
    let Kind::Infeasible(Reason::NoLink {
        from, to, alone: false, ..
    }) = fit(&family, &live).kind
    else {
        panic!("expected a link that fits alone");
    };
    assert!(from < 3 && to < 3);
}

#[test]
fn a_use_that_the_family_lacks_is_the_callers_fault_and_said_so() {
    let family = Topology::new("f", 3).with_pair(0, 1, PIX);
    for bad in [(1, 2), (0, 7), (1, 1)] {
        let found = place(&Pattern::of_links(&family, &[bad]), &family, &Options::default());
        assert_eq!(
            found.kind,
            Kind::Infeasible(Reason::NotInFamily { from: bad.0, to: bad.1 })
        );
    }
}

#[test]
fn the_nearest_family_comes_first_and_infeasible_ones_last() {
    let families = [
        pair("nvlink-pair", nv(2)),
        pair("no-peer-pair", LinkClass::Host),
        pair("pix-pair", PIX),
        mixed_8(),
    ];
    let patterns: Vec<_> = families.iter().map(Pattern::all_links).collect();
    let order = |live| -> Vec<String> {
        nearest(&patterns, &pair("live", live), &Options::default())
            .into_iter()
            .map(|found| found.family)
            .collect()
    };
    let h200 = LinkClass::NvLink { lanes: 18, r#gen: 4 };
    assert_eq!(order(h200), ["nvlink-pair", "pix-pair", "no-peer-pair", "mixed-8"]);
    assert_eq!(order(PIX), ["pix-pair", "nvlink-pair", "no-peer-pair", "mixed-8"]);
    assert_eq!(order(SYS), ["pix-pair", "nvlink-pair", "no-peer-pair", "mixed-8"]);
    assert_eq!(
        order(LinkClass::Host),
        ["no-peer-pair", "mixed-8", "nvlink-pair", "pix-pair"]
    );
}

#[test]
fn ties_go_to_the_name_and_the_index_says_which_pattern_it_was() {
    let (b, a) = (pair("b", PIX), pair("a", PIX));
    let found = nearest(
        &[Pattern::all_links(&b), Pattern::all_links(&a)],
        &a,
        &Options::default(),
    );
    assert_eq!((found[0].family.as_str(), found[0].index, found[1].index), ("a", 1, 0));
}

#[test]
fn changes_add_up_to_the_distance() {
    let family = Topology::new("f", 4).with_all_pairs(&[0, 1, 2, 3], PIX);
    let live = Topology::new("l", 4)
        .with_all_pairs(&[0, 1, 2, 3], SYS)
        .with_pair(1, 3, PIX)
        .with_pair(0, 2, nv(1));
    let found = fit(&family, &live);
    assert_eq!(found.kind, Kind::Degraded);
    assert_eq!(
        found.changes.iter().map(|change| change.distance).sum::<u32>(),
        found.distance.unwrap()
    );
    assert_eq!(found.changes.len(), 10, "all but both directions of the one PIX pair");
    assert_eq!(
        found.to_string(),
        "f: degraded, distance 520, placement [0, 1, 2, 3], 10 links differ"
    );
}

#[test]
fn a_family_without_used_links_fits_any_machine_of_its_size() {
    assert_eq!(fit(&Topology::new("f", 4), &Topology::new("l", 4)).kind, Kind::Exact);
    assert_eq!(fit(&Topology::new("f", 2), &pair("l", nv(1))).kind, Kind::Exact);
}

#[test]
fn the_distance_table_is_zero_only_for_equal_classes_and_dearer_downwards() {
    let mut classes = vec![nv(1), nv(2), LinkClass::NvLink { lanes: 2, r#gen: 4 }];
    classes.extend(PcieClass::ALL.map(LinkClass::Pcie));
    classes.push(LinkClass::Host);
    for &a in &classes {
        for &b in &classes {
            assert_eq!(distance::distance(a, b) == Some(0), a == b, "{a} {b}");
            if distance::rung(a) < distance::rung(b) {
                let (down, up) = (distance::distance(a, b), distance::distance(b, a).unwrap());
                assert!(down.is_none_or(|down| down > up), "{a} for {b}");
            }
        }
    }
    let worst_between_peers = distance::distance(nv(1), SYS).unwrap();
    assert!(worst_between_peers < distance::PEER_UNUSED);
}

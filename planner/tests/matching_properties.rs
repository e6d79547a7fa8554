//! Properties of matching over seeded random machines, and the exact search against brute force.

use topoforge_planner::matching::{Devices, Kind, Options, Pattern, distance, place};
use topoforge_planner::topology::{Link, LinkClass, PcieClass, Topology, parse_descriptor, to_ron};

/// A seeded generator (splitmix64): the same machines on every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n as u64).unwrap()
    }

    fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }

    fn class(&mut self) -> LinkClass {
        match self.below(8) {
            0 => LinkClass::Host,
            n @ 1..=3 => LinkClass::NvLink {
                lanes: n as u8,
                r#gen: 2,
            },
            n => LinkClass::Pcie(PcieClass::ALL[n - 4]),
        }
    }

    /// Each pair is linked with `density` in 10; a few links are read-only, write-only or one-way.
    fn machine(&mut self, ranks: usize, density: usize) -> Topology {
        let mut machine = Topology::new(format!("m{ranks}"), ranks);
        for a in 0..ranks {
            for b in a + 1..ranks {
                if self.below(10) >= density {
                    continue;
                }
                let link = Link {
                    read: self.below(8) > 0,
                    write: self.below(8) > 0,
                    ..Link::new(a, b, self.class())
                };
                machine = machine.with_link(link);
                if self.below(8) > 0 {
                    let figures = [(None, None), (Some(700 + a as u32), Some(0.1 + b as f32 / 3.0))][self.below(2)];
                    let (latency_ns, gb_per_s) = figures;
                    machine = machine.with_link(Link {
                        from: b,
                        to: a,
                        latency_ns,
                        gb_per_s,
                        ..link
                    });
                }
            }
        }
        if let Some(link) = machine.links.first().copied() {
            machine = machine.with_resource("shared", 7.25, vec![(link.from, link.to)]);
            machine.numa = (0..ranks).map(|rank| rank / 4).collect();
        }
        machine
    }
}

/// The least distance over all placements of the given length, and its first placement, by trying all.
fn brute_force(family: &Topology, live: &Topology) -> Option<(u32, Vec<usize>)> {
    fn all(ranks: usize, slots: usize, head: &mut Vec<usize>, visit: &mut dyn FnMut(&[usize])) {
        if head.len() == ranks {
            return visit(head);
        }
        for slot in 0..slots {
            if !head.contains(&slot) {
                head.push(slot);
                all(ranks, slots, head, visit);
                head.pop();
            }
        }
    }
    let mut best: Option<(u32, Vec<usize>)> = None;
    all(family.ranks, live.ranks, &mut Vec::new(), &mut |placement| {
        let cost = family.links.iter().try_fold(0, |sum, link| {
            let other = live.link(placement[link.from], placement[link.to])?;
            // Staging through host memory asks nothing of a peer link.
            let staged = link.class == LinkClass::Host && other.class.is_peer();
            let able = staged || (other.read || !link.read) && (other.write || !link.write);
            Some(sum + distance::distance(link.class, other.class).filter(|_| able)?)
        });
        if let Some(cost) = cost.filter(|&cost| best.as_ref().is_none_or(|(least, _)| cost < *least)) {
            best = Some((cost, placement.to_vec()));
        }
    });
    best
}

#[test]
fn the_search_finds_what_brute_force_finds() {
    let mut dice = Dice(1);
    let mut feasible = 0;
    for round in 0..300 {
        let slots = 2 + dice.below(5);
        let ranks = 2 + dice.below(slots - 1);
        let (sparse, dense) = (2 + dice.below(5), 5 + dice.below(6));
        let (family, live) = (dice.machine(ranks, sparse), dice.machine(slots, dense));
        let options = Options {
            devices: Devices::AnyOf((0..slots).collect()),
            ..Options::default()
        };
        let found = place(&Pattern::all_links(&family), &live, &options);
        let expected = brute_force(&family, &live);
        feasible += usize::from(expected.is_some());
        assert!(found.optimal);
        assert_eq!(
            found.distance.map(|distance| (distance, found.placement)),
            expected,
            "round {round}"
        );
    }
    assert!(
        (50..270).contains(&feasible),
        "{feasible} of 300: the machines must exercise both answers"
    );
}

#[test]
fn a_relabelled_machine_matches_itself_exactly() {
    let mut dice = Dice(2);
    for round in 0..120 {
        let ranks = 1 + dice.below(16);
        let density = 1 + dice.below(10);
        let family = dice.machine(ranks, density);
        let live = family.relabelled(&dice.permutation(ranks)).unwrap();
        let found = place(&Pattern::all_links(&family), &live, &Options::default());
        assert_eq!(
            (found.kind, found.distance, found.optimal),
            (Kind::Exact, Some(0), true),
            "round {round}"
        );
    }
}

#[test]
fn relabelled_symmetric_machines_match_themselves_exactly() {
    let mixed = parse_descriptor(include_str!("../../topologies/mixed-8.ron"), "mixed-8.ron").unwrap();
    let all: Vec<usize> = (0..16).collect();
    let (pix, sys) = (LinkClass::Pcie(PcieClass::Pix), LinkClass::Pcie(PcieClass::Sys));
    let pcie_16 = (0..4).fold(
        Topology::new("pcie-16", 16).with_all_pairs(&all, sys),
        |machine, switch| machine.with_all_pairs(&all[switch * 4..][..4], pix),
    );
    let uniform = Topology::new("nvswitch-16", 16).with_all_pairs(&all, LinkClass::NvLink { lanes: 18, r#gen: 4 });
    let mut dice = Dice(3);
    for family in [mixed, pcie_16, uniform] {
        for _ in 0..10 {
            let live = family.relabelled(&dice.permutation(family.ranks)).unwrap();
            let found = place(&Pattern::all_links(&family), &live, &Options::default());
            assert_eq!((found.kind, found.optimal), (Kind::Exact, true), "{}", family.name);
        }
    }
}

#[test]
fn the_answer_does_not_depend_on_how_the_live_machine_is_numbered() {
    let mut dice = Dice(4);
    for round in 0..60 {
        let (family, live) = (dice.machine(6, 4), dice.machine(6, 9));
        let renamed = live.relabelled(&dice.permutation(6)).unwrap();
        let fit = |live: &Topology| place(&Pattern::all_links(&family), live, &Options::default()).distance;
        assert_eq!(fit(&live), fit(&renamed), "round {round}");
    }
}

#[test]
fn a_machine_that_lost_a_used_link_never_fits() {
    let mut dice = Dice(5);
    for round in 0..120 {
        let ranks = 2 + dice.below(7);
        let density = 3 + dice.below(8);
        let family = dice.machine(ranks, density);
        if family.links.is_empty() {
            continue;
        }
        // Every link is used, so whatever the placement, one link fewer is one too few.
        let mut live = family.relabelled(&dice.permutation(ranks)).unwrap();
        let lost = dice.below(live.links.len());
        live.links.remove(lost);
        let found = place(&Pattern::all_links(&family), &live, &Options::default());
        assert!(
            matches!(found.kind, Kind::Infeasible(_)) && found.optimal,
            "round {round}: {found}"
        );
    }
}

#[test]
fn a_placement_uses_each_live_rank_once_and_serves_every_use() {
    let mut dice = Dice(6);
    for _ in 0..60 {
        let (family, live) = (dice.machine(5, 3), dice.machine(9, 9));
        let options = Options {
            devices: Devices::AnyOf(vec![8, 0, 2, 3, 5, 6]),
            ..Options::default()
        };
        let found = place(&Pattern::all_links(&family), &live, &options);
        if !found.is_feasible() {
            continue;
        }
        let mut used = found.placement.clone();
        used.sort_unstable();
        used.dedup();
        assert_eq!(used.len(), 5);
        assert!(used.iter().all(|rank| [0, 2, 3, 5, 6, 8].contains(rank)));
        for link in &family.links {
            let (from, to) = (found.placement[link.from], found.placement[link.to]);
            let other = live.link(from, to).expect("a used link");
            if link.class == LinkClass::Host && other.class.is_peer() {
                continue;
            }
            assert!(!link.write || live.can_write(from, to));
            assert!(!link.read || live.can_read(from, to));
        }
    }
}

#[test]
fn a_search_cut_short_says_so_and_never_claims_too_much() {
    let mut dice = Dice(7);
    let (family, live) = (dice.machine(14, 10), dice.machine(14, 10));
    let pushing: Vec<_> = (0..13).map(|rank| (rank, rank + 1)).collect();
    let family = pushing
        .iter()
        .fold(family, |family, &(a, b)| family.with_pair(a, b, dice.class()));
    let pattern = Pattern::of_links(&family, &pushing);
    let fit = |node_limit| {
        place(
            &pattern,
            &live,
            &Options {
                node_limit,
                ..Options::default()
            },
        )
    };
    assert!(!fit(0).optimal && !fit(0).is_feasible());
    let (short, long) = (fit(200), fit(20_000));
    assert_eq!(short, fit(200), "deterministic");
    let (near, far) = (long.distance.unwrap(), short.distance.unwrap());
    assert!(near <= far, "more nodes never answer worse");
    assert!(short.lower_bound <= near, "the bound holds");
}

#[test]
fn every_random_machine_survives_the_round_trip_through_text() {
    let mut dice = Dice(8);
    for _ in 0..100 {
        let ranks = 1 + dice.below(10);
        let machine = dice.machine(ranks, 6);
        let text = to_ron(&machine);
        assert_eq!(parse_descriptor(&text, "m.ron").as_ref(), Ok(&machine), "{text}");
    }
}

#[test]
fn the_fingerprint_sees_the_layout_and_neither_name_nor_figures() {
    let machine = Dice(9).machine(6, 8);
    let print = machine.layout_fingerprint();
    let mut same = machine.clone();
    same.name = "other".into();
    same.links[0].latency_ns = Some(1);
    same.resources[0].gb_per_s = 1.0;
    assert_eq!(same.layout_fingerprint(), print);
    let edits: [fn(&mut Topology); 6] = [
        |m| m.ranks += 1,
        |m| m.links[0].read = !m.links[0].read,
        |m| m.links[0].class = LinkClass::NvLink { lanes: 17, r#gen: 5 },
        |m| m.links.truncate(m.links.len() - 1),
        |m| m.resources.clear(),
        |m| m.peer_degree_limit = Some(0),
    ];
    for (i, edit) in edits.iter().enumerate() {
        let mut other = machine.clone();
        edit(&mut other);
        assert_ne!(other.layout_fingerprint(), print, "edit {i}");
    }
}

#[test]
fn fingerprints_stay_what_they_are_so_that_stored_routes_stay_readable() {
    let pair = |class| Topology::new("p", 2).with_pair(0, 1, class).layout_fingerprint();
    assert_eq!(pair(LinkClass::Host), 3386913968513022533);
    assert_eq!(pair(LinkClass::Pcie(PcieClass::Sys)), 5660632002922587941);
}

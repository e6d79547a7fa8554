//! Leaf switches behind the NICs: paths over the spine, bounds, plans, predictions, and what must not change.

use topoforge_planner::alltoallv::catalogue::Outsider;
use topoforge_planner::alltoallv::simulate::{Law, Traffic, simulate, svg};
use topoforge_planner::alltoallv::{
    Baseline, Catalogue, Demand, Fabric, Kind, Lane, Leaves, Mode, Network, Nics, Planner, Strategy, TreeSpec,
};

fn fabric(spec: &TreeSpec) -> Fabric {
    Fabric::new(spec).expect("a machine")
}

fn leaves(nodes: u32, up: u32, mode: Mode) -> Network {
    Network {
        leaves: Leaves::Nodes(nodes),
        up,
        mode,
    }
}

fn rails(nodes: Option<u32>, up: u32, mode: Mode) -> Network {
    Network {
        leaves: Leaves::Rails(nodes),
        up,
        mode,
    }
}

/// What a path uses, by name, without its ranks' ports.
fn names(fabric: &Fabric, from: usize, to: usize, class: usize) -> Vec<String> {
    let path = fabric.path(from, to, class);
    let inner = &path.resources()[1..path.resources().len() - 1];
    inner.iter().map(|&id| fabric.resource_name(id)).collect()
}

/// Four nodes of two switches, a NIC each, behind what is given.
fn quad(network: Network) -> TreeSpec {
    TreeSpec::pcie_2x2().cluster(4).behind(network)
}

/// Machines whose leaf switches are slower than the NICs below them.
fn tight() -> Vec<(&'static str, TreeSpec)> {
    let mut forward = TreeSpec::pcie_2x2().cluster(3);
    forward.forward = true;
    let mut fluid_nics = TreeSpec::pcie_2x2();
    fluid_nics.modes.nic = Mode::Fluid;
    let mut pairs = TreeSpec::pcie_2x4();
    pairs.sockets[0][1].nics = Nics::Shared(2);
    let crossbar = TreeSpec::crossbar(4, 400_000).cluster(4);
    vec![
        ("half of the NICs", quad(leaves(2, 96_000, Mode::Fluid))),
        ("a third of the NICs", quad(leaves(1, 32_000, Mode::Fluid))),
        ("less than a NIC", quad(leaves(3, 30_000, Mode::Fluid))),
        ("two slots of four", quad(leaves(2, 96_000, Mode::Slots(2)))),
        ("three slow slots", quad(leaves(2, 96_000, Mode::Slots(3)))),
        ("one cable", quad(leaves(1, 48_000, Mode::Exclusive))),
        ("rails", quad(rails(None, 60_000, Mode::Fluid))),
        ("rails of pods", quad(rails(Some(2), 48_000, Mode::Slots(1)))),
        (
            "rails of two NICs",
            pairs.cluster(2).behind(rails(None, 30_000, Mode::Slots(1))),
        ),
        ("forwarding", forward.behind(leaves(1, 60_000, Mode::Fluid))),
        (
            "fluid NICs",
            fluid_nics.cluster(4).behind(leaves(2, 96_000, Mode::Slots(2))),
        ),
        (
            "crossbars",
            crossbar.clone().behind(rails(Some(2), 50_000, Mode::Fluid)),
        ),
        ("crossbars by slots", crossbar.behind(leaves(2, 96_000, Mode::Slots(4)))),
    ]
}

fn demands(n: usize, bytes: u64) -> Vec<(String, Demand)> {
    let kinds = [
        Kind::Uniform,
        Kind::Zipf(0.7),
        Kind::Hot(0.6),
        Kind::Random,
        Kind::Sparse(0.5),
        Kind::Sparse(0.95),
    ];
    let make = |(seed, kind): (usize, Kind)| {
        let demand = Demand::make(kind, n, bytes, seed as u64).expect("a demand");
        (format!("{kind} of {bytes}"), demand)
    };
    kinds.into_iter().enumerate().map(make).collect()
}

#[test]
fn pairs_on_two_leaves_go_up_and_down_and_pairs_on_one_do_not() {
    let plain = fabric(&TreeSpec::pcie_2x2().cluster(4));
    let two = fabric(&quad(leaves(2, 96_000, Mode::Fluid)));
    assert_eq!(two.resources(), plain.resources() + 4);
    assert_eq!(names(&two, 0, 4, 0), ["node 0 NIC 0 out", "node 1 NIC 0 in"]);
    let far = ["node 1 NIC 1 out", "leaf 0 up", "leaf 1 down", "node 3 NIC 0 in"];
    assert_eq!(names(&two, 7, 12, 0), far);
    // What is shared has its own rate, and a lane keeps the NICs'; a slot that is slower than a NIC slows its lane.
    assert_eq!(two.path(7, 12, 0).inv_fs, plain.path(7, 12, 0).inv_fs);
    let slots = fabric(&quad(leaves(2, 96_000, Mode::Slots(3))));
    assert_eq!(slots.path(7, 12, 0).inv_fs, 31_250, "32 GB/s");
    assert_eq!(slots.path(0, 4, 0).inv_fs, plain.path(0, 4, 0).inv_fs);
    // Eight NICs fill the port, whatever their rates are rounded to.
    let eight = fabric(
        &TreeSpec::pcie_2x2x2()
            .cluster(8)
            .behind(leaves(4, 384_000, Mode::Fluid)),
    );
    let port = eight.path(0, 63, 0).resources()[2];
    assert_eq!(
        (eight.resource(port).slots(), eight.lanes_at_once(port)),
        (None, Some(8))
    );
    let port = slots.path(7, 12, 0).resources()[2];
    assert_eq!(
        (slots.resource(port).slots(), slots.resource(port).inv_fs),
        (Some(3), 31_250)
    );
}

#[test]
fn rails_are_left_over_the_spine_even_within_a_node() {
    let all = fabric(&quad(rails(None, 60_000, Mode::Fluid)));
    assert_eq!(names(&all, 0, 12, 0), ["node 0 NIC 0 out", "node 3 NIC 0 in"]);
    let across = [
        "node 0 NIC 0 out",
        "leaf of rail 0 up",
        "leaf of rail 1 down",
        "node 3 NIC 1 in",
    ];
    assert_eq!(names(&all, 0, 14, 0), across);
    assert_eq!(
        names(&all, 0, 2, 0),
        ["node 0 uplink of switch 0", "node 0 downlink of switch 1"]
    );
    let inside = [
        "node 0 NIC 0 out",
        "leaf of rail 0 up",
        "leaf of rail 1 down",
        "node 0 NIC 1 in",
    ];
    assert_eq!(names(&all, 0, 2, 1), inside);
    let pods = fabric(&quad(rails(Some(2), 60_000, Mode::Fluid)));
    let far = [
        "node 0 NIC 0 out",
        "pod 0 leaf of rail 0 up",
        "pod 1 leaf of rail 0 down",
        "node 3 NIC 0 in",
    ];
    assert_eq!(names(&pods, 0, 12, 0), far);
    let own = fabric(
        &TreeSpec::crossbar(4, 400_000)
            .cluster(2)
            .behind(rails(None, 9_000, Mode::Fluid)),
    );
    let far = [
        "node 0 NIC 1 out",
        "leaf of rail 1 up",
        "leaf of rail 3 down",
        "node 1 NIC 3 in",
    ];
    let path = own.path(1, 7, 0);
    let found: Vec<String> = path.resources().iter().map(|&id| own.resource_name(id)).collect();
    assert_eq!(found, far);
}

#[test]
fn a_leaf_for_the_whole_cluster_has_no_ports() {
    for nodes in [4, 5, 4096] {
        let one = fabric(&quad(leaves(nodes, 1, Mode::Fluid)));
        assert_eq!(one.resources(), fabric(&TreeSpec::pcie_2x2().cluster(4)).resources());
    }
    let alone = fabric(&TreeSpec::pcie_2x2().behind(leaves(1, 1, Mode::Exclusive)));
    assert_eq!(alone.resources(), fabric(&TreeSpec::pcie_2x2()).resources());
}

#[test]
fn figures_that_no_leaf_has_are_refused_in_words() {
    let cases = [
        (leaves(0, 1, Mode::Fluid), "a leaf switch for no nodes"),
        (rails(Some(0), 1, Mode::Fluid), "a leaf switch for no nodes"),
        (leaves(1, 0, Mode::Fluid), "rate from a leaf switch to the spine is 0"),
        (
            leaves(1, u32::MAX, Mode::Fluid),
            "rate from a leaf switch to the spine is 4294967295",
        ),
        (leaves(1, 1, Mode::Slots(0)), "a leaf switch with no slots"),
    ];
    for (network, words) in cases {
        let error = Fabric::new(&quad(network)).expect_err(words).to_string();
        assert!(error.starts_with(words), "{error}");
    }
    // The slowest and the most: no figure overflows.
    for network in [leaves(1, 1, Mode::Slots(255)), rails(None, 1_000_000_000, Mode::Fluid)] {
        let mut planner = Planner::new(&fabric(&quad(network)));
        let demand = Demand::make(Kind::Uniform, 16, 1 << 40, 1).expect("a demand");
        planner.plan(&demand).expect("ranks agree");
        assert_eq!(planner.check(&demand), Ok(()));
        assert!(planner.predict().hand_off_ns.is_finite());
    }
}

#[test]
fn every_plan_keeps_every_invariant_and_its_bound() {
    for (machine, spec) in tight() {
        let mut planner = Planner::new(&fabric(&spec));
        for (name, demand) in [demands(planner.ranks(), 300_000), demands(planner.ranks(), 20_000_000)].concat() {
            let bound = planner.bound(&demand);
            for strategy in Strategy::ALL {
                planner.plan_by(&demand, strategy).expect("ranks agree");
                let place = format!("{machine}, {name}, {strategy}");
                assert_eq!(planner.check(&demand), Ok(()), "{place}");
                let predicted = planner.predict();
                let slack = 1.0 + 1e-6;
                assert!(
                    predicted.hand_off_ns <= predicted.barrier_ns * slack,
                    "{place}: {predicted:?}"
                );
                assert!(
                    predicted.hand_off_ns * slack >= bound.load_ns,
                    "{place}: {predicted:?} {bound:?}"
                );
                if strategy != Strategy::Fluid {
                    assert!(
                        predicted.hand_off_ns * slack >= bound.hand_off_ns,
                        "{place}: {predicted:?} {bound:?}"
                    );
                    assert!(
                        predicted.barrier_ns * slack >= bound.barrier_ns,
                        "{place}: {predicted:?} {bound:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn fans_keep_to_the_slots_of_leaves_and_count_what_shared_ones_carry() {
    let machines = [
        (
            "slots",
            TreeSpec::pcie_2x2()
                .cluster(18)
                .behind(leaves(4, 144_000, Mode::Slots(3))),
        ),
        (
            "one cable",
            TreeSpec::pcie_2x2()
                .cluster(17)
                .behind(leaves(2, 48_000, Mode::Exclusive)),
        ),
        (
            "shared",
            TreeSpec::pcie_2x2().cluster(17).behind(leaves(4, 96_000, Mode::Fluid)),
        ),
        (
            "rails",
            TreeSpec::pcie_2x2()
                .cluster(17)
                .behind(rails(Some(4), 96_000, Mode::Slots(2))),
        ),
    ];
    for (machine, spec) in machines {
        let fabric = fabric(&spec);
        let nodes = fabric.nodes() * fabric.resources_per_node();
        let mut planner = Planner::new(&fabric);
        for (name, demand) in demands(planner.ranks(), 2_000_000) {
            planner.plan_by(&demand, Strategy::Pack).expect("ranks agree");
            assert_eq!(planner.check(&demand), Ok(()), "{machine}, {name}");
            assert!(
                planner.last().lanes().iter().any(|lane| lane.turn > 0),
                "{machine}, {name}: fans"
            );
            let mut bytes = vec![0.0; fabric.resources()];
            for lanes in planner.last().activations() {
                let mut used = vec![0; fabric.resources()];
                for lane in lanes {
                    let path = fabric.path(lane.from.into(), lane.to.into(), lane.path.into());
                    for &id in path.resources() {
                        used[id as usize] += u32::from(lane.turn == 0);
                        bytes[id as usize] += lane.bytes as f64;
                    }
                }
                for (id, &used) in used.iter().enumerate().skip(nodes) {
                    let most = fabric.resource(id as u32).slots();
                    assert!(most.is_none_or(|most| used <= most), "{machine}, {name}, resource {id}");
                }
            }
            let predicted = planner.predict();
            for (id, bytes) in bytes.iter().enumerate().skip(nodes) {
                let port = fabric.resource(id as u32);
                let load = bytes * f64::from(port.inv_fs) * 1e-6 / f64::from(port.slots().unwrap_or(1));
                assert!(
                    predicted.hand_off_ns >= load,
                    "{machine}, {name}, {}",
                    fabric.resource_name(id as u32)
                );
            }
            assert!(
                predicted.hand_off_ns <= predicted.barrier_ns * 1.000_001,
                "{machine}, {name}"
            );
        }
    }
}

#[test]
fn the_leaf_is_the_bound_of_a_uniform_exchange_and_plans_come_close() {
    for (mode, most) in [(Mode::Fluid, 1.03), (Mode::Slots(2), 1.03)] {
        let fabric = fabric(&quad(leaves(2, 96_000, mode)));
        let mut planner = Planner::new(&fabric);
        let each = 4 << 20;
        let pair = |at: usize| if at / 16 == at % 16 { 0 } else { each };
        let demand = Demand::new(16, (0..256).map(pair).collect()).expect("a demand");
        let bound = planner.bound(&demand);
        // Eight ranks of a leaf send to eight others.
        let load = 64.0 * each as f64 / 96.0;
        assert!(
            bound.exact && (bound.load_ns / load - 1.0).abs() < 1e-3,
            "{bound:?} {load}"
        );
        let open = Planner::new(&self::fabric(&TreeSpec::pcie_2x2().cluster(4))).bound(&demand);
        assert!(open.load_ns < 0.8 * load, "{open:?}");
        planner.plan(&demand).expect("ranks agree");
        let over = planner.predict().hand_off_ns / bound.load_ns;
        println!("{mode:?}: {over}");
        assert!((1.0..most).contains(&over), "{mode:?}: {over}");
    }
}

#[test]
fn a_leaf_that_is_no_slower_than_its_nics_changes_no_plan() {
    let plain = TreeSpec::pcie_2x2().cluster(4);
    for network in [
        leaves(2, 192_000, Mode::Fluid),
        leaves(1, 96_000, Mode::Fluid),
        leaves(2, 192_000, Mode::Slots(4)),
        rails(None, 192_000, Mode::Fluid),
        rails(Some(2), 96_000, Mode::Slots(2)),
    ] {
        let behind = fabric(&plain.clone().behind(network));
        let (mut with, mut without) = (Planner::new(&behind), Planner::new(&fabric(&plain)));
        for (name, demand) in demands(16, 20_000_000) {
            with.plan(&demand).expect("ranks agree");
            without.plan(&demand).expect("ranks agree");
            assert_eq!(with.last(), without.last(), "{network:?}, {name}");
            assert_eq!(with.predict(), without.predict(), "{network:?}, {name}");
            assert_eq!(with.bound(&demand), without.bound(&demand), "{network:?}, {name}");
            let traffic = Traffic::of_plan(&behind, with.last(), true);
            let simulated = simulate(&behind, &traffic, Law::Serial, None).total_ns;
            let over = simulated / with.predict().hand_off_ns;
            assert!((over - 1.0).abs() < 1e-4, "{network:?}, {name}: {over}");
        }
    }
    // A little slower, and it is there.
    let slower = fabric(&plain.clone().behind(leaves(2, 191_000, Mode::Fluid)));
    let demand = Demand::make(Kind::Hot(0.1), 16, 20_000_000, 1).expect("a demand");
    let bounds = [&slower, &fabric(&plain)].map(|fabric| Planner::new(fabric).bound(&demand).load_ns);
    assert!(bounds[0] >= bounds[1]);
}

#[test]
fn predictions_agree_with_the_simulator() {
    for (machine, spec) in tight().into_iter().filter(|(machine, _)| *machine != "fluid NICs") {
        let fabric = fabric(&spec);
        let network = spec.network.expect("leaves");
        // A port that whole lanes fill, or one lane overfills, never has more of them than it carries; else lanes share, and
        // how they do is only predicted as far as sums go.
        let whole = network.up.is_multiple_of(spec.rates.nic) || network.up < spec.rates.nic;
        let exact = whole || network.mode != Mode::Fluid;
        let most = if exact && !fabric.is_fluid() { 1e-4 } else { 0.2 };
        let mut planner = Planner::new(&fabric);
        for (name, demand) in demands(planner.ranks(), 20_000_000) {
            for strategy in [Strategy::Peel, Strategy::Pack, Strategy::Rotation, Strategy::Fluid] {
                if (strategy == Strategy::Fluid) != fabric.is_fluid() {
                    continue;
                }
                planner.plan_by(&demand, strategy).expect("ranks agree");
                let predicted = planner.predict().hand_off_ns;
                let traffic = Traffic::of_plan(&fabric, planner.last(), planner.is_of_rounds());
                let simulated = simulate(&fabric, &traffic, Law::Serial, None).total_ns;
                let over = simulated / predicted - 1.0;
                println!("{machine}, {name}, {strategy}: {:.4} %", 100.0 * over);
                assert!(over.abs() < most, "{machine}, {name}, {strategy}: {over}");
            }
        }
    }
}

#[test]
fn leaves_change_no_family_but_the_name_of_a_catalogue() {
    let plain = TreeSpec::pcie_2x2().cluster(4);
    let open = Catalogue::build(&fabric(&plain), true, Vec::new()).expect("a catalogue");
    let mut seen = vec![(open.layout, open.rates)];
    for network in [
        leaves(2, 96_000, Mode::Slots(1)),
        leaves(2, 90_000, Mode::Slots(1)),
        leaves(1, 96_000, Mode::Slots(1)),
        leaves(2, 96_000, Mode::Slots(2)),
        rails(Some(2), 96_000, Mode::Slots(1)),
        rails(None, 96_000, Mode::Slots(1)),
    ] {
        let behind = fabric(&plain.clone().behind(network));
        let closed = Catalogue::build(&behind, true, Vec::new()).expect("a catalogue");
        assert_eq!(
            (&closed.alone, &closed.member),
            (&open.alone, &open.member),
            "{network:?}"
        );
        assert_eq!(closed.verify(&behind), Ok(()));
        assert!(!open.is_of(&behind) && !closed.is_of(&fabric(&plain)), "{network:?}");
        assert!(!seen.contains(&(closed.layout, closed.rates)), "{network:?}");
        seen.push((closed.layout, closed.rates));
    }
    let behind = fabric(&plain.behind(leaves(2, 48_000, Mode::Exclusive)));
    let catalogue = Catalogue::build(&behind, false, Vec::new()).expect("a catalogue");
    let lane = |from, to| Lane { from, to, class: 0 };
    assert_eq!(catalogue.admits(&behind, &[lane(0, 8), lane(2, 4)]), Ok(()));
    let refused = catalogue.admits(&behind, &[lane(0, 8), lane(2, 12)]);
    assert!(matches!(refused, Err(Outsider::Leaf(_))), "{refused:?}");
}

#[test]
fn what_others_do_goes_over_the_same_ports_and_the_picture_shows_them() {
    let fabric = fabric(&quad(leaves(2, 24_000, Mode::Fluid)));
    let demand = Demand::make(Kind::Uniform, 16, 8_000_000, 1).expect("a demand");
    let bound = Planner::new(&fabric).bound(&demand).load_ns;
    for baseline in Baseline::ALL {
        let traffic = baseline.traffic(&fabric, &demand);
        for law in Law::ALL {
            let outcome = simulate(&fabric, &traffic, law, Some(40));
            // Every byte for the other leaf crosses the spine once, whoever forwards it.
            assert!(outcome.total_ns * 1.000_1 >= bound, "{} {law}", baseline.name());
            let usage = outcome.usage.expect("asked for");
            assert!(
                usage.busy.iter().flatten().all(|busy| *busy < 1.001),
                "{} {law}",
                baseline.name()
            );
            let picture = svg(&fabric, "leaves", &[(baseline.name().into(), &usage)]);
            assert!(picture.contains("leaf 0 up") && picture.contains("leaf 1 down"));
        }
    }
}

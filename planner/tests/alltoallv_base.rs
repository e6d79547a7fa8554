//! Base sequences that the planner makes: inside the catalogue, exact when scaled, and better than the rotation.

use std::collections::BTreeMap;

use topoforge_planner::alltoallv::base::{recorded, scaled};
use topoforge_planner::alltoallv::{Catalogue, Demand, Fabric, Kind, Lane, Machine, Planner, Strategy, TreeSpec};

fn machine(spec: TreeSpec) -> Machine {
    Machine {
        spec,
        any_nodes: true,
        profiles: Vec::new(),
    }
}

/// Nanoseconds of steps one after the other.
fn barrier_ns(node: &Fabric, steps: &[Vec<(Lane, u64)>]) -> u64 {
    let lane = |(lane, bytes): &(Lane, u64)| {
        let path = node.path(lane.from as usize, lane.to as usize, usize::from(lane.class));
        bytes * u64::from(path.inv_fs) / 1_000_000
    };
    let step = |lanes: &Vec<(Lane, u64)>| lanes.iter().map(lane).max().unwrap_or(0) + u64::from(node.alpha_ns());
    steps.iter().map(step).sum()
}

#[test]
fn sequences_lie_in_the_catalogue_and_carry_every_byte_of_any_demand() {
    for spec in [TreeSpec::pcie_2x2(), TreeSpec::pcie_2x4(), TreeSpec::pcie_2x2x2()] {
        let machine = machine(spec);
        let base = recorded(&machine).uniform;
        assert!(!base.is_empty());
        // Building checks that every step lies in a family.
        let catalogue = Catalogue::of_machine(&machine, base.clone()).expect("fits");
        assert!(catalogue.to_bytes().len() <= 64 << 10);
        let n = machine.spec.node_ranks();
        for (kind, bytes) in [
            (Kind::Uniform, 1 << 20),
            (Kind::Zipf(0.8), 12_345_678),
            (Kind::Sparse(0.4), 999),
        ] {
            let demand = Demand::make(kind, n, bytes, 3).expect("sound");
            let mut carried: BTreeMap<(u32, u32), u64> = BTreeMap::new();
            for (lane, bytes) in scaled(&base, &demand).iter().flatten() {
                let sum = carried.entry((lane.from, lane.to)).or_default();
                assert!(
                    *bytes > 0 && (*sum).is_multiple_of(16),
                    "chunks begin at multiples of 16"
                );
                *sum += bytes;
            }
            for (from, to) in (0..n).flat_map(|a| (0..n).map(move |b| (a, b))) {
                let found = carried.get(&(from as u32, to as u32)).copied().unwrap_or(0);
                assert_eq!(found, demand.get(from, to), "{kind} {from} to {to}");
            }
        }
    }
}

#[test]
fn the_sequence_of_eight_gpus_beats_the_rotation_and_is_no_worse_than_a_single_plan() {
    let machine = machine(TreeSpec::pcie_2x2x2());
    let node = machine.fabric(Some(1)).expect("sound");
    let demand = Demand::make(Kind::Uniform, 8, 64 << 20, 1).expect("sound");
    let sequence = barrier_ns(&node, &scaled(&recorded(&machine).uniform, &demand));
    let mut planner = Planner::new(&node);
    let mut planned = |strategy| {
        planner.plan_by(&demand, strategy).expect("eight ranks");
        planner.predict().barrier_ns as u64
    };
    let (peeled, rotated) = (planned(Strategy::Peel), planned(Strategy::Rotation));
    assert!(sequence < rotated, "{sequence} ns, rotation {rotated}");
    assert!(sequence <= peeled + peeled / 50, "{sequence} ns, peel {peeled}");
}

#[test]
fn fluid_machines_and_fixed_clusters_have_no_sequence() {
    assert!(recorded(&machine(TreeSpec::crossbar(8, 450_000))).is_empty());
    let cluster = Machine {
        spec: TreeSpec::pcie_2x2().cluster(4),
        any_nodes: false,
        profiles: Vec::new(),
    };
    assert!(recorded(&cluster).is_empty());
}

#[test]
fn a_planner_that_knows_a_sequence_takes_it_for_even_demands_and_carries_all_others_exactly() {
    for spec in [TreeSpec::pcie_2x2(), TreeSpec::pcie_2x2x2()] {
        let machine = machine(spec);
        let (node, steps) = (machine.fabric(Some(1)).expect("sound"), recorded(&machine).uniform);
        let (mut plain, mut planner) = (
            Planner::new(&node),
            Planner::new(&node).with_base(&steps).expect("its own sequence"),
        );
        let n = node.ranks();
        let even = Demand::make(Kind::Uniform, n, 256 << 20, 1).expect("sound");
        plain.plan(&even).expect("ranks agree");
        planner.plan(&even).expect("ranks agree");
        let (before, after) = (plain.predict(), planner.predict());
        assert_eq!((after.strategy, planner.check(&even)), (Strategy::Base, Ok(())));
        assert!(after.hand_off_ns <= before.hand_off_ns * 1.01, "{after:?} {before:?}");
        for (kind, bytes) in [
            (Kind::Zipf(0.8), 12_345_678),
            (Kind::Sparse(0.4), 999),
            (Kind::Random, 1 << 22),
        ] {
            let demand = Demand::make(kind, n, bytes, 3).expect("sound");
            planner.plan_by(&demand, Strategy::Base).expect("ranks agree");
            assert_eq!(
                (planner.predict().strategy, planner.check(&demand)),
                (Strategy::Base, Ok(())),
                "{kind}"
            );
        }
        // A demand that is far from even is planned.
        let skewed = Demand::skewed(1, n, 256_000_000).expect("sound");
        planner.plan(&skewed).expect("ranks agree");
        assert_eq!(planner.predict().strategy, Strategy::Peel);
    }
}

#[test]
fn without_a_sequence_there_is_the_rotation_and_a_foreign_sequence_is_refused() {
    let steps = recorded(&machine(TreeSpec::pcie_2x2x2())).uniform;
    let demand = Demand::make(Kind::Uniform, 8, 1 << 20, 1).expect("sound");
    let mut plain = Planner::new(&machine(TreeSpec::pcie_2x2x2()).fabric(Some(1)).expect("sound"));
    plain.plan_by(&demand, Strategy::Base).expect("ranks agree");
    assert_eq!(plain.predict().strategy, Strategy::Rotation);
    for other in [
        TreeSpec::pcie_2x2(),
        TreeSpec::pcie_2x4(),
        TreeSpec::pcie_2x2x4(),
        TreeSpec::pcie_2x2x2().cluster(2),
    ] {
        let fabric = topoforge_planner::alltoallv::Fabric::new(&other).expect("sound");
        let refused = Planner::new(&fabric).with_base(&steps);
        assert!(refused.is_err(), "{} ranks", fabric.ranks());
    }
}

#[test]
fn polish_ends_where_a_unit_outlasts_the_difference_between_lanes() {
    // A byte takes a microsecond over such a NIC.
    let mut spec = TreeSpec::pcie_2x2x2();
    spec.rates.nic = 1;
    let mut planner = Planner::new(&Fabric::new(&spec).expect("a machine"));
    let demand = Demand::make(Kind::Uniform, planner.ranks(), 56 << 20, 1).expect("a demand");
    planner.plan_by(&demand, Strategy::Peel).expect("ranks agree");
    assert_eq!(planner.check(&demand), Ok(()));
}

//! Base sequences that the planner makes: inside the catalogue, exact when scaled, and better than the rotation.

use std::collections::BTreeMap;

use topoforge_planner::alltoallv::base::{recorded, scaled};
use topoforge_planner::alltoallv::{Catalogue, Demand, Fabric, Kind, Lane, Machine, Planner, Strategy, TreeSpec};

fn machine(spec: TreeSpec) -> Machine {
    Machine { spec, any_nodes: true }
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
        let base = recorded(&machine);
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
    let sequence = barrier_ns(&node, &scaled(&recorded(&machine), &demand));
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
    };
    assert!(recorded(&cluster).is_empty());
}

//! Ranks, resources and paths of AlltoAllv fabrics: what the specification's machines must look like.

use std::collections::BTreeSet;

use topoforge_planner::alltoallv::{Fabric, Mode, Nics, PathKind, Reach, ResourceKind, TreeSpec};

fn fabric(spec: &TreeSpec) -> Fabric {
    Fabric::new(spec).expect("the machine is sound")
}

/// Kinds of a path's resources in the order of the wire.
fn kinds(fabric: &Fabric, from: usize, to: usize, class: usize) -> Vec<ResourceKind> {
    let path = fabric.path(from, to, class);
    path.resources().iter().map(|&id| fabric.resource(id).kind).collect()
}

fn every_path_is_sound(fabric: &Fabric) {
    for from in 0..fabric.ranks() {
        for to in (0..fabric.ranks()).filter(|&to| to != from) {
            let mut last = 0;
            assert!(fabric.path_count(from, to) >= 1, "{from} to {to}");
            for path in fabric.paths(from, to) {
                assert!(path.inv_fs >= last, "fastest first: {from} to {to}");
                last = path.inv_fs;
                let once: BTreeSet<_> = path.resources().iter().collect();
                assert_eq!(once.len(), path.resources().len(), "each resource once: {from} to {to}");
                for &id in path.resources() {
                    let node = id as usize / fabric.resources_per_node();
                    assert!(node == fabric.node_of(from) || node == fabric.node_of(to));
                }
            }
        }
    }
}

#[test]
fn paths_of_a_tree_take_the_trunks_of_the_specification() {
    use ResourceKind::{Cross, Down, Egress, Ingress, Rx, Tx, Up};
    let fabric = fabric(&TreeSpec::pcie_2x2x2());
    assert_eq!((fabric.ranks(), fabric.groups(), fabric.resources()), (8, 4, 34));
    assert_eq!(fabric.path_count(0, 1), 1, "the NIC path below one switch is dominated");
    assert_eq!(kinds(&fabric, 0, 1, 0), [Egress, Ingress]);
    assert_eq!(kinds(&fabric, 0, 2, 0), [Egress, Up, Down, Ingress]);
    assert_eq!(kinds(&fabric, 0, 2, 1), [Egress, Tx, Rx, Ingress]);
    assert_eq!(
        kinds(&fabric, 0, 7, 0),
        [Egress, Tx, Rx, Ingress],
        "48 GB/s of a NIC beat 40 between sockets"
    );
    assert_eq!(kinds(&fabric, 0, 7, 1), [Egress, Up, Cross, Down, Ingress]);
    let rates: Vec<u32> = [
        fabric.path(0, 1, 0),
        fabric.path(0, 2, 0),
        fabric.path(0, 7, 1),
        fabric.path(0, 7, 0),
    ]
    .map(|path| path.inv_fs)
    .to_vec();
    assert_eq!(rates, [17_857, 19_231, 25_000, 20_833], "56, 52, 40 and 48 GB/s");
    let classes: usize = (0..4)
        .flat_map(|g| (0..4).map(move |h| (g, h)))
        .map(|(g, h)| fabric.classes(g, h).len())
        .sum();
    assert_eq!(classes, 28);
    every_path_is_sound(&fabric);
}

#[test]
fn two_nodes_use_nics_and_forwarding_adds_three_ways() {
    let mut spec = TreeSpec::pcie_2x2x2().cluster(2);
    let plain = fabric(&spec);
    assert_eq!(plain.path_count(0, 8), 1);
    assert_eq!(plain.path(3, 12, 0).kind, PathKind::Nic);
    every_path_is_sound(&plain);
    spec.forward = true;
    let forward = fabric(&spec);
    assert_eq!(forward.path_count(0, 8), 4);
    let both = forward
        .paths(0, 8)
        .find(|path| path.kind == PathKind::NicForwardBoth)
        .expect("both ends");
    let names: Vec<String> = both.resources().iter().map(|&id| forward.resource_name(id)).collect();
    let expected = [
        "node 0 egress of GPU 0",
        "node 0 uplink of switch 0",
        "node 0 downlink of switch 1",
        "node 0 NIC 1 out",
        "node 1 NIC 1 in",
        "node 1 uplink of switch 1",
        "node 1 downlink of switch 0",
        "node 1 ingress of GPU 0",
    ];
    assert_eq!(names, expected);
    every_path_is_sound(&forward);
}

#[test]
fn a_crossbar_is_fluid_and_each_gpu_keeps_its_own_nic() {
    let fabric = fabric(&TreeSpec::crossbar(8, 450_000).cluster(4));
    assert!(fabric.is_fluid());
    assert_eq!((fabric.ranks(), fabric.groups()), (32, 4));
    assert_eq!(fabric.path_count(0, 7), 1);
    let path = fabric.path(3, 8 + 5, 0);
    let names: Vec<String> = path.resources().iter().map(|&id| fabric.resource_name(id)).collect();
    assert_eq!(names, ["node 0 NIC 3 out", "node 1 NIC 5 in"]);
    every_path_is_sound(&fabric);
}

#[test]
fn a_thousand_ranks_are_as_small_as_eight() {
    let fabric = fabric(&TreeSpec::pcie_2x2x2().cluster(128));
    assert_eq!(fabric.ranks(), 1024);
    assert_eq!(fabric.node_resources().len(), 34);
    assert_eq!(fabric.group(fabric.group_of(1023)).ranks, 1022..1024);
    assert_eq!(fabric.egress(1023), 127 * 34 + 7);
    assert_eq!(fabric.resource(fabric.ingress(1023)).kind, ResourceKind::Ingress);
}

#[test]
fn switches_without_a_nic_use_the_nearest_one_over_the_trunks() {
    use ResourceKind::{Cross, Down, Egress, Ingress, Rx, Tx, Up};
    let mut spec = TreeSpec::pcie_2x2x2().cluster(2);
    for switch in spec.sockets.iter_mut().flatten().skip(1) {
        switch.nics = Nics::None;
    }
    let fabric = fabric(&spec);
    assert_eq!(kinds(&fabric, 2, 8, 0), [Egress, Up, Down, Tx, Rx, Ingress]);
    assert_eq!(
        kinds(&fabric, 2, 8 + 7, 0),
        [Egress, Up, Down, Tx, Rx, Up, Cross, Down, Ingress]
    );
    every_path_is_sound(&fabric);
}

#[test]
fn several_nics_below_a_switch_are_slots() {
    let mut spec = TreeSpec::pcie_2x4();
    spec.sockets[0][0].nics = Nics::Shared(2);
    let fabric = fabric(&spec);
    let tx = fabric
        .node_resources()
        .iter()
        .filter(|resource| resource.kind == ResourceKind::Tx);
    assert_eq!(
        tx.map(|resource| resource.mode).collect::<Vec<_>>(),
        [Mode::Slots(2), Mode::Exclusive]
    );
}

#[test]
fn pairs_without_peer_access_go_over_nics_or_are_refused() {
    let mut spec = TreeSpec::pcie_2x2x2();
    spec.reach = Reach::Socket;
    let over_nics = fabric(&spec);
    assert_eq!(over_nics.path_count(0, 7), 1);
    assert_eq!(over_nics.path(0, 7, 0).kind, PathKind::Nic);
    spec.nic_in_node = false;
    let error = Fabric::new(&spec).expect_err("sockets are apart").to_string();
    assert_eq!(
        error,
        "no path from switch 0 to switch 2 of a node: expected peer access or NICs that may be used within a node"
    );
}

#[test]
fn figures_that_no_machine_has_are_refused() {
    type Break = fn(&mut TreeSpec);
    let cases: [(Break, &str); 6] = [
        (|spec| spec.nodes = 0, "0 nodes of 8 GPUs"),
        (|spec| spec.nodes = u32::MAX, "4294967295 nodes of 8 GPUs"),
        (|spec| spec.sockets[1].clear(), "a node without sockets"),
        (|spec| spec.sockets[1][0].gpus = 0, "a switch without GPUs"),
        (|spec| spec.rates.nic = 0, "rate of a NIC is 0"),
        (|spec| spec.modes.cross = Mode::Slots(0), "a resource with no slots"),
    ];
    for (break_it, words) in cases {
        let mut spec = TreeSpec::pcie_2x2x2();
        break_it(&mut spec);
        let error = Fabric::new(&spec).expect_err(words).to_string();
        assert!(error.starts_with(words), "{error}");
    }
}

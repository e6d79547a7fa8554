//! The built-in descriptors parse, have the shape their comments claim, and survive a round trip.

use std::{fs, path::Path};

use topoforge_planner::topology::{LinkClass, PcieClass, Topology, check_set, parse_descriptor, to_ron};

fn built_in() -> Vec<(String, String, Topology)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../topologies");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "ron"));
    files.sort();
    let read = |path: std::path::PathBuf| {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let topology = parse_descriptor(&text, &file).unwrap_or_else(|faults| panic!("{faults:#?}"));
        (file, text, topology)
    };
    files.into_iter().map(read).collect()
}

fn named(name: &str) -> Topology {
    built_in()
        .into_iter()
        .find(|(.., topology)| topology.name == name)
        .expect(name)
        .2
}

#[test]
fn every_file_is_named_as_its_topology_and_begins_with_a_comment() {
    for (file, text, topology) in built_in() {
        assert_eq!(file, format!("{}.ron", topology.name));
        assert!(
            text.starts_with("// ") && text.contains("Found in:"),
            "{file} says where such a machine is found"
        );
    }
}

#[test]
fn names_and_layouts_are_all_different() {
    let set = built_in();
    let borrowed: Vec<_> = set
        .iter()
        .map(|(file, text, topology)| (file.as_str(), text.as_str(), topology))
        .collect();
    assert_eq!(check_set(&borrowed), []);
    let mut prints: Vec<_> = set.iter().map(|(.., topology)| topology.layout_fingerprint()).collect();
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), set.len());
}

#[test]
fn the_six_first_families_are_there() {
    for (name, ranks) in [
        ("nvlink-pair", 2),
        ("pix-pair", 2),
        ("no-peer-pair", 2),
        ("nvlink-quad", 4),
        ("pix-quad", 4),
        ("mixed-8", 8),
    ] {
        assert_eq!(named(name).ranks, ranks, "{name}");
    }
}

#[test]
fn every_descriptor_survives_a_round_trip() {
    for (file, _, topology) in built_in() {
        assert_eq!(parse_descriptor(&to_ron(&topology), &file), Ok(topology));
    }
}

#[test]
fn only_machines_without_peer_access_are_not_peer_connected() {
    for (file, _, topology) in built_in() {
        assert_eq!(topology.is_peer_connected(), !file.starts_with("no-peer"), "{file}");
    }
}

#[test]
fn mixed_8_has_six_nvlink_lanes_and_seven_peers_at_every_rank() {
    let mixed = named("mixed-8");
    assert!(mixed.is_fully_peered());
    for rank in 0..8 {
        let from = mixed.links.iter().filter(|link| link.from == rank);
        let lanes = from.map(|link| match link.class {
            LinkClass::NvLink { lanes, .. } => u32::from(lanes),
            class => {
                assert_eq!(class, LinkClass::Pcie(PcieClass::Sys));
                assert_ne!(link.from / 4, link.to / 4, "PCIe edges cross the sockets");
                0
            }
        });
        assert_eq!(lanes.sum::<u32>(), 6, "rank {rank}");
    }
    for (a, b) in [(0, 4), (1, 5), (2, 6), (3, 7)] {
        assert!(matches!(mixed.link(a, b).unwrap().class, LinkClass::NvLink { .. }));
    }
}

#[test]
fn mixed_8_charges_every_pcie_edge_to_two_uplinks_and_one_socket_link() {
    let mixed = named("mixed-8");
    for link in &mixed.links {
        let crossed: Vec<_> = mixed
            .resources_of(link.from, link.to)
            .map(|r| r.name.as_str())
            .collect();
        let is_pcie = matches!(link.class, LinkClass::Pcie(_));
        assert_eq!(
            crossed.len(),
            if is_pcie { 3 } else { 0 },
            "{} to {}: {crossed:?}",
            link.from,
            link.to
        );
        if is_pcie {
            let uplink = |rank: usize, way| format!("uplink-{}{}-{way}", rank / 2 * 2, rank / 2 * 2 + 1);
            assert!(crossed.contains(&uplink(link.from, "out").as_str()));
            assert!(crossed.contains(&uplink(link.to, "in").as_str()));
        }
    }
}

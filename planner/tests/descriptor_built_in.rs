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
fn the_families_that_are_promised_are_there() {
    let promised: &[(usize, &[&str])] = &[
        (
            2,
            &[
                "nvlink-pair",
                "pix-pair",
                "pxb-pair",
                "phb-pair",
                "sys-pair",
                "no-peer-pair",
                "nvswitch-2",
            ],
        ),
        (3, &["trio-one-bridge"]),
        (
            4,
            &[
                "nvlink-quad",
                "nvlink-quad-mixed",
                "pix-quad",
                "pix-pairs-quad",
                "bridge-pairs-quad",
                "no-peer-quad",
                "nvswitch-4",
            ],
        ),
        (5, &["pcie-5"]),
        (6, &["pcie-6-4plus2"]),
        (7, &["pcie-7-4plus3"]),
        (
            8,
            &[
                "cube-mesh-8",
                "mixed-8",
                "pcie-8",
                "pcie-8-4plus4",
                "bridge-pairs-8",
                "nvswitch-8",
                "four-socket",
                "pcie-8-leaf-spine",
            ],
        ),
        (16, &["pcie-16"]),
    ];
    for (ranks, names) in promised {
        for name in *names {
            assert_eq!(named(name).ranks, *ranks, "{name}");
        }
    }
}

#[test]
fn machines_with_holes_have_them_where_their_comments_say() {
    let mixed = named("nvlink-quad-mixed");
    assert!(mixed.link(0, 3).is_none() && mixed.links.len() == 10 && !mixed.is_fully_peered());
    let mesh = named("cube-mesh-8");
    for rank in 0..8 {
        assert_eq!(mesh.links.iter().filter(|l| l.from == rank).count(), 4, "rank {rank}");
    }
    assert_eq!(named("pcie-16").peer_degree_limit, Some(8));
}

#[test]
fn every_descriptor_survives_a_round_trip() {
    for (file, _, topology) in built_in() {
        assert_eq!(parse_descriptor(&to_ron(&topology), &file), Ok(topology));
    }
}

#[test]
fn only_machines_without_peer_access_are_not_peer_connected() {
    let linked = built_in()
        .into_iter()
        .filter(|(.., topology)| !topology.is_alltoallv_only());
    for (file, _, topology) in linked {
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

#[test]
fn machines_for_alltoallv_go_by_their_second_names_and_agree_with_their_links() {
    let machines: Vec<Topology> = built_in()
        .into_iter()
        .map(|(.., t)| t)
        .filter(|t| t.alltoallv.is_some())
        .collect();
    let names: Vec<(&str, &[String])> = machines
        .iter()
        .map(|t| (t.name.as_str(), t.aliases.as_slice()))
        .collect();
    let expected: [(&str, &[String]); 6] = [
        ("four-socket", &["pcie-4x1x2".to_owned()]),
        ("nvswitch-8", &[]),
        ("pcie-16", &["pcie-2x2x4".to_owned()]),
        ("pcie-8-4plus4", &["pcie-2x4".to_owned()]),
        ("pcie-8-leaf-spine", &[]),
        ("pcie-8", &["pcie-2x2x2".to_owned()]),
    ];
    assert_eq!(names, expected);
    for topology in &machines {
        let machine = topology.alltoallv.as_ref().unwrap();
        assert!(machine.any_nodes, "{}: clusters of it are served", topology.name);
        let fabric = machine.fabric(Some(1)).unwrap();
        assert_eq!(
            machine.fabric(Some(1024 / fabric.ranks() as u32)).unwrap().ranks(),
            1024
        );
        if topology.is_alltoallv_only() {
            continue;
        }
        for (from, to) in (0..topology.ranks)
            .flat_map(|a| (0..topology.ranks).map(move |b| (a, b)))
            .filter(|(a, b)| a != b)
        {
            let below = fabric.group_of(from) == fabric.group_of(to);
            let socket = fabric.socket_of(fabric.group_of(from)) == fabric.socket_of(fabric.group_of(to));
            let expected = match topology.link(from, to).unwrap().class {
                LinkClass::Pcie(PcieClass::Sys) => (false, false),
                LinkClass::Pcie(PcieClass::Node) => (false, true),
                _ => (true, true),
            };
            assert_eq!((below, socket), expected, "{}: {from} to {to}", topology.name);
        }
    }
}

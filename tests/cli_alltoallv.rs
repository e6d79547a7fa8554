//! `topoforge alltoallv catalogue`: the figures that scripts rely on, and words for what it cannot do.

mod cli_support;

use cli_support::{file, run};

const SMALLEST: &str = "Topology(name: \"smallest\", ranks: 4, links: [],
    alltoallv: Machine(sockets: [[Switch(gpus: 2, nics: 1), Switch(gpus: 2, nics: 1)]],
        gb_per_s: (same_switch: 56, same_socket: 52, cross_socket: 40, nic: 48)))";

#[test]
fn every_shipped_machine_keeps_to_the_bars_of_size() {
    // Names and second names; the figures are those of docs/alltoallv.md.
    let all = [
        ("pcie-2x4", "pcie-8-4plus4", [26, 21, 16]),
        ("pcie-2x2x2", "pcie-8", [13_580, 9_425, 1_784]),
        ("pcie-2x2x4", "pcie-16", [13_580, 9_425, 1_784]),
        ("pcie-4x1x2", "four-socket", [17_004, 11_514, 783]),
        ("nvswitch-8", "nvswitch-8", [9, 9, 9]),
        // What lies behind the NICs changes no family of a node.
        ("pcie-8-leaf-spine", "pcie-8-leaf-spine", [13_580, 9_425, 1_784]),
    ];
    for (alias, name, counts) in all {
        let ran = run(&["alltoallv", "catalogue", alias, "--json"]);
        assert_eq!(ran.code, 0, "{alias}: {}", ran.stderr);
        let found = ran.document();
        assert_eq!(found["topology"], name);
        for (key, count) in ["families", "shapes", "orbits"].into_iter().zip(counts) {
            assert_eq!(found[key], count, "{alias} {key}");
        }
        let promised = ["families", "shapes", "orbits", "bytes", "build_ms"];
        let places = promised.map(|key| ran.stdout.find(&format!("\"{key}\"")).expect(key));
        assert!(
            places.is_sorted() && ran.stdout.find("\"topology\"") > Some(places[4]),
            "{}",
            ran.stdout
        );
        assert!(
            found["bytes"]
                .as_u64()
                .is_some_and(|bytes| (1..=64 << 10).contains(&bytes)),
            "{alias}"
        );
        // The bar is 50 ms with sequences; three times as much, since others may be at work. No shipped machine needs 10.
        let ms = ["build_ms", "base_ms"].map(|key| found[key].as_f64().expect(key));
        assert!(ms[0] > 0.0 && ms[0] + ms[1] < 150.0, "{alias}: {ms:?} ms");
        assert_eq!(
            (&found["embedded"], &found["nodes"]),
            (&true.into(), &serde_json::Value::Null),
            "{alias}"
        );
    }
}

#[test]
fn profiles_of_a_file_are_named_with_their_steps() {
    let profiles = "forward: false, profiles: [Profile(name: \"moe-decode\", demand: [[0, 9, 1, 1], [9, 0, 1, 0], \
                    [1, 1, 0, 7], [2, 1, 7, 0]]), Profile(name: \"ring\", demand: [[0, 1, 0, 0], [0, 0, 1, 0], \
                    [0, 0, 0, 1], [1, 0, 0, 0]])], gb_per_s";
    let text = SMALLEST.replace("gb_per_s", profiles);
    let path = file("a2a-profiles.ron", &text);
    let path = path.to_str().expect("text");
    let found = run(&["alltoallv", "catalogue", path, "--json"]).document();
    let names = [0, 1].map(|k| found["profiles"][k]["name"].as_str().expect("a name").to_owned());
    assert_eq!(names, ["moe-decode", "ring"]);
    let steps = [0, 1].map(|k| found["profiles"][k]["steps"].as_u64().expect("steps"));
    assert!(steps.iter().all(|steps| *steps > 0), "{steps:?}");
    let table = run(&["alltoallv", "catalogue", path]);
    assert_eq!(table.code, 0, "{}", table.stderr);
    let says = format!(
        " steps, profile moe-decode of {}, profile ring of {} (planned in ",
        steps[0], steps[1]
    );
    assert!(table.stdout.contains(&says), "{}", table.stdout);
    // A fault stands at its place.
    let wrong = file("a2a-profiles-wrong.ron", &text.replace("[2, 1, 7, 0]", "[2, 1, 7]"));
    let ran = run(&["alltoallv", "catalogue", wrong.to_str().expect("text")]);
    assert!(
        ran.code != 0 && ran.stderr.contains("3 entries in the row of rank 3: expected 4"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_file_is_built_and_told_in_a_table() {
    let path = file("a2a-smallest.ron", SMALLEST);
    let path = path.to_str().expect("text");
    let found = run(&["alltoallv", "catalogue", path, "--json"]).document();
    assert_eq!(
        (&found["families"], &found["shapes"], &found["orbits"]),
        (&6.into(), &3.into(), &5.into())
    );
    assert_eq!((&found["embedded"], &found["nodes"]), (&false.into(), &1.into()));
    let table = run(&["alltoallv", "catalogue", path]);
    assert!(
        table.stdout.contains("smallest, 4 GPUs a node, one node"),
        "{}",
        table.stdout
    );
    assert!(table.stdout.contains("checked, not compiled in"), "{}", table.stdout);
}

#[test]
fn machines_without_a_tree_or_too_large_for_a_catalogue_are_told_so() {
    let none = run(&["alltoallv", "catalogue", "nvlink-pair"]);
    assert_eq!(none.code, 2);
    assert!(
        none.stderr
            .contains("nvlink-pair states no machine for AlltoAllv: add `alltoallv: Machine(..)`"),
        "{}",
        none.stderr
    );
    let socket = "[Switch(gpus: 2, nics: 1), Switch(gpus: 2, nics: 1)]";
    let large = format!(
        "Topology(name: \"large\", ranks: 16, links: [], alltoallv: Machine(sockets: [{socket}, {socket}, {socket}, {socket}], \
         gb_per_s: (same_switch: 56, same_socket: 52, cross_socket: 40, nic: 48)))"
    );
    let path = file("a2a-large.ron", &large);
    let ran = run(&["alltoallv", "catalogue", path.to_str().expect("text")]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("a catalogue holds at most"), "{}", ran.stderr);
}

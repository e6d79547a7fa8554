//! The `alltoallv` part of a descriptor: what it means, and each fault at its place with what was expected.

use topoforge_planner::alltoallv::{Leaves, Mode, Network, Nics, PathKind, Reach};
use topoforge_planner::topology::{Fault, Topology, alltoallv_fault, check_set, parse_descriptor, to_ron};

/// A node of four ranks whose machine is given; it stands at line 2, column 16.
fn text(machine: &str) -> String {
    format!("Topology(name: \"t\", ranks: 4, links: [],\n    alltoallv: {machine})")
}

const SOCKETS: &str = "sockets: [[Switch(gpus: 2, nics: 1), Switch(gpus: 2, nics: 1)]]";
const RATES: &str = "gb_per_s: (same_switch: 56, same_socket: 52.5, cross_socket: 40, nic: 48)";

fn faults(machine: &str) -> Vec<String> {
    match parse_descriptor(&text(machine), "t.ron") {
        Ok(topology) => panic!("expected a fault, parsed {topology:?}"),
        Err(faults) => faults.iter().map(Fault::to_string).collect(),
    }
}

fn parsed(machine: &str) -> Topology {
    parse_descriptor(&text(machine), "t.ron").unwrap_or_else(|faults| panic!("{faults:#?}"))
}

/// Faults are as many as expected, each at its place and in its words.
fn are_at(found: &[String], expected: &[(&str, &str)]) {
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, (place, says)) in found.iter().zip(expected) {
        assert!(
            found.starts_with(place) && found.contains(says),
            "{found} should be at {place} and say {says}"
        );
    }
}

#[test]
fn what_is_left_out_is_a_single_node_with_exclusive_links() {
    let topology = parsed(&format!("Machine({SOCKETS}, {RATES})"));
    assert!(topology.is_alltoallv_only());
    let machine = topology.alltoallv.unwrap();
    let spec = &machine.spec;
    assert_eq!((spec.nodes, machine.any_nodes, spec.reach), (1, false, Reach::Node));
    assert_eq!(
        (spec.modes.port, spec.modes.cross, spec.modes.nic),
        (Mode::Exclusive, Mode::Exclusive, Mode::Exclusive)
    );
    assert_eq!(
        (spec.nic_in_node, spec.nic_beside_ports, spec.forward),
        (true, false, false)
    );
    assert_eq!(
        (spec.alpha_ns, spec.alpha_h_ns, spec.rates.same_socket),
        (2_000, 1_000, 52_500)
    );
    let error = machine.fabric(Some(2)).unwrap_err().to_string();
    assert!(error.starts_with("2 nodes of a machine that has 1"), "{error}");
}

#[test]
fn everything_that_can_be_said_is_read_and_printed() {
    let all = format!(
        "Machine(nodes: Any, sockets: [[Switch(gpus: 1, nics: 2)], [Switch(gpus: 3)]], {RATES}, \
         modes: (port: Exclusive, trunk: Slots(2), cross: Fluid), reach: Socket, nic_in_node: true, \
         nic_beside_ports: false, forward: true, alpha_ns: 0, alpha_handoff_ns: 700)"
    );
    let topology = parsed(&all);
    assert_eq!(parse_descriptor(&to_ron(&topology), "t.ron").as_ref(), Ok(&topology));
    let machine = topology.alltoallv.unwrap();
    let spec = &machine.spec;
    assert_eq!(spec.sockets[0][0].nics, Nics::Shared(2));
    assert_eq!(
        (spec.modes.trunk, spec.modes.cross, spec.modes.nic),
        (Mode::Slots(2), Mode::Fluid, Mode::Exclusive)
    );
    assert_eq!(
        (machine.any_nodes, spec.reach, spec.forward),
        (true, Reach::Socket, true)
    );
    let fabric = machine.fabric(Some(3)).unwrap();
    assert_eq!((fabric.ranks(), fabric.alpha_ns(), fabric.alpha_h_ns()), (12, 0, 700));
    assert_eq!(fabric.path(0, 1, 0).kind, PathKind::Nic, "sockets are apart");
}

#[test]
fn all_faults_of_a_machine_come_at_once_at_their_places() {
    let machine = "Machine(\n  nodes: 0,\n  sockets: [[Switch(gpus: 0, nics: Two)], []],\n  gb_per_s: (same_switch: -1, same_socket: 52, nic: 48),\n  \
                   modes: (port: Slots(0), trunk: Open, wide: Fluid),\n  reach: Far,\n  forward: 1,\n  alpha_ns: -5,\n  beta: 1,\n)";
    let found = faults(machine);
    let expected = [
        (
            "t.ron:3:10: ",
            "expected `Any` or a number of nodes from 1 to 4096, found 0",
        ),
        ("t.ron:4:27: ", "expected GPUs from 1 to 64, found 0"),
        ("t.ron:4:36: ", "expected NICs from 0 to 64, or `PerGpu`, found `Two`"),
        ("t.ron:4:43: ", "a socket without switches: expected at least one"),
        ("t.ron:5:13: ", "missing field `cross_socket` of `gb_per_s`"),
        (
            "t.ron:5:27: ",
            "expected 10^9 bytes a second, above 0 and at most 10000, found -1",
        ),
        ("t.ron:6:23: ", "expected slots from 1 to 64, found 0"),
        (
            "t.ron:6:34: ",
            "expected `Exclusive`, `Slots(N)` or `Fluid`, found `Open`",
        ),
        ("t.ron:6:40: ", "unknown field `wide` of `modes`"),
        (
            "t.ron:7:10: ",
            "expected `Nowhere`, `Switch`, `Socket` or `Node`, found `Far`",
        ),
        ("t.ron:8:12: ", "expected `true` or `false`, found 1"),
        (
            "t.ron:9:13: ",
            "expected nanoseconds as a whole number from 0 to 1000000, found -5",
        ),
        ("t.ron:10:3: ", "unknown field `beta` of `Machine`"),
    ];
    are_at(&found, &expected);
}

#[test]
fn machines_that_cannot_be_are_refused_in_words() {
    let one = |machine: &str, place: &str, says: &str| {
        let found = faults(machine);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(
            found[0].starts_with(&format!("t.ron:{place}: ")) && found[0].contains(says),
            "{found:?}"
        );
    };
    one("Tree()", "2:16", "expected `Machine(sockets: .., gb_per_s: ..)`");
    one(
        &format!("Machine(sockets: [[Switch(gpus: 2), Switch(gpus: 3)]], {RATES})"),
        "2:33",
        "5 GPUs below the switches of a node of 4 ranks: expected as many",
    );
    one(
        &format!("Machine(sockets: [[Switch(gpus: 2), Switch(gpus: 2)]], {RATES}, nodes: Any)"),
        "2:16",
        "no path from switch 0 of a node to switch 0 of another: expected NICs",
    );
    one(
        &format!("Machine({SOCKETS}, {RATES}, nodes: 2000)"),
        "2:16",
        "2000 nodes of 4 GPUs: expected at least one node and at most 4096 GPUs",
    );
    one(
        &format!("Machine({SOCKETS}, {RATES}, reach: Switch, nic_in_node: false)"),
        "2:16",
        "no path from switch 0 to switch 1 of a node",
    );
    let tiny = "Machine(sockets: [[Switch(gpus: 4)]], gb_per_s: (same_switch: 0.0001, same_socket: 1, cross_socket: 1, nic: 1))";
    one(tiny, "2:78", "at least 0.001");
}

#[test]
fn profiles_are_read_and_printed() {
    let text = format!(
        "Machine({SOCKETS}, {RATES}, profiles: [Profile(name: \"moe-decode\", demand: [[0, 12, 4, 4], [8, 0, 4, 0], \
         [0, 0, 0, 281474976710656], [4, 4, 4, 0]]), Profile(demand: [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], \
         [0, 0, 0, 0]], name: \"one-pair\")])"
    );
    let topology = parsed(&text);
    let printed = to_ron(&topology);
    assert_eq!(parse_descriptor(&printed, "t.ron").as_ref(), Ok(&topology), "{printed}");
    let profiles = topology.alltoallv.unwrap().profiles;
    assert_eq!([profiles[0].name(), profiles[1].name()], ["moe-decode", "one-pair"]);
    // Only ratios count.
    let demand = profiles[0].demand();
    assert_eq!((demand.get(0, 1), demand.get(1, 0), demand.get(2, 3)), (3, 2, 1 << 46));
    let none = parsed(&format!("Machine({SOCKETS}, {RATES}, profiles: [])"));
    assert!(none.alltoallv.unwrap().profiles.is_empty());
}

#[test]
fn all_faults_of_profiles_come_at_once_at_their_places() {
    let machine = format!(
        "Machine({SOCKETS}, {RATES}, profiles: [\n\
         Profile(name: \"Moe\", demand: [[0, 1], [1, 0]]),\n\
         Profile(name: \"rows\", demand: [[0, 1, 1, 1], [1, 0, 1], 5, [1, -1, 0.5, 2]]),\n\
         Profile(name: \"none\", demand: [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]),\n\
         Profile(name: \"large\", demand: [[0, 281474976710657, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]),\n\
         Profile(name: \"uniform\", demand: []),\n\
         Profile(name: \"lonely\", bytes: 1),\n\
         Demand(),\n\
         ])"
    );
    let found = faults(&machine);
    let expected = [
        (
            "t.ron:3:15: ",
            "expected a name `[a-z0-9][a-z0-9-]*` of at most 64 letters",
        ),
        (
            "t.ron:3:30: ",
            "2 rows for 4 ranks: expected one for each rank of a node",
        ),
        ("t.ron:4:46: ", "3 entries in the row of rank 1: expected 4"),
        ("t.ron:4:57: ", "expected a list of bytes for each rank, found 5"),
        (
            "t.ron:4:64: ",
            "expected bytes as a whole number from 0 to 281474976710656, found -1",
        ),
        ("t.ron:4:68: ", "expected bytes as a whole number"),
        (
            "t.ron:4:73: ",
            "rank 3 has bytes for itself: expected 0, since they cross no link",
        ),
        (
            "t.ron:5:31: ",
            "nobody sends anything: expected bytes of at least one pair",
        ),
        ("t.ron:6:37: ", "found 281474976710657"),
        (
            "t.ron:7:15: ",
            "name \"uniform\" is that of the sequence for equal pairs: expected another name",
        ),
        ("t.ron:7:34: ", "0 rows for 4 ranks"),
        ("t.ron:8:1: ", "missing field `demand` of `Profile`"),
        ("t.ron:8:25: ", "unknown field `bytes` of `Profile`"),
        (
            "t.ron:9:1: ",
            "expected `Profile(name: .., demand: ..)`, found `Demand(..)`",
        ),
    ];
    are_at(&found, &expected);
}

#[test]
fn profiles_that_nothing_can_be_recorded_for_are_refused() {
    const ONE: &str = "Profile(name: \"a\", demand: [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])";
    let refused = |before: &str, profiles: &str, says: &str| {
        let found = faults(&format!(
            "Machine({SOCKETS}, {RATES}, {before}\nprofiles: [{profiles}])"
        ));
        assert!(
            found.len() == 1 && found[0].starts_with("t.ron:3:") && found[0].contains(says),
            "{found:?} should say {says}"
        );
    };
    refused(
        "",
        &[ONE, ONE].join(", "),
        "profile \"a\" is given twice: expected another name",
    );
    refused("", &[ONE; 9].join(", "), "9 profiles: expected at most 8");
    refused(
        "nodes: 4,",
        ONE,
        "profiles are of a single node, and this machine always has 4",
    );
    let fluid = "modes: (port: Fluid, trunk: Fluid, cross: Fluid, nic: Fluid),";
    refused(fluid, ONE, "links all share without loss");
    parsed(&format!("Machine({SOCKETS}, {RATES}, nodes: Any, profiles: [{ONE}])"));
}

#[test]
fn aliases_are_names_and_nobody_elses() {
    let text =
        |name: &str, aliases: &str| format!("Topology(name: \"{name}\", ranks: 2, links: [], aliases: {aliases})");
    let told = |text: &str| -> Vec<String> {
        parse_descriptor(text, "t.ron")
            .expect_err(text)
            .iter()
            .map(Fault::to_string)
            .collect()
    };
    assert_eq!(
        told(&text("t", "[\"t\"]")),
        ["t.ron:1:52: alias \"t\" is given twice: expected another name"]
    );
    assert_eq!(told(&text("t", "[\"A b\", 3]")).len(), 2);
    let (one, two) = (text("one", "[\"first\"]"), text("two", "[\"first\", \"one\"]"));
    let (a, b) = (
        parse_descriptor(&one, "1.ron").unwrap(),
        parse_descriptor(&two, "2.ron").unwrap(),
    );
    let found: Vec<String> = check_set(&[("1.ron", &one, &a), ("2.ron", &two, &b)])
        .iter()
        .map(Fault::to_string)
        .collect();
    assert_eq!(
        found,
        [
            "2.ron:1:53: name \"first\" is taken by 1.ron:1:53: expected another name",
            "2.ron:1:53: name \"one\" is taken by 1.ron:1:16: expected another name"
        ]
    );
    let fault = alltoallv_fault("2.ron", &self::text("Machine()"), "too large");
    assert_eq!(fault[0].to_string(), "2.ron:2:16: too large");
}

#[test]
fn leaf_switches_are_read_and_printed() {
    let network = |text: &str| {
        let topology = parsed(&format!("Machine(nodes: Any, {SOCKETS}, {RATES}, network: {text})"));
        assert_eq!(
            parse_descriptor(&to_ron(&topology), "t.ron").as_ref(),
            Ok(&topology),
            "{text}"
        );
        topology.alltoallv.and_then(|machine| machine.spec.network)
    };
    let of = |leaves, up, mode| Some(Network { leaves, up, mode });
    assert_eq!(
        network("Leaves(nodes: 4, up_gb_per_s: 100)"),
        of(Leaves::Nodes(4), 100_000, Mode::Fluid)
    );
    assert_eq!(
        network("Leaves(nodes: 4096, up_gb_per_s: 0.5, mode: Slots(255))"),
        of(Leaves::Nodes(4096), 500, Mode::Slots(255))
    );
    assert_eq!(
        network("Rails(up_gb_per_s: 1e6, mode: Exclusive)"),
        of(Leaves::Rails(None), 1_000_000_000, Mode::Exclusive)
    );
    assert_eq!(
        network("Rails(nodes: 32, up_gb_per_s: 1600.25)"),
        of(Leaves::Rails(Some(32)), 1_600_250, Mode::Fluid)
    );
}

#[test]
fn leaf_switches_that_cannot_be_are_refused_at_their_place() {
    let cases: [(&str, &[&str]); 6] = [
        (
            "Spine(4)",
            &["expected `Leaves(nodes: .., up_gb_per_s: ..)` or `Rails(up_gb_per_s: ..)`, found `Spine(..)`"],
        ),
        (
            "Leaves()",
            &[
                "missing field `nodes` of `Leaves`",
                "missing field `up_gb_per_s` of `Leaves`",
            ],
        ),
        (
            "Leaves(nodes: 0, up_gb_per_s: 0, mode: Slots(0), uplinks: 3)",
            &[
                "unknown field `uplinks` of `Leaves`",
                "expected nodes below one leaf switch from 1 to 4096, found 0",
                "expected 10^9 bytes a second, above 0 and at most 1000000, found 0",
                "expected slots from 1 to 255, found 0",
            ],
        ),
        (
            "Rails(nodes: Any, up_gb_per_s: 1e9)",
            &["nodes below one leaf switch", "at most 1000000"],
        ),
        ("Rails(up_gb_per_s: 0.0001)", &["at least 0.001"]),
        (
            "Rails(up_gb_per_s: 5, mode: Shared)",
            &["expected `Exclusive`, `Slots(N)` or `Fluid`, found `Shared`"],
        ),
    ];
    for (network, says) in cases {
        let found = faults(&format!("Machine({SOCKETS}, {RATES},\n network: {network})"));
        assert_eq!(found.len(), says.len(), "{network}: {found:#?}");
        for fault in &found {
            assert!(fault.starts_with("t.ron:3:"), "{fault}");
            assert!(says.iter().any(|says| fault.contains(says)), "{network}: {fault}");
        }
    }
}

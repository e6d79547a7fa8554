//! Each kind of descriptor fault: its exact place, what was expected, and that all of a file come at once.

use topoforge_planner::topology::{Fault, LinkClass, MAX_RANKS, Topology, check_set, parse_descriptor};
use topoforge_planner::topology::{descriptor::MAX_BYTES, parse_descriptor_bytes};

/// The faults of a descriptor as people see them.
fn faults(text: &str) -> Vec<String> {
    match parse_descriptor(text, "t.ron") {
        Ok(topology) => panic!("expected a fault, parsed {topology:?}"),
        Err(faults) => faults.iter().map(Fault::to_string).collect(),
    }
}

/// A descriptor with the given links; the first link stands at line 2, column 13.
fn with_links(ranks: usize, links: &str) -> String {
    format!("Topology(name: \"t\", ranks: {ranks},\n    links: [{links}])")
}

#[track_caller]
fn one_fault(text: &str, place: &str, says: &[&str]) {
    let found = faults(text);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with(&format!("t.ron:{place}: ")), "{found:?}");
    for part in says {
        assert!(found[0].contains(part), "{found:?} should say {part:?}");
    }
}

#[test]
fn duplicate_links_point_at_the_second_and_name_the_first() {
    one_fault(
        &with_links(2, "pair(0, 1, Host), pair(1, 0, Host)"),
        "2:31",
        &["duplicate link 0 to 1", "2:13"],
    );
    one_fault(
        &with_links(3, "pair(0, 1, Host), all_pairs([0, 1, 2], Host)"),
        "2:31",
        &["duplicate link 0 to 1: already"],
    );
    one_fault(
        &with_links(3, "all_pairs([0, 1, 2], Host), ring([0, 1, 2], Host)"),
        "2:41",
        &["duplicate link 0 to 1 (and 2 more of this ring)"],
    );
    let directed = "one_way(0, 1, Host, (directed: true)), one_way(0, 1, Host, (directed: true))";
    one_fault(&with_links(2, directed), "2:52", &["duplicate link 0 to 1"]);
}

#[test]
fn self_links_are_refused_in_every_form() {
    one_fault(
        &with_links(2, "pair(1, 1, Host)"),
        "2:21",
        &["rank 1 is linked to itself"],
    );
    one_fault(
        &with_links(2, "one_way(0, 0, Host, (directed: true))"),
        "2:24",
        &["rank 0 is linked to itself"],
    );
    one_fault(
        &with_links(3, "between([0, 1], [1, 2], Host)"),
        "2:29",
        &["rank 1 is in both groups"],
    );
}

#[test]
fn ranks_out_of_range_point_at_the_number() {
    one_fault(
        &with_links(2, "pair(0, 2, Host)"),
        "2:21",
        &["rank 2 is out of range: expected 0 to 1"],
    );
    one_fault(
        &with_links(2, "pair(-1, 0, Host)"),
        "2:18",
        &["rank -1 is out of range"],
    );
    one_fault(
        &with_links(3, "all_pairs([0, 1, 7], Host)"),
        "2:30",
        &["rank 7 is out of range: expected 0 to 2"],
    );
}

#[test]
fn writes_must_go_both_ways_unless_directed() {
    let says = ["rank 0 may write to 1 but not 1 to 0", "directed: true"];
    one_fault(&with_links(2, "one_way(0, 1, Host)"), "2:13", &says);
    one_fault(
        &with_links(2, "one_way(0, 1, Host), one_way(1, 0, Host, (write: false))"),
        "2:13",
        &says,
    );
    for legal in [
        "one_way(0, 1, Host, (directed: true))",
        "one_way(0, 1, Host, (write: false))",
        "one_way(0, 1, Pcie(Pix)), one_way(1, 0, Pcie(Sys))",
    ] {
        assert!(parse_descriptor(&with_links(2, legal), "t.ron").is_ok(), "{legal}");
    }
}

#[test]
fn directed_is_no_option_of_symmetric_forms() {
    one_fault(
        &with_links(2, "pair(0, 1, Host, (directed: true))"),
        "2:31",
        &["unknown field `directed`"],
    );
}

#[test]
fn unknown_classes_are_answered_with_the_known_ones() {
    let known = ["NvLink(lanes: N, gen: N)", "Pcie(Pix)", "Pcie(Sys)", "Host"];
    one_fault(&with_links(2, "pair(0, 1, Nvlink(lanes: 1))"), "2:24", &known);
    one_fault(
        &with_links(2, "pair(0, 1, Infiniband)"),
        "2:24",
        &["unknown link class `Infiniband`"],
    );
    one_fault(
        &with_links(2, "pair(0, 1, Pix)"),
        "2:24",
        &["unknown link class `Pix`", "Pcie(Pix)"],
    );
    one_fault(
        &with_links(2, "pair(0, 1, Pcie(Far))"),
        "2:29",
        &["unknown PCIe class `Far`", "Pix", "Sys"],
    );
    one_fault(&with_links(2, "pair(0, 1, 5)"), "2:24", &["unknown link class 5"]);
}

#[test]
fn unknown_forms_and_wrong_arguments_are_answered_with_the_usage() {
    one_fault(
        &with_links(2, "link(0, 1, Host)"),
        "2:13",
        &["unknown link form `link(..)`", "pair(a, b, CLASS)"],
    );
    one_fault(&with_links(2, "(0, 1, Host)"), "2:13", &["unknown link form"]);
    one_fault(&with_links(2, "pair(0, 1)"), "2:13", &["expected `pair(a, b, CLASS)`"]);
    one_fault(
        &with_links(2, "pair(a: 0, b: 1)"),
        "2:13",
        &["expected `pair(a, b, CLASS)`"],
    );
    one_fault(&with_links(2, "pair"), "2:13", &["wrong arguments"]);
}

#[test]
fn rank_counts_of_zero_or_above_64_are_refused_without_further_noise() {
    one_fault(
        "Topology(name: \"t\", ranks: 0, links: [])",
        "1:28",
        &["from 1 to 64", "found 0"],
    );
    one_fault("Topology(name: \"t\", ranks: -3, links: [])", "1:28", &["from 1 to 64"]);
    one_fault(
        "Topology(name: \"t\", ranks: 65, links: [pair(0, 64, Host)])",
        "1:28",
        &["found 65"],
    );
    let largest = format!("Topology(name: \"t\", ranks: {MAX_RANKS}, links: [pair(0, 63, Host)])");
    assert!(parse_descriptor(&largest, "t.ron").is_ok());
}

#[test]
fn names_must_be_plain() {
    for bad in [
        "",
        "Upper",
        "-dash",
        "with space",
        "with_underscore",
        "ü",
        &"x".repeat(65),
    ] {
        let text = format!("Topology(name: {bad:?}, ranks: 1, links: [])");
        one_fault(&text, "1:16", &["[a-z0-9][a-z0-9-]*"]);
    }
    one_fault(
        "Topology(name: t, ranks: 1, links: [])",
        "1:16",
        &["a name in quotes", "found `t`"],
    );
    assert!(parse_descriptor("Topology(name: \"8-x\", ranks: 1, links: [])", "t.ron").is_ok());
}

#[test]
fn unknown_fields_are_placed_at_their_name_and_the_known_ones_listed() {
    one_fault(
        "Topology(name: \"t\", ranks: 1, links: [], rank: 2)",
        "1:42",
        &["unknown field `rank` of `Topology`", "ranks", "peer_degree_limit"],
    );
    one_fault(
        &with_links(2, "pair(0, 1, NvLink(lanes: 1, speed: 3))"),
        "2:41",
        &["unknown field `speed`", "lanes"],
    );
    one_fault(
        &with_links(2, "pair(0, 1, Host, (latency: 3))"),
        "2:31",
        &["unknown field `latency`", "latency_ns"],
    );
}

#[test]
fn missing_fields_are_placed_at_their_owner() {
    let found = faults("// none\n  Topology()");
    assert_eq!(found.len(), 3, "{found:#?}");
    for (fault, name) in found.iter().zip(["links", "name", "ranks"]) {
        assert!(
            fault.starts_with(&format!("t.ron:2:3: missing field `{name}`")),
            "{fault}"
        );
    }
    one_fault(
        &with_links(2, "pair(0, 1, NvLink(gen: 2))"),
        "2:24",
        &["missing field `lanes`"],
    );
}

#[test]
fn fields_given_twice_are_placed_at_the_second() {
    one_fault(
        "Topology(name: \"t\", ranks: 1, links: [], ranks: 1)",
        "1:42",
        &["`ranks`", "twice"],
    );
}

#[test]
fn wrong_types_say_what_was_expected_and_found() {
    one_fault(
        "Topology(name: 5, ranks: 1, links: [])",
        "1:16",
        &["a name in quotes", "found 5"],
    );
    one_fault(
        "Topology(name: \"t\", ranks: \"two\", links: [])",
        "1:28",
        &["whole number", "found \"two\""],
    );
    one_fault(
        "Topology(name: \"t\", ranks: 2.5, links: [])",
        "1:28",
        &["whole number", "found 2.5"],
    );
    one_fault(
        "Topology(name: \"t\", ranks: 1, links: 3)",
        "1:38",
        &["a list of links", "found 3"],
    );
    one_fault(
        &with_links(2, "pair(\"0\", 1, Host)"),
        "2:18",
        &["a rank number", "found \"0\""],
    );
    one_fault(
        &with_links(2, "pair(0, 1, Host, (read: 1))"),
        "2:37",
        &["`true` or `false`"],
    );
    one_fault("[1, 2]", "1:1", &["`Topology(", "a list"]);
    one_fault("(name: \"t\", ranks: 1, links: [])", "1:1", &["`Topology("]);
}

#[test]
fn figures_must_be_positive_and_sane() {
    for (option, place) in [
        ("gb_per_s: 0", "2:41"),
        ("gb_per_s: -1.5", "2:41"),
        ("gb_per_s: 1e9", "2:41"),
        ("gb_per_s: 1e-60", "2:41"),
        ("gb_per_s: NaN", "2:41"),
        ("gb_per_s: inf", "2:41"),
        ("latency_ns: 0", "2:43"),
        ("latency_ns: -5", "2:43"),
        ("latency_ns: 99999999", "2:43"),
        ("latency_ns: 1.5", "2:43"),
    ] {
        one_fault(
            &with_links(2, &format!("pair(0, 1, Host, ({option}))")),
            place,
            &["expected", "found"],
        );
    }
    one_fault(
        &with_links(2, "pair(0, 1, NvLink(lanes: 0, gen: 2))"),
        "2:38",
        &["bonded lanes from 1 to 36"],
    );
    one_fault(
        &with_links(2, "pair(0, 1, NvLink(lanes: 300, gen: 2))"),
        "2:38",
        &["found 300"],
    );
    one_fault(
        &with_links(2, "pair(0, 1, NvLink(lanes: 1, gen: 0))"),
        "2:46",
        &["generation from 1 to 6"],
    );
    let text = "Topology(name: \"t\", ranks: 1, links: [], peer_degree_limit: Some(0))";
    one_fault(text, "1:66", &["peers a rank may enable"]);
}

#[test]
fn groups_name_each_rank_once_and_have_enough_of_them() {
    one_fault(
        &with_links(3, "all_pairs([0, 1, 0], Host)"),
        "2:30",
        &["rank 0 is repeated"],
    );
    one_fault(
        &with_links(3, "all_pairs([0], Host)"),
        "2:23",
        &["a group of 1 ranks: expected 2 to 64"],
    );
    one_fault(
        &with_links(3, "ring([0, 1], Host)"),
        "2:18",
        &["a group of 2 ranks: expected 3 to 64"],
    );
    one_fault(
        &with_links(3, "between([], [1], Host)"),
        "2:21",
        &["a group of 0 ranks"],
    );
    let crowd: Vec<_> = (0..65).map(|rank| rank.to_string()).collect();
    one_fault(
        &with_links(64, &format!("all_pairs([{}], Host)", crowd.join(", "))),
        "2:23",
        &["a group of 65 ranks"],
    );
}

#[test]
fn resources_cross_links_that_exist() {
    let resource = |body: &str| {
        format!("Topology(name: \"t\", ranks: 3, links: [pair(0, 1, Host)], resources: [\n  Resource({body})])")
    };
    one_fault(
        &resource("name: \"r\", gb_per_s: 1, links: [(0, 1), (1, 2)]"),
        "2:52",
        &["there is no link 1 to 2"],
    );
    one_fault(
        &resource("name: \"r\", gb_per_s: 1, links: [from_to([0, 2], [1])]"),
        "2:44",
        &["no link 2 to 1"],
    );
    one_fault(
        &resource("name: \"r\", gb_per_s: 1, links: [(0, 1), pair(0, 1)]"),
        "2:52",
        &["listed twice"],
    );
    one_fault(
        &resource("name: \"r\", gb_per_s: 1, links: [7]"),
        "2:44",
        &["`(from, to)`", "found 7"],
    );
    one_fault(&resource("name: \"r\", gb_per_s: 0, links: []"), "2:33", &["found 0"]);
    one_fault(
        &resource("name: \"R\", gb_per_s: 1, links: []"),
        "2:18",
        &["[a-z0-9][a-z0-9-]*"],
    );
    one_fault(
        &resource("name: \"r\", links: []"),
        "2:3",
        &["missing field `gb_per_s`"],
    );
    let twice = "name: \"r\", gb_per_s: 1, links: []), Resource(name: \"r\", gb_per_s: 1, links: []";
    one_fault(&resource(twice), "2:63", &["resource \"r\" is given twice"]);
}

#[test]
fn a_link_of_unknown_class_does_not_also_count_as_missing_or_one_way() {
    let text = "Topology(name: \"t\", ranks: 2, links: [one_way(0, 1, Host), one_way(1, 0, Nope)],
        resources: [Resource(name: \"r\", gb_per_s: 1, links: [(1, 0)])])";
    one_fault(text, "1:74", &["unknown link class `Nope`"]);
}

#[test]
fn numa_nodes_are_one_a_rank() {
    let text = "Topology(name: \"t\", ranks: 3, links: [], numa: [0, 1])";
    one_fault(text, "1:48", &["2 NUMA nodes for 3 ranks"]);
    one_fault(
        "Topology(name: \"t\", ranks: 1, links: [], numa: [-1])",
        "1:49",
        &["a NUMA node from 0"],
    );
}

#[test]
fn all_faults_of_a_file_come_at_once_in_the_order_of_the_text() {
    let text = "\
Topology(
    name: \"Bad Name\",
    ranks: 4,
    links: [
        pair(0, 1, NvLink(lanes: 0, gen: 2)), // a comment with ) and \"
        pair(0, 9, Pcie(Pix)),
        /* pair(5, 5, Host) */ pair(2, 2, Host),
        pair(2, 3, Warp),
        pair(2, 3, Host),
        one_way(1, 2, Host),
    ],
    resources: [Resource(name: \"r\", gb_per_s: -1, links: [(3, 0)])],
    colour: \"blue\",
)";
    let places: Vec<_> = parse_descriptor(text, "t.ron")
        .unwrap_err()
        .iter()
        .map(|fault| (fault.line, fault.column))
        .collect();
    let expected = [
        (2, 11),
        (5, 34),
        (6, 17),
        (7, 40),
        (8, 20),
        (9, 9),
        (10, 9),
        (12, 47),
        (12, 59),
        (13, 5),
    ]
    .to_vec();
    assert_eq!(places, expected);
}

#[test]
fn a_syntax_error_stands_alone_at_its_place() {
    let found = faults("Topology(\n    name: \"t\",\n    ranks: 2\n    links: [],\n)");
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("t.ron:4:5: not valid RON: "), "{found:?}");
    for cut in [
        "Topology(",
        "Topology(name: \"t",
        "Topology(links: [",
        "Topology(name: \"t\") x",
        "}",
        "/*",
    ] {
        let found = faults(cut);
        assert_eq!(found.len(), 1, "{cut}: {found:?}");
        assert!(found[0].contains("not valid RON"), "{cut}: {found:?}");
    }
    one_fault("// why\n#![enable(implicit_some)]\nTopology()", "2:1", &["attributes"]);
}

#[test]
fn columns_count_characters_not_bytes() {
    one_fault(
        "/* größe */ Topology(name: 1, ranks: 1, links: [])",
        "1:28",
        &["found 1"],
    );
}

#[test]
fn empty_huge_and_binary_input_is_a_fault_and_no_panic() {
    one_fault("", "1:1", &["empty"]);
    one_fault(" \n\t", "1:1", &["empty"]);
    one_fault(&" ".repeat(MAX_BYTES + 1), "1:1", &["bytes"]);
    one_fault("Topology(\n\0)", "2:1", &["control character"]);
    let found = parse_descriptor_bytes(b"Topology(\n  \xff\xfe)", "t.ron").unwrap_err();
    assert_eq!((found.len(), found[0].line, found[0].column), (1, 2, 3), "{found:?}");
    let nested = "(".repeat(100_000);
    assert_eq!(faults(&nested).len(), 1);
    let wide = format!("Topology(name: \"t\", ranks: 1, links: [{}])", "1,".repeat(5000));
    one_fault(&wide, "1:38", &["5000 elements: expected at most 4096"]);
    one_fault(
        "Topology(name: \"t\", ranks: 99999999999999999999999, links: [])",
        "1:28",
        &[],
    );
}

#[test]
fn unusual_but_legal_ron_neither_panics_nor_passes_as_something_else() {
    for odd in [
        "{1: 2}",
        "{\"a\": 2}",
        "1..=2",
        "1..",
        "b\"x\"",
        "'c'",
        "Some(Some(1))",
        "None",
        "()",
        "r#\"x\"#",
        "A::B",
    ] {
        for text in [
            odd.to_owned(),
            with_links(2, odd),
            with_links(2, &format!("pair({odd}, 1, Host)")),
        ] {
            assert!(!faults(&text).is_empty(), "{text}");
        }
    }
}

#[test]
fn two_descriptors_of_one_name_are_a_fault_of_the_later() {
    let text = "// later\nTopology(ranks: 1, name: \"t\", links: [])";
    let read = |file| parse_descriptor(text, file).unwrap();
    let (a, b) = (read("a.ron"), read("b.ron"));
    let found = check_set(&[("a.ron", text, &a), ("b.ron", text, &b)]);
    let found: Vec<_> = found.iter().map(Fault::to_string).collect();
    assert_eq!(
        found,
        ["b.ron:2:26: name \"t\" is taken by a.ron:2:26: expected another name"]
    );
}

#[test]
fn a_machine_without_links_is_legal_and_so_is_the_generation_left_out() {
    let lone = parse_descriptor("Topology(name: \"t\", ranks: 2, links: [])", "t.ron").unwrap();
    assert_eq!(lone, Topology::new("t", 2));
    assert!(!lone.is_peer_connected());
    let nv = parse_descriptor(&with_links(2, "pair(0, 1, NvLink(lanes: 3))"), "t.ron").unwrap();
    assert_eq!(
        nv,
        Topology::new("t", 2).with_pair(0, 1, LinkClass::NvLink { lanes: 3, r#gen: 2 })
    );
}

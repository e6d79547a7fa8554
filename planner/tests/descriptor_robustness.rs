//! Damaged descriptors give faults inside the text, never a panic, and do not take long.

use topoforge_planner::topology::{descriptor::MAX_BYTES, parse_descriptor};

const MIXED: &str = include_str!("../../topologies/mixed-8.ron");

/// Every fault points into the text.
fn check(text: &str) {
    let Err(faults) = parse_descriptor(text, "t.ron") else {
        return;
    };
    assert!(!faults.is_empty());
    let widths: Vec<usize> = text.split('\n').map(|line| line.chars().count()).collect();
    for fault in &faults {
        assert!((1..=widths.len()).contains(&fault.line), "{fault}");
        assert!((1..=widths[fault.line - 1] + 1).contains(&fault.column), "{fault}");
    }
    assert!(faults.is_sorted_by_key(|fault| (fault.line, fault.column)));
}

#[test]
fn text_cut_anywhere_gives_a_fault() {
    let end = MIXED.rfind(')').unwrap();
    for cut in (0..end).step_by(3).filter(|&cut| MIXED.is_char_boundary(cut)) {
        check(&MIXED[..cut]);
        assert!(parse_descriptor(&MIXED[..cut], "t.ron").is_err(), "cut at {cut}");
    }
}

#[test]
fn single_damaged_characters_never_panic() {
    let body = MIXED.find("Topology(").unwrap();
    let mut step: u64 = 1;
    for at in (body..MIXED.len()).filter(|&at| MIXED.is_char_boundary(at) && MIXED.is_char_boundary(at + 1)) {
        step = step
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let wrong = [
            "", "(", ")", "]", ",", "\"", "-", "9", "é", "/*", "#", "{", ":", "Some(", "'",
        ];
        let wrong = wrong[usize::try_from(step >> 33).unwrap() % wrong.len()];
        check(&format!("{}{wrong}{}", &MIXED[..at], &MIXED[at + 1..]));
    }
}

#[test]
fn large_descriptors_full_of_faults_are_answered() {
    // Each of these would take minutes if some check compared every element with every other.
    let size = MAX_BYTES / 32;
    let group: Vec<_> = (0..64).map(|rank| rank.to_string()).collect();
    let group = group.join(",");
    let filled = |head: &str, unit: &str| {
        let text = format!("Topology(name: \"t\", ranks: 64, {head}");
        let times = (size - text.len() - 2) / unit.len();
        format!("{text}{}])", unit.repeat(times))
    };
    for (head, unit) in [
        ("links: [", format!("all_pairs([{group}],Host),")),
        ("links: [", format!("between([{group}],[{group}],Host),")),
        ("links: [", "pair(0,1,Host),".to_owned()),
        (
            "links: [ring([0,1,2],Host)], resources: [",
            "Resource(name:\"r\",gb_per_s:1,links:[(5,6)]),".to_owned(),
        ),
        ("links: [pair(0, 1, (a: [", "1,".to_owned()),
    ] {
        check(&filled(head, &unit));
    }
    let fields = format!("Topology({})", "a:1,".repeat(size / 4));
    check(&fields);
}

//! Pictures: every rank, link, stage and shared capacity is in them, and the text is well-formed.

mod schedule_support;

use schedule_support::{NVLINK, PIX, complete, cube_mesh};
use topoforge_planner::picture::{dot, svg};
use topoforge_planner::schedule::{EdgePolicy, Edges, generate};
use topoforge_planner::topology::{LinkClass, Topology};

/// Opening and closing tags match, and nothing but the known five entities follows an ampersand.
fn is_well_formed(text: &str) -> bool {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let Some(end) = rest[at..].find('>') else { return false };
        let tag = &rest[at + 1..at + end];
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if tag.starts_with('/') {
            if open.pop() != Some(name) {
                return false;
            }
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        if tag.matches('"').count() % 2 == 1 {
            return false;
        }
        rest = &rest[at + end + 1..];
    }
    let bare = text
        .split('&')
        .skip(1)
        .any(|t| !["amp;", "lt;", "gt;"].iter().any(|e| t.starts_with(e)));
    open.is_empty() && !bare
}

#[test]
fn a_picture_shows_ranks_links_capacities_and_every_stage() {
    let across = vec![(0, 4), (1, 5), (2, 6), (3, 7)];
    let back = across.iter().map(|&(a, b)| (b, a)).collect();
    let machine = cube_mesh()
        .with_resource("uplink-out", 12.0, across)
        .with_resource("uplink-in", 12.0, back);
    for candidate in generate(&Edges::new(&machine, EdgePolicy::Peer), 40) {
        let schedule = candidate.schedule;
        let text = svg(&machine, Some(&schedule));
        assert!(is_well_formed(&text), "{}", schedule.name);
        assert!(text.contains(&schedule.name) && text.contains("uplink"));
        // Each panel draws all ranks and links once; links carry the same both ways.
        let panels = 1 + schedule.stages.len();
        assert_eq!(text.matches("<circle").count(), 8 * panels, "{}", schedule.name);
        assert_eq!(
            text.matches("<line").count(),
            16 * panels + 1,
            "{}: one line in the legend",
            schedule.name
        );
        for stage in 0..schedule.stages.len() {
            assert!(text.contains(&format!(">stage {stage}: ")), "{}", schedule.name);
        }
    }
}

#[test]
fn a_machine_alone_and_one_without_links_can_be_drawn() {
    let lone = svg(&Topology::new("lone", 1), None);
    assert!(is_well_formed(&lone) && lone.matches("<circle").count() == 1);
    let host = svg(&complete(4, LinkClass::Host), None);
    assert!(host.contains("stroke-dasharray") && host.contains("host memory"));
    for ranks in [2, 16, 64] {
        assert!(is_well_formed(&svg(&complete(ranks, PIX), None)), "{ranks}");
    }
}

#[test]
fn long_schedules_are_cut_and_say_so() {
    let machine = complete(16, NVLINK);
    let ring = generate(&Edges::new(&machine, EdgePolicy::Peer), 2048)
        .into_iter()
        .find(|c| c.shape == "ring");
    let text = svg(&machine, Some(&ring.expect("complete").schedule));
    assert!(text.contains("and 6 more stages"), "30 stages, 24 drawn");
}

#[test]
fn dot_text_names_every_transfer_edge_and_stage() {
    let machine = cube_mesh();
    let candidate = &generate(&Edges::new(&machine, EdgePolicy::Peer), 40)[0];
    let text = dot(&machine, Some(&candidate.schedule));
    for (stage, s) in candidate.schedule.stages.iter().enumerate() {
        for t in &s.transfers {
            assert!(
                text.lines()
                    .any(|l| l.contains(&format!("{} -> {} ", t.from, t.to)) && l.contains(&format!("\"s{stage}: ")))
            );
        }
    }
    assert_eq!(text.matches('{').count(), text.matches('}').count());
    assert_eq!(
        text.matches("dir=none").count(),
        16,
        "a link that is the same both ways is one line"
    );
    assert_eq!(dot(&machine, None).matches("label=\"s").count(), 0);
}

#[test]
fn the_same_input_gives_the_same_picture() {
    let machine = cube_mesh();
    assert_eq!(svg(&machine, None), svg(&machine, None));
}

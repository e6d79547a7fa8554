//! Graphviz text: one graph, ranks as nodes, links by class, transfers as arrows labelled with stage and chunks.
//!
//! It never lays anything out; Graphviz does. Start at [`dot`].

use super::style;
use crate::schedule::Schedule;
use crate::topology::Topology;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The machine, and `schedule`'s stages over it where there is one.
pub fn dot(topology: &Topology, schedule: Option<&Schedule>) -> String {
    let mut out = format!(
        "digraph {:?} {{\n  layout=circo; node [shape=circle, fontname=\"sans-serif\"];\n",
        topology.name
    );
    out.push_str("  edge [fontname=\"sans-serif\", fontsize=9];\n");
    for rank in 0..topology.ranks {
        let node = topology
            .numa
            .get(rank)
            .map_or(String::new(), |n| format!(", tooltip=\"NUMA node {n}\""));
        let _ = writeln!(out, "  {rank} [label=\"{rank}\"{node}];");
    }
    for link in &topology.links {
        let back = topology.link(link.to, link.from).is_some_and(|b| b.class == link.class);
        if back && link.from > link.to {
            continue;
        }
        let (colour, _, dashed) = style(link.class);
        let (direction, line) = (
            if back { "none" } else { "forward" },
            if dashed { "dashed" } else { "solid" },
        );
        let crossed: Vec<&str> = topology
            .resources_of(link.from, link.to)
            .map(|r| r.name.as_str())
            .collect();
        let _ = writeln!(
            out,
            "  {} -> {} [dir={direction}, color=\"{colour}\", style={line}, penwidth={:.1}, tooltip=\"{} {}\"];",
            link.from,
            link.to,
            super::width(link.class),
            link.class,
            crossed.join(" ")
        );
    }
    for (stage, s) in schedule.iter().flat_map(|s| s.stages.iter().enumerate()) {
        let mut edges: BTreeMap<(usize, usize), Vec<String>> = BTreeMap::new();
        for t in &s.transfers {
            edges.entry((t.from, t.to)).or_default().push(t.chunk.to_string());
        }
        for ((from, to), chunks) in edges {
            let hue = stage as f64 / schedule.map_or(1, |s| s.stages.len().max(1)) as f64;
            let _ = writeln!(
                out,
                "  {from} -> {to} [constraint=false, color=\"{hue:.3} 0.9 0.6\", label=\"s{stage}: {}\"];",
                chunks.join(",")
            );
        }
    }
    out.push_str("}\n");
    out
}

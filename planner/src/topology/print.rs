//! A [`Topology`] as descriptor text that parses back to an equal one.
//!
//! The text is for people: symmetric links appear once, figures only where they were stated. It does no
//! checking: a topology that no descriptor could describe gives text that does not parse.
//! Start reading at [`to_ron`].

use std::fmt::Write as _;

use super::machine;
use super::model::{Link, Topology};

/// Writes a descriptor; deterministic, ends with a newline.
pub fn to_ron(topology: &Topology) -> String {
    let mut out = format!(
        "Topology(\n    name: {:?},\n    ranks: {},\n",
        topology.name, topology.ranks
    );
    list(&mut out, "links", &links(topology));
    let resources: Vec<String> = topology
        .resources
        .iter()
        .map(|resource| {
            let crossing: Vec<String> = resource
                .links
                .iter()
                .map(|(from, to)| format!("({from}, {to})"))
                .collect();
            let (name, gb_per_s, crossing) = (&resource.name, resource.gb_per_s, crossing.join(", "));
            format!("Resource(name: {name:?}, gb_per_s: {gb_per_s:?}, links: [{crossing}])")
        })
        .collect();
    if !resources.is_empty() {
        list(&mut out, "resources", &resources);
    }
    if !topology.numa.is_empty() {
        out.push_str(&format!("    numa: {:?},\n", topology.numa));
    }
    if let Some(limit) = topology.peer_degree_limit {
        out.push_str(&format!("    peer_degree_limit: Some({limit}),\n"));
    }
    if !topology.aliases.is_empty() {
        out.push_str(&format!("    aliases: {:?},\n", topology.aliases));
    }
    if let Some(found) = &topology.alltoallv {
        out.push_str(&machine::print(found));
    }
    out.push_str(")\n");
    out
}

fn list(out: &mut String, name: &str, items: &[String]) {
    if items.is_empty() {
        out.push_str(&format!("    {name}: [],\n"));
        return;
    }
    out.push_str(&format!("    {name}: [\n"));
    for item in items {
        out.push_str(&format!("        {item},\n"));
    }
    out.push_str("    ],\n");
}

fn links(topology: &Topology) -> Vec<String> {
    let mut out = Vec::new();
    for link in &topology.links {
        let back = topology.link(link.to, link.from);
        let twins = back.is_some_and(|back| {
            Link {
                from: link.from,
                to: link.to,
                ..*back
            } == *link
        });
        if !twins {
            let directed = link.write && !back.is_some_and(|back| back.write);
            out.push(format!(
                "one_way({}, {}, {}{})",
                link.from,
                link.to,
                link.class,
                options(link, directed)
            ));
        } else if link.from < link.to {
            out.push(format!(
                "pair({}, {}, {}{})",
                link.from,
                link.to,
                link.class,
                options(link, false)
            ));
        }
    }
    out
}

fn options(link: &Link, directed: bool) -> String {
    let mut fields = String::new();
    if !link.read {
        fields.push_str("read: false, ");
    }
    if !link.write {
        fields.push_str("write: false, ");
    }
    if let Some(latency) = link.latency_ns {
        let _ = write!(fields, "latency_ns: {latency}, ");
    }
    if let Some(bandwidth) = link.gb_per_s {
        let _ = write!(fields, "gb_per_s: {bandwidth:?}, ");
    }
    if directed {
        fields.push_str("directed: true, ");
    }
    match fields.strip_suffix(", ") {
        Some(fields) => format!(", ({fields})"),
        None => String::new(),
    }
}

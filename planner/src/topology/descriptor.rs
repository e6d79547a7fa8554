//! A descriptor's text becomes a [`Topology`], or the list of everything wrong with it.
//!
//! ```text
//! // Two sockets, one bridge between them.
//! Topology(
//!     name: "bridge-pairs-quad",
//!     ranks: 4,
//!     links: [
//!         pair(0, 1, NvLink(lanes: 2, gen: 2)),
//!         pair(2, 3, NvLink(lanes: 2, gen: 2)),
//!         between([0, 1], [2, 3], Pcie(Sys), (gb_per_s: 7.5)),
//!     ],
//!     resources: [
//!         Resource(name: "upi", gb_per_s: 20.0, links: [from_to([0, 1], [2, 3])]),
//!     ],
//!     numa: [0, 0, 1, 1],
//!     peer_degree_limit: Some(8),
//!     aliases: ["two-pairs"],
//!     alltoallv: Machine(..),
//! )
//! ```
//!
//! All but the first three fields may be left out. Link forms stand in `links.rs`, the machine for AlltoAllv in
//! `machine.rs`. A machine without links is legal.
//! Nothing is guessed and nothing panics: a syntax error alone ends the reading, since nothing can be
//! trusted behind it. Start reading at [`parse_descriptor`].

use std::collections::{BTreeMap, BTreeSet};

use super::fault::{Fault, Faults, line_column};
use super::links::{Links, links};
use super::machine::machine;
use super::model::{Link, MAX_RANKS, Resource, Topology};
use super::reader::Reader;
use super::tree::{self, Node, Shape};

/// Largest descriptor, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

const FIELDS: &[&str] = &[
    "name",
    "ranks",
    "links",
    "resources",
    "numa",
    "peer_degree_limit",
    "aliases",
    "alltoallv",
];
/// More names than that are a mistake.
const MAX_ALIASES: usize = 8;
const CROSSING: &str = "`(from, to)`, `pair(a, b)` or `from_to([..], [..])`";

/// Reads a descriptor. `file` is only used to name the place of faults.
///
/// # Errors
/// Every fault of the text in the order of the text; a syntax error stands alone.
pub fn parse_descriptor(text: &str, file: &str) -> Result<Topology, Vec<Fault>> {
    let mut faults = Faults::new(file, text);
    if text.len() > MAX_BYTES {
        faults.add(
            0,
            format!(
                "the file has {} bytes: expected a descriptor of at most {MAX_BYTES}",
                text.len()
            ),
        );
    } else if let Some((at, c)) = text.char_indices().find(|&(_, c)| c.is_control() && !c.is_whitespace()) {
        faults.add(at, format!("control character {c:?}: expected text"));
    } else if text.starts_with('\u{feff}') {
        faults.add(0, "a byte order mark: save without a byte order mark, as plain UTF-8");
    } else if text.trim().is_empty() {
        faults.add(
            0,
            "the file is empty: expected `Topology(name: .., ranks: .., links: [..])`",
        );
    }
    if !faults.is_empty() {
        return Err(faults.finish());
    }
    let root = match tree::parse(text) {
        Ok(root) => root,
        Err((offset, message)) => {
            faults.add(offset, message);
            return Err(faults.finish());
        }
    };
    let mut reader = Reader {
        text,
        faults,
        ranks: None,
    };
    let topology = topology(&mut reader, &root);
    let faults = reader.faults.finish();
    match topology {
        Some(topology) if faults.is_empty() => Ok(topology),
        _ => Err(faults),
    }
}

/// As [`parse_descriptor`], from the bytes of a file that may not be text at all.
///
/// # Errors
/// As [`parse_descriptor`]; bytes that are not UTF-8 are one fault at the first such byte.
pub fn parse_descriptor_bytes(bytes: &[u8], file: &str) -> Result<Topology, Vec<Fault>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse_descriptor(text, file),
        Err(error) => {
            let text = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let mut faults = Faults::new(file, &text);
            faults.add(error.valid_up_to(), "not UTF-8: expected text");
            Err(faults.finish())
        }
    }
}

/// Faults between descriptors `(file, text, topology)`: two that go by one name. Placed at the later one's name.
pub fn check_set(set: &[(&str, &str, &Topology)]) -> Vec<Fault> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for (i, &(file, text, topology)) in set.iter().enumerate() {
        let mut faults = Faults::new(file, text);
        for name in std::iter::once(&topology.name).chain(&topology.aliases) {
            let Some(&earlier) = first.get(name.as_str()) else {
                first.insert(name, i);
                continue;
            };
            let (other, other_text, _) = set[earlier];
            let (line, column) = line_column(other_text, name_offset(other_text, name));
            let message = format!("name {name:?} is taken by {other}:{line}:{column}: expected another name");
            faults.add(name_offset(text, name), message);
        }
        found.extend(faults.finish());
    }
    found
}

/// A fault of the `alltoallv` part that only shows once its catalogue is built.
pub fn alltoallv_fault(file: &str, text: &str, message: impl Into<String>) -> Vec<Fault> {
    let mut faults = Faults::new(file, text);
    faults.add(field_offset(text, "alltoallv", |_| true), message);
    faults.finish()
}

/// Where a name or alias stands.
fn name_offset(text: &str, name: &str) -> usize {
    match field_offset(
        text,
        "name",
        |value| matches!(value, Shape::Text(found) if found == name),
    ) {
        0 => field_offset(text, "aliases", |_| true),
        at => at,
    }
}

/// Where the value of a field of the whole stands, or 0.
fn field_offset(text: &str, name: &str, wanted: impl Fn(&Shape<'_>) -> bool) -> usize {
    let Ok(root) = tree::parse(text) else { return 0 };
    let Shape::Fields(fields) = &root.shape else { return 0 };
    let found = fields
        .iter()
        .find(|field| field.name == name && wanted(&field.value.shape));
    found.map_or(0, |field| field.value.offset)
}

fn topology<'a>(reader: &mut Reader<'a>, root: &Node<'a>) -> Option<Topology> {
    if root.name != Some("Topology") {
        reader.wrong(root, "`Topology(name: .., ranks: .., links: [..])`");
        return None;
    }
    let fields = reader.fields(root, "`Topology`", FIELDS)?;
    let name = reader.required(&fields, "name").and_then(|node| reader.name(node));
    let ranks = reader.required(&fields, "ranks").and_then(|node| {
        // Too many ranks are one fault, not one for each link that uses them.
        reader.ranks = match node.shape {
            Shape::Whole(n) if n > 0 => usize::try_from(n).ok(),
            _ => None,
        };
        reader.whole(node, "ranks as a whole number", 1, MAX_RANKS as i64)
    });
    let links = reader.required(&fields, "links").map(|node| links(reader, node));
    let resources = fields
        .optional("resources")
        .map(|node| resources(reader, node, links.as_ref()));
    let numa = fields.optional("numa").map(|node| numa(reader, node));
    let peer_degree_limit = fields
        .optional("peer_degree_limit")
        .and_then(|node| reader.whole(node, "peers a rank may enable", 1, MAX_RANKS as i64));
    let aliases = fields
        .optional("aliases")
        .map(|node| aliases(reader, node, name.as_deref()));
    let machine = fields.optional("alltoallv").map(|node| machine(reader, node));

    let mut topology = Topology::new(name?, usize::try_from(ranks?).ok()?);
    topology.links = links?
        .by_ends
        .into_values()
        .map(|(_, link)| link)
        .collect::<Option<Vec<Link>>>()?;
    topology.resources = resources.unwrap_or_default();
    topology.numa = numa.unwrap_or_default();
    topology.peer_degree_limit = peer_degree_limit.and_then(|limit| usize::try_from(limit).ok());
    topology.aliases = aliases.unwrap_or_default();
    topology.alltoallv = match machine {
        Some(machine) => Some(machine?),
        None => None,
    };
    Some(topology)
}

fn aliases<'a>(reader: &mut Reader<'a>, node: &Node<'a>, name: Option<&str>) -> Vec<String> {
    let items = reader.list(node, "a list of names").unwrap_or_default();
    if items.len() > MAX_ALIASES {
        let message = format!("{} aliases: expected at most {MAX_ALIASES}", items.len());
        reader.faults.add(node.offset, message);
        return Vec::new();
    }
    let mut aliases: Vec<String> = Vec::new();
    for item in items {
        let Some(alias) = reader.name(item) else { continue };
        if Some(alias.as_str()) == name || aliases.contains(&alias) {
            let message = format!("alias {alias:?} is given twice: expected another name");
            reader.faults.add(item.offset, message);
        } else {
            aliases.push(alias);
        }
    }
    aliases
}

fn numa<'a>(reader: &mut Reader<'a>, node: &Node<'a>) -> Vec<usize> {
    let Some(items) = reader.list(node, "a NUMA node for each rank such as `[0, 0, 1, 1]`") else {
        return Vec::new();
    };
    if let Some(ranks) = reader.ranks.filter(|&ranks| ranks != items.len()) {
        let message = format!(
            "{} NUMA nodes for {ranks} ranks: expected one for each rank",
            items.len()
        );
        reader.faults.add(node.offset, message);
    }
    let nodes = items
        .iter()
        .filter_map(|item| reader.whole(item, "a NUMA node", 0, 1023));
    nodes.filter_map(|n| usize::try_from(n).ok()).collect()
}

fn resources<'a>(reader: &mut Reader<'a>, node: &Node<'a>, links: Option<&Links>) -> Vec<Resource> {
    let mut out: Vec<Resource> = Vec::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for element in reader.list(node, "a list of `Resource(..)`").unwrap_or_default() {
        if element.name != Some("Resource") {
            reader.wrong(element, "`Resource(name: .., gb_per_s: .., links: [..])`");
            continue;
        }
        let Some(fields) = reader.fields(element, "`Resource`", &["name", "gb_per_s", "links"]) else {
            continue;
        };
        let name_node = reader.required(&fields, "name");
        let name = name_node.and_then(|node| reader.name(node));
        let gb_per_s = reader
            .required(&fields, "gb_per_s")
            .and_then(|node| reader.resource_gb_per_s(node));
        let crossing = reader
            .required(&fields, "links")
            .map(|node| crossings(reader, node, links));
        if let (Some(name), Some(node)) = (&name, name_node)
            && !names.insert(name.clone())
        {
            reader.faults.add(
                node.offset,
                format!("resource {name:?} is given twice: expected another name"),
            );
        }
        if let (Some(name), Some(gb_per_s), Some(links)) = (name, gb_per_s, crossing) {
            out.push(Resource { name, gb_per_s, links });
        }
    }
    out
}

/// The directed links of one resource, sorted; those the machine lacks are noted.
fn crossings<'a>(reader: &mut Reader<'a>, node: &Node<'a>, links: Option<&Links>) -> Vec<(usize, usize)> {
    let mut crossing = BTreeSet::new();
    for item in reader.list(node, &format!("a list of {CROSSING}")).unwrap_or_default() {
        let ends: Vec<(usize, usize)> = match (item.name, &item.shape) {
            (None | Some("pair"), Shape::Items(items)) if items.len() == 2 => {
                match (reader.rank(&items[0]), reader.rank(&items[1])) {
                    (Some(a), Some(b)) if item.name.is_some() => vec![(a, b), (b, a)],
                    (Some(a), Some(b)) => vec![(a, b)],
                    _ => continue,
                }
            }
            (Some("from_to"), Shape::Items(items)) if items.len() == 2 => {
                let froms = reader.group(&items[0], 1).unwrap_or_default();
                let tos = reader.group(&items[1], 1).unwrap_or_default();
                froms
                    .iter()
                    .flat_map(|&from| tos.iter().map(move |&to| (from, to)))
                    .collect()
            }
            _ => {
                reader.wrong(item, CROSSING);
                continue;
            }
        };
        // One fault an item: a group of wrong ranks is one mistake.
        let lacking = |ends: &&(usize, usize)| links.is_some_and(|links| !links.by_ends.contains_key(ends));
        if let Some((from, to)) = ends.iter().find(lacking) {
            let message = format!("there is no link {from} to {to}: expected links of this machine");
            reader.faults.add(item.offset, message);
        } else if let Some((from, to)) = ends.iter().find(|ends| crossing.contains(*ends)) {
            reader.faults.add(
                item.offset,
                format!("link {from} to {to} is listed twice: expected each link once"),
            );
        }
        crossing.extend(ends);
    }
    crossing.into_iter().collect()
}

//! The link forms of a descriptor, and the checks that need all links at once.
//!
//! | form | links |
//! |---|---|
//! | `pair(0, 1, CLASS)` | both directions between two ranks |
//! | `all_pairs([0, 1, 2], CLASS)` | both directions between every two of a group |
//! | `ring([0, 1, 2, 3], CLASS)` | both directions between neighbours, the last next to the first |
//! | `between([0, 1], [2, 3], CLASS)` | both directions between each of one group and each of the other |
//! | `one_way(0, 1, CLASS, (directed: true))` | one direction |
//!
//! Each takes a last argument `(read: .., write: .., latency_ns: .., gb_per_s: ..)` with any of these fields.
//! Start reading at [`links`].

use std::collections::{BTreeMap, BTreeSet};

use super::fault::line_column;
use super::model::Link;
use super::reader::Reader;
use super::tree::{Node, Shape};

const FORMS: &str = "`pair(a, b, CLASS)`, `all_pairs([..], CLASS)`, `ring([..], CLASS)`, `between([..], [..], CLASS)` \
                     or `one_way(a, b, CLASS, (directed: true))`";

/// Directed links by their ends, with the place of the element that gave them.
pub(super) struct Links {
    /// `None` stands for a link whose ends are known but whose class or figures are at fault.
    pub by_ends: BTreeMap<(usize, usize), (usize, Option<Link>)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Pair,
    AllPairs,
    Ring,
    Between,
    OneWay,
}

impl Form {
    fn named(name: Option<&str>) -> Option<Self> {
        Some(match name? {
            "pair" => Self::Pair,
            "all_pairs" => Self::AllPairs,
            "ring" => Self::Ring,
            "between" => Self::Between,
            "one_way" => Self::OneWay,
            _ => return None,
        })
    }

    /// How many arguments come before the class, and how the form is written.
    fn usage(self) -> (usize, &'static str) {
        match self {
            Self::Pair => (2, "`pair(a, b, CLASS)`"),
            Self::AllPairs => (1, "`all_pairs([..], CLASS)`"),
            Self::Ring => (1, "`ring([..], CLASS)`"),
            Self::Between => (2, "`between([..], [..], CLASS)`"),
            Self::OneWay => (2, "`one_way(a, b, CLASS, (directed: true))`"),
        }
    }
}

#[derive(Default)]
struct Options {
    read: Option<bool>,
    write: Option<bool>,
    latency_ns: Option<u32>,
    gb_per_s: Option<f32>,
    directed: bool,
}

/// Reads `links: [..]`, noting every fault in and between its elements.
pub(super) fn links<'a>(reader: &mut Reader<'a>, node: &Node<'a>) -> Links {
    let mut by_ends = BTreeMap::new();
    let mut directed = BTreeSet::new();
    for element in reader.list(node, "a list of links").unwrap_or_default() {
        let Some(form) = Form::named(element.name) else {
            reader.faults.add(
                element.offset,
                format!("unknown link form {}: expected {FORMS}", element.describe()),
            );
            continue;
        };
        let (before, usage) = form.usage();
        let arguments = match &element.shape {
            Shape::Items(items) if (before + 1..=before + 2).contains(&items.len()) => items,
            _ => {
                let message = format!("wrong arguments: expected {usage}, optionally a last `(gb_per_s: ..)`");
                reader.faults.add(element.offset, message);
                continue;
            }
        };
        let ends = ends(reader, form, &arguments[..before]);
        let class = reader.class(&arguments[before]);
        let options = match arguments.get(before + 1) {
            Some(node) => options(reader, form, node),
            None => Some(Options::default()),
        };
        let is_directed = options.as_ref().is_some_and(|options| options.directed);
        let mut earlier = Vec::new();
        for (from, to) in ends {
            let link = class.zip(options.as_ref()).map(|(class, options)| Link {
                from,
                to,
                class,
                read: options.read.unwrap_or(true),
                write: options.write.unwrap_or(true),
                lines: true,
                latency_ns: options.latency_ns,
                gb_per_s: options.gb_per_s,
            });
            if is_directed {
                directed.insert((from, to));
            }
            match by_ends.get(&(from, to)) {
                Some(&(place, _)) => earlier.push((from, to, place)),
                None => drop(by_ends.insert((from, to), (element.offset, link))),
            }
        }
        duplicates(reader, form, element.offset, &earlier);
    }
    asymmetric_writes(reader, &by_ends, &directed);
    Links { by_ends }
}

/// The directed ends a form stands for; ends at fault are noted and left out.
fn ends<'a>(reader: &mut Reader<'a>, form: Form, arguments: &[Node<'a>]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    match (form, arguments) {
        (Form::Pair | Form::OneWay, [a, b]) => {
            let ranks = (reader.rank(a), reader.rank(b));
            if let (Some(from), Some(to)) = ranks {
                if from == to {
                    let message = format!("rank {from} is linked to itself: expected two different ranks");
                    reader.faults.add(b.offset, message);
                } else {
                    pairs.push((from, to));
                }
            }
        }
        (Form::AllPairs, [group]) => {
            let group = reader.group(group, 2).unwrap_or_default();
            for (i, &a) in group.iter().enumerate() {
                pairs.extend(group[i + 1..].iter().map(|&b| (a, b)));
            }
        }
        (Form::Ring, [group]) => {
            // Two ranks would give one pair twice.
            let group = reader.group(group, 3).unwrap_or_default();
            if group.len() >= 3 {
                pairs.extend((0..group.len()).map(|i| (group[i], group[(i + 1) % group.len()])));
            }
        }
        (Form::Between, [left, right]) => {
            let lefts = reader.group(left, 1).unwrap_or_default();
            let rights = reader.group(right, 1).unwrap_or_default();
            if let Some(both) = lefts.iter().find(|rank| rights.contains(rank)) {
                let message =
                    format!("rank {both} is in both groups and so linked to itself: expected separate groups");
                reader.faults.add(right.offset, message);
            }
            for &a in &lefts {
                pairs.extend(rights.iter().filter(|&&b| a != b).map(|&b| (a, b)));
            }
        }
        _ => {}
    }
    if form != Form::OneWay {
        pairs.extend_from_within(..);
        let half = pairs.len() / 2;
        pairs[half..].iter_mut().for_each(|(a, b)| std::mem::swap(a, b));
        // Overlapping groups of `between` give some links twice; that fault is noted above.
        pairs.sort_unstable();
        pairs.dedup();
    }
    pairs
}

fn options<'a>(reader: &mut Reader<'a>, form: Form, node: &Node<'a>) -> Option<Options> {
    let known: &[&str] = match form {
        Form::OneWay => &["read", "write", "latency_ns", "gb_per_s", "directed"],
        _ => &["read", "write", "latency_ns", "gb_per_s"],
    };
    let fields = reader.fields(node, "link options", known)?;
    Some(Options {
        read: fields.optional("read").and_then(|node| reader.flag(node)),
        write: fields.optional("write").and_then(|node| reader.flag(node)),
        latency_ns: fields.optional("latency_ns").and_then(|node| reader.latency_ns(node)),
        gb_per_s: fields.optional("gb_per_s").and_then(|node| reader.link_gb_per_s(node)),
        directed: fields
            .optional("directed")
            .and_then(|node| reader.flag(node))
            .unwrap_or(false),
    })
}

/// One fault an element, however many of its links (`earlier`, sorted by ends) were given before.
fn duplicates(reader: &mut Reader<'_>, form: Form, offset: usize, earlier: &[(usize, usize, usize)]) {
    let Some(&(from, to, place)) = earlier.first() else {
        return;
    };
    let (line, column) = line_column(reader.text, place);
    // Both directions of a form were given before: count pairs, not directions.
    let has = |a, b| earlier.binary_search_by_key(&(a, b), |&(a, b, _)| (a, b)).is_ok();
    let more = match earlier.iter().filter(|&&(a, b, _)| a < b || !has(b, a)).count() - 1 {
        0 => String::new(),
        n => format!(
            " (and {n} more of this {})",
            if form == Form::Ring { "ring" } else { "group" }
        ),
    };
    let message =
        format!("duplicate link {from} to {to}{more}: already given at {line}:{column}, expected each link once");
    reader.faults.add(offset, message);
}

fn asymmetric_writes(
    reader: &mut Reader<'_>,
    by_ends: &BTreeMap<(usize, usize), (usize, Option<Link>)>,
    directed: &BTreeSet<(usize, usize)>,
) {
    let writes = |ends| match by_ends.get(&ends) {
        Some((_, Some(link))) => link.write,
        // At fault already: what it would have said is unknown, so nothing follows from it.
        Some((_, None)) => true,
        None => false,
    };
    for (&(from, to), &(offset, ref link)) in by_ends {
        if link.is_some_and(|link| link.write) && !writes((to, from)) && !directed.contains(&(from, to)) {
            let message = format!(
                "rank {from} may write to {to} but not {to} to {from}: expected the other direction too, \
                 or `one_way({from}, {to}, CLASS, (directed: true))`"
            );
            reader.faults.add(offset, message);
        }
    }
}

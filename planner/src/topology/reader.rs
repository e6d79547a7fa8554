//! Typed reads of tree nodes: each returns the value, or notes a fault and returns `None`.
//!
//! Here live the limits on single figures and names. Nothing here knows how links or resources hang
//! together. Start reading at [`Reader`].

use std::collections::BTreeSet;

use super::fault::Faults;
use super::model::{LinkClass, MAX_RANKS, PcieClass};
use super::tree::{Field, Node, Shape};

/// Longest list a descriptor may hold: above all ordered pairs of 64 ranks, below any mischief.
const MAX_ITEMS: usize = 4096;
/// Longest name of a machine or resource.
const MAX_NAME: usize = 64;
/// A store that takes a millisecond is a mistyped figure.
const MAX_LATENCY_NS: i64 = 1_000_000;
/// Ten terabytes a second over one link is a mistyped figure.
const MAX_LINK_GB_PER_S: f64 = 10_000.0;
/// A whole switch moves more than a link does.
const MAX_RESOURCE_GB_PER_S: f64 = 1_000_000.0;
/// NVLink generation assumed where a descriptor leaves it out.
const DEFAULT_GEN: u8 = 2;

const CLASSES: &str =
    "`NvLink(lanes: N, gen: N)`, `Pcie(Pix)`, `Pcie(Pxb)`, `Pcie(Phb)`, `Pcie(Node)`, `Pcie(Sys)` or `Host`";

/// Reads nodes of one text and collects what is wrong with them.
pub(super) struct Reader<'a> {
    pub text: &'a str,
    pub faults: Faults<'a>,
    /// As stated in the descriptor, even when too many; `None` when unreadable.
    pub ranks: Option<usize>,
}

/// Named fields taken one by one; what is left at the end is unknown.
pub(super) struct Fields<'n, 'a> {
    left: Vec<&'n Field<'a>>,
    owner: &'static str,
    known: &'static [&'static str],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn wrong(&mut self, node: &Node<'_>, expected: &str) {
        self.faults
            .add(node.offset, format!("expected {expected}, found {}", node.describe()));
    }

    /// Opens a struct; unknown and repeated fields are noted at once.
    pub(super) fn fields<'n>(
        &mut self,
        node: &'n Node<'a>,
        owner: &'static str,
        known: &'static [&'static str],
    ) -> Option<Fields<'n, 'a>> {
        let left: Vec<_> = match &node.shape {
            Shape::Fields(fields) => fields.iter().collect(),
            Shape::Items(items) if items.is_empty() => Vec::new(),
            _ => {
                self.wrong(node, &format!("{owner} with named fields ({})", known.join(", ")));
                return None;
            }
        };
        let mut seen = BTreeSet::new();
        for field in &left {
            if !known.contains(&field.name) {
                let message = format!(
                    "unknown field `{}` of {owner}: expected one of {}",
                    field.name,
                    known.join(", ")
                );
                self.faults.add(field.offset, message);
            } else if !seen.insert(field.name) {
                self.faults.add(
                    field.offset,
                    format!("field `{}` of {owner} is given twice", field.name),
                );
            }
        }
        Some(Fields {
            left,
            owner,
            known,
            offset: node.offset,
        })
    }

    pub(super) fn required<'n>(&mut self, fields: &Fields<'n, 'a>, name: &'static str) -> Option<&'n Node<'a>> {
        let found = fields.optional(name);
        if found.is_none() {
            let message = format!(
                "missing field `{name}` of {}: expected {}",
                fields.owner,
                fields.known.join(", ")
            );
            self.faults.add(fields.offset, message);
        }
        found
    }

    /// The elements of `[..]`, at most 4096.
    pub(super) fn list<'n>(&mut self, node: &'n Node<'a>, what: &str) -> Option<&'n [Node<'a>]> {
        match &node.shape {
            Shape::Items(items) if node.name.is_none() && items.len() <= MAX_ITEMS => Some(items),
            Shape::Items(items) if node.name.is_none() => {
                let message = format!("{} elements: expected at most {MAX_ITEMS}", items.len());
                self.faults.add(node.offset, message);
                None
            }
            _ => {
                self.wrong(node, what);
                None
            }
        }
    }

    pub(super) fn whole(&mut self, node: &Node<'_>, what: &str, low: i64, high: i64) -> Option<i64> {
        match node.shape {
            Shape::Whole(n) if (low..=high).contains(&n) => Some(n),
            _ => {
                self.wrong(node, &format!("{what} from {low} to {high}"));
                None
            }
        }
    }

    pub(super) fn flag(&mut self, node: &Node<'_>) -> Option<bool> {
        match node.shape {
            Shape::Bool(b) => Some(b),
            _ => {
                self.wrong(node, "`true` or `false`");
                None
            }
        }
    }

    /// A rank number, in range as far as `ranks` is known.
    pub(super) fn rank(&mut self, node: &Node<'_>) -> Option<usize> {
        let Shape::Whole(n) = node.shape else {
            self.wrong(node, "a rank number");
            return None;
        };
        let ranks = self.ranks.unwrap_or(MAX_RANKS);
        match usize::try_from(n) {
            Ok(rank) if rank < ranks => Some(rank),
            _ => {
                let last = ranks.saturating_sub(1);
                self.faults
                    .add(node.offset, format!("rank {n} is out of range: expected 0 to {last}"));
                None
            }
        }
    }

    /// A group `[0, 1, 2]` of at least `least` different ranks; bad and repeated ones are noted and left out.
    pub(super) fn group(&mut self, node: &Node<'a>, least: usize) -> Option<Vec<usize>> {
        let items = self.list(node, "a list of ranks such as `[0, 1, 2]`")?;
        if items.len() < least || items.len() > MAX_RANKS {
            let message = format!("a group of {} ranks: expected {least} to {MAX_RANKS}", items.len());
            self.faults.add(node.offset, message);
            return None;
        }
        let mut group = Vec::new();
        for item in items {
            let Some(rank) = self.rank(item) else { continue };
            if group.contains(&rank) {
                self.faults.add(
                    item.offset,
                    format!("rank {rank} is repeated in its group: expected each rank once"),
                );
            } else {
                group.push(rank);
            }
        }
        Some(group)
    }

    pub(super) fn name(&mut self, node: &Node<'_>) -> Option<String> {
        let Shape::Text(name) = &node.shape else {
            self.wrong(node, "a name in quotes");
            return None;
        };
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > MAX_NAME || name.starts_with('-') || !name.chars().all(legal) {
            let expected = format!("a name `[a-z0-9][a-z0-9-]*` of at most {MAX_NAME} letters");
            self.wrong(node, &expected);
            return None;
        }
        Some(name.clone())
    }

    pub(super) fn link_gb_per_s(&mut self, node: &Node<'_>) -> Option<f32> {
        self.bandwidth(node, MAX_LINK_GB_PER_S)
    }

    pub(super) fn resource_gb_per_s(&mut self, node: &Node<'_>) -> Option<f32> {
        self.bandwidth(node, MAX_RESOURCE_GB_PER_S)
    }

    pub(super) fn latency_ns(&mut self, node: &Node<'_>) -> Option<u32> {
        let n = self.whole(node, "nanoseconds as a whole number", 1, MAX_LATENCY_NS)?;
        u32::try_from(n).ok()
    }

    fn bandwidth(&mut self, node: &Node<'_>, most: f64) -> Option<f32> {
        let figure = match node.shape {
            Shape::Whole(n) => n as f64,
            Shape::Real(x) => x,
            _ => f64::NAN,
        };
        // Also refuses NaN, and figures that an f32 would round to zero.
        if figure as f32 > 0.0 && figure <= most {
            return Some(figure as f32);
        }
        self.wrong(node, &format!("10^9 bytes a second, above 0 and at most {most}"));
        None
    }

    pub(super) fn class(&mut self, node: &Node<'a>) -> Option<LinkClass> {
        match (node.name, &node.shape) {
            (Some("Host"), Shape::Word) => Some(LinkClass::Host),
            (Some("Pcie"), Shape::Items(items)) if items.len() == 1 => {
                let found = PcieClass::ALL
                    .into_iter()
                    .find(|class| Some(class.name()) == items[0].name);
                if found.is_none() || !matches!(items[0].shape, Shape::Word) {
                    let found = items[0].describe();
                    let expected = "expected `Pix`, `Pxb`, `Phb`, `Node` or `Sys`";
                    self.faults
                        .add(items[0].offset, format!("unknown PCIe class {found}: {expected}"));
                    return None;
                }
                found.map(LinkClass::Pcie)
            }
            (Some("NvLink"), Shape::Fields(_)) => {
                let fields = self.fields(node, "`NvLink`", &["lanes", "gen"])?;
                let lanes = self.required(&fields, "lanes");
                let lanes = lanes.and_then(|node| self.whole(node, "bonded lanes", 1, 36));
                let generation = match fields.optional("gen") {
                    Some(node) => self
                        .whole(node, "an NVLink generation", 1, 6)
                        .and_then(|n| u8::try_from(n).ok()),
                    None => Some(DEFAULT_GEN),
                };
                Some(LinkClass::NvLink {
                    lanes: u8::try_from(lanes?).ok()?,
                    r#gen: generation?,
                })
            }
            _ => {
                self.faults.add(
                    node.offset,
                    format!("unknown link class {}: expected {CLASSES}", node.describe()),
                );
                None
            }
        }
    }
}

impl<'n, 'a> Fields<'n, 'a> {
    /// The field's value; `None` and `Some(..)` are seen through.
    pub(super) fn optional(&self, name: &str) -> Option<&'n Node<'a>> {
        let mut node = &self.left.iter().find(|field| field.name == name)?.value;
        while let Shape::Optional(inner) = &node.shape {
            node = inner.as_deref()?;
        }
        Some(node)
    }
}

//! Whether lanes that are under way together are part of a family of each node that they touch.
//!
//! This is how a schedule is checked against the catalogue. Ports are checked for one lane out and one in a rank, as far as
//! they are exclusive. Start reading at [`Catalogue::admits`].

use std::collections::BTreeMap;
use std::fmt;

use super::super::fabric::Fabric;
use super::super::sequence::Lane;
use super::Catalogue;
use super::template::OUTSIDE;

/// Why lanes are no part of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outsider {
    /// The catalogue has no part for this number of nodes.
    Nodes(usize),
    /// A lane of ranks or a path that the machine lacks: its index.
    Lane(usize),
    /// A rank's port carries more lanes than fit.
    Port(usize),
    /// A leaf switch's port does: its id.
    Leaf(u32),
    /// The lanes of this node are together in no family.
    Node(usize),
}

impl fmt::Display for Outsider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(n) => write!(f, "the catalogue has no families for {n} nodes"),
            Self::Lane(i) => write!(f, "lane {i} is none of the machine"),
            Self::Port(rank) => write!(f, "rank {rank} has more lanes than its ports carry"),
            Self::Leaf(id) => write!(
                f,
                "resource {id}, a port of a leaf switch, has more lanes than it carries"
            ),
            Self::Node(node) => write!(f, "the lanes of node {node} are in no family"),
        }
    }
}

impl std::error::Error for Outsider {}

impl Catalogue {
    /// Checks lanes that are under way at the same time. On a fluid fabric any lanes may be.
    ///
    /// # Errors
    /// The first node, rank or lane that does not fit.
    pub fn admits(&self, fabric: &Fabric, lanes: &[Lane]) -> Result<(), Outsider> {
        let part = self.of_nodes(fabric.nodes()).ok_or(Outsider::Nodes(fabric.nodes()))?;
        let template = &part.template;
        let mut nodes: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        let mut ports: BTreeMap<u32, (u32, usize)> = BTreeMap::new();
        let mut leaves: BTreeMap<u32, u32> = BTreeMap::new();
        for (i, &Lane { from, to, class }) in lanes.iter().enumerate() {
            let (from, to, class) = (from as usize, to as usize, usize::from(class));
            if from == to || from.max(to) >= fabric.ranks() || class >= fabric.path_count(from, to) {
                return Err(Outsider::Lane(i));
            }
            for (id, rank) in [(fabric.egress(from), from), (fabric.ingress(to), to)] {
                ports.entry(id).or_insert((0, rank)).0 += 1;
            }
            for &id in fabric.path(from, to, class).resources() {
                if id as usize >= fabric.node_end() {
                    *leaves.entry(id).or_insert(0) += 1;
                }
            }
            let (source, target) = (fabric.group(fabric.group_of(from)), fabric.group(fabric.group_of(to)));
            let path = &fabric.classes(fabric.group_of(from), fabric.group_of(to))[class];
            let mids = |there: bool| path.mids().filter(move |&(_, side)| side == there).map(|(id, _)| id);
            let mut touch = |node: usize, from: u8, to: u8, mids: Vec<u16>| {
                let t = template.find(from, to, &mids).ok_or(Outsider::Lane(i))?;
                nodes.entry(node).or_insert_with(|| vec![0; template.types.len()])[t] += 1;
                Ok(())
            };
            let (g, h) = (source.local as u8, target.local as u8);
            if source.node != target.node {
                touch(source.node, g, OUTSIDE, mids(false).collect())?;
                touch(target.node, OUTSIDE, h, mids(true).collect())?;
            } else if path.mids().next().is_some() {
                touch(source.node, g, h, mids(false).collect())?;
            }
        }
        if fabric.is_fluid() {
            return Ok(());
        }
        for (&id, &(lanes, rank)) in &ports {
            if fabric.resource(id).slots().is_some_and(|most| lanes > most) {
                return Err(Outsider::Port(rank));
            }
        }
        for (&id, &lanes) in &leaves {
            if fabric.resource(id).slots().is_some_and(|most| lanes > most) {
                return Err(Outsider::Leaf(id));
            }
        }
        for (&node, counts) in &nodes {
            let fits = counts.iter().zip(&template.types).all(|(&n, t)| n <= t.copies);
            let wanted = template.family(counts);
            if !fits || !part.families.iter().any(|&family| family & wanted == wanted) {
                return Err(Outsider::Node(node));
            }
        }
        Ok(())
    }
}

//! The lane types of one node: every way a lane can touch it, with what the ways compete for.
//!
//! A lane within the node is one type; a lane between nodes is two, one where it leaves and one where it arrives, since NIC
//! ports of different nodes can be matched in any way. So a template does not depend on the number of nodes. Lanes below one
//! switch use nothing that is shared; they have no type and fill what the others leave. Start reading at [`Template::new`].

use std::fmt;

use super::super::fabric::Fabric;
use super::super::paths::{Class, PathKind};

/// The outside of a node, as an end of a lane type.
pub const OUTSIDE: u8 = u8::MAX;

/// Most lanes, over all types, that one family can be told apart by.
pub const MAX_BITS: usize = 128;

/// What a template covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Lanes from NIC to NIC of one node have types of their own.
    pub nic_lanes: bool,
    /// Lanes to and from other nodes.
    pub outside: bool,
}

/// Lanes that start in one group, end in another and use the same shared resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneType {
    /// Group it starts in, or [`OUTSIDE`].
    pub from: u8,
    /// Group it ends in, or [`OUTSIDE`].
    pub to: u8,
    /// What carries it; of a lane between nodes, how this end is reached.
    pub kind: PathKind,
    /// Time of one byte, femtoseconds; of a lane between nodes, as far as this node limits it.
    pub inv_fs: u32,
    /// Resources of the node that its lanes compete for, by their number in the node.
    pub mids: Vec<u16>,
    /// Lanes of it that fit at a time.
    pub copies: u8,
}

/// The lane types of a node and the resources between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// What it covers.
    pub scope: Scope,
    /// Ranks of each group.
    pub sizes: Vec<u8>,
    /// Trunks first, then NICs, then the outside.
    pub types: Vec<LaneType>,
    /// Lanes that each resource of the node carries; `None` for any number. Ports carry one: a family is one lane out and one
    /// in a rank, also where a fabric lets ports be shared.
    pub capacity: Vec<Option<u32>>,
    /// First bit of each type in a `super::Family`, and the number of bits.
    pub bits: Vec<u8>,
}

/// A node that is too large for a catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// More lanes than a family has bits.
    Bits(usize),
    /// More shared resources than a mask has bits.
    Resources(usize),
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bits(n) => write!(f, "{n} lanes of a node compete: a catalogue holds at most {MAX_BITS}"),
            Self::Resources(n) => write!(f, "{n} shared resources in a node: a catalogue holds at most 128"),
        }
    }
}

impl Template {
    /// The lane types of a fabric's node.
    ///
    /// # Errors
    /// A node with more than [`MAX_BITS`] lanes or shared resources.
    pub fn new(fabric: &Fabric, scope: Scope) -> Result<Self, TemplateError> {
        let groups = fabric.groups_per_node();
        let size = |g: usize| fabric.group(g).ranks.len() as u8;
        let mut capacity: Vec<Option<u32>> = fabric.node_resources().iter().map(|r| r.slots()).collect();
        let ports = 2 * fabric.ranks_per_node();
        capacity[..ports].fill(Some(1));
        if capacity.len() - ports > 128 {
            return Err(TemplateError::Resources(capacity.len() - ports));
        }
        let mut types = Vec::new();
        for (g, h) in (0..groups).flat_map(|g| (0..groups).map(move |h| (g, h))) {
            for class in fabric.classes(g, h).iter().filter(|_| g != h) {
                if class.kind == PathKind::Direct || scope.nic_lanes {
                    let mids = class.mids().map(|(id, _)| id).collect();
                    types.push(LaneType::new(g as u8, h as u8, class, mids));
                }
            }
        }
        // Below one switch only a pair without peer access uses anything shared: its NICs.
        for g in (0..groups).filter(|&g| scope.nic_lanes && size(g) > 1) {
            if let Some(class) = fabric.classes(g, g).iter().find(|class| class.mids().count() > 0) {
                let mids = class.mids().map(|(id, _)| id).collect();
                types.push(LaneType::new(g as u8, g as u8, class, mids));
            }
        }
        if scope.outside {
            types.extend((0..groups).flat_map(|g| halves(fabric, g, false)));
            types.extend((0..groups).flat_map(|g| halves(fabric, g, true)));
        }
        types.sort_by_key(|t| (t.outside(), t.kind, t.from, t.to, t.inv_fs));
        for t in &mut types {
            let ends = [t.from, t.to]
                .into_iter()
                .filter(|&g| g != OUTSIDE)
                .map(|g| size(usize::from(g)));
            let room = t.mids.iter().filter_map(|&id| capacity[usize::from(id)]);
            let most = ends.map(u32::from).chain(room).min().unwrap_or(0);
            t.copies = most as u8;
        }
        let mut bits = vec![0];
        let mut all = 0;
        for t in &types {
            all += usize::from(t.copies);
            bits.push(all.min(255) as u8);
        }
        if all > MAX_BITS {
            return Err(TemplateError::Bits(all));
        }
        Ok(Self {
            scope,
            sizes: (0..groups).map(size).collect(),
            types,
            capacity,
            bits,
        })
    }

    /// The type of a lane by its ends and what it uses of this node.
    pub fn find(&self, from: u8, to: u8, mids: &[u16]) -> Option<usize> {
        self.types
            .iter()
            .position(|t| t.from == from && t.to == to && t.mids == mids)
    }

    /// Lanes of type `t` in a family.
    pub fn count(&self, family: u128, t: usize) -> u32 {
        let (first, end) = (u32::from(self.bits[t]), u32::from(self.bits[t + 1]));
        let mask = (u128::MAX >> (128 - (end - first).max(1))) * u128::from(end > first);
        (family >> first.min(127) & mask).count_ones()
    }

    /// The family of some lanes of each type.
    pub fn family(&self, counts: &[u8]) -> u128 {
        let ones = |n: u8| if n == 0 { 0 } else { u128::MAX >> (128 - u32::from(n)) };
        (counts.iter().zip(&self.bits)).fold(0, |all, (&n, &first)| match n {
            0 => all,
            n => all | ones(n) << first,
        })
    }
}

impl LaneType {
    fn new(from: u8, to: u8, class: &Class, mids: Vec<u16>) -> Self {
        Self {
            from,
            to,
            kind: class.kind,
            inv_fs: class.inv_fs,
            mids,
            copies: 0,
        }
    }

    /// Whether its lanes leave or enter the node.
    pub fn outside(&self) -> bool {
        self.from == OUTSIDE || self.to == OUTSIDE
    }
}

/// The ways out of a group to other nodes, or into it from them, each once and none dominated.
fn halves(fabric: &Fabric, g: usize, arriving: bool) -> Vec<LaneType> {
    let mut all: Vec<LaneType> = Vec::new();
    for other in 0..fabric.groups_per_node() {
        let classes = if arriving {
            fabric.far_classes(other, g)
        } else {
            fabric.far_classes(g, other)
        };
        for class in classes {
            let mids: Vec<u16> = class
                .mids()
                .filter(|&(_, there)| there == arriving)
                .map(|(id, _)| id)
                .collect();
            let (from, to) = if arriving {
                (OUTSIDE, g as u8)
            } else {
                (g as u8, OUTSIDE)
            };
            match all.iter_mut().find(|half| half.mids == mids) {
                // What this end allows shows with the fastest other end.
                Some(half) => half.inv_fs = half.inv_fs.min(class.inv_fs),
                None => {
                    let mut half = LaneType::new(from, to, class, mids);
                    half.kind = half_kind(class.kind, arriving);
                    all.push(half);
                }
            }
        }
    }
    let better =
        |a: &LaneType, b: &LaneType| a != b && a.inv_fs <= b.inv_fs && a.mids.iter().all(|mid| b.mids.contains(mid));
    let kept = all.iter().filter(|half| !all.iter().any(|other| better(other, half)));
    kept.cloned().collect()
}

fn half_kind(kind: PathKind, arriving: bool) -> PathKind {
    match (kind, arriving) {
        (PathKind::NicForwardBoth | PathKind::NicForwardSource, false) => PathKind::NicForwardSource,
        (PathKind::NicForwardBoth | PathKind::NicForwardDestination, true) => PathKind::NicForwardDestination,
        _ => PathKind::Nic,
    }
}

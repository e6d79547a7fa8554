//! What a node can carry at once, found ahead of time: every maximal family of lanes, one for each orbit of the node's symmetry.
//!
//! Nodes are only counted: a lane between two nodes leaves one and enters another, and how NIC ports are matched is no
//! matter of the catalogue. So its size and the time to build it do not depend on the number of nodes. A catalogue is built
//! from a [`Fabric`], checked by [`Catalogue::verify`], written with [`Catalogue::to_bytes`] and read back with
//! [`Catalogue::parse`]. Start reading at [`Catalogue::build`].

mod blob;
pub mod enumerate;
mod member;
mod recorded;
pub mod symmetry;
pub mod template;
mod verify;

use std::collections::BTreeSet;
use std::fmt;

use super::base::Sequences;
use super::fabric::Fabric;
use super::spec::{Machine, SpecError, TreeSpec};
pub use blob::{BlobError, MAGIC, VERSION};
pub use member::Outsider;
use symmetry::Symmetry;
use template::{Scope, Template};
pub use verify::Unsound;

/// Families of lanes of one kind of node, alone or among others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCatalogue {
    /// Lane types and their resources.
    pub template: Template,
    /// Exchanges of groups.
    pub symmetry: Symmetry,
    /// One family of each orbit, ascending; see [`Template::family`].
    pub orbits: Vec<u128>,
    /// All families, ascending.
    pub families: Vec<u128>,
    /// Number of different shapes: lanes from group to group, whatever carries them.
    pub shapes: usize,
    /// Steps of the search that found the families; 0 if it was read.
    pub searched: u64,
}

/// Everything that is found ahead of time for one descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue {
    /// Hash of the node's tree, modes and permissions; see [`layout_hash`].
    pub layout: u64,
    /// Hash of the rates.
    pub rates: u64,
    /// The node alone, if the machine may be a single node.
    pub alone: Option<NodeCatalogue>,
    /// The node among others, if the machine may have several.
    pub member: Option<NodeCatalogue>,
    /// What was recorded for a single node: for uniform demand and for profiles.
    pub sequences: Sequences,
}

/// What a catalogue holds, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Maximal families.
    pub families: usize,
    /// Shapes.
    pub shapes: usize,
    /// Orbits under the node's symmetry.
    pub orbits: usize,
}

/// Why a machine has no catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// The machine is none.
    Spec(SpecError),
    /// Its node is too large.
    Template(template::TemplateError),
    /// Its node has too many families.
    TooMany(enumerate::TooMany),
    /// A recorded sequence does not fit it: which, and why, in words.
    Sequence(String),
    /// A check of the result failed.
    Unsound(Unsound),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spec(e) => e.fmt(f),
            Self::Template(e) => e.fmt(f),
            Self::TooMany(e) => e.fmt(f),
            Self::Sequence(e) => f.write_str(e),
            Self::Unsound(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for BuildError {}

impl NodeCatalogue {
    /// Every maximal family of a fabric's node in a scope.
    ///
    /// # Errors
    /// A node with too many lanes, shared resources or families; never a part of them.
    pub fn build(fabric: &Fabric, scope: Scope) -> Result<Self, BuildError> {
        let template = Template::new(fabric, scope).map_err(BuildError::Template)?;
        let symmetry = Symmetry::of(fabric, &template);
        let found = enumerate::representatives(&template, &symmetry).map_err(BuildError::TooMany)?;
        let families = symmetry.expand(&template, &found.families, enumerate::MAX_FAMILIES);
        let families = families.ok_or(BuildError::TooMany(enumerate::TooMany {
            families: found.families.len(),
            nodes: found.nodes,
        }))?;
        let exchanges = symmetry.exchanges(&template);
        let least = |&family: &u128| exchanges.iter().map(|exchange| exchange.map(family)).min();
        let mut orbits: Vec<u128> = found.families.iter().filter_map(least).collect();
        orbits.sort_unstable();
        Ok(Self {
            shapes: shapes(&template, &families),
            template,
            symmetry,
            orbits,
            families,
            searched: found.nodes,
        })
    }

    /// Families, shapes and orbits.
    pub fn counts(&self) -> Counts {
        Counts {
            families: self.families.len(),
            shapes: self.shapes,
            orbits: self.orbits.len(),
        }
    }

    /// For each lane type the types that cannot have a lane while it has as many as fit, as a mask over types.
    ///
    /// Types that meet only at a resource with room for several lanes are no conflict.
    pub fn conflicts(&self) -> Vec<u128> {
        let exclusive = |id: &&u16| self.template.capacity[usize::from(**id)] == Some(1);
        let types = &self.template.types;
        let meet = |a: usize, b: usize| {
            types[a]
                .mids
                .iter()
                .filter(exclusive)
                .any(|id| types[b].mids.contains(id))
        };
        let row = |a: usize| (0..types.len()).filter(|&b| meet(a, b)).fold(0, |row, b| row | 1 << b);
        (0..types.len()).map(row).collect()
    }

    /// For each resource of the node the lane types that use it.
    pub fn users(&self) -> Vec<Vec<u8>> {
        let mut users = vec![Vec::new(); self.template.capacity.len()];
        for (t, lane) in self.template.types.iter().enumerate() {
            lane.mids.iter().for_each(|&id| users[usize::from(id)].push(t as u8));
        }
        users
    }
}

impl Catalogue {
    /// The catalogue of a machine: `fabric` is its node, alone or several times; `any` says that any number may come.
    ///
    /// `sequences` are those of a single node, such as [`super::base::recorded`] makes; there may be none.
    ///
    /// # Errors
    /// A node too large for a catalogue, or a sequence that does not fit the node.
    pub fn build(fabric: &Fabric, any: bool, sequences: impl Into<Sequences>) -> Result<Self, BuildError> {
        let several = any || fabric.nodes() > 1;
        let scope = |outside| Scope {
            nic_lanes: fabric.spec().nic_in_node,
            outside,
        };
        let alone = (any || !several).then(|| NodeCatalogue::build(fabric, scope(false)));
        let member = several.then(|| NodeCatalogue::build(fabric, scope(true)));
        let catalogue = Self {
            layout: layout_hash(fabric.spec()),
            rates: rates_hash(fabric.spec()),
            alone: alone.transpose()?,
            member: member.transpose()?,
            sequences: sequences.into(),
        };
        if !catalogue.sequences.is_empty() {
            let node = Fabric::new(&fabric.spec().clone().cluster(1)).map_err(BuildError::Spec)?;
            catalogue.check_sequences(&node).map_err(BuildError::Sequence)?;
        }
        Ok(catalogue)
    }

    /// The catalogue of a descriptor's machine.
    ///
    /// # Errors
    /// As [`Catalogue::build`], and a node that is none.
    pub fn of_machine(machine: &Machine, sequences: impl Into<Sequences>) -> Result<Self, BuildError> {
        let node = Fabric::new(&machine.spec).map_err(BuildError::Spec)?;
        Self::build(&node, machine.any_nodes, sequences)
    }

    /// The families that a machine of this many nodes uses.
    pub fn of_nodes(&self, nodes: usize) -> Option<&NodeCatalogue> {
        if nodes == 1 {
            self.alone.as_ref()
        } else {
            self.member.as_ref()
        }
    }

    /// Counts of the larger part: the node among others where there is one.
    pub fn counts(&self) -> Counts {
        let part = self.member.as_ref().or(self.alone.as_ref());
        part.map(NodeCatalogue::counts).unwrap_or_default()
    }

    /// Whether it was made for a machine like this one, however many nodes it has.
    pub fn is_of(&self, fabric: &Fabric) -> bool {
        self.layout == layout_hash(fabric.spec()) && self.rates == rates_hash(fabric.spec())
    }
}

/// Number of different shapes of families.
fn shapes(template: &Template, families: &[u128]) -> usize {
    let ends: BTreeSet<(u8, u8)> = template.types.iter().map(|t| (t.from, t.to)).collect();
    let ends: Vec<(u8, u8)> = ends.into_iter().collect();
    let place = |t: usize| {
        ends.binary_search(&(template.types[t].from, template.types[t].to))
            .unwrap_or(0)
    };
    let place: Vec<usize> = (0..template.types.len()).map(place).collect();
    // Lanes of a pair of groups are counted in as many bits as they can need.
    let mut most = vec![0_u32; ends.len()];
    for (t, lane) in template.types.iter().enumerate() {
        most[place[t]] += u32::from(lane.copies);
    }
    let mut first = vec![0_u32; ends.len()];
    for i in 1..ends.len() {
        first[i] = first[i - 1] + (32 - most[i - 1].leading_zeros());
    }
    let of_type = |t: usize| std::iter::repeat_n(1_u128 << first[place[t]], usize::from(template.types[t].copies));
    let of_bit: Vec<u128> = (0..place.len()).flat_map(of_type).collect();
    let key = |&family: &u128| {
        let (mut left, mut key) = (family, 0);
        while left != 0 {
            key += of_bit[left.trailing_zeros() as usize];
            left &= left - 1;
        }
        key
    };
    let mut all: Vec<u128> = families.iter().map(key).collect();
    all.sort_unstable();
    all.dedup();
    all.len()
}

/// Hash of everything about a node that its families depend on.
pub fn layout_hash(spec: &TreeSpec) -> u64 {
    let text = format!(
        "{:?}{:?}{:?}{}{}{}",
        spec.sockets, spec.modes, spec.reach, spec.nic_in_node, spec.nic_beside_ports, spec.forward
    );
    // What lies behind the NICs changes no family, but which of them fit together.
    let network = spec
        .network
        .map(|network| format!("{:?}{:?}", network.leaves, network.mode));
    fnv((text + &network.unwrap_or_default()).as_bytes())
}

fn rates_hash(spec: &TreeSpec) -> u64 {
    let rates = spec.rates;
    let all = [rates.same_switch, rates.same_socket, rates.cross_socket, rates.nic];
    let network = spec.network.map(|network| network.up);
    let all: Vec<u8> = all.into_iter().chain(network).flat_map(u32::to_le_bytes).collect();
    fnv(&all)
}

/// FNV-1a, 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

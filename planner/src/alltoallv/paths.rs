//! Path classes: the ways from one group of ranks to another, with dominated ones left out.
//!
//! A class is found once for each ordered pair of groups, within a node and between two nodes; the path of a rank pair
//! is its class with the two ranks' own resources filled in. Start reading at [`Class`].

use super::fabric::Layout;
use super::spec::{Reach, TreeSpec};

/// Most paths of one pair of ranks.
pub const MAX_PATHS: usize = 4;
/// Most resources of one path.
pub const MAX_RESOURCES: usize = 12;

/// What carries a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PathKind {
    /// Peer stores over the node's own links.
    Direct = 0,
    /// NIC to NIC, each the one its rank uses by default.
    Nic = 1,
    /// As `Nic`, with the next switch's NIC at the source.
    NicForwardSource = 2,
    /// As `Nic`, with the next switch's NIC at the destination.
    NicForwardDestination = 3,
    /// As `Nic`, with the next switch's NIC at both ends.
    NicForwardBoth = 4,
}

/// One path of a pair of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Time of one byte, femtoseconds.
    pub inv_fs: u32,
    /// What carries it.
    pub kind: PathKind,
    len: u8,
    ids: [u32; MAX_RESOURCES],
}

impl Path {
    /// Ids of the resources it uses, in the order of the wire, each once.
    pub fn resources(&self) -> &[u32] {
        &self.ids[..usize::from(self.len)]
    }

    pub(super) fn new(class: &Class) -> Self {
        Self {
            inv_fs: class.inv_fs,
            kind: class.kind,
            len: 0,
            ids: [0; MAX_RESOURCES],
        }
    }

    pub(super) fn push(&mut self, id: u32) {
        self.ids[usize::from(self.len)] = id;
        self.len += 1;
    }
}

/// Marks a resource of the destination's node; without it a resource is of the source's node.
pub(super) const AT_DESTINATION: u16 = 0x8000;
const MAX_MIDS: usize = MAX_RESOURCES - 2;

/// Paths from one group to another that differ only in the resources of the two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Time of one byte, femtoseconds.
    pub inv_fs: u32,
    /// What carries it.
    pub kind: PathKind,
    /// It uses the egress of the source and the ingress of the destination.
    pub ports: bool,
    /// It uses the NICs that belong to the two ranks alone.
    pub own_nics: bool,
    len: u8,
    mids: [u16; MAX_MIDS],
}

impl Class {
    /// Resources that all its paths share: number within the node, and whether the node is the destination's.
    pub fn mids(&self) -> impl Iterator<Item = (u16, bool)> + '_ {
        self.raw_mids()
            .iter()
            .map(|&mid| (mid & !AT_DESTINATION, mid & AT_DESTINATION != 0))
    }

    pub(super) fn raw_mids(&self) -> &[u16] {
        &self.mids[..usize::from(self.len)]
    }

    fn new(kind: PathKind, rate: u32, mids: &[u16]) -> Self {
        let mut all = [0; MAX_MIDS];
        all[..mids.len()].copy_from_slice(mids);
        Self {
            inv_fs: inverse_fs(rate),
            kind,
            ports: true,
            own_nics: false,
            len: mids.len() as u8,
            mids: all,
        }
    }

    /// Is never slower and uses nothing that `other` does not use.
    fn dominates(&self, other: &Self) -> bool {
        self.inv_fs <= other.inv_fs
            && self.ports <= other.ports
            && self.own_nics <= other.own_nics
            && self.raw_mids().iter().all(|mid| other.raw_mids().contains(mid))
    }
}

/// Femtoseconds a byte at a rate in 10^6 bytes a second, rounded to the nearest.
pub(super) fn inverse_fs(rate: u32) -> u32 {
    (1_000_000_000 + rate / 2) / rate.max(1)
}

/// Classes from group `g` to group `h` of one node, fastest first.
pub(super) fn near(spec: &TreeSpec, layout: &Layout, g: usize, h: usize) -> Vec<Class> {
    let rates = spec.rates;
    let mut found = Vec::new();
    let (from, to) = (layout.socket[g], layout.socket[h]);
    let (needed, rate) = match (g == h, from == to) {
        (true, _) => (Reach::Switch, rates.same_switch),
        (false, true) => (Reach::Socket, rates.same_switch.min(rates.same_socket)),
        (false, false) => (
            Reach::Node,
            rates.same_switch.min(rates.same_socket).min(rates.cross_socket),
        ),
    };
    if spec.reach >= needed {
        let trunks = trunks(layout, g, h, 0);
        found.push(Class::new(PathKind::Direct, rate, &trunks));
    }
    if spec.nic_in_node {
        found.extend(nic(spec, layout, g, h, false, (0, 0)));
    }
    best(found)
}

/// Classes from group `g` of one node to group `h` of another, fastest first.
pub(super) fn far(spec: &TreeSpec, layout: &Layout, g: usize, h: usize) -> Vec<Class> {
    let ways: &[usize] = if spec.forward { &[0, 1] } else { &[0] };
    let all = ways.iter().flat_map(|&a| ways.iter().map(move |&b| (a, b)));
    best(all.filter_map(|hops| nic(spec, layout, g, h, true, hops)).collect())
}

/// Trunks from switch `g` to switch `h` of a node, marked with `side`.
fn trunks(layout: &Layout, g: usize, h: usize, side: u16) -> Vec<u16> {
    let mut mids = Vec::new();
    if g != h {
        mids.push(layout.up(g) | side);
        mids.extend(layout.cross(layout.socket[g], layout.socket[h]).map(|id| id | side));
        mids.push(layout.down(h) | side);
    }
    mids
}

/// The path over NICs, `hops` switches past the default ones at either end; none if there is no such NIC.
fn nic(spec: &TreeSpec, layout: &Layout, g: usize, h: usize, far: bool, hops: (usize, usize)) -> Option<Class> {
    let at_destination = if far { AT_DESTINATION } else { 0 };
    let kind = match hops {
        (0, 0) => PathKind::Nic,
        (_, 0) => PathKind::NicForwardSource,
        (0, _) => PathKind::NicForwardDestination,
        _ => PathKind::NicForwardBoth,
    };
    let mut rate = spec.rates.nic;
    if !spec.nic_beside_ports {
        rate = rate.min(spec.rates.same_switch);
    }
    let (out, into) = (layout.nic_home(g, hops.0)?, layout.nic_home(h, hops.1)?);
    for (switch, home) in [(g, out), (h, into)] {
        if switch != home {
            rate = rate.min(spec.rates.same_socket);
            if layout.socket[switch] != layout.socket[home] {
                rate = rate.min(spec.rates.cross_socket);
            }
        }
    }
    let mut mids = trunks(layout, g, out, 0);
    let own = layout.own_nics(out);
    // A NIC of its own can only be named by its GPU: both ends must have one, or neither.
    if own != layout.own_nics(into) || (own && (out != g || into != h)) {
        return None;
    }
    if !own {
        mids.push(layout.tx(out));
        mids.push(layout.rx(into) | at_destination);
    }
    mids.extend(trunks(layout, into, h, at_destination));
    // Within a node the two detours could meet on one trunk; such a path would wait for itself.
    if (1..mids.len()).any(|i| mids[..i].contains(&mids[i])) {
        return None;
    }
    let mut class = Class::new(kind, rate, &mids);
    class.own_nics = own;
    class.ports = !spec.nic_beside_ports;
    Some(class)
}

/// Those that no other dominates, fastest first, then with fewer resources, at most [`MAX_PATHS`].
fn best(mut all: Vec<Class>) -> Vec<Class> {
    all.sort_by_key(|class| (class.inv_fs, class.len, class.kind));
    let mut kept: Vec<Class> = Vec::new();
    for class in all {
        if !kept.iter().any(|better| better.dominates(&class)) {
            kept.push(class);
        }
    }
    kept.truncate(MAX_PATHS);
    kept
}

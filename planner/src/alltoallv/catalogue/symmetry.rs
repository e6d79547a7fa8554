//! Which groups of a node can be exchanged, and what that does to its lane types.
//!
//! A node is a tree: switches with equal GPUs and NICs below one socket are exchangeable, and so are sockets with equal
//! switches. Each such exchange is tried on the lane types; only one that maps every type to a type of the same rate, the same
//! carrier and the mapped resources counts. Ranks of one group are exchangeable anyway and nodes are only counted; neither is
//! listed. Start reading at [`Symmetry::of`].

use std::collections::BTreeSet;

use super::super::fabric::{Fabric, ResourceKind};
use super::template::{MAX_BITS, OUTSIDE, Template};

/// Most symmetries that are listed; of more, a part is used, which only leaves more orbits.
pub const MAX_SYMMETRIES: usize = 512;

/// Exchanges of a node's groups that leave it the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symmetry {
    /// For each exchange where each group goes; the first one leaves all in place.
    pub groups: Vec<Vec<u8>>,
    /// For each exchange where each lane type goes.
    pub types: Vec<Vec<u8>>,
}

impl Symmetry {
    /// The exchanges of a template's node.
    pub fn of(fabric: &Fabric, template: &Template) -> Self {
        let identity: Vec<u8> = (0..template.sizes.len() as u8).collect();
        let mut found = Self {
            types: vec![(0..template.types.len() as u8).collect()],
            groups: vec![identity],
        };
        for swap in swaps(fabric) {
            if let Some(types) = image(fabric, template, &swap) {
                found.close(swap, types);
            }
        }
        found
    }

    /// Adds an exchange and everything that it makes with the others, or nothing if that would be too much.
    fn close(&mut self, groups: Vec<u8>, types: Vec<u8>) {
        let mut all = self.clone();
        let mut seen: BTreeSet<Vec<u8>> = all.groups.iter().cloned().collect();
        let mut generators = self.clone();
        generators.groups.push(groups);
        generators.types.push(types);
        let mut next = 0;
        while next < all.groups.len() {
            for (g, t) in generators.groups.iter().zip(&generators.types) {
                let then = |first: &[u8], second: &[u8]| -> Vec<u8> {
                    first.iter().map(|&x| second[usize::from(x)]).collect()
                };
                let product = then(&all.groups[next], g);
                if seen.insert(product.clone()) {
                    let types = then(&all.types[next], t);
                    all.groups.push(product);
                    all.types.push(types);
                }
            }
            if all.groups.len() > MAX_SYMMETRIES {
                return;
            }
            next += 1;
        }
        *self = all;
    }

    /// What exchange `k` does to the bits of families.
    pub fn exchange(&self, template: &Template, k: usize) -> Exchange {
        let mut bits = [0; MAX_BITS];
        for (t, &to) in self.types[k].iter().enumerate() {
            let (first, image) = (template.bits[t], template.bits[usize::from(to)]);
            for lane in 0..template.bits[t + 1] - first {
                bits[usize::from(first + lane)] = image + lane;
            }
        }
        Exchange { bits }
    }

    /// Every exchange, in order.
    pub fn exchanges(&self, template: &Template) -> Vec<Exchange> {
        (0..self.types.len()).map(|k| self.exchange(template, k)).collect()
    }

    /// All images of some families, ascending, each once; none if there are more than `most`.
    pub fn expand(&self, template: &Template, families: &[u128], most: usize) -> Option<Vec<u128>> {
        let exchanges = self.exchanges(template);
        let mut all = Vec::new();
        for &family in families {
            let mut images: Vec<u128> = exchanges.iter().map(|exchange| exchange.map(family)).collect();
            images.sort_unstable();
            images.dedup();
            all.extend(images);
            if all.len() > most {
                return None;
            }
        }
        all.sort_unstable();
        all.dedup();
        Some(all)
    }
}

/// Where an exchange of groups takes each bit of a family.
#[derive(Clone, Debug)]
pub struct Exchange {
    bits: [u8; MAX_BITS],
}

impl Exchange {
    /// What it makes of a family.
    pub fn map(&self, family: u128) -> u128 {
        let (mut left, mut image) = (family, 0);
        while left != 0 {
            image |= 1 << (self.bits[left.trailing_zeros() as usize] & 127);
            left &= left - 1;
        }
        image
    }
}

/// Exchanges of neighbours in the tree: two switches of a socket, or two sockets with all their switches.
fn swaps(fabric: &Fabric) -> Vec<Vec<u8>> {
    let sockets = &fabric.spec().sockets;
    let mut starts = vec![0];
    sockets
        .iter()
        .for_each(|socket| starts.push(starts[starts.len() - 1] + socket.len()));
    let identity: Vec<u8> = (0..fabric.groups_per_node() as u8).collect();
    let mut all = Vec::new();
    for (s, socket) in sockets.iter().enumerate() {
        for a in 0..socket.len() {
            if let Some(b) = (a + 1..socket.len()).find(|&b| socket[b] == socket[a]) {
                let mut swap = identity.clone();
                swap.swap(starts[s] + a, starts[s] + b);
                all.push(swap);
            }
        }
    }
    for a in 0..sockets.len() {
        if let Some(b) = (a + 1..sockets.len()).find(|&b| sockets[b] == sockets[a]) {
            let mut swap = identity.clone();
            (0..sockets[a].len()).for_each(|i| swap.swap(starts[a] + i, starts[b] + i));
            all.push(swap);
        }
    }
    all
}

/// Where an exchange of groups takes each lane type; none if it is no symmetry.
pub(super) fn image(fabric: &Fabric, template: &Template, groups: &[u8]) -> Option<Vec<u8>> {
    if (0..groups.len()).any(|g| template.sizes[g] != template.sizes[usize::from(groups[g])]) {
        return None;
    }
    let end = |g: u8| if g == OUTSIDE { OUTSIDE } else { groups[usize::from(g)] };
    let numbers = fabric.node_resources();
    let resource = |id: u16| -> Option<u16> {
        let from = numbers[usize::from(id)];
        let sockets = fabric.spec().sockets.len();
        let index = match from.kind {
            ResourceKind::Cross => {
                let side = |socket: usize| {
                    let group = (0..groups.len()).find(|&g| fabric.socket_of(g) == socket)?;
                    Some(fabric.socket_of(usize::from(groups[group])))
                };
                side(usize::from(from.index) / sockets)? * sockets + side(usize::from(from.index) % sockets)?
            }
            ResourceKind::Egress | ResourceKind::Ingress | ResourceKind::LeafUp | ResourceKind::LeafDown => {
                return None;
            }
            _ => usize::from(*groups.get(usize::from(from.index))?),
        };
        let same = numbers
            .iter()
            .position(|to| (to.kind, usize::from(to.index)) == (from.kind, index))?;
        (numbers[same].mode == from.mode && numbers[same].inv_fs == from.inv_fs).then_some(same as u16)
    };
    let mut types = Vec::new();
    for t in &template.types {
        let mids: Vec<u16> = t.mids.iter().map(|&id| resource(id)).collect::<Option<_>>()?;
        let to = template.find(end(t.from), end(t.to), &mids)?;
        let other = &template.types[to];
        if (other.inv_fs, other.kind, other.copies) != (t.inv_fs, t.kind, t.copies) {
            return None;
        }
        types.push(to as u8);
    }
    Some(types)
}

//! `Topology` and its parts: plain data, kept sorted so that equal machines are equal values.
//!
//! The model never guesses: capability is stored per direction and per verb, and figures that nobody
//! stated stay `None` (the class defaults of [`super::defaults`] are applied on reading, not on writing).
//! Start reading at [`Topology`]; [`Link`] says which way `from` and `to` point.

use std::fmt;

use super::defaults;
use crate::alltoallv::Machine;

/// Largest machine a descriptor may describe, in ranks.
pub const MAX_RANKS: usize = 64;

/// How far apart two host-attached GPUs are, in the words of `nvidia-smi topo -m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PcieClass {
    /// At most one PCIe bridge between the two.
    Pix,
    /// Several bridges, no host bridge.
    Pxb,
    /// Through one CPU host bridge.
    Phb,
    /// Between host bridges of one NUMA node.
    Node,
    /// Across NUMA nodes.
    Sys,
}

impl PcieClass {
    /// Every class, nearest first.
    pub const ALL: [Self; 5] = [Self::Pix, Self::Pxb, Self::Phb, Self::Node, Self::Sys];

    /// The name a descriptor uses, e.g. `Pix`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pix => "Pix",
            Self::Pxb => "Pxb",
            Self::Phb => "Phb",
            Self::Node => "Node",
            Self::Sys => "Sys",
        }
    }
}

/// What a link is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkClass {
    /// Bonded NVLinks, direct or through NVSwitch.
    NvLink {
        /// Lanes bonded together: the figure in `NV#`.
        lanes: u8,
        /// NVLink generation: 1 Pascal, 2 Volta, 3 Ampere, 4 Hopper, 5 Blackwell.
        r#gen: u8,
    },
    /// Peer access over PCIe.
    Pcie(PcieClass),
    /// No peer access: bytes are staged through mapped host memory.
    Host,
}

impl LinkClass {
    /// True where one GPU addresses the other's memory directly (everything but [`LinkClass::Host`]).
    pub fn is_peer(self) -> bool {
        self != Self::Host
    }

    /// Whether a 128-byte line that a warp stores at once arrives whole. PCIe cuts at its own sizes, and host memory is
    /// behind it.
    pub fn keeps_lines(self) -> bool {
        matches!(self, Self::NvLink { .. })
    }
}

impl fmt::Display for LinkClass {
    /// Writes the class as a descriptor spells it, e.g. `NvLink(lanes: 2, gen: 2)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NvLink { lanes, r#gen } => write!(f, "NvLink(lanes: {lanes}, gen: {gen})"),
            Self::Pcie(class) => write!(f, "Pcie({})", class.name()),
            Self::Host => f.write_str("Host"),
        }
    }
}

/// One direction between two ranks: `from` acts on memory that lives at `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The rank whose kernel issues the store or load.
    pub from: usize,
    /// The rank whose memory is stored to or loaded from.
    pub to: usize,
    /// What the link is made of.
    pub class: LinkClass,
    /// `from` may load from `to`'s memory (for [`LinkClass::Host`]: from host memory `to` filled).
    pub read: bool,
    /// `from` may store into `to`'s memory (for [`LinkClass::Host`]: into host memory `to` polls).
    pub write: bool,
    /// Nothing is known against 128-byte lines arriving whole, where the class says that they do.
    pub lines: bool,
    /// Measured one-way latency of a small store, nanoseconds; `None` takes the class default.
    pub latency_ns: Option<u32>,
    /// Measured one-way bandwidth, 10^9 bytes a second; `None` takes the class default.
    pub gb_per_s: Option<f32>,
}

impl Link {
    /// A link with both capabilities and no measured figures.
    pub fn new(from: usize, to: usize, class: LinkClass) -> Self {
        Self {
            from,
            to,
            class,
            read: true,
            write: true,
            lines: true,
            latency_ns: None,
            gb_per_s: None,
        }
    }

    /// Whether a 128-byte line that a warp of `from` stores at once reaches `to` whole.
    pub fn keeps_lines(&self) -> bool {
        self.lines && self.class.keeps_lines()
    }

    /// One-way latency of a small store in nanoseconds: measured, else the class default.
    pub fn effective_latency_ns(&self) -> u32 {
        self.latency_ns.unwrap_or_else(|| defaults::latency_ns(self.class))
    }

    /// One-way bandwidth in 10^9 bytes a second: measured, else the class default.
    pub fn effective_gb_per_s(&self) -> f32 {
        self.gb_per_s.unwrap_or_else(|| defaults::gb_per_s(self.class))
    }
}

/// Something several links share: a switch uplink, a host bridge, an inter-socket link, an injection port.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// What people call it, e.g. `plx0-uplink`.
    pub name: String,
    /// Capacity, 10^9 bytes a second, summed over all links that cross it.
    pub gb_per_s: f32,
    /// The directed links `(from, to)` that cross it, sorted and unique.
    pub links: Vec<(usize, usize)>,
}

/// A machine layout. Build it with [`Topology::new`] and the `with_` methods, or parse a descriptor.
///
/// ```
/// use topoforge_planner::topology::{LinkClass, PcieClass, Topology};
/// let pair = Topology::new("pix-pair", 2).with_pair(0, 1, LinkClass::Pcie(PcieClass::Pix));
/// assert!(pair.can_write(1, 0) && pair.is_peer_connected());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Topology {
    /// `[a-z0-9][a-z0-9-]*`.
    pub name: String,
    /// How many ranks; they are numbered from 0.
    pub ranks: usize,
    /// Directed links, sorted by `(from, to)`, at most one each. Keep the order when editing.
    pub links: Vec<Link>,
    /// Shared capacities, in descriptor order.
    pub resources: Vec<Resource>,
    /// NUMA node of each rank; empty when nobody stated it.
    pub numa: Vec<usize>,
    /// Most peers a rank may have enabled at once, where the platform limits it.
    pub peer_degree_limit: Option<usize>,
    /// Other names that it goes by.
    pub aliases: Vec<String>,
    /// The tree below the links, where AlltoAllv is wanted; the links are then those of one node.
    pub alltoallv: Option<Machine>,
}

impl Topology {
    /// A machine of `ranks` ranks without any link.
    pub fn new(name: impl Into<String>, ranks: usize) -> Self {
        Self {
            name: name.into(),
            ranks,
            links: Vec::new(),
            resources: Vec::new(),
            numa: Vec::new(),
            peer_degree_limit: None,
            aliases: Vec::new(),
            alltoallv: None,
        }
    }

    /// Adds one directed link, replacing the one that joined the same ranks before.
    pub fn with_link(mut self, link: Link) -> Self {
        match self.position(link.from, link.to) {
            Ok(at) => self.links[at] = link,
            Err(at) => self.links.insert(at, link),
        }
        self
    }

    /// Adds both directions between `a` and `b`, readable and writable.
    pub fn with_pair(self, a: usize, b: usize, class: LinkClass) -> Self {
        self.with_link(Link::new(a, b, class)).with_link(Link::new(b, a, class))
    }

    /// Joins every two of `ranks` as [`Topology::with_pair`] does.
    pub fn with_all_pairs(mut self, ranks: &[usize], class: LinkClass) -> Self {
        for (i, &a) in ranks.iter().enumerate() {
            for &b in &ranks[i + 1..] {
                self = self.with_pair(a, b, class);
            }
        }
        self
    }

    /// Adds a shared capacity in 10^9 bytes a second; `links` are sorted and made unique.
    pub fn with_resource(mut self, name: impl Into<String>, gb_per_s: f32, mut links: Vec<(usize, usize)>) -> Self {
        links.sort_unstable();
        links.dedup();
        self.resources.push(Resource {
            name: name.into(),
            gb_per_s,
            links,
        });
        self
    }

    /// The directed link from `from` to `to`, if there is one.
    pub fn link(&self, from: usize, to: usize) -> Option<&Link> {
        self.position(from, to).ok().map(|at| &self.links[at])
    }

    /// Whether `from` may store into `to`'s memory (through host memory where the class is `Host`).
    pub fn can_write(&self, from: usize, to: usize) -> bool {
        self.link(from, to).is_some_and(|link| link.write)
    }

    /// Whether `from` may load from `to`'s memory (through host memory where the class is `Host`).
    pub fn can_read(&self, from: usize, to: usize) -> bool {
        self.link(from, to).is_some_and(|link| link.read)
    }

    /// Whether every rank reaches every other over writable peer links, relays allowed, host staging not.
    pub fn is_peer_connected(&self) -> bool {
        self.reaches_all(|link| (link.from, link.to)) && self.reaches_all(|link| (link.to, link.from))
    }

    /// Whether every ordered pair of ranks has a writable peer link of its own, no relays needed.
    pub fn is_fully_peered(&self) -> bool {
        (0..self.ranks).all(|from| {
            (0..self.ranks).filter(|&to| to != from).all(|to| {
                self.link(from, to)
                    .is_some_and(|link| link.write && link.class.is_peer())
            })
        })
    }

    /// The resources that the directed link `from` to `to` crosses, in descriptor order.
    pub fn resources_of(&self, from: usize, to: usize) -> impl Iterator<Item = &Resource> {
        self.resources
            .iter()
            .filter(move |resource| resource.links.contains(&(from, to)))
    }

    /// Whether it is there for AlltoAllv only: it states a tree and no links.
    pub fn is_alltoallv_only(&self) -> bool {
        self.alltoallv.is_some() && self.links.is_empty()
    }

    /// The same machine with rank `r` renamed `new_rank[r]`; `None` unless `new_rank` is a permutation.
    ///
    /// Without its tree: that numbers ranks in its own order.
    pub fn relabelled(&self, new_rank: &[usize]) -> Option<Self> {
        let mut seen = vec![false; self.ranks];
        for &rank in new_rank {
            if std::mem::replace(seen.get_mut(rank)?, true) {
                return None;
            }
        }
        if new_rank.len() != self.ranks {
            return None;
        }
        let mut out = Self::new(self.name.clone(), self.ranks);
        out.peer_degree_limit = self.peer_degree_limit;
        out.aliases.clone_from(&self.aliases);
        for link in &self.links {
            out = out.with_link(Link {
                from: new_rank[link.from],
                to: new_rank[link.to],
                ..*link
            });
        }
        for resource in &self.resources {
            let links = resource
                .links
                .iter()
                .map(|&(a, b)| (new_rank[a], new_rank[b]))
                .collect();
            out = out.with_resource(resource.name.clone(), resource.gb_per_s, links);
        }
        if !self.numa.is_empty() {
            out.numa = vec![0; self.ranks];
            for (rank, &node) in self.numa.iter().enumerate() {
                out.numa[new_rank[rank]] = node;
            }
        }
        Some(out)
    }

    /// A stable 64-bit FNV-1a hash of the layout: ranks, classes, capabilities, shared links, NUMA, degree limit.
    ///
    /// Names and figures stay out, so that a machine measured twice keeps its fingerprint. Rank numbers are
    /// part of it: a relabelled machine has another one.
    pub fn layout_fingerprint(&self) -> u64 {
        let mut hash = Fnv::new();
        hash.number(self.ranks);
        hash.number(self.links.len());
        for link in &self.links {
            let (kind, a, b) = match link.class {
                LinkClass::NvLink { lanes, r#gen } => (0, usize::from(lanes), usize::from(r#gen)),
                LinkClass::Pcie(class) => (1, class as usize, 0),
                LinkClass::Host => (2, 0, 0),
            };
            for n in [
                link.from,
                link.to,
                kind,
                a,
                b,
                usize::from(link.read),
                usize::from(link.write),
            ] {
                hash.number(n);
            }
        }
        // The order in which a descriptor lists its resources says nothing about the machine.
        let mut shared: Vec<&[(usize, usize)]> = self.resources.iter().map(|r| &r.links[..]).collect();
        shared.sort_unstable();
        hash.number(shared.len());
        for links in shared {
            hash.number(links.len());
            for &(from, to) in links {
                hash.number(from);
                hash.number(to);
            }
        }
        hash.number(self.numa.len());
        self.numa.iter().for_each(|&node| hash.number(node));
        hash.number(self.peer_degree_limit.map_or(0, |limit| limit.saturating_add(1)));
        hash.0
    }

    fn position(&self, from: usize, to: usize) -> Result<usize, usize> {
        self.links
            .binary_search_by_key(&(from, to), |link| (link.from, link.to))
    }

    /// Rank 0 reaches everyone along `arrow`; checking both directions proves strong connection.
    fn reaches_all(&self, arrow: impl Fn(&Link) -> (usize, usize)) -> bool {
        let mut reached = vec![false; self.ranks];
        let mut open: Vec<usize> = (0..self.ranks.min(1)).collect();
        while let Some(rank) = open.pop() {
            if std::mem::replace(&mut reached[rank], true) {
                continue;
            }
            for link in self.links.iter().filter(|link| link.write && link.class.is_peer()) {
                let (tail, head) = arrow(link);
                if tail == rank && head < self.ranks && !reached[head] {
                    open.push(head);
                }
            }
        }
        reached.into_iter().all(|yes| yes)
    }
}

/// FNV-1a, 64 bits, over little-endian 64-bit words: the same on every platform and release.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn number(&mut self, n: usize) {
        for byte in (n as u64).to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

//! A topology as the generators, the verifier and the cost model want it: bit masks of who may reach whom, and figures
//! ready to multiply.
//!
//! It never guesses a capability: masks come from [`Topology`] and the caller's [`EdgePolicy`]. Start at [`Edges::new`].

use super::ir::{Delivery, Rank};
use crate::topology::{Link, LinkClass, MAX_RANKS, Topology, defaults};

/// Most lanes that one GPU has been built with; more than that over all its links means that a switch shares them.
const MOST_LANES: u32 = 18;

/// Which way bytes may take between two ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EdgePolicy {
    /// Only links with peer access.
    #[default]
    Peer,
    /// Every pair through mapped host memory, whatever links there are. A link of class `Host` may still refuse reads
    /// or writes, or bring measured figures.
    Host,
}

/// Ready-made view of a topology under a policy.
#[derive(Clone, Debug)]
pub struct Edges {
    ranks: usize,
    policy: EdgePolicy,
    /// `write[from]`: who can be pushed to.
    write: Vec<u64>,
    /// `read[holder]`: who can pull from it.
    read: Vec<u64>,
    /// `lines[from]`: whom a 128-byte line that is stored at once reaches whole.
    lines: Vec<u64>,
    latency_us: Vec<f64>,
    us_per_byte: Vec<f64>,
    /// The same for loads.
    us_per_byte_read: Vec<f64>,
    /// Whether the edge shares its GPU's port with the GPU's other such edges.
    shares_port: Vec<bool>,
    /// Per shared capacity: microseconds a byte, and per `from` a mask of `to`.
    resources: Vec<(f64, Vec<u64>)>,
    most_peers: Option<usize>,
}

impl Edges {
    /// The view of `topology` under `policy`. Beyond 64 ranks it has no edges, and the verifier refuses.
    pub fn new(topology: &Topology, policy: EdgePolicy) -> Self {
        if topology.ranks > MAX_RANKS {
            let none = Topology::new("", 0);
            return Self {
                ranks: topology.ranks,
                ..Self::new(&none, policy)
            };
        }
        let ranks = topology.ranks;
        let mut edges = Self {
            ranks,
            policy,
            write: vec![0; ranks],
            read: vec![0; ranks],
            lines: vec![0; ranks],
            latency_us: vec![0.0; ranks * ranks],
            us_per_byte: vec![0.0; ranks * ranks],
            us_per_byte_read: vec![0.0; ranks * ranks],
            shares_port: vec![false; ranks * ranks],
            resources: Vec::new(),
            most_peers: None,
        };
        let lanes = |rank: Rank| -> u32 {
            let of_rank = topology.links.iter().filter(|l| l.from == rank);
            of_rank
                .map(|l| match l.class {
                    LinkClass::NvLink { lanes, .. } => u32::from(lanes),
                    _ => 0,
                })
                .sum()
        };
        let switched: Vec<bool> = (0..ranks).map(|r| lanes(r) > MOST_LANES).collect();
        for from in 0..ranks {
            for to in (0..ranks).filter(|&to| to != from) {
                let link = topology.link(from, to);
                let used = match policy {
                    EdgePolicy::Peer => link.filter(|l| l.class.is_peer()).copied(),
                    EdgePolicy::Host => Some(
                        link.filter(|l| !l.class.is_peer())
                            .copied()
                            .unwrap_or_else(|| Link::new(from, to, LinkClass::Host)),
                    ),
                };
                let Some(link) = used else { continue };
                edges.write[from] |= u64::from(link.write) << to;
                edges.read[to] |= u64::from(link.read) << from;
                edges.lines[from] |= u64::from(link.keeps_lines()) << to;
                let at = from * ranks + to;
                edges.latency_us[at] = f64::from(link.effective_latency_ns()) * 1e-3;
                edges.us_per_byte[at] = per_byte(link.effective_gb_per_s(), link.class);
                edges.us_per_byte_read[at] = edges.us_per_byte[at] / f64::from(defaults::read_share(link.class));
                edges.shares_port[at] = match link.class {
                    LinkClass::NvLink { .. } => switched[from] || switched[to],
                    LinkClass::Pcie(_) | LinkClass::Host => true,
                };
            }
        }
        // Uplinks are stated for peer traffic; which of them host staging crosses is not in the model.
        if policy == EdgePolicy::Peer {
            edges.most_peers = topology.peer_degree_limit;
            for resource in &topology.resources {
                let mut mask = vec![0_u64; ranks];
                for &(from, to) in &resource.links {
                    if from < ranks && to < ranks {
                        mask[from] |= 1 << to;
                    }
                }
                edges
                    .resources
                    .push((per_byte(resource.gb_per_s, LinkClass::Host), mask));
            }
        }
        edges
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// The policy that this view was made under.
    pub fn policy(&self) -> EdgePolicy {
        self.policy
    }

    /// Whether a transfer may go from `from` to `to` by `delivery`.
    pub fn allows(&self, from: Rank, to: Rank, delivery: Delivery) -> bool {
        let mask = match delivery {
            Delivery::Push => &self.write,
            Delivery::Pull => &self.read,
        };
        to < 64 && mask.get(from).is_some_and(|m| m >> to & 1 == 1)
    }

    /// Whether 128-byte lines that `from` stores at once reach `to` whole, whoever may write.
    pub fn keeps_lines(&self, from: Rank, to: Rank) -> bool {
        to < 64 && self.lines.get(from).is_some_and(|m| m >> to & 1 == 1)
    }

    /// Mask of the ranks that can push to `rank` and that `rank` can push to.
    pub fn mutual(&self, rank: Rank) -> u64 {
        let back = |to: Rank| u64::from(self.allows(to, rank, Delivery::Push)) << to;
        self.write.get(rank).copied().unwrap_or(0) & (0..self.write.len()).map(back).fold(0, |a, b| a | b)
    }

    /// Most peers that a rank may have enabled at once.
    pub fn most_peers(&self) -> Option<usize> {
        self.most_peers
    }

    /// One-way latency of an edge, microseconds.
    pub fn latency_us(&self, from: Rank, to: Rank) -> f64 {
        self.latency_us[from * self.ranks + to]
    }

    /// Time that one byte takes on an edge, microseconds.
    pub fn us_per_byte(&self, from: Rank, to: Rank) -> f64 {
        self.us_per_byte[from * self.ranks + to]
    }

    /// Time that one loaded byte takes on an edge, microseconds; `from` is the rank that loads.
    pub fn us_per_byte_read(&self, from: Rank, to: Rank) -> f64 {
        self.us_per_byte_read[from * self.ranks + to]
    }

    /// Latency and `bytes` over the edge, with nothing else on it, microseconds.
    pub fn time_us(&self, from: Rank, to: Rank, bytes: f64) -> f64 {
        self.latency_us(from, to) + bytes * self.us_per_byte(from, to)
    }

    /// The view of some ranks alone, numbered by their place in `ranks`; capacities keep what is left of their edges.
    ///
    /// Ranks out of range or repeated give an empty view.
    pub fn subset(&self, ranks: &[Rank]) -> Self {
        let distinct = ranks
            .iter()
            .enumerate()
            .all(|(i, r)| *r < self.ranks && !ranks[..i].contains(r));
        let ranks = if distinct { ranks } else { &[] };
        let masks = |all: &[u64]| -> Vec<u64> {
            let of = |r: &Rank| {
                let bits = ranks.iter().enumerate();
                bits.map(|(i, q)| (all[*r] >> q & 1) << i).fold(0, |a, b| a | b)
            };
            ranks.iter().map(of).collect()
        };
        let pairs = || ranks.iter().flat_map(|a| ranks.iter().map(move |b| a * self.ranks + b));
        Self {
            ranks: ranks.len(),
            policy: self.policy,
            write: masks(&self.write),
            read: masks(&self.read),
            lines: masks(&self.lines),
            latency_us: pairs().map(|at| self.latency_us[at]).collect(),
            us_per_byte: pairs().map(|at| self.us_per_byte[at]).collect(),
            us_per_byte_read: pairs().map(|at| self.us_per_byte_read[at]).collect(),
            shares_port: pairs().map(|at| self.shares_port[at]).collect(),
            resources: self.resources.iter().map(|(us, mask)| (*us, masks(mask))).collect(),
            most_peers: self.most_peers,
        }
    }

    /// Whether the edge shares its GPU's port with the GPU's other such edges (PCIe, host memory, switched NVLink).
    pub fn shares_port(&self, from: Rank, to: Rank) -> bool {
        self.shares_port[from * self.ranks + to]
    }

    /// Shared capacities: microseconds a byte, and for each `from` a mask of the `to` whose edge crosses it.
    pub fn resources(&self) -> &[(f64, Vec<u64>)] {
        &self.resources
    }
}

/// A figure of zero or less is a fault of the descriptor; the class default keeps the ranking finite.
fn per_byte(gb_per_s: f32, class: LinkClass) -> f64 {
    let gb_per_s = if gb_per_s > 0.0 {
        gb_per_s
    } else {
        defaults::gb_per_s(class)
    };
    1e-3 / f64::from(gb_per_s)
}

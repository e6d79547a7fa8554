//! A fabric as flat tables: every lane's rate and resources side by side, for loops that run once an activation.
//!
//! It holds what [`Fabric`] says and nothing else; made once, never changed. Start at [`Net::new`].

use super::fabric::Fabric;

/// The lanes of all pairs. A lane is a pair and one of its paths.
#[derive(Clone, Debug)]
pub(super) struct Net {
    pub ranks: usize,
    pub resources: usize,
    /// Resources of one node; behind those of all nodes come ports of leaf switches, from this one on, if they matter.
    pub per_node: usize,
    pub leaf_ports: usize,
    /// First lane of each pair `from * ranks + to`, and the number of lanes.
    pub first: Vec<u32>,
    /// Pair of each lane, and its two ends.
    pub pair: Vec<u32>,
    pub from: Vec<u16>,
    pub to: Vec<u16>,
    /// Time of a byte on each lane, nanoseconds.
    pub inv: Vec<f32>,
    /// Bytes in a nanosecond.
    pub rate: Vec<f32>,
    /// Resources of each lane, `stride` for each: what a lane lacks is filled with the number behind the last resource.
    padded: Vec<u16>,
    stride: usize,
    /// How many of them are a lane's own.
    count: Vec<u8>,
    /// Pairs with several paths use more than their own node's resources: nodes touch each other's loads.
    pub coupled: bool,
    /// How much of a lane's time a resource is busy with it: all, or a part if it carries several; of the fastest lane
    /// where it is fluid.
    pub share: Vec<f32>,
    /// Time that a byte takes at a resource whatever the lane: of fluid resources, nanoseconds.
    pub own: Vec<f32>,
    /// Lanes a resource carries at a time; a fluid one has a number only if it is a leaf switch's port, for plans of rounds.
    pub slots: Vec<u16>,
    /// Whether a resource is a rank's port, or stands for one: one lane at a time in a channel, even if it is fluid.
    pub port: Vec<bool>,
    /// Lanes of pairs of one node, for each source; all others of its lanes lead to other nodes.
    pub local: Vec<(u32, u32)>,
    /// Resources at the source's and at the destination's end of paths between nodes, where those paths are no pair's own.
    pub ends: Option<Ends>,
    /// The same where pairs use ports of leaf switches besides: then ends do not say all.
    pub leaf_ends: Option<Ends>,
    /// Time lost with each activation under a barrier, and with each hand-off, nanoseconds.
    pub alpha: f32,
    pub alpha_h: f32,
}

/// What all single paths between nodes have in common: resources that depend on one rank only, but for leaf switches' ports.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    /// First destination and lane of each run of lanes of a source that lead to consecutive ranks of other nodes.
    pub runs: Vec<Vec<(u32, u32, u32)>>,
    pub out: Vec<Vec<u16>>,
    pub into: Vec<Vec<u16>>,
    /// Ranks that have each resource at their sending, and at their receiving end.
    pub senders: Vec<Vec<u32>>,
    pub receivers: Vec<Vec<u32>>,
    pub per_node: usize,
    /// Time of a byte, where it is the same for all of them; else 0.
    pub inv: f32,
    /// How much of a lane's time each of these resources is busy with it.
    pub hold: Vec<f32>,
}

/// Resources that fit one word of bits.
pub(super) const WORD: usize = 64;

/// Slots of a resource that any number of lanes may use.
pub(super) const UNLIMITED: u16 = u16::MAX;

impl Net {
    /// The tables of a fabric.
    pub fn new(fabric: &Fabric) -> Self {
        let (ranks, leaf_ports) = (fabric.ranks(), fabric.node_end());
        let resources = fabric.tight_ports().map_or(leaf_ports, |_| fabric.resources());
        // Ports that never matter are left out here: plans are those of a machine without them.
        let counted = |id: &&u32| (**id as usize) < resources;
        let pairs = || (0..ranks * ranks).filter(|pair| pair / ranks != pair % ranks);
        let paths = |pair: usize| fabric.paths(pair / ranks, pair % ranks);
        let node = |rank: usize| rank / fabric.ranks_per_node();
        // Pairs of one pair of nodes are like those of any other, but for leaf switches: the last node is on another one.
        let seen = |to: usize| node(to) < 2 || node(to) + 1 == fabric.nodes();
        let some = || pairs().filter(|pair| pair / ranks < fabric.ranks_per_node() && seen(pair % ranks));
        let stride = some()
            .flat_map(paths)
            .map(|path| path.resources().iter().filter(counted).count())
            .max();
        let stride = stride.unwrap_or(1);
        let beyond = |pair: usize| {
            let mut ids = paths(pair).flat_map(|path| path.resources().to_vec());
            node(pair % ranks) > 0 || ids.any(|id| (leaf_ports..resources).contains(&(id as usize)))
        };
        let mut net = Self {
            ranks,
            resources,
            per_node: fabric.resources_per_node(),
            leaf_ports,
            first: Vec::with_capacity(ranks * ranks + 1),
            pair: Vec::new(),
            from: Vec::new(),
            to: Vec::new(),
            inv: Vec::new(),
            rate: Vec::new(),
            padded: Vec::new(),
            stride,
            count: Vec::new(),
            coupled: some().any(|pair| fabric.path_count(pair / ranks, pair % ranks) > 1 && beyond(pair)),
            share: Vec::with_capacity(resources),
            own: Vec::with_capacity(resources),
            slots: Vec::with_capacity(resources),
            port: vec![false; resources],
            local: Vec::with_capacity(ranks),
            ends: None,
            leaf_ends: None,
            alpha: fabric.alpha_ns() as f32,
            alpha_h: fabric.alpha_h_ns() as f32,
        };
        for id in 0..resources {
            let resource = fabric.resource(id as u32);
            let slots = resource.slots();
            // Of a fluid resource it is known when all rates are.
            net.share.push(slots.map_or(0.0, |slots| 1.0 / slots as f32));
            net.own.push(if slots.is_none() {
                nanoseconds(resource.inv_fs)
            } else {
                0.0
            });
            let lanes = fabric.lanes_at_once(id as u32);
            net.slots.push(lanes.map_or(UNLIMITED, |lanes| lanes as u16));
        }
        for rank in 0..ranks {
            net.port[fabric.egress(rank) as usize] = true;
            net.port[fabric.ingress(rank) as usize] = true;
        }
        for pair in 0..ranks * ranks {
            net.first.push(net.inv.len() as u32);
            let (from, to) = (pair / ranks, pair % ranks);
            if from == to {
                continue;
            }
            for class in 0..fabric.path_count(from, to) {
                let path = fabric.path(from, to, class);
                net.pair.push(pair as u32);
                net.from.push(from as u16);
                net.to.push(to as u16);
                let inv = nanoseconds(path.inv_fs);
                net.inv.push(inv);
                net.rate.push(1.0 / inv);
                let ids = path.resources().iter().filter(counted);
                net.padded.extend(ids.map(|&id| id as u16));
                let count = net.padded.len() - (net.inv.len() - 1) * stride;
                net.padded.resize(net.inv.len() * stride, resources as u16);
                net.count.push(count as u8);
            }
        }
        net.first.push(net.inv.len() as u32);
        for lane in 0..net.len() {
            for &r in &net.padded[lane * stride..lane * stride + usize::from(net.count[lane])] {
                let own = net.own[usize::from(r)];
                if own > 0.0 {
                    let share = &mut net.share[usize::from(r)];
                    *share = share.max((own / net.inv[lane]).min(1.0));
                }
            }
        }
        // A path whose resources carry any number of lanes has ports all the same: its ends.
        for lane in 0..net.len() {
            let uses = lane * stride..lane * stride + usize::from(net.count[lane]);
            let any = |r: usize| net.slots[r] == UNLIMITED || r >= leaf_ports;
            let free = |r: &u16| any(usize::from(*r)) && !net.port[usize::from(*r)];
            if net.padded[uses.clone()].iter().all(free) {
                for at in [uses.start, uses.end - 1] {
                    net.port[usize::from(net.padded[at])] = true;
                }
            }
        }
        let per_node = fabric.ranks_per_node();
        for from in 0..ranks {
            let begin = from * ranks + from / per_node * per_node;
            net.local.push((net.first[begin], net.first[begin + per_node]));
        }
        // Where resources fit one word, lanes are told apart by bits.
        let ends = (ranks > per_node && resources > WORD).then(|| net.find_ends(per_node));
        *if resources > leaf_ports {
            &mut net.leaf_ends
        } else {
            &mut net.ends
        } = ends.flatten();
        net
    }

    /// The common ends of all paths between nodes, whether or not ports of leaf switches lie between.
    pub fn any_ends(&self) -> Option<&Ends> {
        self.ends.as_ref().or(self.leaf_ends.as_ref())
    }

    /// The common ends of all paths between nodes, if each pair has one path and its resources are known by its ends.
    fn find_ends(&self, per_node: usize) -> Option<Ends> {
        let n = self.ranks;
        let node = |rank: usize| rank / per_node;
        let owner = |r: u16| usize::from(r) / self.per_node;
        let is_leaf = |r: &&u16| usize::from(**r) >= self.leaf_ports;
        let (mut out, mut into) = (vec![Vec::new(); n], vec![Vec::new(); n]);
        for pair in (0..n * n).filter(|&pair| node(pair / n) != node(pair % n)) {
            let (from, to) = (pair / n, pair % n);
            let lanes = self.lanes(pair);
            if lanes.len() != 1 {
                return None;
            }
            let (source, rest): (Vec<u16>, Vec<u16>) =
                (self.uses(lanes.start).iter().filter(|r| !is_leaf(r))).partition(|&&r| owner(r) == node(from));
            for (known, found) in [(&mut out[from], source), (&mut into[to], rest)] {
                if known.is_empty() {
                    *known = found;
                } else if *known != found {
                    return None;
                }
            }
        }
        let mut runs = vec![Vec::new(); n];
        for (from, runs) in runs.iter_mut().enumerate() {
            let begin = node(from) * per_node;
            for (first, last) in [(0, begin), (begin + per_node, n)] {
                if first < last {
                    runs.push((first as u32, self.first[from * n + first], (last - first) as u32));
                }
            }
        }
        let far = || {
            let lanes = runs.iter().flatten();
            lanes.flat_map(|&(_, lane, count)| lane as usize..(lane + count) as usize)
        };
        let some = far().next().map_or(1.0, |lane| self.inv[lane]);
        let uniform = far().all(|lane| self.inv[lane] == some);
        // What a fluid resource is busy with does not follow from the time of lanes of several rates.
        let fluid = |r: &u16| self.own[usize::from(*r)] > 0.0;
        if !uniform && out.iter().chain(&into).flatten().any(fluid) {
            return None;
        }
        let hold = |r: usize| {
            if self.own[r] > 0.0 {
                self.own[r] / some
            } else {
                self.share[r]
            }
        };
        let holders = |of: &[Vec<u16>]| {
            let mut holders = vec![Vec::new(); self.resources];
            for (rank, ids) in of.iter().enumerate() {
                ids.iter().for_each(|&r| holders[usize::from(r)].push(rank as u32));
            }
            holders
        };
        Some(Ends {
            senders: holders(&out),
            receivers: holders(&into),
            runs,
            out,
            into,
            per_node,
            inv: if uniform { some } else { 0.0 },
            hold: (0..self.resources).map(hold).collect(),
        })
    }

    /// The lanes of a pair.
    #[inline]
    pub fn lanes(&self, pair: usize) -> std::ops::Range<usize> {
        self.first[pair] as usize..self.first[pair + 1] as usize
    }

    /// Whether a lane of a source stays in its node.
    #[inline]
    pub fn is_local(&self, from: usize, lane: usize) -> bool {
        let (begin, end) = self.local[from];
        (begin as usize..end as usize).contains(&lane)
    }

    /// The ports of leaf switches that a lane uses.
    pub fn leaf_uses(&self, lane: usize) -> &[u16] {
        let uses = self.uses(lane);
        let is_leaf = |r: &u16| usize::from(*r) >= self.leaf_ports;
        // They stand together.
        let begin = uses.iter().position(is_leaf).unwrap_or(uses.len());
        let count = uses[begin..].iter().take_while(|r| is_leaf(r)).count();
        &uses[begin..begin + count]
    }

    /// The resources of a lane.
    #[inline]
    pub fn uses(&self, lane: usize) -> &[u16] {
        let begin = lane * self.stride;
        &self.padded[begin..begin + usize::from(self.count[lane])]
    }

    /// The resources of a lane and, behind them, the number of resources as often as others have more: loops of one length.
    #[inline]
    pub fn padded(&self, lane: usize) -> &[u16] {
        &self.padded[lane * self.stride..(lane + 1) * self.stride]
    }

    /// Resources of all lanes, so many for each, padded.
    #[inline]
    pub fn all_padded(&self) -> (&[u16], usize) {
        (&self.padded, self.stride)
    }

    /// Time that a byte on a lane keeps a resource busy, nanoseconds.
    #[inline]
    pub fn hold(&self, lane: usize, resource: u16) -> f32 {
        let own = self.own[usize::from(resource)];
        if own > 0.0 {
            own
        } else {
            self.inv[lane] * self.share[usize::from(resource)]
        }
    }

    /// Ranks that have a resource at the sending end of their paths to other nodes.
    #[inline]
    pub fn senders(&self, resource: usize) -> &[u32] {
        self.ends.as_ref().map_or(&[], |ends| &ends.senders[resource])
    }

    /// The same of the receiving end.
    #[inline]
    pub fn receivers(&self, resource: usize) -> &[u32] {
        self.ends.as_ref().map_or(&[], |ends| &ends.receivers[resource])
    }

    /// Number of lanes.
    pub fn len(&self) -> usize {
        self.inv.len()
    }
}

fn nanoseconds(fs: u32) -> f32 {
    fs as f32 * 1e-6
}

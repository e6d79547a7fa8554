//! Ranks, groups, resources and paths of a machine, as both the analyser and the scheduler see them.
//!
//! Everything is stored for one node and one pair of nodes and computed for the others, so a fabric of 1,024 ranks is as
//! small as one of eight. Resources are numbered node by node: the ids of node `k` are
//! `k * resources_per_node() .. (k + 1) * resources_per_node()`, egress ports first, then ingress ports, uplinks, downlinks,
//! socket links, NICs out, NICs in. Ports of leaf switches, if any, come behind those of all nodes. Start reading at
//! [`Fabric::new`].

use std::ops::Range;

use super::choose::PEEL_RANKS;
use super::leaves::Ports;
use super::paths::{self, AT_DESTINATION, Class, Path};
use super::spec::{Mode, Nics, SpecError, Switch, TreeSpec};

/// What a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    /// A GPU's sending port.
    Egress,
    /// A GPU's receiving port.
    Ingress,
    /// From a switch to its host bridge.
    Up,
    /// From a host bridge to its switch.
    Down,
    /// From one socket to another.
    Cross,
    /// The sending side of a NIC, or of all NICs below a switch.
    Tx,
    /// The receiving side of a NIC, or of all NICs below a switch.
    Rx,
    /// From a leaf switch to the spine.
    LeafUp,
    /// From the spine to a leaf switch.
    LeafDown,
}

/// A directed capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    /// What it is.
    pub kind: ResourceKind,
    /// How many lanes may use it at a time.
    pub mode: Mode,
    /// Time of one byte at the resource's own rate, femtoseconds; with slots, of one slot.
    pub inv_fs: u32,
    /// Which of its kind in the node: rank of the node, switch, `from * sockets + to` of a socket link, switch or rank of a NIC;
    /// of a port of a leaf switch, which leaf.
    pub index: u16,
}

impl Resource {
    /// Lanes that it carries at a time; `None` for any number.
    pub fn slots(&self) -> Option<u32> {
        match self.mode {
            Mode::Exclusive => Some(1),
            Mode::Slots(slots) => Some(u32::from(slots)),
            Mode::Fluid => None,
        }
    }

    /// How long one byte of a path keeps the resource (one slot of it) busy, femtoseconds.
    ///
    /// A lane holds an exclusive resource for as long as it lasts; a fluid one is only charged for the bytes.
    pub fn hold_fs(&self, path_inv_fs: u32) -> u32 {
        match self.mode {
            Mode::Fluid => self.inv_fs,
            Mode::Exclusive | Mode::Slots(_) => path_inv_fs,
        }
    }
}

/// Ranks that can be exchanged for each other: the GPUs below one switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its ranks, all in one node.
    pub ranks: Range<usize>,
    /// Its node.
    pub node: usize,
    /// Its number within the node.
    pub local: usize,
}

/// Where things of one node stand.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    ranks: u16,
    /// First rank of each group, and the number of ranks.
    starts: Vec<u16>,
    /// Group of each rank.
    group: Vec<u16>,
    /// Socket of each group.
    pub(super) socket: Vec<usize>,
    sockets: usize,
    switches: Vec<Switch>,
    /// First NIC of each group; the sending sides, then the receiving ones.
    nic_starts: Vec<u16>,
    nics: u16,
}

impl Layout {
    fn new(spec: &TreeSpec) -> Self {
        let switches: Vec<Switch> = spec.switches().copied().collect();
        let (mut starts, mut group, mut nic_starts, mut ranks, mut nics) = (vec![0], Vec::new(), Vec::new(), 0, 0);
        for (g, switch) in switches.iter().enumerate() {
            ranks += u16::from(switch.gpus);
            starts.push(ranks);
            group.extend((0..switch.gpus).map(|_| g as u16));
            nic_starts.push(nics);
            nics += match switch.nics {
                Nics::None => 0,
                Nics::Shared(_) => 1,
                Nics::PerGpu => u16::from(switch.gpus),
            };
        }
        let socket = (spec.sockets.iter().enumerate()).flat_map(|(s, of)| of.iter().map(move |_| s));
        Self {
            ranks,
            starts,
            group,
            socket: socket.collect(),
            sockets: spec.sockets.len(),
            switches,
            nic_starts,
            nics,
        }
    }

    pub(super) fn groups(&self) -> usize {
        self.switches.len()
    }

    fn trunk_base(&self) -> u16 {
        2 * self.ranks
    }

    pub(super) fn up(&self, group: usize) -> u16 {
        self.trunk_base() + group as u16
    }

    pub(super) fn down(&self, group: usize) -> u16 {
        self.trunk_base() + (self.groups() + group) as u16
    }

    fn cross_base(&self) -> u16 {
        self.trunk_base() + 2 * self.groups() as u16
    }

    /// The link between two sockets; none within one.
    pub(super) fn cross(&self, from: usize, to: usize) -> Option<u16> {
        // No socket has a link to itself: rows are one shorter than the number of sockets.
        (from != to).then(|| self.cross_base() + (from * (self.sockets - 1) + to - usize::from(to > from)) as u16)
    }

    fn tx_base(&self) -> u16 {
        self.cross_base() + (self.sockets * (self.sockets - 1)) as u16
    }

    /// Sending side of the shared NICs of a group.
    pub(super) fn tx(&self, group: usize) -> u16 {
        self.tx_base() + self.nic_starts[group]
    }

    /// Receiving side of the shared NICs of a group.
    pub(super) fn rx(&self, group: usize) -> u16 {
        self.tx(group) + self.nics
    }

    /// Resources of one node.
    fn resources(&self) -> u16 {
        self.tx_base() + 2 * self.nics
    }

    pub(super) fn own_nics(&self, group: usize) -> bool {
        self.switches[group].nics == Nics::PerGpu
    }

    fn has_nic(&self, group: usize) -> bool {
        self.switches[group].nics != Nics::None
    }

    /// The switch whose NIC a group uses: the nearest, or `hops` further in the same socket.
    pub(super) fn nic_home(&self, group: usize, hops: usize) -> Option<usize> {
        let near = |g: &usize| self.socket[*g] == self.socket[group];
        let groups = self.groups();
        let around = || (0..groups).map(move |step| (group + step) % groups);
        let home = around().filter(near).chain(around()).find(|&g| self.has_nic(g))?;
        if hops == 0 {
            return Some(home);
        }
        let others = (1..groups).map(|step| (home + step) % groups);
        others.filter(near).filter(|&g| self.has_nic(g)).nth(hops - 1)
    }
}

/// Ranks, resources and paths of a machine.
#[derive(Clone, Debug)]
pub struct Fabric {
    spec: TreeSpec,
    layout: Layout,
    resources: Vec<Resource>,
    /// Classes of each ordered pair of groups, within a node and between two.
    near: Vec<Vec<Class>>,
    far: Vec<Vec<Class>>,
    ports: Option<Ports>,
}

/// Most resources: their numbers fit 16 bits twice over.
const MAX_RESOURCES: usize = 1 << 15;

impl Fabric {
    /// The fabric of a machine.
    ///
    /// # Errors
    /// A figure out of range, or two ranks without any path between them.
    pub fn new(spec: &TreeSpec) -> Result<Self, SpecError> {
        spec.check()?;
        let layout = Layout::new(spec);
        let groups = layout.groups();
        let pairs = || (0..groups).flat_map(|g| (0..groups).map(move |h| (g, h)));
        let near: Vec<_> = pairs().map(|(g, h)| paths::near(spec, &layout, g, h)).collect();
        let far: Vec<_> = pairs().map(|(g, h)| paths::far(spec, &layout, g, h)).collect();
        for (g, h) in pairs() {
            let lonely = g == h && spec.switches().nth(g).is_some_and(|switch| switch.gpus == 1);
            if near[g * groups + h].is_empty() && !lonely {
                return Err(SpecError(format!(
                    "no path from switch {g} to switch {h} of a node: expected peer access or NICs that may be used within a node"
                )));
            }
            if far[g * groups + h].is_empty() && spec.nodes > 1 {
                return Err(SpecError(format!(
                    "no path from switch {g} of a node to switch {h} of another: expected NICs, all shared or all a GPU's own"
                )));
            }
        }
        let fabric = Self {
            resources: resources(spec, &layout),
            spec: spec.clone(),
            layout,
            near,
            far,
            ports: Ports::new(spec),
        };
        if fabric.resources() > MAX_RESOURCES {
            return Err(SpecError(format!(
                "{} resources of {} nodes: expected at most {MAX_RESOURCES}, so fewer nodes or more nodes below a leaf switch",
                fabric.resources(),
                spec.nodes
            )));
        }
        Ok(fabric)
    }

    /// The machine that it was made from.
    pub fn spec(&self) -> &TreeSpec {
        &self.spec
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.nodes() * self.ranks_per_node()
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.spec.nodes as usize
    }

    /// Ranks of one node.
    pub fn ranks_per_node(&self) -> usize {
        usize::from(self.layout.ranks)
    }

    /// Groups of one node.
    pub fn groups_per_node(&self) -> usize {
        self.layout.groups()
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.nodes() * self.groups_per_node()
    }

    /// Node of a rank.
    pub fn node_of(&self, rank: usize) -> usize {
        rank / self.ranks_per_node()
    }

    /// Group of a rank, counted through all nodes.
    pub fn group_of(&self, rank: usize) -> usize {
        let ranks = self.ranks_per_node();
        rank / ranks * self.groups_per_node() + usize::from(self.layout.group[rank % ranks])
    }

    /// A group by its number through all nodes.
    pub fn group(&self, group: usize) -> Group {
        let (node, local) = (group / self.groups_per_node(), group % self.groups_per_node());
        let base = node * self.ranks_per_node();
        Group {
            ranks: base + usize::from(self.layout.starts[local])..base + usize::from(self.layout.starts[local + 1]),
            node,
            local,
        }
    }

    /// Socket of a group within its node.
    pub fn socket_of(&self, group: usize) -> usize {
        self.layout.socket[group % self.groups_per_node()]
    }

    /// Number of resources; ids are `0..resources()`.
    pub fn resources(&self) -> usize {
        self.node_end() + self.ports.as_ref().map_or(0, |ports| ports.all.len())
    }

    /// Resources of all nodes: the first id of leaf switches' ports.
    pub(super) fn node_end(&self) -> usize {
        self.nodes() * self.resources_per_node()
    }

    /// Ports of leaf switches that may be busier than every NIC below them; others change no plan.
    pub(super) fn tight_ports(&self) -> Option<&Ports> {
        self.ports.as_ref().filter(|ports| ports.binds)
    }

    /// Lanes that plans of rounds put over a resource at a time; `None` for any number.
    ///
    /// As many as it carries, but over a port of a leaf switch that lanes share no more than fill it at a NIC's rate: others
    /// would only hold their NICs for longer. Of more ranks than are peeled any number, since packing does not look for lanes
    /// that fit.
    pub fn lanes_at_once(&self, id: u32) -> Option<u32> {
        let port = (id as usize).checked_sub(self.node_end());
        let whole = self.ranks() <= PEEL_RANKS || self.resource(id).slots().is_some();
        match self.tight_ports().zip(port).filter(|_| whole) {
            Some((ports, port)) => {
                let inv = self.far.iter().flatten().map(|class| class.inv_fs).min();
                Some(ports.lanes_at_once(port, inv.unwrap_or(1)))
            }
            None => self.resource(id).slots(),
        }
    }

    /// Resources of one node; `id % resources_per_node()` is the number within its node of a resource of a node.
    pub fn resources_per_node(&self) -> usize {
        self.resources.len()
    }

    /// A resource by its id.
    pub fn resource(&self, id: u32) -> &Resource {
        let id = id as usize;
        match &self.ports {
            Some(ports) if id >= self.node_end() => &ports.all[(id - self.node_end()) % ports.all.len()],
            _ => &self.resources[id % self.resources.len()],
        }
    }

    /// Resources of one node in the order of their numbers.
    pub fn node_resources(&self) -> &[Resource] {
        &self.resources
    }

    /// A name for people, such as `node 1 uplink of switch 2`.
    pub fn resource_name(&self, id: u32) -> String {
        let Resource { kind, index, .. } = *self.resource(id);
        let node = id as usize / self.resources_per_node();
        if let Some(ports) = self.ports.as_ref().filter(|_| node >= self.nodes()) {
            return ports.name(id as usize - self.node_end());
        }
        let sockets = self.layout.sockets;
        let what = match kind {
            ResourceKind::Egress => format!("egress of GPU {index}"),
            ResourceKind::Ingress => format!("ingress of GPU {index}"),
            ResourceKind::Up => format!("uplink of switch {index}"),
            ResourceKind::Down => format!("downlink of switch {index}"),
            ResourceKind::Cross => format!(
                "link from socket {} to {}",
                usize::from(index) / sockets,
                usize::from(index) % sockets
            ),
            ResourceKind::Tx => format!("NIC {index} out"),
            ResourceKind::Rx => format!("NIC {index} in"),
            ResourceKind::LeafUp => format!("leaf {index} up"),
            ResourceKind::LeafDown => format!("leaf {index} down"),
        };
        if self.nodes() == 1 {
            what
        } else {
            format!("node {node} {what}")
        }
    }

    /// Id of a rank's sending port.
    pub fn egress(&self, rank: usize) -> u32 {
        self.own(rank, 0)
    }

    /// Id of a rank's receiving port.
    pub fn ingress(&self, rank: usize) -> u32 {
        self.own(rank, self.layout.ranks)
    }

    /// Id of a resource of a node by its number within the node.
    pub fn id(&self, node: usize, number: u16) -> u32 {
        (node * self.resources_per_node()) as u32 + u32::from(number)
    }

    /// Every resource that some path uses is fluid: all lanes may be under way at once, only loads matter.
    pub fn is_fluid(&self) -> bool {
        let between: &[Vec<Class>] = if self.nodes() > 1 { &self.far } else { &[] };
        let modes = self.spec.modes;
        let slots = |ports: &Ports| ports.all.iter().any(|port| port.mode != Mode::Fluid);
        if self.ports.as_ref().is_some_and(slots) {
            return false;
        }
        self.near.iter().chain(between).flatten().all(|class| {
            let mut mids = class.mids().map(|(number, _)| self.resources[usize::from(number)].mode);
            mids.all(|mode| mode == Mode::Fluid)
                && (!class.ports || modes.port == Mode::Fluid)
                && (!class.own_nics || modes.nic == Mode::Fluid)
        })
    }

    /// Time lost with each activation under a barrier, nanoseconds.
    pub fn alpha_ns(&self) -> u32 {
        self.spec.alpha_ns
    }

    /// Time lost when a lane takes over a resource, nanoseconds.
    pub fn alpha_h_ns(&self) -> u32 {
        self.spec.alpha_h_ns
    }

    /// Path classes from one group to another, fastest first; at most [`super::MAX_PATHS`], at least one.
    ///
    /// Groups are counted through all nodes. A group of one rank has no pair of its own and may have no class.
    pub fn classes(&self, from: usize, to: usize) -> &[Class] {
        let groups = self.groups_per_node();
        let table = if from / groups == to / groups {
            &self.near
        } else {
            &self.far
        };
        &table[from % groups * groups + to % groups]
    }

    /// Path classes between two groups of different nodes, given by their numbers within a node.
    ///
    /// Also of a single node, whose NICs reach others like it.
    pub fn far_classes(&self, from: usize, to: usize) -> &[Class] {
        &self.far[from * self.groups_per_node() + to]
    }

    /// Number of paths from one rank to another one.
    pub fn path_count(&self, from: usize, to: usize) -> usize {
        self.classes(self.group_of(from), self.group_of(to)).len()
    }

    /// Path `class` of `0..path_count(from, to)`, fastest first. The ranks must differ.
    pub fn path(&self, from: usize, to: usize, class: usize) -> Path {
        let class = &self.classes(self.group_of(from), self.group_of(to))[class];
        let (source, destination) = (self.node_of(from), self.node_of(to));
        let mut path = Path::new(class);
        if class.ports {
            path.push(self.egress(from));
        }
        if class.own_nics {
            path.push(self.own_nic(from, false));
        }
        for &mid in class.raw_mids() {
            let node = if mid & AT_DESTINATION == 0 { source } else { destination };
            let id = self.id(node, mid & !AT_DESTINATION);
            self.cross_spine(&mut path, id);
            path.push(id);
        }
        if class.own_nics {
            let id = self.own_nic(to, true);
            self.cross_spine(&mut path, id);
            path.push(id);
        }
        if class.ports {
            path.push(self.ingress(to));
        }
        path
    }

    /// Adds what lies between the NIC that a path has come to and `next`, if that is a NIC's receiving side.
    fn cross_spine(&self, path: &mut Path, next: u32) {
        let (Some(ports), Some(&last)) = (&self.ports, path.resources().last()) else {
            return;
        };
        let nic = |id: u32, base: u16| {
            let (node, number) = (id as usize / self.resources.len(), id as usize % self.resources.len());
            let nic = number.checked_sub(usize::from(base))?;
            (nic < usize::from(self.layout.nics)).then_some((node, nic))
        };
        let tx = self.layout.tx_base();
        let ends = nic(last, tx).zip(nic(next, tx + self.layout.nics));
        if let Some((up, down)) = ends.and_then(|(from, to)| ports.between(from, to)) {
            path.inv_fs = path.inv_fs.max(ports.slot_inv_fs);
            path.push((self.node_end() + up) as u32);
            path.push((self.node_end() + down) as u32);
        }
    }

    /// All paths from one rank to another one, fastest first but for slots of leaf switches that are slower than a NIC.
    pub fn paths(&self, from: usize, to: usize) -> impl Iterator<Item = Path> + '_ {
        (0..self.path_count(from, to)).map(move |class| self.path(from, to, class))
    }

    fn own(&self, rank: usize, base: u16) -> u32 {
        let ranks = self.ranks_per_node();
        self.id(rank / ranks, base + (rank % ranks) as u16)
    }

    /// The NIC that belongs to a rank alone.
    fn own_nic(&self, rank: usize, receiving: bool) -> u32 {
        let layout = &self.layout;
        let local = rank % self.ranks_per_node();
        let group = usize::from(layout.group[local]);
        let first = if receiving { layout.rx(group) } else { layout.tx(group) };
        self.id(self.node_of(rank), first + local as u16 - layout.starts[group])
    }
}

/// The resources of one node in the order of their numbers.
fn resources(spec: &TreeSpec, layout: &Layout) -> Vec<Resource> {
    let mut all = Vec::with_capacity(usize::from(layout.resources()));
    let (rates, modes) = (spec.rates, spec.modes);
    let mut add = |kind, mode, rate, index: usize| {
        all.push(Resource {
            kind,
            mode,
            inv_fs: paths::inverse_fs(rate),
            index: index as u16,
        });
    };
    for kind in [ResourceKind::Egress, ResourceKind::Ingress] {
        (0..usize::from(layout.ranks)).for_each(|rank| add(kind, modes.port, rates.same_switch, rank));
    }
    for kind in [ResourceKind::Up, ResourceKind::Down] {
        (0..layout.groups()).for_each(|group| add(kind, modes.trunk, rates.same_socket, group));
    }
    let sockets = layout.sockets;
    for link in (0..sockets * sockets).filter(|link| link / sockets != link % sockets) {
        add(ResourceKind::Cross, modes.cross, rates.cross_socket, link);
    }
    for kind in [ResourceKind::Tx, ResourceKind::Rx] {
        for (group, switch) in layout.switches.iter().enumerate() {
            match switch.nics {
                Nics::None => {}
                Nics::PerGpu => (usize::from(layout.starts[group])..usize::from(layout.starts[group + 1]))
                    .for_each(|rank| add(kind, modes.nic, rates.nic, rank)),
                Nics::Shared(count) => {
                    let (mode, rate) = together(modes.nic, rates.nic, count);
                    add(kind, mode, rate, group);
                }
            }
        }
    }
    all
}

/// Several NICs that serve the same GPUs are one resource with more slots, or a faster one if it is fluid.
pub(super) fn together(mode: Mode, rate: u32, count: u8) -> (Mode, u32) {
    match (mode, count) {
        (_, 0 | 1) => (mode, rate),
        (Mode::Exclusive, _) => (Mode::Slots(count), rate),
        (Mode::Slots(slots), _) => (Mode::Slots(slots.saturating_mul(count)), rate),
        (Mode::Fluid, _) => (Mode::Fluid, rate.saturating_mul(u32::from(count))),
    }
}

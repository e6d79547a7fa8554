//! A machine for AlltoAllv as plain data: nodes, sockets, switches, GPUs, NICs, rates and how resources are shared.
//!
//! A [`TreeSpec`] says nothing about paths; [`super::Fabric::new`] checks it and derives them. Start reading at [`TreeSpec`].

use std::fmt;

use super::fabric::Fabric;
use super::profile::Profile;

/// Largest number of ranks of a fabric.
pub const MAX_RANKS: usize = 4096;
/// Largest number of GPUs of one node.
pub const MAX_NODE_RANKS: usize = 64;
/// Largest number of switches of one node.
pub const MAX_GROUPS: usize = 16;

/// Identical nodes, each a tree of sockets, switches and GPUs.
///
/// Ranks are numbered node by node, socket by socket, switch by switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeSpec {
    /// Number of nodes, at least 1.
    pub nodes: u32,
    /// The switches of each socket of a node.
    pub sockets: Vec<Vec<Switch>>,
    /// Rates of each class of path.
    pub rates: Rates,
    /// How each kind of resource may be shared.
    pub modes: Modes,
    /// Pairs of one node that may read and write each other's memory directly.
    pub reach: Reach,
    /// Two GPUs of one node may also use their NICs.
    pub nic_in_node: bool,
    /// NIC traffic passes by the GPU's peer ports: NVLink ports are not PCIe ports.
    pub nic_beside_ports: bool,
    /// A GPU may use the NIC of the next switch of its socket, at either end.
    pub forward: bool,
    /// What lies behind the NICs; none if everything there is as fast as they are.
    pub network: Option<Network>,
    /// Time lost with each activation when all ranks wait for each other, nanoseconds.
    pub alpha_ns: u32,
    /// Time lost when a lane takes over a resource from another, nanoseconds.
    pub alpha_h_ns: u32,
}

/// One switch: GPUs that reach each other without using a trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// GPUs below it, at least 1.
    pub gpus: u8,
    /// NICs below it.
    pub nics: Nics,
}

/// NICs below a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nics {
    /// Its GPUs use the NIC of the nearest switch that has one.
    None,
    /// This many (at least 1), shared by all GPUs below the switch.
    Shared(u8),
    /// One for each GPU, used by that GPU only.
    PerGpu,
}

/// Rates in 10^6 bytes a second, each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Between GPUs of one switch; also of a GPU's port.
    pub same_switch: u32,
    /// Between GPUs of two switches of a socket; also of a switch's uplink.
    pub same_socket: u32,
    /// Between GPUs of two sockets; also of the socket link.
    pub cross_socket: u32,
    /// Through one NIC at each end.
    pub nic: u32,
}

/// How many lanes may use a resource at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One.
    Exclusive,
    /// This many (at least 1), each at full rate.
    Slots(u8),
    /// Any number; they share the rate without loss.
    Fluid,
}

/// The mode of each kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    /// A GPU's egress and ingress.
    pub port: Mode,
    /// A switch's uplink and downlink.
    pub trunk: Mode,
    /// A link between two sockets, each way.
    pub cross: Mode,
    /// A NIC's sending and receiving side.
    pub nic: Mode,
}

/// Leaf switches behind the NICs, each with one bundle of uplinks to a spine that is as fast as all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Which NICs a leaf serves.
    pub leaves: Leaves,
    /// Rate of a leaf's bundle, 10^6 bytes a second each way.
    pub up: u32,
    /// How lanes share a bundle; each of N slots has an Nth part of its rate.
    pub mode: Mode,
}

/// NICs on one leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// All NICs of so many nodes, at least 1.
    Nodes(u32),
    /// NIC k of each of so many nodes, at least 1, or of all nodes; NICs that serve the same GPUs stay together.
    Rails(Option<u32>),
}

impl Network {
    /// Nodes whose NICs share leaves.
    pub(super) fn pod(&self) -> u32 {
        match self.leaves {
            Leaves::Nodes(nodes) => nodes,
            Leaves::Rails(nodes) => nodes.unwrap_or(u32::MAX),
        }
    }

    /// Rate of what one lane gets of a bundle at most, 10^6 bytes a second.
    pub(super) fn lane_rate(&self) -> u32 {
        match self.mode {
            Mode::Exclusive | Mode::Fluid => self.up,
            Mode::Slots(slots) => (self.up / u32::from(slots.max(1))).max(1),
        }
    }
}

/// Pairs of one node that have direct peer access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// None.
    Nowhere,
    /// Pairs below one switch.
    Switch,
    /// Pairs of one socket.
    Socket,
    /// All pairs.
    Node,
}

/// What a descriptor says: a tree, alone, some times, or any number of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The tree; of one node if any number may come.
    pub spec: TreeSpec,
    /// Any number of nodes may come.
    pub any_nodes: bool,
    /// What is known to be sent in a single node, in the order of the descriptor.
    pub profiles: Vec<Profile>,
}

impl Machine {
    /// The machine with this many nodes, or with as many as its descriptor says.
    ///
    /// # Errors
    /// A number that the descriptor rules out, or more ranks than [`MAX_RANKS`].
    pub fn fabric(&self, nodes: Option<u32>) -> Result<Fabric, SpecError> {
        match nodes {
            Some(nodes) if !self.any_nodes && nodes != self.spec.nodes => Err(SpecError(format!(
                "{nodes} nodes of a machine that has {}: leave the number out, or write `nodes: Any` into its descriptor",
                self.spec.nodes
            ))),
            nodes => Fabric::new(&self.spec.clone().cluster(nodes.unwrap_or(self.spec.nodes))),
        }
    }
}

/// Why a [`TreeSpec`] is no machine, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(pub(super) String);

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpecError {}

impl TreeSpec {
    /// `sockets` x `switches` x `gpus` GPUs over PCIe 5.0, one NIC a switch, every resource exclusive, one node.
    ///
    /// Rates are 56, 52 and 40 GB/s below a switch, in a socket and between sockets, 48 for a NIC; alpha 2 us and 1 us.
    pub fn tree(sockets: usize, switches: usize, gpus: u8) -> Self {
        let switch = Switch {
            gpus,
            nics: Nics::Shared(1),
        };
        Self {
            nodes: 1,
            sockets: vec![vec![switch; switches]; sockets],
            rates: Rates {
                same_switch: 56_000,
                same_socket: 52_000,
                cross_socket: 40_000,
                nic: 48_000,
            },
            modes: Modes {
                port: Mode::Exclusive,
                trunk: Mode::Exclusive,
                cross: Mode::Exclusive,
                nic: Mode::Exclusive,
            },
            reach: Reach::Node,
            nic_in_node: true,
            nic_beside_ports: false,
            forward: false,
            network: None,
            alpha_ns: 2_000,
            alpha_h_ns: 1_000,
        }
    }

    /// Two groups of two GPUs.
    pub fn pcie_2x2() -> Self {
        Self::tree(1, 2, 2)
    }

    /// Two groups of four GPUs.
    pub fn pcie_2x4() -> Self {
        Self::tree(1, 2, 4)
    }

    /// Two sockets of two switches of two GPUs.
    pub fn pcie_2x2x2() -> Self {
        Self::tree(2, 2, 2)
    }

    /// Two sockets of two switches of four GPUs.
    pub fn pcie_2x2x4() -> Self {
        Self::tree(2, 2, 4)
    }

    /// `gpus` GPUs on one crossbar, one NIC a GPU, `rate` 10^6 bytes a second at each port; ports and NICs are fluid.
    pub fn crossbar(gpus: u8, rate: u32) -> Self {
        let mut spec = Self::tree(1, 1, gpus);
        spec.sockets[0][0].nics = Nics::PerGpu;
        spec.rates.same_switch = rate;
        spec.modes.port = Mode::Fluid;
        spec.modes.nic = Mode::Fluid;
        spec.nic_in_node = false;
        spec.nic_beside_ports = true;
        spec
    }

    /// The same node, `nodes` times.
    #[must_use]
    pub fn cluster(mut self, nodes: u32) -> Self {
        self.nodes = nodes;
        self
    }

    /// The same behind leaf switches.
    #[must_use]
    pub fn behind(mut self, network: Network) -> Self {
        self.network = Some(network);
        self
    }

    /// GPUs of one node.
    pub fn node_ranks(&self) -> usize {
        self.switches().map(|switch| usize::from(switch.gpus)).sum()
    }

    /// The switches of a node in the order of their groups.
    pub fn switches(&self) -> impl Iterator<Item = &Switch> {
        self.sockets.iter().flatten()
    }

    /// Checks every figure that [`super::Fabric::new`] relies on.
    ///
    /// # Errors
    /// The first thing that no machine can be, and what was expected.
    pub fn check(&self) -> Result<(), SpecError> {
        let fail = |message: String| Err(SpecError(message));
        if self.sockets.is_empty() || self.sockets.iter().any(Vec::is_empty) {
            return fail("a node without sockets or a socket without switches: expected at least one of each".into());
        }
        let groups = self.switches().count();
        if groups > MAX_GROUPS {
            return fail(format!("{groups} switches in a node: expected at most {MAX_GROUPS}"));
        }
        if self.switches().any(|switch| switch.gpus == 0) {
            return fail("a switch without GPUs: expected at least one below each switch".into());
        }
        let node = self.node_ranks();
        if node > MAX_NODE_RANKS {
            return fail(format!("{node} GPUs in a node: expected at most {MAX_NODE_RANKS}"));
        }
        let ranks = u64::from(self.nodes) * node as u64;
        if self.nodes == 0 || ranks > MAX_RANKS as u64 {
            return fail(format!(
                "{} nodes of {node} GPUs: expected at least one node and at most {MAX_RANKS} GPUs",
                self.nodes
            ));
        }
        let rates = self.rates;
        for (name, rate) in [
            ("below a switch", rates.same_switch),
            ("in a socket", rates.same_socket),
            ("between sockets", rates.cross_socket),
            ("of a NIC", rates.nic),
        ] {
            if !(1..=100_000_000).contains(&rate) {
                return fail(format!(
                    "rate {name} is {rate} x 10^6 bytes a second: expected 1 to 100000000"
                ));
            }
        }
        if let Some(network) = self.network {
            if network.pod() == 0 {
                return fail("a leaf switch for no nodes: expected at least one".into());
            }
            if !(1..=1_000_000_000).contains(&network.up) {
                return fail(format!(
                    "rate from a leaf switch to the spine is {} x 10^6 bytes a second: expected 1 to 1000000000",
                    network.up
                ));
            }
            if network.mode == Mode::Slots(0) {
                return fail("a leaf switch with no slots to the spine: expected at least one".into());
            }
        }
        let modes = self.modes;
        if [modes.port, modes.trunk, modes.cross, modes.nic].contains(&Mode::Slots(0)) {
            return fail("a resource with no slots: expected at least one".into());
        }
        if self.switches().any(|switch| switch.nics == Nics::Shared(0)) {
            return fail("`Shared(0)` NICs: expected at least one, or none at all".into());
        }
        Ok(())
    }
}

//! Leaf switches behind the NICs: which leaf a NIC is on, and the ports between leaves and the spine.
//!
//! A pair of NICs on two leaves uses the first one's way up and the second one's way down; a pair on one leaf uses neither.
//! It knows nothing of ranks or paths. Start reading at [`Ports::new`].

use super::fabric::{Resource, ResourceKind, together};
use super::paths::inverse_fs;
use super::spec::{Leaves, Mode, Network, Nics, TreeSpec};

/// The ports of all leaves of a machine: the ways up, then the ways down.
#[derive(Clone, Debug)]
pub(super) struct Ports {
    network: Network,
    leaves: usize,
    /// NICs of a node that have leaves of their own; one if they share.
    rails: usize,
    pub all: Vec<Resource>,
    /// Some port may be busier than every NIC below it.
    pub binds: bool,
    /// Time of a byte of the one lane in a slot, femtoseconds; of shared bundles none.
    pub slot_inv_fs: u32,
}

impl Ports {
    /// The ports of a machine; none if nothing ever leaves a leaf.
    pub fn new(spec: &TreeSpec) -> Option<Self> {
        let network = spec.network?;
        let nics = || {
            spec.switches().flat_map(|switch| match switch.nics {
                Nics::None => std::iter::repeat_n(0, 0),
                Nics::Shared(count) => std::iter::repeat_n(count, 1),
                Nics::PerGpu => std::iter::repeat_n(1, usize::from(switch.gpus)),
            })
        };
        let railed = matches!(network.leaves, Leaves::Rails(_));
        let rails = if railed { nics().count() } else { 1 };
        let leaves = spec.nodes.div_ceil(network.pod().max(1)) as usize * rails;
        let leaves_a_node = railed && spec.nic_in_node;
        if leaves < 2 || (spec.nodes < 2 && !leaves_a_node) {
            return None;
        }
        let mut all = Vec::with_capacity(2 * leaves);
        for kind in [ResourceKind::LeafUp, ResourceKind::LeafDown] {
            for leaf in 0..leaves {
                // NICs that serve the same GPUs are one resource, and so are the leaves of their rails.
                let count = if railed {
                    nics().nth(leaf % rails).unwrap_or(1)
                } else {
                    1
                };
                let (mode, rate) = together(network.mode, network.lane_rate(), count);
                all.push(Resource {
                    kind,
                    mode,
                    inv_fs: inverse_fs(rate).max(1),
                    index: leaf as u16,
                });
            }
        }
        let slotted = network.mode != Mode::Fluid;
        Some(Self {
            network,
            leaves,
            rails,
            all,
            binds: binds(spec, &network, &nics().collect::<Vec<u8>>()),
            slot_inv_fs: if slotted { inverse_fs(network.lane_rate()) } else { 0 },
        })
    }

    /// The port up and the port down, by their numbers, between NICs given by node and number in it; none on one leaf.
    pub fn between(&self, from: (usize, usize), to: (usize, usize)) -> Option<(usize, usize)> {
        let (up, down) = (self.leaf(from), self.leaf(to));
        (up != down).then_some((up, self.leaves + down))
    }

    fn leaf(&self, (node, nic): (usize, usize)) -> usize {
        node / self.network.pod() as usize * self.rails + nic % self.rails
    }

    /// A name for people, such as `leaf 1 up`.
    pub fn name(&self, port: usize) -> String {
        let (leaf, way) = (port % self.leaves, if port < self.leaves { "up" } else { "down" });
        let (pod, rail) = (leaf / self.rails, leaf % self.rails);
        match self.network.leaves {
            Leaves::Nodes(_) => format!("leaf {leaf} {way}"),
            Leaves::Rails(_) if self.leaves == self.rails => format!("leaf of rail {rail} {way}"),
            Leaves::Rails(_) => format!("pod {pod} leaf of rail {rail} {way}"),
        }
    }

    /// Lanes that take turns at a port; where they share it, as many as fill it at a NIC's rate.
    pub fn lanes_at_once(&self, port: usize, lane_inv_fs: u32) -> u32 {
        let port = &self.all[port % self.all.len()];
        // Both are rounded: a thousandth is nothing.
        let filling = (lane_inv_fs - lane_inv_fs / 1000).div_ceil(port.inv_fs.max(1));
        port.slots().unwrap_or(filling).clamp(1, u32::from(u16::MAX) - 1)
    }
}

/// Whether NICs below a leaf, `nics` of them in a node, each so many together, can fill its port and more.
///
/// Otherwise some NIC is always at least as busy as the port.
fn binds(spec: &TreeSpec, network: &Network, nics: &[u8]) -> bool {
    let nodes = u64::from(network.pod().min(spec.nodes));
    // Where rails stay together, so do their leaves: one is like the other.
    let nics: u64 = match network.leaves {
        Leaves::Nodes(_) => nics.iter().map(|&count| u64::from(count)).sum(),
        Leaves::Rails(_) => 1,
    };
    let lanes = match spec.modes.nic {
        Mode::Slots(slots) => nodes * nics * u64::from(slots),
        Mode::Exclusive | Mode::Fluid => nodes * nics,
    };
    match network.mode {
        Mode::Fluid => lanes * u64::from(spec.rates.nic) > u64::from(network.up),
        _ if spec.modes.nic == Mode::Fluid => true,
        Mode::Exclusive => lanes > 1,
        Mode::Slots(slots) => lanes > u64::from(slots),
    }
}

//! Sets of families: which descriptors of a crate a build takes, by how their GPUs are joined.
//!
//! Told from a topology, not from its name, so that a file which is added falls into a set by itself. Each set is a
//! feature of topoforge. Start at [`Set::of`].

use topoforge_planner::topology::{LinkClass, Topology};

/// How the GPUs of a machine are joined. Every topology is of one set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Set {
    /// NVLinks from GPU to GPU.
    Nvlink,
    /// NVLinks through switches: every peer is reached with all lanes of a GPU.
    Nvswitch,
    /// PCIe with peer access.
    Pcie,
    /// Both NVLink and PCIe.
    Mixed,
    /// No peer access from everyone to everyone, not even by way of others: through host memory.
    HostStaged,
}

impl Set {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = &[Self::Nvlink, Self::Nvswitch, Self::Pcie, Self::Mixed, Self::HostStaged];

    /// The name in reports, which is also that of topoforge's feature.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvlink => "nvlink",
            Self::Nvswitch => "nvswitch",
            Self::Pcie => "pcie",
            Self::Mixed => "mixed",
            Self::HostStaged => "host-staged",
        }
    }

    /// The set of a topology.
    pub fn of(topology: &Topology) -> Self {
        if !topology.is_peer_connected() {
            return Self::HostStaged;
        }
        let classes = || topology.links.iter().map(|l| l.class);
        let nvlink = classes().any(|c| matches!(c, LinkClass::NvLink { .. }));
        let pcie = classes().any(|c| matches!(c, LinkClass::Pcie(_)));
        match (nvlink, pcie) {
            (true, true) => Self::Mixed,
            (false, _) => Self::Pcie,
            (true, false) if topology.is_fully_peered() && classes().all(every_lane) => Self::Nvswitch,
            (true, false) => Self::Nvlink,
        }
    }
}

/// Whether a link bonds all lanes that a GPU of its generation has, which only a switch can give to every peer.
fn every_lane(class: LinkClass) -> bool {
    match class {
        LinkClass::NvLink { lanes, r#gen } => {
            lanes
                >= match r#gen {
                    0 | 1 => 4,
                    2 => 6,
                    3 => 12,
                    _ => 18,
                }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topoforge_planner::topology::PcieClass;

    const PIX: LinkClass = LinkClass::Pcie(PcieClass::Pix);
    const fn nvlink(lanes: u8, r#gen: u8) -> LinkClass {
        LinkClass::NvLink { lanes, r#gen }
    }

    #[test]
    fn every_way_of_joining_gpus_has_its_set() {
        let quad = |class| Topology::new("quad", 4).with_all_pairs(&[0, 1, 2, 3], class);
        assert_eq!(Set::of(&quad(nvlink(2, 2))), Set::Nvlink);
        assert_eq!(Set::of(&quad(nvlink(18, 4))), Set::Nvswitch);
        assert_eq!(Set::of(&quad(nvlink(12, 3))), Set::Nvswitch);
        assert_eq!(Set::of(&quad(nvlink(12, 4))), Set::Nvlink);
        assert_eq!(Set::of(&quad(PIX)), Set::Pcie);
        assert_eq!(Set::of(&quad(LinkClass::Host)), Set::HostStaged);
        let bridge = Topology::new("bridge", 3)
            .with_pair(0, 1, nvlink(4, 3))
            .with_pair(0, 2, PIX)
            .with_pair(1, 2, PIX);
        assert_eq!(Set::of(&bridge), Set::Mixed);
        // A pair without NVLink in between, reached by way of others.
        let path = Topology::new("path", 3)
            .with_pair(0, 1, nvlink(18, 4))
            .with_pair(1, 2, nvlink(18, 4));
        assert_eq!(Set::of(&path), Set::Nvlink);
        assert_eq!(Set::of(&Topology::new("apart", 2)), Set::HostStaged);
    }

    #[test]
    fn names_are_those_of_features() {
        let names: Vec<_> = Set::ALL.iter().map(|s| s.name()).collect();
        assert_eq!(names, ["nvlink", "nvswitch", "pcie", "mixed", "host-staged"]);
    }
}

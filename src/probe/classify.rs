//! From what CUDA and NVML say about a pair to its link: class and capabilities.
//!
//! Pure: no library is called here. Start at [`link`].

use crate::driver::nvml::{Ancestor, PciAddress};
use topoforge_planner::topology::{Link, LinkClass, PcieClass};

/// What is known of one GPU.
pub(super) struct Rank {
    pub arch: u32,
    pub pci: Option<PciAddress>,
    /// Far ends of the NVLinks that are up.
    pub links: Vec<Option<PciAddress>>,
}

/// What is known of an ordered pair; `None` where NVML did not say.
#[derive(Clone, Copy)]
pub(super) struct Evidence {
    /// CUDA grants peer access.
    pub access: bool,
    pub read: Option<bool>,
    pub write: Option<bool>,
    /// An NVLink path, direct or through switches.
    pub nvlink: Option<bool>,
    pub ancestor: Option<Ancestor>,
    pub native_atomics: bool,
    /// 0 for the machine's fastest pairs.
    pub performance: usize,
}

/// The link, and a sentence where something had to be guessed or contradicts itself.
pub(super) fn link(from: usize, to: usize, ranks: &[Rank], evidence: &Evidence) -> (Link, Option<String>) {
    if !evidence.access {
        return (Link::new(from, to, LinkClass::Host), None);
    }
    let (class, guessed) = class(&ranks[from], &ranks[to], evidence);
    let mut link = Link::new(from, to, class);
    link.read = evidence.read.unwrap_or(true);
    link.write = evidence.write.unwrap_or(true);
    let warning = if !link.read || !link.write {
        let denied = match (link.read, link.write) {
            (false, false) => "reads and writes",
            (false, true) => "reads",
            _ => "writes",
        };
        Some(format!(
            "GPU {from} to GPU {to}: CUDA grants peer access but NVML denies {denied}; believed NVML"
        ))
    } else {
        guessed.then(|| format!("GPU {from} to GPU {to}: taken for {class} without NVML's word"))
    };
    (link, warning)
}

/// The class and whether it is a guess.
fn class(from: &Rank, to: &Rank, evidence: &Evidence) -> (LinkClass, bool) {
    let r#gen = nvlink_gen(from.arch.min(to.arch));
    let nvlink = |lanes: usize| LinkClass::NvLink {
        lanes: u8::try_from(lanes).unwrap_or(u8::MAX),
        r#gen,
    };
    let direct = from.links.iter().filter(|end| end.is_some() && **end == to.pci).count();
    if direct > 0 {
        return (nvlink(direct), false);
    }
    // A path that is not direct goes through switches, which every lane leads to.
    if evidence.nvlink == Some(true) && !from.links.is_empty() {
        return (nvlink(from.links.len().min(to.links.len()).max(1)), false);
    }
    if let Some(ancestor) = evidence.ancestor {
        return (LinkClass::Pcie(pcie(ancestor)), false);
    }
    // Only NVLink and its kin have native atomics; how many lanes nobody says.
    if evidence.native_atomics {
        return (nvlink(1), true);
    }
    let guess = match evidence.performance {
        0 => PcieClass::Phb,
        1 => PcieClass::Node,
        _ => PcieClass::Sys,
    };
    (LinkClass::Pcie(guess), true)
}

const fn pcie(ancestor: Ancestor) -> PcieClass {
    match ancestor {
        Ancestor::Internal | Ancestor::Single => PcieClass::Pix,
        Ancestor::Multiple => PcieClass::Pxb,
        Ancestor::HostBridge => PcieClass::Phb,
        Ancestor::Node => PcieClass::Node,
        Ancestor::System => PcieClass::Sys,
    }
}

/// NVML's own version code is another count, so by compute capability.
const fn nvlink_gen(arch: u32) -> u8 {
    match arch {
        0..=69 => 1,
        70..=79 => 2,
        80..=89 => 3,
        90..=99 => 4,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Evidence = Evidence {
        access: true,
        read: Some(true),
        write: Some(true),
        nvlink: Some(false),
        ancestor: Some(Ancestor::System),
        native_atomics: false,
        performance: 0,
    };

    fn at(bus: u32) -> Option<PciAddress> {
        Some(PciAddress {
            domain: 0,
            bus,
            device: 0,
        })
    }

    fn ranks(arch: u32, links: [Vec<Option<PciAddress>>; 2]) -> Vec<Rank> {
        links
            .into_iter()
            .zip([1, 2])
            .map(|(links, bus)| Rank {
                arch,
                pci: at(bus),
                links,
            })
            .collect()
    }

    #[test]
    fn direct_lanes_are_those_that_end_at_the_peer() {
        // A DGX-1 neighbour: two lanes to it, others elsewhere.
        let ranks = ranks(70, [vec![at(2), at(9), at(2)], vec![at(1), at(1), at(7)]]);
        let (link, warning) = link(
            0,
            1,
            &ranks,
            &Evidence {
                nvlink: Some(true),
                ..QUIET
            },
        );
        assert_eq!((link.class, warning), (LinkClass::NvLink { lanes: 2, r#gen: 2 }, None));
    }

    #[test]
    fn a_path_that_is_not_direct_counts_every_lane_to_the_switch() {
        let ranks = ranks(90, [vec![at(40); 18], vec![at(41); 18]]);
        let (link, _) = link(
            0,
            1,
            &ranks,
            &Evidence {
                nvlink: Some(true),
                ..QUIET
            },
        );
        assert_eq!(link.class, LinkClass::NvLink { lanes: 18, r#gen: 4 });
    }

    #[test]
    fn lanes_to_others_do_not_make_a_pair_an_nvlink_pair() {
        let ranks = ranks(70, [vec![at(9)], vec![at(8)]]);
        let (link, _) = link(0, 1, &ranks, &QUIET);
        assert_eq!(link.class, LinkClass::Pcie(PcieClass::Sys));
    }

    #[test]
    fn no_access_is_a_host_link_whatever_nvml_says() {
        let ranks = ranks(90, [vec![at(2)], vec![at(1)]]);
        let (link, _) = link(
            0,
            1,
            &ranks,
            &Evidence {
                access: false,
                nvlink: Some(true),
                ..QUIET
            },
        );
        assert_eq!((link.class, link.read, link.write), (LinkClass::Host, true, true));
    }

    #[test]
    fn a_denied_verb_is_kept_per_verb_and_said() {
        let (link, warning) = link(
            0,
            1,
            &ranks(80, [vec![], vec![]]),
            &Evidence {
                read: Some(false),
                ..QUIET
            },
        );
        assert!(!link.read && link.write);
        assert!(warning.is_some_and(|w| w.contains("denies reads")));
    }

    #[test]
    fn without_nvml_every_class_is_a_guess_and_says_so() {
        let blind = Evidence {
            read: None,
            write: None,
            nvlink: None,
            ancestor: None,
            ..QUIET
        };
        let ranks = ranks(90, [vec![], vec![]]);
        let classes = [(true, 0), (false, 0), (false, 1), (false, 2)].map(|(native_atomics, performance)| {
            let (link, warning) = link(
                0,
                1,
                &ranks,
                &Evidence {
                    native_atomics,
                    performance,
                    ..blind
                },
            );
            assert!(warning.is_some());
            link.class
        });
        let nvlink = LinkClass::NvLink { lanes: 1, r#gen: 4 };
        let pcie = [PcieClass::Phb, PcieClass::Node, PcieClass::Sys].map(LinkClass::Pcie);
        assert_eq!(classes, [nvlink, pcie[0], pcie[1], pcie[2]]);
    }
}

//! How far a live link is from the link that a family was compiled for: one small table.
//!
//! The unit is arbitrary; only the order of sums matters. It says nothing about speed in microseconds.
//! Start reading at [`distance`].

use crate::topology::{LinkClass, PcieClass};

/// Live has more lanes, or a newer generation: each.
pub const NVLINK_RICHER: u32 = 1;
/// Live has fewer lanes, or an older generation: each.
pub const NVLINK_POORER: u32 = 2;
/// Live is of a better class, for each class in between.
pub const BETTER_STEP: u32 = 4;
/// Live is of a worse class, for each class in between.
pub const WORSE_STEP: u32 = 16;
/// The family stages through host memory where live has peer access: it works, and wastes the most.
///
/// Above any number of worse steps between peer classes, so that a family that uses peer access comes first.
pub const PEER_UNUSED: u32 = 128;

/// Classes from best to worst; two with one rung are one class.
///
/// | rung | class |
/// |---|---|
/// | 0 | NvLink, whatever its lanes and generation |
/// | 1 to 5 | Pix, Pxb, Phb, Node, Sys |
/// | 6 | Host |
pub fn rung(class: LinkClass) -> u32 {
    match class {
        LinkClass::NvLink { .. } => 0,
        LinkClass::Pcie(PcieClass::Pix) => 1,
        LinkClass::Pcie(PcieClass::Pxb) => 2,
        LinkClass::Pcie(PcieClass::Phb) => 3,
        LinkClass::Pcie(PcieClass::Node) => 4,
        LinkClass::Pcie(PcieClass::Sys) => 5,
        LinkClass::Host => 6,
    }
}

/// The distance from a family's link to a live one, 0 for equal classes.
///
/// `None` where live has no peer access and the family needs it: nothing makes that link available.
pub fn distance(family: LinkClass, live: LinkClass) -> Option<u32> {
    let step = |family: u8, live: u8| match family.cmp(&live) {
        std::cmp::Ordering::Less => NVLINK_RICHER,
        std::cmp::Ordering::Equal => 0,
        std::cmp::Ordering::Greater => NVLINK_POORER,
    };
    match (family, live) {
        (
            LinkClass::NvLink { lanes, r#gen },
            LinkClass::NvLink {
                lanes: live_lanes,
                r#gen: live_gen,
            },
        ) => Some(step(lanes, live_lanes) + step(r#gen, live_gen)),
        (LinkClass::Host, LinkClass::Host) => Some(0),
        (LinkClass::Host, _) => Some(PEER_UNUSED),
        (_, LinkClass::Host) => None,
        _ => {
            let (family, live) = (rung(family), rung(live));
            Some(if live <= family {
                (family - live) * BETTER_STEP
            } else {
                (live - family) * WORSE_STEP
            })
        }
    }
}

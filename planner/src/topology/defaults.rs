//! What a link of each class does when nobody measured it: one table, used for ranking only.
//!
//! The figures order candidates; they never decide what is served, since selection always measures.
//! Start reading at [`latency_ns`] and [`gb_per_s`].

use super::model::{LinkClass, PcieClass};

/// One-way bandwidth of one NVLink lane by generation, 10^9 bytes a second, as published.
///
/// Generation 1 Pascal, 2 Volta, 3 Ampere, 4 Hopper, 5 Blackwell. Later ones take the last entry.
pub const NVLINK_LANE_GB_PER_S: [f32; 5] = [20.0, 25.0, 25.0, 25.0, 50.0];

/// One-way latency of a small store in nanoseconds.
///
/// | class | ns | why |
/// |---|---|---|
/// | NvLink | 700 | one hop, lanes bond bandwidth and leave latency alone |
/// | Pix | 900 | one PCIe switch |
/// | Pxb | 1100 | several switches |
/// | Phb | 1600 | up to the CPU's host bridge and down again |
/// | Node | 1800 | two host bridges |
/// | Sys | 2200 | the inter-socket link on top |
/// | Host | 2000 | a posted store to host memory, then a poll across PCIe |
pub fn latency_ns(class: LinkClass) -> u32 {
    match class {
        LinkClass::NvLink { .. } => 700,
        LinkClass::Pcie(PcieClass::Pix) => 900,
        LinkClass::Pcie(PcieClass::Pxb) => 1100,
        LinkClass::Pcie(PcieClass::Phb) => 1600,
        LinkClass::Pcie(PcieClass::Node) => 1800,
        LinkClass::Pcie(PcieClass::Sys) => 2200,
        LinkClass::Host => 2000,
    }
}

/// One-way bandwidth in 10^9 bytes a second; PCIe figures are for generation 3 with 16 lanes.
///
/// | class | GB/s | why |
/// |---|---|---|
/// | NvLink | lanes x [`NVLINK_LANE_GB_PER_S`] | lanes bond |
/// | Pix, Pxb | 12 | 15.8 raw less packet headers; switches forward at line rate |
/// | Phb, Node | 10 | host bridges forward peer traffic below line rate |
/// | Sys | 8 | the inter-socket link repacks peer traffic |
/// | Host | 6 | each byte crosses PCIe twice |
pub fn gb_per_s(class: LinkClass) -> f32 {
    match class {
        LinkClass::NvLink { lanes, r#gen } => {
            let index = usize::from(r#gen.max(1) - 1).min(NVLINK_LANE_GB_PER_S.len() - 1);
            f32::from(lanes) * NVLINK_LANE_GB_PER_S[index]
        }
        LinkClass::Pcie(PcieClass::Pix | PcieClass::Pxb) => 12.0,
        LinkClass::Pcie(PcieClass::Phb | PcieClass::Node) => 10.0,
        LinkClass::Pcie(PcieClass::Sys) => 8.0,
        LinkClass::Host => 6.0,
    }
}

/// Part of a link's bandwidth that loads reach.
///
/// A store is sent and forgotten; a load holds one of few tags until its answer is back, which over PCIe costs about
/// half the rate. NVLink has tags enough.
pub fn read_share(class: LinkClass) -> f32 {
    match class {
        LinkClass::NvLink { .. } => 1.0,
        LinkClass::Pcie(_) | LinkClass::Host => 0.5,
    }
}

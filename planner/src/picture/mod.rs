//! Pictures of a machine with a schedule drawn over it, as SVG for people and as DOT for Graphviz.
//!
//! Strings in, strings out: it reads and writes no file. Links are coloured by class, shared capacities are arcs round
//! the ranks that share them, and each stage has a panel of its own. Start at [`svg`] or [`dot`].

mod dot;
mod svg;

pub use dot::dot;
pub use svg::svg;

use crate::topology::{LinkClass, PcieClass};

/// Colour, legend and whether a line is dashed.
fn style(class: LinkClass) -> (&'static str, &'static str, bool) {
    match class {
        LinkClass::NvLink { .. } => ("#2f8f1f", "NVLink, wider with more lanes", false),
        LinkClass::Pcie(PcieClass::Pix) => ("#1f77b4", "PCIe, one switch (PIX)", false),
        LinkClass::Pcie(PcieClass::Pxb) => ("#17a2b8", "PCIe, several switches (PXB)", false),
        LinkClass::Pcie(PcieClass::Phb) => ("#8457b8", "PCIe, host bridge (PHB)", false),
        LinkClass::Pcie(PcieClass::Node) => ("#8c564b", "PCIe, host bridges of one node (NODE)", false),
        LinkClass::Pcie(PcieClass::Sys) => ("#e07b1a", "PCIe, across sockets (SYS)", false),
        LinkClass::Host => ("#808080", "host memory, no peer access", true),
    }
}

/// Wider for more lanes, within what stays readable.
fn width(class: LinkClass) -> f64 {
    match class {
        LinkClass::NvLink { lanes, .. } => 1.5 + f64::from(lanes.min(6)),
        _ => 1.5,
    }
}

//! The words in the cells of `nvidia-smi` tables, and what they mean for a link.
//!
//! No table is read here. Start at [`Class::parse`].

use std::fmt;
use topoforge_planner::topology::{LinkClass, PcieClass};

/// A label of `topo -m`. The order is from near to far, so that the larger of two is the pessimistic one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `NV#`: so many bonded NVLinks.
    NvLink(u8),
    /// `PIX`
    Pix,
    /// `PXB`
    Pxb,
    /// `PHB`
    Phb,
    /// `NODE`
    Node,
    /// `SYS`
    Sys,
    /// `SOC`, the older word for `SYS`.
    Soc,
    /// No label: no peer access at all.
    Host,
}

/// Most bonded lanes that a descriptor may state.
pub(super) const MAX_LANES: u8 = 36;

impl Class {
    /// A label; `None` for any other word.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "PIX" => Self::Pix,
            "PXB" => Self::Pxb,
            "PHB" => Self::Phb,
            "NODE" => Self::Node,
            "SYS" => Self::Sys,
            "SOC" => Self::Soc,
            _ => {
                let lanes = word.strip_prefix("NV")?;
                let digits = !lanes.is_empty() && lanes.bytes().all(|b| b.is_ascii_digit());
                let lanes: u8 = digits.then(|| lanes.parse().ok()).flatten()?;
                (1..=MAX_LANES).contains(&lanes).then_some(Self::NvLink(lanes))?
            }
        })
    }

    /// As `nvidia-smi` prints it; `None` for [`Class::Host`].
    pub fn label(self) -> Option<String> {
        (self != Self::Host).then(|| self.to_string())
    }

    /// The class of a link.
    pub fn of(class: LinkClass) -> Self {
        match class {
            LinkClass::NvLink { lanes, .. } => Self::NvLink(lanes),
            LinkClass::Pcie(PcieClass::Pix) => Self::Pix,
            LinkClass::Pcie(PcieClass::Pxb) => Self::Pxb,
            LinkClass::Pcie(PcieClass::Phb) => Self::Phb,
            LinkClass::Pcie(PcieClass::Node) => Self::Node,
            LinkClass::Pcie(PcieClass::Sys) => Self::Sys,
            LinkClass::Host => Self::Host,
        }
    }

    /// The link it stands for. `gen` is used for NVLink where it is known.
    pub fn link(self, r#gen: Option<u8>) -> LinkClass {
        match self {
            Self::NvLink(lanes) => LinkClass::NvLink {
                lanes,
                r#gen: r#gen.unwrap_or_else(|| likely_gen(lanes)),
            },
            Self::Pix => LinkClass::Pcie(PcieClass::Pix),
            Self::Pxb => LinkClass::Pcie(PcieClass::Pxb),
            Self::Phb => LinkClass::Pcie(PcieClass::Phb),
            Self::Node => LinkClass::Pcie(PcieClass::Node),
            Self::Sys | Self::Soc => LinkClass::Pcie(PcieClass::Sys),
            Self::Host => LinkClass::Host,
        }
    }

    /// 0 is the best; more lanes are better.
    fn rank(self) -> (u8, u8) {
        match self {
            Self::NvLink(lanes) => (0, u8::MAX - lanes),
            Self::Pix => (1, 0),
            Self::Pxb => (2, 0),
            Self::Phb => (3, 0),
            Self::Node => (4, 0),
            Self::Sys | Self::Soc => (5, 0),
            Self::Host => (6, 0),
        }
    }
}

impl PartialOrd for Class {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Class {
    /// `SYS` before `SOC`, so that the order is total.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |c: &Self| (c.rank(), *c == Self::Soc);
        key(self).cmp(&key(other))
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NvLink(lanes) => write!(f, "NV{lanes}"),
            Self::Pix => f.write_str("PIX"),
            Self::Pxb => f.write_str("PXB"),
            Self::Phb => f.write_str("PHB"),
            Self::Node => f.write_str("NODE"),
            Self::Sys => f.write_str("SYS"),
            Self::Soc => f.write_str("SOC"),
            Self::Host => f.write_str("host"),
        }
    }
}

/// The generation of the GPUs that usually have so many lanes between two; tables print lanes only.
fn likely_gen(lanes: u8) -> u8 {
    match lanes {
        // P100 and V100 bond one or two, a V100 behind switches six; 3 to 12 is Ampere, more is Hopper.
        0..=2 | 5..=6 => 2,
        3..=4 | 7..=12 => 3,
        _ => 4,
    }
}

/// The generation by compute capability, e.g. 80.
pub(super) const fn gen_of_arch(arch: u32) -> u8 {
    match arch {
        0..=69 => 1,
        70..=79 => 2,
        80..=89 => 3,
        90..=99 => 4,
        _ => 5,
    }
}

/// A cell of `topo -p2p`. The order is from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// `OK`
    Ok,
    /// `U`: unknown.
    Unknown,
    /// `DR`: switched off in the driver's settings.
    Disabled,
    /// `TNS`: this topology is not supported.
    Topology,
    /// `CNS`: this chipset is not supported.
    Chipset,
    /// `GNS`: this GPU is not supported.
    Gpu,
    /// `NS`: not supported.
    NotSupported,
}

impl Status {
    /// Every status with its word.
    pub const ALL: [(&'static str, Self); 7] = [
        ("OK", Self::Ok),
        ("CNS", Self::Chipset),
        ("GNS", Self::Gpu),
        ("TNS", Self::Topology),
        ("NS", Self::NotSupported),
        ("DR", Self::Disabled),
        ("U", Self::Unknown),
    ];

    /// A word; `None` for any other.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(name, _)| *name == word)
            .map(|(_, status)| *status)
    }

    /// As printed.
    pub fn label(self) -> &'static str {
        Self::ALL.iter().find(|(_, s)| *s == self).map_or("U", |(name, _)| name)
    }
}

/// Words that stand in cells, longest first so that glued cells split rightly.
pub(super) const WORDS: [&str; 15] = [
    "NODE", "SYS", "PHB", "PXB", "PIX", "SOC", "CNS", "GNS", "TNS", "N/A", "OK", "NS", "DR", "X", "U",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_of_two_labels_is_the_pessimistic_one() {
        let order = ["NV18", "NV4", "NV1", "PIX", "PXB", "PHB", "NODE", "SYS"];
        let classes: Vec<Class> = order.iter().filter_map(|w| Class::parse(w)).collect();
        assert_eq!(classes.len(), order.len());
        assert!(classes.windows(2).all(|w| w[0] < w[1]));
        assert!(Status::Ok < Status::Unknown && Status::Unknown < Status::NotSupported);
    }

    #[test]
    fn only_whole_labels_are_labels() {
        for bad in ["", "NV", "NV0", "NV+1", "NV99", "NV1x", "pix", "XGMI", "PIXX"] {
            assert_eq!(Class::parse(bad), None, "{bad}");
        }
    }
}

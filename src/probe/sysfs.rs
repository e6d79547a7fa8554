//! The PCI tree as the kernel shows it under `/sys`: who hangs below which bridge, and what might stand in the way of peers.
//!
//! Plain file reads below a root folder, so that a copied folder answers as the machine did. A file that is missing, as in
//! containers and virtual machines, is "not known", never an error. Start at [`Sysfs`].

use crate::driver::nvml::{Ancestor, PciAddress};
use std::path::{Path, PathBuf};

/// A `/sys` folder, the machine's or a copy.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
}

/// A port's highest generation and width, e.g. (4, 16).
pub type Pcie = (u32, u32);

impl Sysfs {
    /// The machine's own.
    pub fn live() -> Self {
        Self::at("/sys")
    }

    /// A copy that has `bus/pci/devices` below it.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether PCI devices are shown at all.
    pub fn shows_pci(&self) -> bool {
        std::fs::read_dir(self.devices()).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Whether this device's place in the tree is shown.
    pub fn shows(&self, device: PciAddress) -> bool {
        self.chain(device).is_some()
    }

    /// PCI addresses of NVIDIA GPUs, sorted.
    pub fn gpus(&self) -> Vec<PciAddress> {
        let entries = std::fs::read_dir(self.devices()).into_iter().flatten().flatten();
        let mut found: Vec<PciAddress> = entries
            .filter_map(|entry| {
                let address = PciAddress::parse(&entry.file_name().to_string_lossy())?;
                let class = self.hex(address, "class")? >> 8;
                let nvidia = self.hex(address, "vendor")? == 0x10de;
                (nvidia && matches!(class, 0x0300 | 0x0302)).then_some(address)
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Network devices with the name people know them by: the RDMA device's, else the interface's. Sorted by address.
    pub fn nics(&self) -> Vec<(PciAddress, String)> {
        let entries = std::fs::read_dir(self.devices()).into_iter().flatten().flatten();
        let mut found: Vec<(PciAddress, String)> = entries
            .filter_map(|entry| {
                let address = PciAddress::parse(&entry.file_name().to_string_lossy())?;
                let class = std::fs::read_to_string(entry.path().join("class")).ok()?;
                let network = class.trim().starts_with("0x02");
                let first = |folder: &str| {
                    let names = std::fs::read_dir(entry.path().join(folder)).ok()?.flatten();
                    names.map(|n| n.file_name().to_string_lossy().into_owned()).min()
                };
                let name = first("infiniband").or_else(|| first("net"));
                network.then(|| name.map(|name| (address, name))).flatten()
            })
            .collect();
        found.sort();
        found
    }

    /// NUMA node of a device; `None` where nobody said, which the kernel writes as -1.
    pub fn numa(&self, device: PciAddress) -> Option<usize> {
        self.read(device, "numa_node")?.parse().ok()
    }

    /// The highest link of device and slot together: what idles low now may still be trained up.
    pub fn max_pcie(&self, device: PciAddress) -> Option<Pcie> {
        let own = self.max_link(&self.folder(device));
        let parent = self.chain(device).and_then(|chain| {
            let above = chain.len().checked_sub(2).map(|i| chain[i].clone())?;
            self.max_link(&self.devices().join(above))
        });
        match (own, parent) {
            (Some((g, w)), Some((h, v))) => Some((g.min(h), w.min(v))),
            (own, parent) => own.or(parent),
        }
    }

    /// The nearest thing above two devices; `None` where the tree is hidden.
    pub fn ancestor(&self, a: PciAddress, b: PciAddress) -> Option<Ancestor> {
        if a == b {
            return Some(Ancestor::Internal);
        }
        let (up_a, up_b) = (self.chain(a)?, self.chain(b)?);
        let shared = up_a.iter().zip(&up_b).take_while(|(x, y)| x == y).count();
        if shared == 0 {
            let same_node = matches!((self.numa(a), self.numa(b)), (Some(x), Some(y)) if x == y);
            return Some(if same_node { Ancestor::Node } else { Ancestor::System });
        }
        if shared == 1 {
            return Some(Ancestor::HostBridge);
        }
        // Below the bridge both share: at most a switch's own downstream port, or further switches.
        let below = |chain: &[String]| chain.len() - shared;
        Some(if below(&up_a) <= 2 && below(&up_b) <= 2 {
            Ancestor::Single
        } else {
            Ancestor::Multiple
        })
    }

    /// Whether any bridge above a device sends peer traffic up to the root (ACS redirection); `None` where its
    /// configuration space may not be read, which takes root.
    pub fn redirected(&self, device: PciAddress) -> Option<bool> {
        let chain = self.chain(device)?;
        let bridges = chain.get(1..chain.len().saturating_sub(1))?;
        let mut known = None;
        for bridge in bridges {
            let Some(control) = acs_control(&std::fs::read(self.devices().join(bridge).join("config")).ok()?) else {
                continue;
            };
            // Request redirect, completion redirect.
            known = Some(known.unwrap_or(false) || control & 0b1100 != 0);
        }
        known.or(bridges.is_empty().then_some(false))
    }

    /// Whether an IOMMU is at work: there is a group for the device.
    pub fn iommu_group(&self, device: PciAddress) -> bool {
        std::fs::symlink_metadata(self.folder(device).join("iommu_group")).is_ok()
    }

    /// How the IOMMU treats the device: `DMA`, `DMA-FQ`, `identity`.
    pub fn iommu_type(&self, device: PciAddress) -> Option<String> {
        let group = self.folder(device).join("iommu_group/type");
        Some(std::fs::read_to_string(group).ok()?.trim().to_owned())
    }

    fn devices(&self) -> PathBuf {
        self.root.join("bus/pci/devices")
    }

    fn folder(&self, device: PciAddress) -> PathBuf {
        let PciAddress { domain, bus, device } = device;
        self.devices().join(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
    }

    fn read(&self, device: PciAddress, file: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.folder(device).join(file)).ok()?;
        Some(text.trim().to_owned())
    }

    fn hex(&self, device: PciAddress, file: &str) -> Option<u32> {
        u32::from_str_radix(self.read(device, file)?.trim_start_matches("0x"), 16).ok()
    }

    fn max_link(&self, folder: &Path) -> Option<Pcie> {
        let text = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
        let speed = text("max_link_speed")?;
        let speed: f32 = speed.split_whitespace().next()?.parse().ok()?;
        let width: u32 = text("max_link_width")?.trim().parse().ok()?;
        // 255 stands for "nobody said".
        let generation = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0]
            .iter()
            .position(|s| (speed - s).abs() < 0.1)?;
        (1..=32).contains(&width).then_some((generation as u32 + 1, width))
    }

    /// Host bridge first, the device last: the path that the device's link leads to.
    fn chain(&self, device: PciAddress) -> Option<Vec<String>> {
        let link = std::fs::read_link(self.folder(device)).ok()?;
        let names: Vec<String> = link.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let start = names.iter().position(|n| n.starts_with("pci"))?;
        (names.len() > start + 1).then(|| names[start..].to_vec())
    }
}

/// The control word of the ACS capability in a configuration space of 4096 bytes.
fn acs_control(config: &[u8]) -> Option<u16> {
    let word = |at: usize| Some(u16::from_le_bytes([*config.get(at)?, *config.get(at + 1)?]));
    let mut at = 0x100;
    // A broken list must not loop for ever.
    for _ in 0..64 {
        let (id, next) = (word(at)?, word(at + 2)? >> 4);
        if id == 0x000d {
            return word(at + 6);
        }
        at = usize::from(next);
        if at < 0x100 {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_acs_word_is_found_behind_other_capabilities() {
        let mut config = vec![0_u8; 4096];
        config[0x100..0x104].copy_from_slice(&[0x01, 0x00, 0x01, 0x15]); // next at 0x150
        config[0x150..0x154].copy_from_slice(&[0x0d, 0x00, 0x01, 0x00]);
        config[0x156] = 0x1d;
        assert_eq!(acs_control(&config), Some(0x1d));
        assert_eq!(acs_control(&config[..64]), None);
        // A list that leads to itself ends.
        config[0x100..0x104].copy_from_slice(&[0x01, 0x00, 0x01, 0x10]);
        assert_eq!(acs_control(&config), None);
    }
}

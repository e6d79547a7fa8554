//! What this machine is: its visible GPUs and the links between them, as a [`Topology`] that families can be matched to.
//!
//! Asks CUDA (ordinals, so `CUDA_VISIBLE_DEVICES` is honoured, and peer access) and, where they are there, NVML (NVLinks
//! and the PCIe tree) and `/sys` (the PCIe tree, NUMA nodes); devices are joined by PCI address. [`Level`] names what
//! answered. It moves no bytes: that a link works is for the kernels to prove. It
//! guesses nothing silently: every guess is a warning. Start at [`probe`].

mod classify;
pub mod import;
pub mod sysfs;

use crate::device::DeviceError;
use crate::doctor::cache;
use crate::doctor::switches::Switches;
use crate::driver::DriverError;
use crate::driver::context::{Device, PairAttribute};
use crate::driver::nvml::{Ancestor, Nvml, NvmlDevice, P2p, PciAddress};
use crate::registry::Registry;
use classify::{Evidence, Rank, link};
use std::fmt;
use sysfs::Sysfs;
use topoforge_planner::topology::{Link, LinkClass, MAX_RANKS, Topology};

/// A GPU as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveGpu {
    /// CUDA's number, which is the rank in the topology.
    pub ordinal: usize,
    /// E.g. `NVIDIA H200`.
    pub name: String,
    /// E.g. `GPU-…`; the key that survives reordering.
    pub uuid: String,
    /// PCI address, e.g. `0000:1B:00.0`.
    pub pci: String,
    /// Compute capability, e.g. 90.
    pub arch: u32,
    /// Highest PCIe generation and width with its slot, if NVML said.
    pub max_pcie: Option<(u32, u32)>,
}

/// A network device as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveNic {
    /// E.g. `mlx5_0`.
    pub name: String,
    /// PCI address.
    pub pci: String,
    /// What is nearest above it and each GPU; `None` where nobody knows.
    pub ancestors: Vec<Option<Ancestor>>,
}

/// Where the facts come from, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// NVML, `/sys` and CUDA: classes are facts, from two sources.
    NvmlSysfsCuda,
    /// NVML and CUDA: classes are facts.
    NvmlAndCuda,
    /// `/sys` and CUDA: PCIe classes are facts, NVLinks are guesses from peer attributes.
    SysfsAndCuda,
    /// CUDA only: classes are guesses from peer attributes.
    Cuda,
}

impl Level {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NvmlSysfsCuda => "nvml+sysfs+cuda",
            Self::NvmlAndCuda => "nvml+cuda",
            Self::SysfsAndCuda => "sysfs+cuda",
            Self::Cuda => "cuda",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The machine as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveTopology {
    /// Rank `r` is `gpus[r]`.
    pub topology: Topology,
    /// In the order of CUDA ordinals.
    pub gpus: Vec<LiveGpu>,
    /// As `/sys` shows them; none where it is hidden.
    pub nics: Vec<LiveNic>,
    /// Where the facts come from.
    pub level: Level,
    /// CUDA version of the driver, e.g. 12040.
    pub cuda_version: i32,
    /// The driver's own version, e.g. `550.54.15`, if NVML said.
    pub driver: Option<String>,
    /// What was guessed or contradicts itself, for people.
    pub warnings: Vec<String>,
}

/// Why there is no live topology.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProbeError {
    /// No driver or no visible device.
    NoGpu {
        /// What is missing and how to get it.
        reason: String,
    },
    /// More devices than a topology holds.
    TooManyGpus {
        /// Visible devices.
        count: usize,
    },
    /// The driver refused a question.
    Device(DeviceError),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGpu { reason } => f.write_str(reason),
            Self::TooManyGpus { count } => {
                write!(
                    f,
                    "{count} GPUs are visible, at most {MAX_RANKS} are supported: set CUDA_VISIBLE_DEVICES"
                )
            }
            Self::Device(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for ProbeError {}

impl From<DeviceError> for ProbeError {
    fn from(e: DeviceError) -> Self {
        match e {
            DeviceError::Unavailable { reason } => Self::NoGpu { reason },
            e => Self::Device(e),
        }
    }
}

impl From<DriverError> for ProbeError {
    fn from(e: DriverError) -> Self {
        Self::Device(e.into())
    }
}

/// Asks the machine. Makes no context and allocates nothing on a GPU.
///
/// # Errors
/// [`ProbeError::NoGpu`] without driver or device; NVML's absence is a warning, not an error.
pub fn probe() -> Result<LiveTopology, ProbeError> {
    let count = Device::count()?;
    if count == 0 {
        let reason = "no GPU is visible: check CUDA_VISIBLE_DEVICES".to_owned();
        return Err(ProbeError::NoGpu { reason });
    }
    let mut known = Vec::new();
    for ordinal in 0..count {
        let device = Device::new(ordinal)?;
        known.push(KnownGpu::of(device)?);
    }
    survey(&known)
}

/// Asks the machine about GPUs that other processes use and perhaps only they see: joined by UUID and PCI address, in
/// this order. Links of a GPU that this process does not see are what NVML and `/sys` say; where they say nothing, peer
/// access is assumed and warned of.
///
/// # Errors
/// As [`probe`].
pub fn probe_these(gpus: &[KnownGpu]) -> Result<LiveTopology, ProbeError> {
    let mut visible = Vec::new();
    for ordinal in 0..Device::count()? {
        visible.push(KnownGpu::of(Device::new(ordinal)?)?);
    }
    let mut known = gpus.to_vec();
    for gpu in &mut known {
        gpu.device = visible.iter().find(|v| v.uuid == gpu.uuid).and_then(|v| v.device);
    }
    survey(&known)
}

/// A GPU by what it is called everywhere.
#[derive(Clone)]
pub struct KnownGpu {
    /// As this process sees it, if it does.
    device: Option<Device>,
    /// E.g. `NVIDIA H200`.
    pub name: String,
    /// The sixteen bytes behind `GPU-…`.
    pub uuid: [u8; 16],
    /// PCI address, e.g. `0000:1B:00.0`.
    pub pci: String,
    /// Compute capability, e.g. 90.
    pub arch: u32,
}

impl KnownGpu {
    /// Of another process.
    pub const fn elsewhere(name: String, uuid: [u8; 16], pci: String, arch: u32) -> Self {
        Self {
            device: None,
            name,
            uuid,
            pci,
            arch,
        }
    }

    /// A visible one.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn of(device: Device) -> Result<Self, DriverError> {
        Ok(Self {
            name: device.name()?,
            uuid: device.uuid()?,
            pci: device.pci()?,
            arch: device.arch()?,
            device: Some(device),
        })
    }
}

fn survey(known: &[KnownGpu]) -> Result<LiveTopology, ProbeError> {
    let count = known.len();
    if count > MAX_RANKS {
        return Err(ProbeError::TooManyGpus { count });
    }
    let mut warnings = Vec::new();
    let nvml = Nvml::open()
        .map_err(|e| warnings.push(format!("without NVML link classes are guesses ({e})")))
        .ok();

    let sysfs = Sysfs::live();
    let mut gpus = Vec::new();
    let mut seen = Vec::new();
    for (ordinal, gpu) in known.iter().enumerate() {
        let pci = gpu.pci.clone();
        let known = nvml.and_then(|nvml| {
            let found = nvml.device(&pci);
            found
                .map_err(|e| warnings.push(format!("GPU {ordinal} ({pci}): {e}")))
                .ok()
        });
        gpus.push(LiveGpu {
            ordinal,
            name: gpu.name.clone(),
            uuid: known.and_then(|n| n.uuid().ok()).unwrap_or_else(|| uuid_text(gpu.uuid)),
            arch: gpu.arch,
            max_pcie: (known.and_then(|n| n.max_pcie().ok()))
                .or_else(|| PciAddress::parse(&pci).and_then(|at| sysfs.max_pcie(at))),
            pci,
        });
        seen.push(known);
    }

    let ranks: Vec<Rank> = gpus
        .iter()
        .zip(&seen)
        .map(|(gpu, nvml)| Rank {
            arch: gpu.arch,
            pci: PciAddress::parse(&gpu.pci),
            links: nvml.map(NvmlDevice::active_links).unwrap_or_default(),
        })
        .collect();
    let ranks_of_pairs = performance_ranks(known)?;
    let tree = |a: usize, b: usize| ranks[a].pci.zip(ranks[b].pci).and_then(|(a, b)| sysfs.ancestor(a, b));
    let mut topology = Topology::new("live", count);
    for (from, a) in known.iter().enumerate() {
        for (to, b) in known.iter().enumerate().filter(|(to, _)| *to != from) {
            let nvml = seen[from].zip(seen[to]);
            let both = a.device.zip(b.device);
            let (read, write) = (
                nvml.and_then(|(a, b)| a.p2p(b, P2p::Read).ok()),
                nvml.and_then(|(a, b)| a.p2p(b, P2p::Write).ok()),
            );
            let evidence = Evidence {
                access: match both {
                    _ if a.uuid == b.uuid => false,
                    Some((a, b)) => a.can_access(b)?,
                    None => {
                        if write.is_none() {
                            let text =
                                "peer access is assumed, since one of them is not visible here and NVML is silent";
                            warnings.push(format!("GPUs {from} and {to}: {text}"));
                        }
                        read.unwrap_or(true) || write.unwrap_or(true)
                    }
                },
                read,
                write,
                nvlink: nvml.and_then(|(a, b)| a.p2p(b, P2p::NvLink).ok()),
                ancestor: worse(nvml.and_then(|(a, b)| ancestor(a, b)), tree(from, to)),
                native_atomics: both
                    .is_some_and(|(a, b)| a.pair_attribute(PairAttribute::NativeAtomics, b).is_ok_and(|v| v != 0)),
                performance: ranks_of_pairs[from * count + to],
            };
            let (link, warning) = link(from, to, &ranks, &evidence);
            warnings.extend(warning);
            topology = topology.with_link(link);
        }
    }
    let node = |gpu: &LiveGpu| PciAddress::parse(&gpu.pci).and_then(|at| sysfs.numa(at));
    if let Some(numa) = gpus.iter().map(node).collect::<Option<Vec<_>>>() {
        topology.numa = numa;
    }
    let known = |rank: &Rank| rank.pci.is_some_and(|at| sysfs.shows(at));
    let nic = |(at, name): (PciAddress, String)| {
        let PciAddress { domain, bus, device } = at;
        LiveNic {
            name,
            pci: format!("{domain:04x}:{bus:02x}:{device:02x}.0"),
            ancestors: ranks
                .iter()
                .map(|r| r.pci.and_then(|gpu| sysfs.ancestor(gpu, at)))
                .collect(),
        }
    };
    let nics = sysfs.nics().into_iter().map(nic).collect();
    let level = match (seen.iter().all(Option::is_some), ranks.iter().all(known)) {
        (true, true) => Level::NvmlSysfsCuda,
        (true, false) => Level::NvmlAndCuda,
        (false, true) => Level::SysfsAndCuda,
        (false, false) => Level::Cuda,
    };
    let driver = nvml.and_then(|n| n.driver_version().ok());
    if Switches::here().no_peer_access {
        for link in &mut topology.links {
            *link = Link::new(link.from, link.to, LinkClass::Host);
        }
        warnings.push("NCCL_P2P_DISABLE is on: no peer access is used".to_owned());
    } else {
        warnings.extend(vetoes(&mut topology, &gpus, driver.as_deref()));
    }
    Ok(LiveTopology {
        topology,
        gpus,
        nics,
        level,
        cuda_version: Device::driver_version()?,
        driver,
        warnings,
    })
}

fn ancestor(a: NvmlDevice, b: NvmlDevice) -> Option<Ancestor> {
    a.common_ancestor(b).ok().flatten()
}

/// Per ordered pair how many better ranks this machine's pairs have: 0 is the best.
fn performance_ranks(known: &[KnownGpu]) -> Result<Vec<usize>, DriverError> {
    let mut raw = Vec::new();
    for a in known {
        for b in known {
            raw.push(match (a.device, b.device) {
                (Some(from), Some(to)) if a.uuid != b.uuid => {
                    Some(from.pair_attribute(PairAttribute::PerformanceRank, to)?)
                }
                _ => None,
            });
        }
    }
    let mut levels: Vec<i32> = raw.iter().flatten().copied().collect();
    levels.sort_unstable();
    levels.dedup();
    Ok(raw
        .into_iter()
        .map(|r| r.and_then(|r| levels.binary_search(&r).ok()).unwrap_or(0))
        .collect())
}

/// Takes away the edges that `doctor` has seen fail on this boot.
fn vetoes(topology: &mut Topology, gpus: &[LiveGpu], driver: Option<&str>) -> Vec<String> {
    let pci = gpus.iter().map(|g| g.pci.clone()).collect();
    let key = cache::Key::here(driver.unwrap_or_default(), pci, Registry::builtin().kernel_set());
    let kept = cache::folder()
        .zip(key)
        .and_then(|(folder, key)| cache::load(&folder, &key));
    cache::veto(topology, &kept.unwrap_or_default())
}

/// Where both sources know, the farther counts.
fn worse(nvml: Option<Ancestor>, sysfs: Option<Ancestor>) -> Option<Ancestor> {
    nvml.max(sysfs)
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let hex = |part: &[u8]| part.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let [a, b, c, d, e] = [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]].map(hex);
    format!("GPU-{a}-{b}-{c}-{d}-{e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_spelled_as_nvml_spells_it() {
        let bytes: Vec<u8> = (0..16).collect();
        let bytes: [u8; 16] = bytes.try_into().unwrap_or_default();
        assert_eq!(uuid_text(bytes), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
    }

    #[test]
    fn without_a_gpu_the_probe_says_so_and_does_not_panic() {
        match probe() {
            Ok(live) => assert_eq!(live.gpus.len(), live.topology.ranks),
            Err(ProbeError::NoGpu { reason }) => assert!(!reason.is_empty()),
            Err(e) => assert!(matches!(e, ProbeError::Device(_)), "{e}"),
        }
    }
}

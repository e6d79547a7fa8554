//! The machine around the GPUs: driver, libraries, architectures, container, IOMMU, visible devices.
//!
//! Each finding says what it means and what to do. IOMMU and ACS are hints only; the verdict on a pair counts. Start at
//! [`findings`].

use super::switches::Switches;
use crate::driver::nccl::Nccl;
use crate::driver::nvml::{Nvml, PciAddress};
use crate::probe::sysfs::Sysfs;
use crate::probe::{LiveTopology, ProbeError};
use crate::registry::Registry;

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// As it should be.
    Good,
    /// Worth knowing.
    Note,
    /// Something will not work.
    Bad,
}

impl State {
    /// The word in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Bad => "bad",
        }
    }
}

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// E.g. `libcuda`.
    pub topic: &'static str,
    /// How good it is.
    pub state: State,
    /// What was found and what to do.
    pub text: String,
}

fn finding(topic: &'static str, state: State, text: impl Into<String>) -> Finding {
    let text = text.into();
    Finding { topic, state, text }
}

/// Everything but the pairs. `live` is what [`crate::probe::probe`] said.
pub fn findings(live: &Result<LiveTopology, ProbeError>, registry: &Registry) -> Vec<Finding> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let sysfs = Sysfs::live();
    let mut out = Vec::new();
    out.extend(switches(Switches::here()));
    out.push(driver(live));
    let maps = read("/proc/self/maps");
    let path = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    out.push(libcuda(library(&maps, "libcuda.so"), &path, live.is_ok()));
    out.push(match Nvml::open() {
        Ok(nvml) => match nvml.driver_version() {
            Ok(version) => finding("nvml", State::Good, format!("driver {version}")),
            Err(e) => finding("nvml", State::Note, format!("opened, but {e}")),
        },
        Err(e) => finding(
            "nvml",
            State::Note,
            format!("not there ({e}): link classes are guesses"),
        ),
    });
    out.push(nccl());
    let archs: Vec<u32> = registry.builds().flat_map(|b| b.archs).copied().collect();
    let ptx = registry.builds().filter_map(|b| b.ptx).max();
    if let Ok(live) = live {
        let fits = live.gpus.iter().map(|g| (g.ordinal, g.name.as_str(), g.arch));
        out.extend(fits.map(|(ordinal, name, arch)| architecture(ordinal, name, arch, &archs, ptx)));
        out.extend(mixed(live));
        out.push(visible(live));
    }
    out.extend(container(&sysfs, &read("/proc/mounts")));
    let at: Vec<PciAddress> = match live {
        Ok(live) => live.gpus.iter().filter_map(|g| PciAddress::parse(&g.pci)).collect(),
        Err(_) => sysfs.gpus(),
    };
    if live.is_err() && !at.is_empty() {
        let text = format!(
            "{} NVIDIA GPUs are on the PCI bus, but the driver does not offer them",
            at.len()
        );
        out.push(finding("gpus", State::Bad, text));
    }
    out.extend(isolation(&sysfs, &at, &read("/proc/cmdline")));
    out
}

fn switches(switches: Switches) -> Vec<Finding> {
    let mut out = Vec::new();
    if switches.off {
        out.push(finding(
            "switches",
            State::Note,
            "TOPOFORGE is off: every call goes to the comparator",
        ));
    }
    if switches.no_peer_access {
        let text = "NCCL_P2P_DISABLE is on: no peer access is used and no pair is tested";
        out.push(finding("switches", State::Note, text));
    }
    out
}

fn driver(live: &Result<LiveTopology, ProbeError>) -> Finding {
    match live {
        Ok(live) => {
            let (major, minor) = (live.cuda_version / 1000, live.cuda_version % 1000 / 10);
            let version = live.driver.as_deref().unwrap_or("of unknown version");
            let kernel = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
            let open = if kernel.contains("Open Kernel Module") {
                ", open kernel module"
            } else {
                ""
            };
            finding("driver", State::Good, format!("{version}, CUDA {major}.{minor}{open}"))
        }
        Err(e) => finding("driver", State::Bad, e.to_string()),
    }
}

/// The file that a loaded library came from.
fn library<'a>(maps: &'a str, name: &str) -> Option<&'a str> {
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    paths
        .into_iter()
        .find(|p| p.rsplit('/').next().is_some_and(|file| file.starts_with(name)))
}

fn libcuda(loaded: Option<&str>, search: &str, works: bool) -> Finding {
    let stub = |path: &str| path.split('/').any(|part| part == "stubs");
    let advice = "this is the toolkit's stub, which every call fails in: take its folder off LD_LIBRARY_PATH";
    match loaded {
        Some(path) if stub(path) => finding("libcuda", State::Bad, format!("{path}: {advice}")),
        Some(path) => finding("libcuda", State::Good, path),
        None => match search.split(':').find(|p| stub(p)) {
            Some(folder) => finding(
                "libcuda",
                State::Bad,
                format!("{folder} is on LD_LIBRARY_PATH: {advice}"),
            ),
            None if works => finding("libcuda", State::Note, "loaded from an unnamed place"),
            None => finding(
                "libcuda",
                State::Bad,
                "not found: install the driver, or give the container its libraries",
            ),
        },
    }
}

fn nccl() -> Finding {
    match Nccl::open() {
        Ok(nccl) => {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
            let path = library(&maps, "libnccl").unwrap_or("an unnamed place").to_owned();
            match nccl.version() {
                Ok(v) => finding(
                    "nccl",
                    State::Good,
                    format!("{}.{}.{} at {path}", v / 10_000, v / 100 % 100, v % 100),
                ),
                Err(e) => finding("nccl", State::Note, format!("{path}: {e}")),
            }
        }
        Err(e) => finding(
            "nccl",
            State::Note,
            format!("not there, so nothing is compared with it ({e})"),
        ),
    }
}

/// Machine code serves its own architecture and later ones of the same generation; PTX is compiled by the driver.
fn architecture(ordinal: usize, name: &str, arch: u32, archs: &[u32], ptx: Option<u32>) -> Finding {
    let serves = archs.iter().filter(|a| **a / 10 == arch / 10 && **a <= arch).max();
    let gpu = format!("GPU {ordinal}, {name} (sm_{arch})");
    match (serves, ptx) {
        (Some(code), _) if *code == arch => finding("architecture", State::Good, format!("{gpu}: machine code inside")),
        (Some(code), _) => finding(
            "architecture",
            State::Good,
            format!("{gpu}: machine code of sm_{code} serves"),
        ),
        (None, Some(ptx)) if ptx <= arch => {
            let text =
                format!("{gpu}: the driver would compile the PTX of compute_{ptx} at load; rebuild with sm_{arch}");
            finding("architecture", State::Note, text)
        }
        _ if archs.is_empty() => finding(
            "architecture",
            State::Bad,
            format!("{gpu}: this build has no GPU code: rebuild with nvcc"),
        ),
        _ => finding(
            "architecture",
            State::Bad,
            format!("{gpu}: no code for it in this build: rebuild with sm_{arch}"),
        ),
    }
}

fn mixed(live: &LiveTopology) -> Option<Finding> {
    let mut names: Vec<&str> = live.gpus.iter().map(|g| g.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let text = || {
        format!(
            "mixed models ({}): peer access between generations is often refused",
            names.join(", ")
        )
    };
    (names.len() > 1).then(|| finding("gpus", State::Note, text()))
}

fn visible(live: &LiveTopology) -> Finding {
    let map: Vec<String> = live
        .gpus
        .iter()
        .map(|g| format!("{} is {} {}", g.ordinal, g.pci, g.uuid))
        .collect();
    let map = map.join(", ");
    match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(value) => finding("devices", State::Note, format!("CUDA_VISIBLE_DEVICES={value}: {map}")),
        Err(_) => finding("devices", State::Good, map),
    }
}

/// Bytes of the tmpfs at `/dev/shm`, as its mount options say.
fn shm_bytes(mounts: &str) -> Option<u64> {
    let line = mounts
        .lines()
        .rfind(|l| l.split_whitespace().nth(1) == Some("/dev/shm"))?;
    let size = line
        .split_whitespace()
        .nth(3)?
        .split(',')
        .find_map(|o| o.strip_prefix("size="))?;
    let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match size[digits.len()..].to_lowercase().as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn container(sysfs: &Sysfs, mounts: &str) -> Vec<Finding> {
    let mut out = Vec::new();
    let inside = ["/.dockerenv", "/run/.containerenv"]
        .iter()
        .any(|p| std::path::Path::new(p).exists());
    if inside {
        out.push(finding("container", State::Note, "this is a container"));
    }
    if let Some(bytes) = shm_bytes(mounts)
        && bytes < 1 << 30
    {
        let text = format!(
            "/dev/shm has {} MiB: NCCL may fail on it; start the container with --shm-size=1g or --ipc=host",
            bytes >> 20
        );
        out.push(finding("container", State::Note, text));
    }
    if !sysfs.shows_pci() {
        out.push(finding(
            "container",
            State::Note,
            "/sys shows no PCI devices: NUMA nodes and switches are not known",
        ));
    }
    out
}

/// What the kernel's command line says about the IOMMU.
fn iommu_option(cmdline: &str) -> Option<&str> {
    let about = |word: &&str| {
        ["iommu=", "intel_iommu=", "amd_iommu="]
            .iter()
            .any(|p| word.starts_with(p))
    };
    cmdline.split_whitespace().rfind(about)
}

fn isolation(sysfs: &Sysfs, gpus: &[PciAddress], cmdline: &str) -> Vec<Finding> {
    let mut out = Vec::new();
    let redirected: Vec<Option<bool>> = gpus.iter().map(|g| sysfs.redirected(*g)).collect();
    if redirected.contains(&Some(true)) {
        let text = "a bridge above a GPU redirects peer traffic to the root (ACS): peer access is slow or broken; switch ACS off in the BIOS or with setpci";
        out.push(finding("acs", State::Note, text));
    } else if !gpus.is_empty() && redirected.iter().all(Option::is_none) {
        out.push(finding(
            "acs",
            State::Note,
            "not readable without root: only the verdict on pairs counts",
        ));
    }
    let translated = gpus
        .iter()
        .filter_map(|g| sysfs.iommu_type(*g))
        .find(|t| t.starts_with("DMA"));
    let option = iommu_option(cmdline)
        .map(|o| format!(" (kernel option {o})"))
        .unwrap_or_default();
    if let Some(kind) = translated {
        let text = format!("the IOMMU translates for GPUs, mode {kind}{option}: peer writes may be lost; try iommu=pt");
        out.push(finding("iommu", State::Note, text));
    } else if !gpus.is_empty() {
        let groups = gpus.iter().any(|g| sysfs.iommu_group(*g));
        let text = if groups {
            "present, not translating for GPUs"
        } else {
            "not at work for GPUs"
        };
        out.push(finding("iommu", State::Good, format!("{text}{option}")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stub_trap_is_named() {
        let stub = "/usr/local/cuda/lib64/stubs/libcuda.so.1";
        let maps = format!("7f00-7f01 r-xp 00000000 08:01 42   {stub}\n7f02-7f03 r-xp 0 0 1 /lib/libc.so.6");
        assert_eq!(library(&maps, "libcuda.so"), Some(stub));
        assert_eq!(libcuda(Some(stub), "", true).state, State::Bad);
        assert_eq!(
            libcuda(Some("/usr/lib/libcuda.so.1"), "/x/stubs", true).state,
            State::Good
        );
        assert!(
            libcuda(None, "/a:/usr/local/cuda/lib64/stubs", false)
                .text
                .contains("stub")
        );
    }

    #[test]
    fn code_serves_its_generation_and_ptx_is_said_aloud() {
        let of = |arch, archs: &[u32], ptx| architecture(0, "g", arch, archs, ptx);
        assert_eq!(of(86, &[80, 90], None).state, State::Good);
        assert_eq!(of(80, &[86], None).state, State::Bad);
        assert!(of(120, &[80, 90], Some(90)).text.contains("compile the PTX"));
        assert_eq!(of(70, &[80, 90], Some(90)).state, State::Bad);
        assert!(of(70, &[], None).text.contains("no GPU code"));
    }

    #[test]
    fn mounts_and_kernel_options_are_read() {
        assert_eq!(
            shm_bytes("shm /dev/shm tmpfs rw,nosuid,size=65536k 0 0\n"),
            Some(64 << 20)
        );
        assert_eq!(shm_bytes("tmpfs /dev/shm tmpfs rw 0 0\n"), None);
        assert_eq!(iommu_option("ro quiet intel_iommu=on iommu=pt"), Some("iommu=pt"));
        assert_eq!(iommu_option("ro quiet"), None);
    }
}

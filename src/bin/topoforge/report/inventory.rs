//! Reports of what there is: families, devices, this build.
//!
//! Start at [`Families`], [`Devices`] and [`Version`].

use super::Report;
use super::table::{Table, count};
use serde::Serialize;
use std::fmt::Write;
use std::sync::OnceLock;
use topoforge::registry::{BuildInfo, Element, Registry};

/// `topoforge families`
#[derive(Debug, Serialize)]
pub struct Families {
    /// Sorted by name.
    pub families: Vec<FamilyLine>,
}

/// One compiled family.
#[derive(Debug, Serialize)]
pub struct FamilyLine {
    /// The descriptor's name.
    pub name: String,
    /// Its ranks.
    pub ranks: usize,
    /// Element types that it has variants for.
    pub elements: Vec<&'static str>,
    /// How many variants were compiled.
    pub variants: usize,
    /// Distinct kernels behind them.
    pub kernels: usize,
    /// Architectures with machine code; empty in a build without `nvcc`.
    pub archs: Vec<String>,
    /// Size of its images; families share kernels, so that these do not add up.
    pub fatbin_bytes: u64,
    /// Content hash over descriptor and variants.
    pub hash: String,
}

impl Report for Families {
    fn text(&self) -> String {
        let mut table = (Table::default()
            .text("family")
            .figure("ranks")
            .text("elements")
            .figure("variants")
            .figure("kernels"))
        .figure("fatbin bytes")
        .text("hash")
        .text("archs");
        for f in &self.families {
            let archs = if f.archs.is_empty() {
                "none".to_owned()
            } else {
                f.archs.join(" ")
            };
            table.row([
                f.name.clone(),
                f.ranks.to_string(),
                f.elements.join(" "),
                f.variants.to_string(),
                f.kernels.to_string(),
                count(f.fatbin_bytes),
                f.hash.chars().take(12).collect(),
                archs,
            ]);
        }
        table.render(0)
    }
}

/// `topoforge devices`
#[derive(Debug, Serialize)]
pub struct Devices {
    /// What commands take by default: `cuda` or `host`.
    pub best: &'static str,
    /// Visible GPUs.
    pub cuda: Vec<GpuLine>,
    /// Whether this build has the host executor.
    pub host: bool,
    /// Why cuda is not best.
    pub reason: Option<String>,
}

/// One visible GPU.
#[derive(Debug, Serialize)]
pub struct GpuLine {
    /// CUDA's number.
    pub ordinal: usize,
    /// E.g. `NVIDIA H200`.
    pub name: String,
    /// E.g. `sm_90`.
    pub arch: String,
}

impl Report for Devices {
    fn text(&self) -> String {
        let mut table = Table::default().text("device").text("name").text("arch");
        for gpu in &self.cuda {
            table.row([format!("cuda:{}", gpu.ordinal), gpu.name.clone(), gpu.arch.clone()]);
        }
        if self.host {
            table.row([
                "host",
                "host executor: proofs without a GPU, its times mean nothing",
                "-",
            ]);
        }
        let mut out = table.render(0);
        let _ = writeln!(out, "\nbest: {}", self.best);
        if let Some(reason) = &self.reason {
            let _ = writeln!(out, "cuda is not best: {reason}");
        }
        out
    }
}

/// Sets of families, by their features' names.
const SETS: [&str; 5] = ["nvlink", "nvswitch", "pcie", "mixed", "host-staged"];

/// `topoforge version`
#[derive(Debug, Serialize)]
pub struct Version {
    /// Of topoforge.
    pub version: &'static str,
    /// Element types whose kernels are inside.
    pub elements: Vec<&'static str>,
    /// Element types whose features are off.
    pub elements_off: Vec<&'static str>,
    /// How many families are inside.
    pub families: usize,
    /// Sets of families that are inside.
    pub sets: Vec<&'static str>,
    /// Sets whose features are off.
    pub sets_off: Vec<&'static str>,
    /// Architectures with machine code inside.
    pub archs: Vec<String>,
    /// The last resort.
    pub ptx: Option<String>,
    /// Versions of `nvcc` that took part.
    pub toolkits: Vec<&'static str>,
    /// Hash over all kernels.
    pub kernel_set: String,
    /// What could not be built.
    pub left_out: Vec<LeftOutArch>,
    /// Whether NVML is asked, where there is one.
    pub nvml: bool,
    /// Whether NCCL is compared with and fallen back on, where there is one.
    pub nccl: bool,
    /// Whether the host executor is inside.
    pub host_executor: bool,
}

/// An architecture that is not inside.
#[derive(Debug, Serialize)]
pub struct LeftOutArch {
    /// E.g. `sm_100`.
    pub arch: String,
    /// Why.
    pub reason: &'static str,
}

impl Version {
    /// Of a registry.
    pub fn of(registry: &Registry) -> Self {
        let builds: Vec<&BuildInfo> = registry.builds().collect();
        let mut archs: Vec<u32> = builds.iter().flat_map(|b| b.archs).copied().collect();
        archs.sort_unstable();
        archs.dedup();
        let has = |e: &&Element| builds.iter().any(|b| b.elements.contains(e));
        let taken = |set: &str| builds.iter().any(|b| b.sets.contains(&set));
        let mut toolkits: Vec<&'static str> = builds.iter().flat_map(|b| b.toolkits).copied().collect();
        toolkits.dedup();
        let left_out = builds.iter().flat_map(|b| b.left_out);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            elements: Element::ALL.iter().filter(has).map(|e| e.name()).collect(),
            elements_off: Element::ALL.iter().filter(|e| !has(e)).map(|e| e.name()).collect(),
            families: registry.families().len(),
            sets: SETS.into_iter().filter(|s| taken(s)).collect(),
            sets_off: SETS.into_iter().filter(|s| !taken(s)).collect(),
            archs: archs.iter().map(|a| format!("sm_{a}")).collect(),
            ptx: builds
                .iter()
                .filter_map(|b| b.ptx)
                .max()
                .map(|a| format!("compute_{a}")),
            toolkits,
            kernel_set: registry.kernel_set(),
            left_out: (left_out.map(|(arch, reason)| LeftOutArch {
                arch: format!("sm_{arch}"),
                reason,
            }))
            .collect(),
            nvml: cfg!(feature = "nvml"),
            nccl: cfg!(feature = "nccl"),
            host_executor: crate::device::HOST,
        }
    }

    fn body(&self) -> String {
        let switched = |on| if on { "yes" } else { "no, its feature is off" };
        let inside = |on: &[&str], off: &[&str]| {
            let on = if on.is_empty() { "none".to_owned() } else { on.join(" ") };
            if off.is_empty() {
                on
            } else {
                format!("{on}; features off: {}", off.join(" "))
            }
        };
        let list = |names: String| if names.is_empty() { "none".to_owned() } else { names };
        let ptx = self
            .ptx
            .as_ref()
            .map(|p| format!(" and {p} as PTX"))
            .unwrap_or_default();
        let mut out = format!(
            "elements: {}\nfamilies: {} ({})\narchitectures: {}{ptx}\ntoolkits: {}\nkernel set: {}\nNVML: {}\nNCCL: {}\nhost executor: {}\n",
            inside(&self.elements, &self.elements_off),
            self.families,
            inside(&self.sets, &self.sets_off),
            list(self.archs.join(" ")),
            list(
                self.toolkits
                    .iter()
                    .map(|t| format!("nvcc {t}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            list(self.kernel_set.clone()),
            switched(self.nvml),
            switched(self.nccl),
            switched(self.host_executor)
        );
        for left in &self.left_out {
            // The reason names the architecture again.
            let reason = left
                .reason
                .strip_prefix(&left.arch)
                .map_or(left.reason, str::trim_start);
            let _ = writeln!(out, "left out: {} {reason}", left.arch);
        }
        if self.archs.is_empty() && self.ptx.is_none() {
            let _ = writeln!(out, "{}", crate::device::NO_GPU_CODE);
        }
        out
    }
}

impl Report for Version {
    fn text(&self) -> String {
        format!("topoforge {}\n{}", self.version, self.body())
    }
}

/// What `--version` prints behind the name.
pub fn long_version() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let version = Version::of(&Registry::builtin());
        format!("{}\n{}", version.version, version.body().trim_end())
    })
}

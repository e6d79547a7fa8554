//! From `--device` and `--virtual` to an executor: what is there, what was asked for, which rank runs where.
//!
//! It opens devices and measures nothing. Start at [`resolve`], then [`Place::executors`].

use crate::failure::Failure;
use std::str::FromStr;
use std::time::Duration;
use topoforge::device::cuda::{CudaExecutor, CudaOptions};
use topoforge::device::{DeviceError, DeviceInfo, Executor};
use topoforge::driver::context::Device;
use topoforge::matching::cut_lines;
use topoforge::probe::probe;
use topoforge::registry::{BuildInfo, Family, Memory, Registry};

/// What `--device` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The host executor.
    Host,
    /// These GPUs by CUDA ordinal; none given: all visible ones.
    Cuda(Vec<usize>),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let list = match text {
            "host" => return Ok(Self::Host),
            "cuda" => return Ok(Self::Cuda(Vec::new())),
            _ => text.strip_prefix("cuda:"),
        };
        let list = list.ok_or_else(|| format!("`{text}` is no device: write host, cuda or cuda:0,1"))?;
        let mut ordinals = Vec::new();
        for part in list.split(',') {
            let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            let ordinal = part.parse().ok().filter(|_| digits);
            let ordinal =
                ordinal.ok_or_else(|| format!("`{part}` is no GPU number: write cuda:0,1, as CUDA counts"))?;
            if ordinals.contains(&ordinal) {
                return Err(format!(
                    "GPU {ordinal} is listed twice: several ranks share a GPU with --virtual"
                ));
            }
            ordinals.push(ordinal);
        }
        Ok(Self::Cuda(ordinals))
    }
}

/// What `--virtual` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Virtual {
    /// Every rank has a GPU of its own.
    No,
    /// Ranks share GPUs where there are too few.
    AsNeeded,
    /// The same, for families of so many ranks only.
    Exactly(usize),
}

/// A visible GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// CUDA's number.
    pub ordinal: usize,
    /// E.g. `NVIDIA H200`.
    pub name: String,
    /// Compute capability, e.g. 90.
    pub arch: u32,
}

/// What this machine and build have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// `cuda` or `host`.
    pub best: &'static str,
    /// In CUDA's order.
    pub cuda: Vec<Gpu>,
    /// Why `cuda` is not best.
    pub reason: Option<String>,
}

/// Whether this build has the host executor.
pub const HOST: bool = cfg!(feature = "host-executor");

/// What a build without GPU code says.
pub const NO_GPU_CODE: &str = "this build has no GPU code, since no nvcc was found when it was built, or no architecture, \
     element type or family was asked for (`topoforge version` says which): run `cargo xtask setup` or set \
     TOPOFORGE_NVCC, and build again";

/// Looks at GPUs, drivers and this build; an absent one is a reason, not an error.
pub fn survey(registry: &Registry) -> Survey {
    let (cuda, trouble) = match gpus() {
        Ok(gpus) => (gpus, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let foreign = cuda.iter().find(|gpu| !registry.builds().any(|b| covers(b, gpu.arch)));
    let reason = if !registry.has_gpu_code() {
        Some(NO_GPU_CODE.to_owned())
    } else if trouble.is_some() {
        trouble
    } else if let Some(gpu) = foreign {
        Some(format!(
            "GPU {} ({}) is sm_{}, which this build lacks",
            gpu.ordinal, gpu.name, gpu.arch
        ))
    } else if cuda.is_empty() {
        Some("no GPU is visible: check CUDA_VISIBLE_DEVICES".to_owned())
    } else if cuda.len() == 1 {
        Some("one GPU is visible and a collective needs two; `--device cuda --virtual` lets ranks share it".to_owned())
    } else {
        None
    };
    let best = if reason.is_none() { "cuda" } else { "host" };
    Survey { best, cuda, reason }
}

fn gpus() -> Result<Vec<Gpu>, DeviceError> {
    let gpu = |ordinal| {
        let device = Device::new(ordinal)?;
        Ok(Gpu {
            ordinal,
            name: device.name()?,
            arch: device.arch()?,
        })
    };
    (0..Device::count()?).map(gpu).collect()
}

/// Whether a build has code that a GPU of `arch` runs.
fn covers(build: &BuildInfo, arch: u32) -> bool {
    let same_major = |a: &&u32| **a / 10 == arch / 10 && **a <= arch;
    build.archs.iter().any(|a| same_major(&a)) || build.ptx.is_some_and(|ptx| ptx <= arch)
}

/// A device that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The host executor.
    Host,
    /// Visible GPUs.
    Cuda {
        /// CUDA ordinals, at least one.
        ordinals: Vec<usize>,
        /// Whether the caller listed them.
        listed: bool,
    },
}

/// The device that was asked for, or the best one with a note why.
pub fn resolve(choice: Option<&Choice>, registry: &Registry, mut note: impl FnMut(&str)) -> Result<Place, Failure> {
    let choice = match choice {
        Some(choice) => choice.clone(),
        None => {
            let survey = survey(registry);
            if let Some(reason) = &survey.reason {
                note(&format!("using the host executor: {reason}"));
            }
            if survey.best == "cuda" {
                Choice::Cuda(Vec::new())
            } else {
                Choice::Host
            }
        }
    };
    let listed = match choice {
        Choice::Host if HOST => return Ok(Place::Host),
        Choice::Host => return Err(Failure::work(host::missing())),
        Choice::Cuda(_) if !registry.has_gpu_code() => return Err(Failure::work(NO_GPU_CODE)),
        Choice::Cuda(listed) => listed,
    };
    let count = Device::count().map_err(Failure::work)?;
    if let Some(ordinal) = listed.iter().find(|o| **o >= count) {
        return Err(Failure::work(format!(
            "there is no GPU {ordinal}: {count} are visible, counted from 0"
        )));
    }
    if count == 0 {
        return Err(Failure::work("no GPU is visible: check CUDA_VISIBLE_DEVICES"));
    }
    Ok(if listed.is_empty() {
        let ordinals = (0..count).collect();
        Place::Cuda {
            ordinals,
            listed: false,
        }
    } else {
        Place::Cuda {
            ordinals: listed,
            listed: true,
        }
    })
}

impl Place {
    /// As `--device` spells it.
    pub fn name(&self) -> String {
        match self {
            Self::Host => "host".to_owned(),
            Self::Cuda { ordinals, .. } => cuda_name(ordinals),
        }
    }

    /// The GPUs for so many ranks: the first ones, or all of them shared. On the host, none.
    ///
    /// # Errors
    /// Too few GPUs, in words.
    pub fn devices(&self, ranks: usize, sharing: Virtual) -> Result<Vec<usize>, String> {
        match (self, sharing) {
            (_, Virtual::Exactly(n)) if n != ranks => Err(format!("it has {ranks} ranks, --virtual asks for {n}")),
            (Self::Host, _) => Ok(Vec::new()),
            (Self::Cuda { ordinals, .. }, _) if ordinals.len() >= ranks => Ok(ordinals[..ranks].to_vec()),
            (Self::Cuda { ordinals, .. }, Virtual::No) => Err(format!(
                "it needs {ranks} GPUs and there are {}: `--virtual` lets ranks share GPUs",
                ordinals.len()
            )),
            (Self::Cuda { ordinals, .. }, _) => Ok(ordinals.clone()),
        }
    }

    /// Executors for a family, over `devices` that [`Place::devices`] gave: one, or on the host all orders of delivery.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub fn executors(
        &self,
        devices: &[usize],
        family: &Family,
        seed: u32,
        thorough: bool,
    ) -> Result<Vec<Box<dyn Executor>>, DeviceError> {
        let ranks = family.variants.first().map_or(0, |v| v.ranks.len());
        match self {
            Self::Host if thorough => host::every_delivery(ranks, seed),
            Self::Host => Ok(vec![host::executor(ranks, seed)?]),
            Self::Cuda { .. } => {
                let options = CudaOptions {
                    // Such a family must not profit from peer access that its machines lack.
                    staged: family.variants.iter().all(|v| v.memory == Memory::Host),
                    // Proofs make ranks late by milliseconds; planted faults run into the deadline, each once.
                    deadline: Duration::from_secs(2),
                    ..CudaOptions::default()
                };
                let mut executor = CudaExecutor::new(devices, ranks, options)?;
                if let Ok(live) = probe() {
                    let on: Vec<usize> = (0..ranks).map(|r| devices[r * devices.len() / ranks]).collect();
                    executor.avoid_lines(cut_lines(&live.topology, &on));
                }
                Ok(vec![Box::new(executor)])
            }
        }
    }
}

/// Host executors, or why there are none.
pub mod host {
    use topoforge::device::{DeviceError, Executor};

    /// One that delivers at random.
    ///
    /// # Errors
    /// This build has none.
    pub fn executor(ranks: usize, seed: u32) -> Result<Box<dyn Executor>, DeviceError> {
        made(ranks, seed, false).and_then(|all| all.into_iter().next().ok_or_else(missing))
    }

    /// One for each order of delivery.
    ///
    /// # Errors
    /// This build has none.
    pub fn every_delivery(ranks: usize, seed: u32) -> Result<Vec<Box<dyn Executor>>, DeviceError> {
        made(ranks, seed, true)
    }

    /// What a build without them says.
    pub fn missing() -> DeviceError {
        let reason = "this build has no host executor: build with feature `host-executor`".to_owned();
        DeviceError::Unavailable { reason }
    }

    #[cfg(feature = "host-executor")]
    fn made(ranks: usize, seed: u32, every: bool) -> Result<Vec<Box<dyn Executor>>, DeviceError> {
        use topoforge::device::host::{Delivery, HostExecutor, HostOptions};
        let deliveries = if every {
            Delivery::ALL.to_vec()
        } else {
            vec![Delivery::Random]
        };
        let one = |delivery| -> Box<dyn Executor> {
            let options = HostOptions {
                seed: u64::from(seed),
                delivery,
                ..HostOptions::default()
            };
            Box::new(HostExecutor::new(ranks, options))
        };
        Ok(deliveries.into_iter().map(one).collect())
    }

    #[cfg(not(feature = "host-executor"))]
    fn made(_ranks: usize, _seed: u32, _every: bool) -> Result<Vec<Box<dyn Executor>>, DeviceError> {
        Err(missing())
    }
}

/// What an executor runs on, as `--device` spells it: `host` or `cuda:0,1`.
pub fn spelled(info: &DeviceInfo) -> String {
    let mut ordinals = info.ordinals.clone();
    ordinals.dedup();
    if info.kind == "cuda" {
        cuda_name(&ordinals)
    } else {
        info.kind.to_owned()
    }
}

fn cuda_name(ordinals: &[usize]) -> String {
    let list: Vec<String> = ordinals.iter().map(ToString::to_string).collect();
    format!("cuda:{}", list.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_and_slips_are_explained() {
        let read = |text: &str| text.parse::<Choice>();
        assert_eq!(read("host"), Ok(Choice::Host));
        assert_eq!(read("cuda"), Ok(Choice::Cuda(vec![])));
        assert_eq!(read("cuda:1,0"), Ok(Choice::Cuda(vec![1, 0])));
        for (text, said) in [
            ("gpu", "host, cuda or cuda:0,1"),
            ("", "host, cuda or cuda:0,1"),
            ("cuda0", "host, cuda or cuda:0,1"),
            ("cuda:", "GPU number"),
            ("cuda:0,", "GPU number"),
            ("cuda:+1", "GPU number"),
            ("cuda:99999999999999999999999", "GPU number"),
            ("cuda:0,0", "listed twice"),
        ] {
            assert!(read(text).expect_err(text).contains(said), "{text}");
        }
    }

    #[test]
    fn ranks_take_the_first_gpus_and_share_only_when_told() {
        let place = Place::Cuda {
            ordinals: vec![3, 1],
            listed: true,
        };
        assert_eq!(place.devices(2, Virtual::No), Ok(vec![3, 1]));
        assert!(place.devices(4, Virtual::No).is_err_and(|e| e.contains("--virtual")));
        assert_eq!(place.devices(4, Virtual::AsNeeded), Ok(vec![3, 1]));
        assert!(place.devices(4, Virtual::Exactly(8)).is_err());
        assert_eq!(Place::Host.devices(8, Virtual::No), Ok(vec![]));
        assert_eq!(place.name(), "cuda:3,1");
    }

    #[test]
    fn code_for_an_architecture_serves_later_ones_of_its_major_and_ptx_serves_all_later_ones() {
        let build = |ptx| BuildInfo {
            elements: &[],
            sets: &[],
            version: "",
            archs: &[70, 80],
            ptx,
            left_out: &[],
            toolkits: &[],
            kernel_set: "",
        };
        let covered = |ptx| [60, 70, 72, 80, 86, 90].map(|arch| covers(&build(ptx), arch));
        assert_eq!(covered(None), [false, true, true, true, true, false]);
        assert_eq!(covered(Some(80)), [false, true, true, true, true, true]);
    }
}

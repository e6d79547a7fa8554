//! A family placed on GPUs, of this process or of a process a rank: what tuning and serving both start from.
//!
//! Probes, matches and opens the executor; proves and times nothing. Start at [`Site::open`].

use super::{CommError, tables};
use crate::device::cuda::{CudaExecutor, CudaOptions};
use crate::device::{DeviceError, Executor};
use crate::driver::nccl::Nccl;
use crate::matching::{cut_lines, match_families};
use crate::planner::matching::{Devices, Kind, Options};
use crate::planner::topology::{Link, Topology};
use crate::probe::{LiveTopology, probe};
use crate::process::JoinError;
use crate::process::wire::hash;
use crate::registry::{Element, Family, Memory, Partials, Registry};
use crate::routes::{Identity, NcclIdentity, Routes};

/// A family on GPUs.
pub struct Site {
    /// What fits, or what the caller named.
    pub family: &'static Family,
    /// `placement[family rank]` is a position in the list of devices.
    pub placement: Vec<usize>,
    /// Its rank `r` is the family's rank `r`.
    pub executor: CudaExecutor,
    /// How well it fits, in words.
    pub fit: String,
    /// Whether this process writes route tables: the only one, or rank 0.
    pub(super) writes: bool,
    pub(super) facts: Facts,
    pub(super) nccl: Option<NcclIdentity>,
    pub(super) kernel_set: String,
}

/// What a table's identity takes from the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub driver: String,
    pub layout: u64,
    /// Pairs of positions in the list of devices whose link may cut 128-byte lines.
    pub cut: Vec<(usize, usize)>,
}

impl Facts {
    /// Of the GPUs that take part; the others change nothing.
    pub fn of(live: &LiveTopology, devices: &[usize]) -> Self {
        let driver = live.driver.clone();
        Self {
            cut: cut_lines(&live.topology, devices),
            driver: driver.unwrap_or_else(|| format!("CUDA {}", live.cuda_version)),
            layout: part(&live.topology, devices).layout_fingerprint(),
        }
    }
}

impl Facts {
    /// Pairs of the family's ranks whose link may cut 128-byte lines.
    pub fn cut_ranks(&self, placement: &[usize]) -> Vec<(usize, usize)> {
        let ranks = || placement.iter().enumerate();
        let pairs = ranks().flat_map(|a| ranks().map(move |b| (a, b)));
        let cut = pairs.filter(|((_, a), (_, b))| self.cut.contains(&(**a, **b)));
        cut.map(|((a, _), (b, _))| (a, b)).collect()
    }
}

/// The machine with these ranks only, in this order.
fn part(live: &Topology, devices: &[usize]) -> Topology {
    let mut topology = Topology::new("part", devices.len());
    for (from, a) in devices.iter().enumerate() {
        for (to, b) in devices.iter().enumerate() {
            if let Some(link) = live.link(*a, *b).filter(|_| from != to) {
                topology = topology.with_link(Link { from, to, ..*link });
            }
        }
    }
    let numa: Option<Vec<_>> = devices.iter().map(|d| live.numa.get(*d).copied()).collect();
    topology.numa = numa.unwrap_or_default();
    topology
}

impl Site {
    /// Places a family on `devices` (CUDA ordinals): the nearest one, or the one that is named, rank by rank. A named
    /// family may have more ranks than devices: several ranks then share a GPU, which proves but does not time.
    ///
    /// # Errors
    /// No GPU, no family that fits, or the driver refuses.
    pub fn open(
        registry: &Registry,
        devices: &[usize],
        named: Option<&str>,
        options: CudaOptions,
    ) -> Result<Self, CommError> {
        let live = probe()?;
        let (family, placement, fit) = match named {
            Some(name) => by_name(registry, name, devices.len())?,
            None => nearest(registry, &live, devices)?,
        };
        let ordinals: Vec<usize> = placement.iter().map(|p| devices[*p]).collect();
        let staged = family.variants.iter().all(|v| v.memory == Memory::Host);
        let options = CudaOptions {
            staged: staged || options.staged,
            ..options
        };
        let facts = Facts::of(&live, devices);
        let mut executor = CudaExecutor::new(&ordinals, ordinals.len(), options)?;
        executor.avoid_lines(facts.cut_ranks(&placement));
        Ok(Self {
            executor,
            family,
            facts,
            placement,
            fit,
            writes: true,
            nccl: nccl_here(),
            kernel_set: registry.kernel_set(),
        })
    }

    /// What a route table for f16 measured here depends on.
    pub fn identity(&self, partials: Partials) -> Identity {
        self.identity_of(Element::F16, partials)
    }

    /// What a route table for an element type measured here depends on.
    pub fn identity_of(&self, element: Element, partials: Partials) -> Identity {
        Identity {
            kernel_set: self.kernel_set.clone(),
            driver: self.facts.driver.clone(),
            nccl: self.nccl.clone(),
            gpus: self.executor.device().names.clone(),
            layout: self.facts.layout,
            element,
            partials,
            family: self.family.name.into(),
            placement: self.placement.clone(),
        }
    }

    /// Makes sure that all ranks serve by the same tables.
    ///
    /// # Errors
    /// They do not: both hashes are named.
    pub(super) fn agree_on(&self, tables: &[Routes]) -> Result<(), CommError> {
        let own = hash(tables::text(tables).as_bytes());
        let all = self
            .executor
            .agree("the table of routes", Ok(own.to_le_bytes().to_vec()))?;
        let number = |bytes: &Vec<u8>| bytes.as_slice().try_into().map_or(0, u64::from_le_bytes);
        match all.iter().position(|bytes| number(bytes) != number(&all[0])) {
            None => Ok(()),
            Some(rank) => Err(CommError::Join(JoinError::Refused {
                reason: format!(
                    "rank {} made the table of routes {:016x}, rank {} {:016x}: ranks differ in what they measured",
                    self.placement[0],
                    number(&all[0]),
                    self.placement.get(rank).copied().unwrap_or(rank),
                    number(&all[rank])
                ),
            })),
        }
    }

    /// Where the family's slots lie.
    pub fn memory(&self) -> Memory {
        let staged = self.family.variants.iter().all(|v| v.memory == Memory::Host);
        if staged { Memory::Host } else { Memory::Peer }
    }
}

/// The NCCL that a comparison would use, if there is one.
pub(super) fn nccl_here() -> Option<NcclIdentity> {
    let version = Nccl::open().ok()?.version().ok()?;
    let (major, minor, patch) = (version / 10_000, version / 100 % 100, version % 100);
    let named = std::env::var("TOPOFORGE_NCCL").ok().filter(|p| !p.is_empty());
    Some(NcclIdentity {
        version: format!("{major}.{minor}.{patch}"),
        path: named.unwrap_or_else(|| "libnccl.so.2".into()),
    })
}

pub(super) type Placed = (&'static Family, Vec<usize>, String);

pub(super) fn by_name(registry: &Registry, name: &str, devices: usize) -> Result<Placed, CommError> {
    let family = registry.family(name).ok_or_else(|| CommError::NoFamily {
        reasons: vec![format!("{name}: not in this build, `topoforge families` lists what is")],
    })?;
    let ranks = family.variants.first().map_or(0, |v| v.ranks.len());
    if ranks == 0 || devices == 0 {
        return Err(CommError::Device(DeviceError::Misuse {
            reason: format!("{name} has {ranks} ranks and {devices} devices were given: both must be positive"),
        }));
    }
    let placement = (0..ranks).map(|r| r * devices.min(ranks) / ranks).collect();
    Ok((family, placement, "named by the caller".into()))
}

/// Descriptors tell of GPUs with a rank each, so nothing can match ranks that share one.
fn each_once(devices: &[usize]) -> Result<(), CommError> {
    match devices.iter().enumerate().find(|(i, d)| devices[..*i].contains(d)) {
        None => Ok(()),
        Some((_, gpu)) => Err(CommError::Misuse {
            reason: format!("GPU {gpu} has several ranks: no family is chosen for that, name one (Options::family)"),
        }),
    }
}

pub(super) fn nearest(registry: &Registry, live: &LiveTopology, devices: &[usize]) -> Result<Placed, CommError> {
    each_once(devices)?;
    let options = Options {
        devices: Devices::These(devices.to_vec()),
        ..Options::default()
    };
    let all = match_families(registry, &live.topology, &options);
    let reasons = || all.iter().map(|m| m.found.to_string()).collect();
    let best = all
        .first()
        .filter(|m| m.is_feasible())
        .ok_or_else(|| CommError::NoFamily { reasons: reasons() })?;
    let position = |live: &usize| devices.iter().position(|d| d == live).unwrap_or(0);
    let placement = best.found.placement.iter().map(position).collect();
    let how = match best.found.kind {
        Kind::Exact => "an exact match",
        Kind::Compatible => "compatible",
        _ => "the nearest there is",
    };
    let fit = format!("{how}, distance {}", best.found.distance.unwrap_or(0));
    Ok((best.family, placement, fit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_with_several_ranks_is_refused_by_its_number() {
        assert!(each_once(&[3, 0, 1]).is_ok());
        let refused = each_once(&[3, 1, 3]).unwrap_err().to_string();
        assert!(refused.contains("GPU 3 has several ranks"), "{refused}");
    }
}

//! What a measurement runs on: a family, placed on GPUs or on the host executor.
//!
//! The same for `tune` and `bench`. It measures nothing. Start at [`Setting::open`].

use crate::args::{CompareArg, LaunchArg, Where};
use crate::device::{Place, Virtual, host, resolve};
use crate::failure::Failure;
use crate::names;
use crate::report::Output;
use std::collections::BTreeMap;
use topoforge::comm::{CommError, Site};
use topoforge::device::cuda::CudaOptions;
use topoforge::device::{DeviceInfo, Executor, Launch};
use topoforge::matching::match_families;
use topoforge::planner::matching::{Devices, Options};
use topoforge::probe::probe;
use topoforge::qualify::QualifyPlan;
use topoforge::registry::{Element, Family, Memory, Partials, Registry};
use topoforge::routes::Identity;
use topoforge::tune::{Compare, Progress, TuneOptions};

/// What stands in for a match where there is no machine to match.
const HOST_FAMILY: &str = "nvlink-pair";

/// A family and the executor for it.
pub struct Setting {
    /// What is measured.
    pub family: &'static Family,
    ranks: Ranks,
}

enum Ranks {
    Host(Box<dyn Executor>),
    Cuda(Box<Site>),
}

impl Setting {
    /// Resolves device, family and placement and opens the executor.
    pub fn open(place: &Where, family: Option<&str>, output: &mut Output) -> Result<Self, Failure> {
        let registry = Registry::builtin();
        let named = family.map(|name| names::family(&registry, name)).transpose()?;
        let device = resolve(place.device.as_ref(), &registry, |text| output.note(text))?;
        match &device {
            Place::Host => {
                let family = named.map_or_else(|| names::family(&registry, HOST_FAMILY), Ok)?;
                admit(&device, family, place.sharing())?;
                let executor = host::executor(names::ranks(family)?, place.seed).map_err(Failure::work)?;
                Ok(Self {
                    family,
                    ranks: Ranks::Host(executor),
                })
            }
            Place::Cuda { ordinals, listed } => {
                if let Some(family) = named {
                    admit(&device, family, place.sharing())?;
                }
                let options = CudaOptions::default();
                let site = site(&registry, (ordinals, *listed), named, options, output)?;
                admit(&device, site.family, place.sharing())?;
                output.note(&format!(
                    "{}: {}, placement {:?}",
                    site.family.name, site.fit, site.placement
                ));
                Ok(Self {
                    family: site.family,
                    ranks: Ranks::Cuda(Box::new(site)),
                })
            }
        }
    }

    /// What runs it.
    pub fn executor(&mut self) -> &mut dyn Executor {
        match &mut self.ranks {
            Ranks::Host(executor) => executor.as_mut(),
            Ranks::Cuda(site) => &mut site.executor,
        }
    }

    /// What it runs on.
    pub fn device(&self) -> &DeviceInfo {
        match &self.ranks {
            Ranks::Host(executor) => executor.device(),
            Ranks::Cuda(site) => site.executor.device(),
        }
    }

    /// How its kernels may be launched.
    ///
    /// # Errors
    /// Only programmatic launches were asked for, and the host has none.
    pub fn launches(&self, asked: LaunchArg) -> Result<Vec<Launch>, Failure> {
        match (&self.ranks, asked) {
            (Ranks::Host(_), LaunchArg::Programmatic) => Err(Failure::usage(
                "--launch programmatic: programmatic launches need a GPU of compute capability 9.0, not the host",
            )),
            _ => Ok(asked.list()),
        }
    }

    /// Names of all ordered pairs of ranks' links, where they are known.
    pub fn edge_classes(&self) -> BTreeMap<(usize, usize), String> {
        let Ranks::Cuda(site) = &self.ranks else {
            return BTreeMap::new();
        };
        let Ok(live) = probe() else {
            return BTreeMap::new();
        };
        let ordinals = &site.executor.device().ordinals;
        let mut classes = BTreeMap::new();
        for (from, a) in ordinals.iter().enumerate() {
            for (to, b) in ordinals.iter().enumerate() {
                if let Some(link) = live.topology.link(*a, *b) {
                    classes.insert((from, to), link.class.to_string());
                }
            }
        }
        classes
    }

    /// What routes measured here depend on; none on the host.
    pub fn identity(&self, element: Element, partials: Partials) -> Option<Identity> {
        match &self.ranks {
            Ranks::Host(_) => None,
            Ranks::Cuda(site) => Some(site.identity_of(element, partials)),
        }
    }

    /// Options for this setting. The host takes the fewest samples, since its times mean nothing.
    pub fn options(&self, seed: u32) -> TuneOptions {
        let staged = self.family.variants.iter().all(|v| v.memory == Memory::Host);
        let mut options = TuneOptions {
            memory: if staged { Memory::Host } else { Memory::Peer },
            qualify: QualifyPlan {
                seeds: vec![seed],
                ..QualifyPlan::quick()
            },
            ..TuneOptions::default()
        };
        if let Ranks::Host(_) = self.ranks {
            (
                options.sampling.calls,
                options.sampling.warmups,
                options.sampling.samples,
            ) = (1, 0, 1);
            options.coarse = options.sampling;
            (options.max_candidates, options.refined, options.finalists) = (4, 0, 1);
        }
        options
    }
}

/// What must be beaten.
///
/// # Errors
/// `none` beside others.
pub fn comparators(asked: &[CompareArg]) -> Result<Vec<Compare>, Failure> {
    if asked.contains(&CompareArg::None) && asked.iter().any(|c| *c != CompareArg::None) {
        return Err(Failure::usage(
            "--comparator none stands alone: leave out the others or leave out none",
        ));
    }
    Ok(if asked.is_empty() {
        vec![Compare::Nccl, Compare::Pull]
    } else {
        asked.iter().map(|c| (*c).into()).collect()
    })
}

/// Whether the device has enough GPUs, or may share them.
fn admit(device: &Place, family: &Family, sharing: Virtual) -> Result<(), Failure> {
    device
        .devices(names::ranks(family)?, sharing)
        .map(drop)
        .map_err(|reason| {
            let text = format!("cannot measure {}: {reason}", family.name);
            if let Virtual::Exactly(_) = sharing {
                Failure::usage(text)
            } else {
                Failure::work(text)
            }
        })
}

/// The named family or the nearest one. Where none has as many ranks as there are GPUs and the caller listed none, the
/// best GPUs for a smaller one.
fn site(
    registry: &Registry,
    (ordinals, listed): (&[usize], bool),
    named: Option<&'static Family>,
    options: CudaOptions,
    output: &mut Output,
) -> Result<Site, Failure> {
    let open = |devices: &[usize]| Site::open(registry, devices, named.map(|f| f.name), options);
    match open(ordinals) {
        Ok(site) => Ok(site),
        Err(CommError::NoFamily { .. }) if !listed && named.is_none() => {
            let live = probe().map_err(Failure::work)?;
            let options = Options {
                devices: Devices::AnyOf(ordinals.to_vec()),
                ..Options::default()
            };
            let found = match_families(registry, &live.topology, &options);
            let Some(best) = found.first().filter(|m| m.is_feasible()) else {
                let mut lines = vec!["no compiled family fits these GPUs: name one with --family".to_owned()];
                lines.extend(found.iter().map(|m| m.found.to_string()));
                return Err(Failure::Work(lines));
            };
            let mut devices = best.found.placement.clone();
            devices.sort_unstable();
            output.note(&format!(
                "no family is for all {} GPUs: taking GPUs {devices:?}",
                ordinals.len()
            ));
            open(&devices).map_err(Failure::work)
        }
        Err(error) => Err(Failure::work(error)),
    }
}

/// Tells what a measurement is at.
pub fn tell(output: &mut Output, progress: Progress) {
    match progress {
        Progress::Qualifying { variant, done, of } => output.show(&format!("proving {}/{of}: {variant}", done + 1)),
        Progress::Timing {
            bytes,
            candidates,
            done,
            of,
        } => output.show(&format!(
            "timing {}/{of}: {bytes} bytes, {candidates} candidates",
            done + 1
        )),
        Progress::LeftOut(left_out) => output.note(&left_out.to_string()),
        _ => {}
    }
}

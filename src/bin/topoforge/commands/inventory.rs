//! `families`, `devices` and `version`: what there is. They open no device and run nothing.

use crate::device::{HOST, NO_GPU_CODE, survey};
use crate::failure::{Failure, Outcome};
use crate::names;
use crate::report::Output;
use crate::report::inventory::{Devices, Families, FamilyLine, GpuLine, Version};
use std::collections::BTreeMap;
use topoforge::registry::{Element, Family, Registry};

/// `topoforge families`
pub fn families(output: &mut Output) -> Result<Outcome, Failure> {
    let registry = Registry::builtin();
    let mut archs: Vec<u32> = registry.builds().flat_map(|b| b.archs).copied().collect();
    archs.sort_unstable();
    archs.dedup();
    let lines: Result<Vec<FamilyLine>, Failure> = registry.families().into_iter().map(|f| line(f, &archs)).collect();
    if !registry.has_gpu_code() {
        output.warn(NO_GPU_CODE);
    }
    output.emit(&Families { families: lines? })?;
    Ok(Outcome::Done)
}

fn line(family: &'static Family, archs: &[u32]) -> Result<FamilyLine, Failure> {
    let kernels: BTreeMap<&str, u64> = (family.variants.iter())
        .map(|v| (v.kernel.hash, v.kernel.images.iter().map(|i| i.len() as u64).sum()))
        .collect();
    let fatbin_bytes = kernels.values().sum();
    let archs = if fatbin_bytes == 0 { &[] } else { archs };
    Ok(FamilyLine {
        name: family.name.to_owned(),
        ranks: names::ranks(family)?,
        elements: (Element::ALL.iter())
            .filter(|e| family.variants.iter().any(|v| v.element == **e))
            .map(|e| e.name())
            .collect(),
        variants: family.variants.len(),
        kernels: kernels.len(),
        archs: archs.iter().map(|a| format!("sm_{a}")).collect(),
        fatbin_bytes,
        hash: family.hash.to_owned(),
    })
}

/// `topoforge devices`
pub fn devices(output: &mut Output) -> Result<Outcome, Failure> {
    let found = survey(&Registry::builtin());
    let gpu = |gpu: crate::device::Gpu| GpuLine {
        ordinal: gpu.ordinal,
        name: gpu.name,
        arch: format!("sm_{}", gpu.arch),
    };
    output.emit(&Devices {
        best: found.best,
        cuda: found.cuda.into_iter().map(gpu).collect(),
        host: HOST,
        reason: found.reason,
    })?;
    Ok(Outcome::Done)
}

/// `topoforge version`
pub fn version(output: &mut Output) -> Result<Outcome, Failure> {
    output.emit(&Version::of(&Registry::builtin()))?;
    Ok(Outcome::Done)
}

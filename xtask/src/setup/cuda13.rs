//! CUDA 13 from the Python index: complete, on any distribution, but without sm_70.

use std::fs;
use std::path::Path;

use super::wheels::Pip;
use super::{Fetched, layout};
use crate::failure::{Done, Failure};

const PACKAGES: &[&str] = &[
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
];

/// Fetches and lays out; the packages already have the layout of a toolkit.
pub(super) fn fetch(temporary: &Path) -> Done<Fetched> {
    eprintln!("    fetching CUDA 13.0 from the Python index (105 MB; NVIDIA's licence applies)");
    let pip = Pip::find(None)?;
    let root = temporary.join("wheels13");
    let requirements: Vec<String> = PACKAGES.iter().map(|package| (*package).to_owned()).collect();
    let fetched = pip.fetch(&requirements, &temporary.join("download13"), &root)?;
    let tree = temporary.join("tree13");
    fs::rename(root.join("nvidia/cu13"), &tree)
        .map_err(|error| Failure::new(format!("the packages have another layout than expected: {error}")))?;
    layout::programs_run(&tree)?;
    layout::licences(&root, &tree)?;
    layout::note(&tree, &fetched)?;
    Ok(Fetched {
        tree,
        name: "cuda-13.0".to_owned(),
    })
}

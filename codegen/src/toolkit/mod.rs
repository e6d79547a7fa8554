//! The CUDA compiler: which toolkits there are, what they can build, and the fatbins they make.
//!
//! A build takes one or several toolkits ([`Discover`]), shares the wanted architectures out among them
//! ([`plan_archs`]), and turns kernel text into fatbins through a cache keyed by content ([`Compiler`]). This module
//! never looks at the machine's GPUs, never touches the network (`cargo xtask setup` does that) and never links CUDA.
//! It needs no toolkit to be compiled or tested. Start at [`Toolkit`].

mod archs;
mod compile;
mod discover;
mod error;
mod files;
mod host;
mod pool;
mod process;
pub mod sha256;
mod version;

use std::path::{Path, PathBuf};

pub use archs::{ArchPlan, LeftOut, STANDARD_ARCHS, ToolkitBuild, Wanted, plan_archs};
pub use compile::{Compiler, Fatbin, Job};
pub use discover::{Candidate, Discover};
pub use error::{CompileError, ToolkitError};
pub(crate) use files::unique;
pub use files::{digest_folders, write_if_changed};
pub use version::{parse_gpu_codes, parse_version};

/// One nvcc that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolkit {
    /// The compiler driver.
    pub nvcc: PathBuf,
    /// The release, as (11, 8).
    pub version: (u32, u32),
    /// The release to the last digit, as `11.8.89`.
    pub full_version: String,
    /// The architectures it makes machine code for, ascending, as 70 for `sm_70`; plain ones only.
    pub archs: Vec<u32>,
    /// What the compiler is, for cache keys: equal for two copies of one toolkit in different folders.
    pub id: String,
}

impl Toolkit {
    /// Asks one nvcc what it is. `named_by` says in errors where the path came from.
    pub fn probe(nvcc: &Path, named_by: &str) -> Result<Toolkit, ToolkitError> {
        let broken = |why: String| ToolkitError::Broken {
            named_by: named_by.to_owned(),
            path: nvcc.to_owned(),
            why,
        };
        let version_text = process::answer(nvcc, &["--version"]).map_err(broken)?;
        let (version, full_version) =
            parse_version(&version_text).ok_or_else(|| broken("`nvcc --version` names no release".to_owned()))?;
        let codes = process::answer(nvcc, &["--list-gpu-code"]).map_err(broken)?;
        let archs = parse_gpu_codes(&codes);
        if archs.is_empty() {
            return Err(broken("`nvcc --list-gpu-code` lists no architecture".to_owned()));
        }
        // The version text carries NVIDIA's build number, which tells any two compilers apart; hashing the 100 MB of
        // binaries as well would cost more than a kernel does.
        let mut hash = sha256::Sha256::new();
        hash.field(version_text.trim());
        hash.field(codes.trim());
        Ok(Toolkit {
            nvcc: nvcc.to_owned(),
            version,
            full_version,
            archs,
            id: hash.finish(),
        })
    }

    /// The release as text, as `11.8`.
    pub fn release(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }
}

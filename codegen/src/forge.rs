//! What a `build.rs` calls: descriptors in, fatbins, host objects and a manifest out.
//!
//! A faulty descriptor does not fail the build script; it is recorded, and `families!` turns it into a compile error at
//! its place. Nothing is downloaded and no GPU is asked. Start at [`Forge`].

use crate::alltoallv::CatalogueError;
use crate::descriptors::{Descriptor, FolderError};
use crate::env::{self, Env};
use crate::jobs::Jobs;
use crate::lower::Element;
use crate::manifest::{self, CatalogueEntry, FamilyEntry, KernelEntry, Manifest};
use crate::select::{self, Selection};
use crate::sets::Set;
use crate::toolkit::{
    ArchPlan, CompileError, Compiler, Discover, Job, STANDARD_ARCHS, Toolkit, ToolkitError, Wanted, plan_archs, sha256,
    write_if_changed,
};
use crate::{alltoallv, descriptors, headers, host};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// A build of descriptors, configured and then run once.
///
/// ```no_run
/// // build.rs
/// fn main() -> Result<(), topoforge_codegen::ForgeError> {
///     topoforge_codegen::Forge::new().topologies("topologies").compile()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Forge {
    topologies: String,
    elements: Vec<Element>,
    sets: Vec<Set>,
    archs: Vec<u32>,
    host: bool,
    require_cuda: bool,
    tools: bool,
    fallback: Option<PathBuf>,
    env: Env,
}

impl Default for Forge {
    fn default() -> Self {
        Self::new()
    }
}

impl Forge {
    /// Descriptors from `topologies/`, kernels for f16, for the host executor too, `nvcc` wanted but not required.
    pub fn new() -> Self {
        Self {
            topologies: "topologies".into(),
            elements: vec![Element::F16],
            sets: Set::ALL.to_vec(),
            archs: STANDARD_ARCHS.to_vec(),
            host: true,
            require_cuda: false,
            tools: false,
            fallback: None,
            env: Env::from_process(),
        }
    }

    /// The folder of `*.ron` descriptors, relative to the crate.
    #[must_use]
    pub fn topologies(mut self, folder: impl Into<String>) -> Self {
        self.topologies = folder.into();
        self
    }

    /// The element types that kernels are compiled for, each on its own: with two, about twice as many kernels.
    #[must_use]
    pub fn elements(mut self, elements: &[Element]) -> Self {
        self.elements = elements.to_vec();
        self.elements.sort_unstable();
        self.elements.dedup();
        self
    }

    /// Which of the crate's descriptors are taken, by how their GPUs are joined; without this, all of them.
    #[must_use]
    pub fn sets(mut self, sets: &[Set]) -> Self {
        self.sets = sets.to_vec();
        self
    }

    /// The compute capabilities to make machine code for, as 90 for sm_90, and PTX of the newest; without this, all that
    /// the toolkits have. `TOPOFORGE_ARCHS` overrides it.
    #[must_use]
    pub fn archs(mut self, archs: &[u32]) -> Self {
        self.archs = archs.to_vec();
        self
    }

    /// Whether kernels are compiled for the host executor as well. Follow topoforge's feature of that name.
    #[must_use]
    pub fn host_executor(mut self, on: bool) -> Self {
        self.host = on;
        self
    }

    /// Whether a build without `nvcc` is an error.
    #[must_use]
    pub fn require_cuda(mut self, on: bool) -> Self {
        self.require_cuda = on;
        self
    }

    /// Also builds the measuring and checking kernels into `OUT_DIR/tools.rs`; topoforge's own build script only.
    #[must_use]
    pub fn tools(mut self) -> Self {
        self.tools = true;
        self
    }

    /// A folder to look for a toolkit in when the environment names none.
    #[must_use]
    pub fn toolkit_fallback(mut self, folder: impl Into<PathBuf>) -> Self {
        self.fallback = Some(folder.into());
        self
    }

    /// Runs the build and prints cargo's directives.
    ///
    /// # Errors
    /// Environment and toolkit errors; never a faulty descriptor.
    pub fn compile(self) -> Result<(), ForgeError> {
        let variable = |name: &'static str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .ok_or(ForgeError::NotABuildScript(name))
        };
        let (out, crate_dir) = (variable("OUT_DIR")?, variable("CARGO_MANIFEST_DIR")?);
        env::print_rerun();
        let read =
            descriptors::read(&crate_dir, &self.topologies, self.tools, &self.env).map_err(ForgeError::Topologies)?;
        let (mut families, mut faults) = (Vec::new(), read.faults);
        let mut kernels: BTreeMap<String, KernelEntry> = BTreeMap::new();
        // Folders from outside are taken whole: somebody asked for each of them.
        let outside = |d: &&Descriptor| !Path::new(&d.path).starts_with(&self.topologies);
        let taken = |d: &&Descriptor| outside(d) || self.sets.contains(&Set::of(&d.topology));
        for descriptor in read.good.iter().filter(taken) {
            let file = &descriptor.file;
            let only_alltoallv = descriptor.topology.is_alltoallv_only();
            let selection = select::select(&descriptor.topology, &self.elements);
            let catalogue = alltoallv::catalogue(descriptor, &out, &mut faults).map_err(ForgeError::Catalogue)?;
            for kernel in selection.kernels.values() {
                kernels.entry(kernel.hash.clone()).or_insert_with(|| KernelEntry {
                    kernel: kernel.clone(),
                    images: Vec::new(),
                });
            }
            if selection.variants.is_empty() && !self.elements.is_empty() && !only_alltoallv {
                let why = selection.dropped.join("; ");
                let why = if why.is_empty() { "no schedule serves it" } else { &why };
                println!("cargo::warning={file}: the family has no variants: {why}");
            }
            families.push(family(descriptor, selection, catalogue));
        }
        if self.elements.is_empty() {
            println!(
                "cargo::warning=no element type is asked for (features f16, bf16, f32): the registry will hold no kernels"
            );
        }
        families.sort_by(|a, b| a.name.cmp(&b.name));
        let mut kernels: Vec<KernelEntry> = kernels.into_values().collect();
        let include = out.join("kernels");
        headers::write_to(&include).map_err(|e| ForgeError::io("writing headers", &include, e))?;
        let cache = self
            .env
            .path(env::TOPOFORGE_CACHE)
            .unwrap_or_else(|| shared_cache(&out));
        let limit = Jobs::from_env(&self.env);
        let built = self.compile_device(&mut kernels, &include, &cache, &out, &limit)?;
        if self.host && !kernels.is_empty() {
            let texts: Vec<(&str, &str, String)> = kernels
                .iter()
                .map(|k| {
                    let digest = headers::digest(k.kernel.protocol.name());
                    (k.kernel.symbol.as_str(), k.kernel.text.as_str(), digest)
                })
                .collect();
            let library = format!(
                "topoforge_kernels_{}",
                std::env::var("CARGO_PKG_NAME").unwrap_or_default().replace('-', "_")
            );
            host::compile(&texts, &include, &cache.join("host"), &library, &limit).map_err(ForgeError::Host)?;
        }
        let (archs, ptx, left_out) = built.as_ref().map_or((Vec::new(), None, Vec::new()), |(_, plan)| {
            (
                plan.archs(),
                plan.ptx(),
                plan.left_out.iter().map(|l| (l.sm, l.reason.clone())).collect(),
            )
        });
        let toolkits: Vec<String> = built
            .iter()
            .flat_map(|(t, _)| t)
            .map(|t| t.full_version.clone())
            .collect();
        let mut set = format!("{archs:?}{ptx:?}{toolkits:?}");
        kernels.iter().for_each(|k| set.push_str(&k.kernel.hash));
        let manifest = Manifest {
            format: manifest::FORMAT,
            version: env!("CARGO_PKG_VERSION").into(),
            topologies: self.topologies.clone(),
            host: self.host,
            elements: self.elements.clone(),
            sets: self.sets.iter().map(|s| s.name().to_owned()).collect(),
            archs,
            ptx,
            left_out,
            toolkits,
            kernel_set: sha256::hex(set.as_bytes())[..16].into(),
            kernels,
            families,
            faults,
        };
        let path = out.join(manifest::FILE);
        let text = manifest
            .to_ron()
            .map_err(|e| ForgeError::io("writing the manifest", &path, io::Error::other(e)))?;
        write_if_changed(&path, text.as_bytes()).map_err(|e| ForgeError::io("writing", &path, e))?;
        Ok(())
    }

    /// Fatbins for all kernels, or none with one warning where there is no toolkit.
    fn compile_device(
        &self,
        kernels: &mut [KernelEntry],
        include: &Path,
        cache: &Path,
        out: &Path,
        limit: &Jobs,
    ) -> Result<Option<(Vec<Toolkit>, ArchPlan)>, ForgeError> {
        if self.env.get(env::DOCS_RS).is_some() {
            self.write_tools(out, &[])?;
            return Ok(None);
        }
        let mut discover = Discover::new(self.env.clone());
        if let Some(folder) = &self.fallback {
            discover = discover.with_fallback(folder);
        }
        let toolkits = discover.find().map_err(ForgeError::Toolkit)?;
        if toolkits.is_empty() {
            if self.require_cuda {
                return Err(ForgeError::NoNvcc);
            }
            println!("cargo::warning=no nvcc found: the registry will hold no GPU code. {NVCC_ADVICE}");
            self.write_tools(out, &[])?;
            return Ok(None);
        }
        for toolkit in &toolkits {
            // One that is replaced in place is another one.
            println!("cargo::rerun-if-changed={}", toolkit.nvcc.display());
        }
        let wanted = match self.env.get(env::TOPOFORGE_ARCHS) {
            Some(_) => Wanted::from_env(&self.env).map_err(ForgeError::Toolkit)?,
            None => Wanted::of(&self.archs),
        };
        if wanted.archs().is_empty() {
            if self.require_cuda {
                return Err(ForgeError::NoArchs);
            }
            println!("cargo::warning=no architecture is asked for: the registry will hold no GPU code. {ARCHS_ADVICE}");
            self.write_tools(out, &[])?;
            return Ok(None);
        }
        let plan = plan_archs(&toolkits, &wanted);
        let compiler =
            Compiler::new(toolkits.clone(), plan.clone(), &self.env, cache, out).map_err(ForgeError::Compile)?;
        let mut jobs: Vec<Job> = kernels
            .iter()
            .map(|k| Job {
                name: k.kernel.symbol.clone(),
                text: k.kernel.text.clone(),
                include_dirs: vec![include.to_owned()],
                headers: headers::digest(k.kernel.protocol.name()),
            })
            .collect();
        if self.tools {
            jobs.push(Job {
                name: "tf_tools".into(),
                text: headers::TOOLS.into(),
                include_dirs: vec![include.to_owned()],
                headers: headers::digest("tools"),
            });
        }
        let results = compiler.compile_all(&jobs, limit);
        let mut images = Vec::with_capacity(jobs.len());
        for result in results {
            let fatbins = result.map_err(ForgeError::Compile)?;
            images.push(
                fatbins
                    .iter()
                    .map(|f| f.path.file_name().unwrap_or_default().to_string_lossy().into_owned())
                    .collect::<Vec<_>>(),
            );
        }
        if self.tools {
            let tools = images.pop().unwrap_or_default();
            self.write_tools(out, &tools)?;
        }
        for (kernel, images) in kernels.iter_mut().zip(images) {
            kernel.images = images;
        }
        Ok(Some((toolkits, plan)))
    }

    fn write_tools(&self, out: &Path, images: &[String]) -> Result<(), ForgeError> {
        if !self.tools {
            return Ok(());
        }
        let list: String = images
            .iter()
            .map(|i| format!("    ::topoforge::image!(concat!(env!(\"OUT_DIR\"), \"/{i}\")),\n"))
            .collect();
        let path = out.join("tools.rs");
        let text = format!("/// Fatbins of kernels/tools.cu.\npub static TOOLS: &[&[u8]] = &[\n{list}];\n");
        write_if_changed(&path, text.as_bytes())
            .map(|_| ())
            .map_err(|e| ForgeError::io("writing", &path, e))
    }
}

fn family(descriptor: &Descriptor, selection: Selection, alltoallv: Option<CatalogueEntry>) -> FamilyEntry {
    let digest = sha256::hex(descriptor.text.as_bytes());
    FamilyEntry {
        name: descriptor.topology.name.clone(),
        file: descriptor.file.clone(),
        path: descriptor.path.clone(),
        hash: manifest::family_hash(&digest, &selection.variants),
        descriptor: digest,
        variants: selection.variants,
        aliases: descriptor.topology.aliases.clone(),
        alltoallv,
    }
}

/// One cache for all profiles of a target folder: `target/<profile>/build/<package>/out` lies four levels down.
fn shared_cache(out: &Path) -> PathBuf {
    out.ancestors().nth(4).unwrap_or(out).join("topoforge-cache")
}

/// How to get a toolkit, for messages.
pub const NVCC_ADVICE: &str = "Run `cargo xtask setup` in a checkout of topoforge, or set TOPOFORGE_NVCC, NVCC, CUDA_HOME or CUDA_PATH, or put nvcc on PATH";

/// How to get architectures, for messages.
const ARCHS_ADVICE: &str = "Switch on features of topoforge, sm-70 to sm-121 or all-archs, or set TOPOFORGE_ARCHS";

/// Why a build stopped. Debug prints the message too, since that is what a build script's `main` shows.
#[non_exhaustive]
pub enum ForgeError {
    /// A variable that cargo sets for build scripts is missing.
    NotABuildScript(&'static str),
    /// The catalogue of a descriptor is wrong, or cannot be written.
    Catalogue(CatalogueError),
    /// A folder of descriptors is not there.
    Topologies(FolderError),
    /// `require-cuda` without a toolkit.
    NoNvcc,
    /// `require-cuda` without an architecture.
    NoArchs,
    /// A named toolkit is unusable, or the list of architectures is.
    Toolkit(ToolkitError),
    /// nvcc refused a text.
    Compile(CompileError),
    /// The host compiler did.
    Host(host::HostError),
    /// A file could not be read or written.
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

impl ForgeError {
    fn io(doing: &'static str, path: &Path, error: io::Error) -> Self {
        Self::Io {
            doing,
            path: path.to_owned(),
            error,
        }
    }
}

impl fmt::Display for ForgeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotABuildScript(name) => write!(f, "{name} is not set: Forge::compile belongs into a build script"),
            Self::NoNvcc => write!(f, "feature require-cuda is on and no nvcc was found. {NVCC_ADVICE}"),
            Self::Catalogue(e) => e.fmt(f),
            Self::Topologies(e) => e.fmt(f),
            Self::NoArchs => write!(
                f,
                "feature require-cuda is on and no architecture is asked for. {ARCHS_ADVICE}"
            ),
            Self::Toolkit(e) => e.fmt(f),
            Self::Compile(e) => e.fmt(f),
            Self::Host(e) => e.fmt(f),
            Self::Io { doing, path, error } => write!(f, "{doing} {}: {error}", path.display()),
        }
    }
}

impl fmt::Debug for ForgeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ForgeError {}

//! Turns one kernel text into fatbins, through a cache keyed by content.
//!
//! The key covers everything that can change the result: the text, the headers, the flags, the architectures and the
//! compiler's identity; never a path or a time. A finished fatbin enters the cache by a rename, so two builds may share
//! the folder and run at once, and an interrupted one leaves nothing half-made. Where several toolkits share the
//! architectures, each makes a fatbin of its own. Start at [`Compiler::compile`]; many at once are in `pool`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::sha256::{self, Sha256};
use super::{ArchPlan, CompileError, Toolkit, ToolkitBuild, files, host, process};
use crate::env::{self, Env};

/// `--fmad=false` keeps a written multiply and add two roundings, as the host executor does them.
/// `-allow-unsupported-compiler`: 11.8 knows g++ up to 11 only, and the device pass just preprocesses with it.
const FLAGS: &[&str] = &[
    "-std=c++17",
    "-O3",
    "--fmad=false",
    "-allow-unsupported-compiler",
    "-fatbin",
    "-Xfatbin",
    "-compress-all",
];

/// The denser form, a sixth smaller, where every driver reads it: code of CUDA 13 asks for a driver that does.
fn compression(toolkit: &Toolkit) -> &'static [&'static str] {
    if toolkit.version.0 >= 13 {
        &["--compress-mode=size"]
    } else {
        &[]
    }
}

/// The first bytes of every fatbin.
const MAGIC: [u8; 4] = [0x50, 0xed, 0x55, 0xba];

/// Where fatbins lie in the cache, beside the host executor's objects.
const FOLDER: &str = "fatbin";

/// Bump when the meaning of a key changes.
const KEY_FORMAT: &str = "topoforge fatbin 1";

/// Stands in for `cuda_runtime.h`, which nvcc puts before every text and which is most of the time a small kernel
/// takes. It declares what device code uses: built-in variables, vector types, device functions. The machine code comes
/// out the same byte for byte. Texts that need more are compiled again with the whole header.
const SHORT_PRELUDE: &str = "\
#pragma once
#define __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include \"crt/host_defines.h\"
#include \"vector_types.h\"
#include \"vector_functions.h\"
#include \"crt/device_functions.h\"
#include \"device_launch_parameters.h\"
extern \"C\" __host__ __device__ __device_builtin__ void* memcpy(void*, const void*, size_t) noexcept;
";

/// One text to compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Names the output file and the job in errors; letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The CUDA text.
    pub text: String,
    /// Where its `#include \"...\"` look.
    pub include_dirs: Vec<PathBuf>,
    /// The state of all headers it may include, as [`digest_folders`](super::digest_folders) gives it.
    pub headers: String,
}

/// One compiled file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fatbin {
    /// The file, in the compiler's output folder.
    pub path: PathBuf,
    /// Index of the toolkit that made it.
    pub toolkit: usize,
    /// The architectures it holds machine code for.
    pub sms: Vec<u32>,
    /// The virtual architecture it holds PTX for.
    pub ptx: Option<u32>,
    /// Its size in bytes.
    pub bytes: u64,
    /// SHA-256 of its content.
    pub hash: String,
    /// Whether it came out of the cache.
    pub cached: bool,
    /// What nvcc had to say although it succeeded; empty from the cache.
    pub warnings: String,
}

/// Compiles texts for one plan.
#[derive(Clone, Debug)]
pub struct Compiler {
    toolkits: Vec<Toolkit>,
    plan: ArchPlan,
    host: Option<PathBuf>,
    env: Env,
    cache: PathBuf,
    out: PathBuf,
}

impl Compiler {
    /// `cache` is the folder of everything that a build keeps; what was ever compiled lies in its folder `fatbin`. `out`
    /// receives the files of this build.
    pub fn new(
        toolkits: Vec<Toolkit>,
        plan: ArchPlan,
        env: &Env,
        cache: impl Into<PathBuf>,
        out: impl Into<PathBuf>,
    ) -> Result<Compiler, CompileError> {
        if plan.builds.is_empty() {
            return Err(CompileError::NothingPlanned);
        }
        Ok(Compiler {
            toolkits,
            plan,
            // Asked for when nvcc has to run: a build that finds all in the cache needs none.
            host: host::host_compiler(env).ok(),
            env: env.clone(),
            cache: cache.into(),
            out: out.into(),
        })
    }

    /// The plan it compiles for.
    pub fn plan(&self) -> &ArchPlan {
        &self.plan
    }

    /// Compiles one text: one fatbin for each toolkit of the plan, in the plan's order.
    pub fn compile(&self, job: &Job) -> Result<Vec<Fatbin>, CompileError> {
        self.compile_with_threads(job, 1)
    }

    /// `threads` is how many processors nvcc may use for this one text; it does not change the result.
    pub(super) fn compile_with_threads(&self, job: &Job, threads: usize) -> Result<Vec<Fatbin>, CompileError> {
        self.plan
            .builds
            .iter()
            .map(|build| self.compile_for(build, job, threads))
            .collect()
    }

    fn compile_for(&self, build: &ToolkitBuild, job: &Job, threads: usize) -> Result<Fatbin, CompileError> {
        let toolkit = &self.toolkits[build.toolkit];
        let name = format!("{}.fatbin", self.key(build, job));
        let kept = self.cache.join(FOLDER).join(&name);
        // Until 0.1.0 they lay one level up where TOPOFORGE_CACHE named the folder.
        let places = [kept.clone(), self.cache.join(&name)];
        let mut found = places.iter().filter_map(|place| fs::read(place).ok());
        let (data, cached, warnings) = match found.find(|data| data.starts_with(&MAGIC)) {
            Some(data) => (data, true, String::new()),
            None => {
                let (data, warnings) = self.run_nvcc(build, job, threads)?;
                files::write_if_changed(&kept, &data).map_err(io("writing", &kept))?;
                (data, false, warnings)
            }
        };
        let path = self.out.join(self.file_name(job, toolkit));
        files::write_if_changed(&path, &data).map_err(io("writing", &path))?;
        Ok(Fatbin {
            path,
            toolkit: build.toolkit,
            sms: build.sms.clone(),
            ptx: build.ptx,
            bytes: data.len() as u64,
            hash: sha256::hex(&data),
            cached,
            warnings,
        })
    }

    fn file_name(&self, job: &Job, toolkit: &Toolkit) -> String {
        if self.plan.builds.len() == 1 {
            format!("{}.fatbin", job.name)
        } else {
            format!("{}.cuda-{}.fatbin", job.name, toolkit.release())
        }
    }

    fn key(&self, build: &ToolkitBuild, job: &Job) -> String {
        let toolkit = &self.toolkits[build.toolkit];
        let mut hash = Sha256::new();
        hash.field(KEY_FORMAT);
        hash.field(&toolkit.id);
        hash.field([FLAGS, compression(toolkit)].concat().join("\n"));
        hash.field(build.gencode().join("\n"));
        hash.field(if short_prelude_fits(toolkit) { SHORT_PRELUDE } else { "" });
        for var in [env::NVCC_PREPEND_FLAGS, env::NVCC_APPEND_FLAGS, env::NVCC_CCBIN] {
            hash.field(self.env.text(var).unwrap_or_default());
        }
        hash.field(&job.headers);
        hash.field(&job.text);
        hash.finish()
    }

    /// The fatbin's bytes and nvcc's warnings.
    fn run_nvcc(&self, build: &ToolkitBuild, job: &Job, threads: usize) -> Result<(Vec<u8>, String), CompileError> {
        let Some(host) = &self.host else {
            return host::host_compiler(&self.env).and(Err(CompileError::NothingPlanned));
        };
        let work = Workplace::new(&self.cache.join(FOLDER))?;
        work.write("kernel.cu", &job.text)?;
        let toolkit = &self.toolkits[build.toolkit];
        if short_prelude_fits(toolkit) {
            work.write("short/cuda_runtime.h", SHORT_PRELUDE)?;
            let mut command = self.command(toolkit, build, job, host, threads, &work);
            command.arg("-Ishort");
            if let Ok(done) = self.finish(&mut command, job, &work) {
                return Ok(done);
            }
        }
        let mut command = self.command(toolkit, build, job, host, threads, &work);
        self.finish(&mut command, job, &work)
    }

    fn command(
        &self,
        toolkit: &Toolkit,
        build: &ToolkitBuild,
        job: &Job,
        host: &Path,
        threads: usize,
        work: &Workplace,
    ) -> Command {
        // nvcc writes the names it is given into the code, so they are the same short ones in every folder.
        let mut command = Command::new(absolute(&toolkit.nvcc));
        command.current_dir(&work.folder).env("TMPDIR", &work.folder);
        for var in [env::NVCC_PREPEND_FLAGS, env::NVCC_APPEND_FLAGS, env::NVCC_CCBIN] {
            match self.env.get(var) {
                Some(value) => command.env(var.name, value),
                None => command.env_remove(var.name),
            };
        }
        command.args(FLAGS).args(compression(toolkit)).args(build.gencode());
        command.arg("-ccbin").arg(host);
        if threads > 1 {
            command.arg("--threads").arg(threads.to_string());
        }
        for folder in &job.include_dirs {
            command.arg("-I").arg(absolute(folder));
        }
        command.args(["kernel.cu", "-o", "kernel.fatbin"]);
        command
    }

    fn finish(&self, command: &mut Command, job: &Job, work: &Workplace) -> Result<(Vec<u8>, String), CompileError> {
        let program = PathBuf::from(command.get_program());
        let output = process::output(command).map_err(io("starting", &program))?;
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let made = work.folder.join("kernel.fatbin");
        if output.status.success() {
            let data = fs::read(&made).map_err(io("reading", &made))?;
            if data.starts_with(&MAGIC) {
                return Ok((data, stderr));
            }
        }
        let source = self.cache.join(FOLDER).join("refused").join(format!("{}.cu", job.name));
        files::write_if_changed(&source, job.text.as_bytes()).map_err(io("writing", &source))?;
        Err(CompileError::Nvcc {
            job: job.name.clone(),
            source: source.clone(),
            command: process::shown(command).replace("kernel.cu", &absolute(&source).display().to_string()),
            stderr: if stderr.is_empty() {
                format!("nvcc ended with {} and made no fatbin", output.status)
            } else {
                stderr
            },
        })
    }
}

/// Tried with 11.8; later releases' device headers want more of the whole one.
fn short_prelude_fits(toolkit: &Toolkit) -> bool {
    toolkit.version.0 == 11
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn io<'a>(doing: &'a str, path: &'a Path) -> impl FnOnce(std::io::Error) -> CompileError + 'a {
    move |error| CompileError::Io {
        doing: doing.to_owned(),
        path: path.to_owned(),
        error,
    }
}

/// A folder for one run of nvcc, gone when it ends.
struct Workplace {
    folder: PathBuf,
}

impl Workplace {
    fn new(cache: &Path) -> Result<Self, CompileError> {
        let folder = absolute(cache).join(files::unique("run-"));
        fs::create_dir_all(&folder).map_err(io("making the folder", &folder))?;
        Ok(Workplace { folder })
    }

    fn write(&self, name: &str, text: &str) -> Result<(), CompileError> {
        let path = self.folder.join(name);
        files::write_if_changed(&path, text.as_bytes())
            .map(|_| ())
            .map_err(io("writing", &path))
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // A folder left behind is only untidy, and there is nobody to tell.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

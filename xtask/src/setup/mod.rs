//! Finds nvcc, or fetches one into `.toolkit` without root and without changing the system.
//!
//! On Debian and Ubuntu the distribution's own CUDA 11 or 12 is taken, since it builds sm_70 (`distribution`); elsewhere
//! CUDA 13 from the Python index (`cuda13`). A fetch fills a folder of its own and is renamed at the end, so that an
//! interrupted one is never used. Start at [`run`].

mod apt;
mod cuda13;
mod distribution;
pub mod layout;
mod pins;
mod sources;
pub mod wheels;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use topoforge_codegen::env::{self, Env};
use topoforge_codegen::toolkit::{ArchPlan, Discover, Toolkit, Wanted, plan_archs};

use crate::failure::{Done, Failure, io};
use crate::steps::workspace;

/// What the caller wants beyond "some nvcc".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// The distribution's toolkit, which has sm_70.
    pub distribution: bool,
    /// CUDA 13, which has sm_100 and later.
    pub cuda13: bool,
}

impl Wish {
    /// Reads the flags of `setup`.
    pub fn parse(flags: &[&str]) -> Done<Wish> {
        let mut wish = Wish::default();
        for flag in flags {
            match *flag {
                "--cuda11" => wish.distribution = true,
                "--cuda13" => wish.cuda13 = true,
                other => {
                    return Err(
                        Failure::new(format!("setup has no flag `{other}`")).todo("`cargo xtask help` lists the flags")
                    );
                }
            }
        }
        Ok(wish)
    }
}

/// The compilers that builds will use.
pub struct Ready {
    toolkits: Vec<Toolkit>,
    plan: ArchPlan,
    /// Whether a build finds them only when told where.
    ours: bool,
    /// Fetched ones that another nvcc, found first, keeps out of use.
    unused: Vec<PathBuf>,
}

impl Ready {
    /// Tells a cargo command where the compilers are; a variable that the user set is left as it is.
    pub fn hand_to(&self, command: &mut Command) {
        // A single one in `.toolkit` is what the build script finds by itself; naming it would only make cargo run that
        // script again whenever plain cargo and xtask take turns.
        if !self.ours || self.toolkits.len() == 1 {
            return;
        }
        let paths = self.toolkits.iter().map(|toolkit| &toolkit.nvcc);
        if let Ok(list) = std::env::join_paths(paths) {
            command.env(env::TOPOFORGE_NVCC.name, list);
        }
    }

    /// Every architecture that gets machine code, as 90 for sm_90.
    pub fn archs(&self) -> Vec<u32> {
        self.plan.archs()
    }

    /// Names every wanted architecture that no compiler has, with the reason.
    pub fn left_out(&self) -> Vec<String> {
        self.plan.left_out.iter().map(|left| left.reason.clone()).collect()
    }

    /// Says on standard output what there is.
    pub fn print(&self) {
        for toolkit in &self.toolkits {
            println!("CUDA {} {}", toolkit.full_version, toolkit.nvcc.display());
        }
        if self.toolkits.is_empty() {
            println!("no CUDA compiler: builds have no kernels");
            return;
        }
        let archs: Vec<String> = self.plan.archs().iter().map(|arch| format!("sm_{arch}")).collect();
        println!("builds {}", archs.join(" "));
        for left in &self.plan.left_out {
            println!("not built: {}", left.reason);
        }
        if !self.unused.is_empty() {
            let used = self.toolkits.iter().map(|toolkit| &toolkit.nvcc);
            let list: Vec<String> = used
                .chain(&self.unused)
                .map(|nvcc| nvcc.display().to_string())
                .collect();
            println!(
                "not used, since another nvcc was found first; to use all: TOPOFORGE_NVCC={}",
                list.join(":")
            );
        }
    }
}

/// Where fetched tools lie.
pub fn folder() -> PathBuf {
    toolkit_dir(&Env::from_process())
}

/// Where fetched toolkits lie.
fn toolkit_dir(env: &Env) -> PathBuf {
    env.path(env::TOPOFORGE_TOOLKIT_DIR)
        .unwrap_or_else(|| workspace().join(".toolkit"))
}

/// Makes sure that there is a compiler, and every one wished for.
pub fn run(wish: Wish) -> Done<Ready> {
    let env = Env::from_process();
    let folder = toolkit_dir(&env);
    let fetching = wish.distribution || wish.cuda13;
    if env.text(env::TOPOFORGE_NVCC).as_deref() == Some("none") && !fetching {
        eprintln!("    TOPOFORGE_NVCC=none: no kernel will be built");
        return ready(&env, &folder);
    }
    if fetching {
        if wish.distribution && !has(&folder, &["cuda-11.", "cuda-12."]) {
            refuse_offline()?;
            fetch(&folder, distribution::fetch)?;
        }
        if wish.cuda13 && !has(&folder, &["cuda-13."]) {
            refuse_offline()?;
            fetch(&folder, cuda13::fetch)?;
        }
        return ready(&env, &folder);
    }
    let found = ready(&env, &folder)?;
    if !found.toolkits.is_empty() {
        return Ok(found);
    }
    eprintln!(
        "    no nvcc in TOPOFORGE_NVCC, NVCC, CUDA_HOME, CUDA_PATH, PATH or {}",
        folder.display()
    );
    refuse_offline()?;
    if let Err(first) = fetch(&folder, distribution::fetch) {
        eprintln!("    {first}");
        eprintln!(
            "    taking CUDA 13 instead. It cannot build sm_70: NVIDIA dropped it after CUDA 12.9, and the Python"
        );
        eprintln!("    index has no complete CUDA 12 compiler.");
        fetch(&folder, cuda13::fetch).map_err(|second| {
            Failure::new("no nvcc was found and none could be fetched")
                .tried(first.to_string())
                .tried(second.to_string())
                .todo("connect to the network and run `cargo xtask setup` again, or")
                .todo("install a CUDA toolkit and name it: TOPOFORGE_NVCC=/path/to/bin/nvcc, or")
                .todo(format!("copy a filled {} from another machine, or", folder.display()))
                .todo("build without kernels: TOPOFORGE_NVCC=none")
        })?;
    }
    let found = ready(&env, &folder)?;
    if found.toolkits.is_empty() {
        return Err(Failure::new(format!(
            "{} was filled, and no nvcc is found in it",
            folder.display()
        )));
    }
    Ok(found)
}

fn refuse_offline() -> Done {
    forbidden("a CUDA compiler").map_err(|failure| {
        failure.todo("or name an nvcc with TOPOFORGE_NVCC, or build without kernels: TOPOFORGE_NVCC=none")
    })
}

/// Refuses to fetch where the environment forbids it.
pub fn forbidden(what: &str) -> Done {
    if std::env::var("CARGO_NET_OFFLINE").is_ok_and(|value| value == "true") {
        return Err(
            Failure::new(format!("{what} has to be fetched, and CARGO_NET_OFFLINE forbids it")).todo("unset it"),
        );
    }
    Ok(())
}

fn ready(env: &Env, folder: &Path) -> Done<Ready> {
    let fault = |error: topoforge_codegen::toolkit::ToolkitError| Failure::new(error.to_string());
    let discover = Discover::new(env.clone()).with_fallback(folder);
    let toolkits = discover.find().map_err(fault)?;
    let plan = plan_archs(&toolkits, &Wanted::from_env(env).map_err(fault)?);
    let elsewhere = Discover::new(env.clone()).candidates().map_err(fault)?;
    let fetched = Discover::new(Env::default())
        .with_fallback(folder)
        .candidates()
        .map_err(fault)?;
    let unused = fetched
        .into_iter()
        .map(|candidate| candidate.nvcc)
        .filter(|nvcc| !toolkits.is_empty() && toolkits.iter().all(|toolkit| toolkit.nvcc != *nvcc))
        .collect();
    Ok(Ready {
        ours: elsewhere.is_empty() && !toolkits.is_empty(),
        unused,
        toolkits,
        plan,
    })
}

fn has(folder: &Path, prefixes: &[&str]) -> bool {
    names(folder).iter().any(|name| {
        prefixes.iter().any(|prefix| name.starts_with(prefix)) && folder.join(name).join("bin/nvcc").is_file()
    })
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Fetched tools, laid out in a temporary folder.
pub struct Fetched {
    /// The finished tree, inside the temporary folder.
    pub tree: PathBuf,
    /// Its name in the toolkit folder, as `cuda-11.8`.
    pub name: String,
}

/// A build script that found no nvcc does not watch for one that comes later: make cargo run it again.
fn wake_build_script() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../build.rs");
    if let Ok(file) = fs::File::options().append(true).open(script) {
        // Then only the next build is as the last one was.
        let _ = file.set_modified(std::time::SystemTime::now());
    }
}

fn fetch(folder: &Path, how: fn(&Path) -> Done<Fetched>) -> Done {
    fetch_into(folder, "bin/nvcc", |temporary| {
        let fetched = how(temporary)?;
        layout::prove(&fetched.tree, temporary)?;
        Ok(fetched)
    })?;
    wake_build_script();
    Ok(())
}

/// Runs a fetch in a folder of its own below `folder` and moves the result into place in one step. `main` is a file of it
/// that is there when it is whole.
pub fn fetch_into(folder: &Path, main: &str, how: impl FnOnce(&Path) -> Done<Fetched>) -> Done {
    sweep(folder);
    let temporary = folder.join(format!(".fetch-{}", std::process::id()));
    fs::create_dir_all(&temporary).map_err(io("making", &temporary))?;
    let start = Instant::now();
    let result = how(&temporary).and_then(|fetched| {
        let place = folder.join(&fetched.name);
        // Somebody else may have finished first; theirs is as good.
        match fs::rename(&fetched.tree, &place) {
            Err(_) if place.join(main).is_file() => Ok(place),
            other => other.map(|()| place.clone()).map_err(io("moving the tools to", &place)),
        }
    });
    let _ = fs::remove_dir_all(&temporary);
    let place = result?;
    eprintln!(
        "    {} ready in {:.1} s",
        place.display(),
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Removes what interrupted fetches left: folders whose process is gone.
fn sweep(folder: &Path) {
    for name in names(folder) {
        if let Some(process) = name.strip_prefix(".fetch-")
            && !Path::new("/proc").join(process).exists()
        {
            let _ = fs::remove_dir_all(folder.join(&name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_unknown_ones_refused() {
        let both = Wish {
            distribution: true,
            cuda13: true,
        };
        assert_eq!(Wish::parse(&["--cuda13", "--cuda11"]).unwrap(), both);
        assert_eq!(Wish::parse(&[]).unwrap(), Wish::default());
        assert!(Wish::parse(&["--cuda14"]).unwrap_err().to_string().contains("--cuda14"));
    }
}

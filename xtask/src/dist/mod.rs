//! `cargo xtask dist`: one file a processor that serves on machines without network, toolkit or Rust, and a source bundle.
//!
//! Every family, and machine code for every architecture from sm_70 on: CUDA 11.8 builds up to sm_90, CUDA 13 the later ones.
//! The programs are linked by zig against the symbols of an old glibc, and what they ask of a machine is read back from
//! their ELF headers and judged; then they are run in a bare root. The host executor is inside as well, so that
//! `qualify --device host` proves a file where it will serve. Start at [`run`].

mod bundle;
mod check;
mod contents;
mod elf;
mod smoke;
mod targets;
mod tools;

use std::fs;
use std::path::{Path, PathBuf};

use topoforge_codegen::toolkit::sha256;

use crate::failure::{Done, Failure, io};
use crate::setup::{self, Ready, Wish};
use crate::steps::{Steps, built, capture, workspace};
use contents::Contents;
use targets::{TARGETS, Target};
use tools::Tools;

/// topoforge's features beside the types of elements: all that serves, and no build that came out without kernels.
const FEATURES: &str = "cli,host-executor,require-cuda,nvml,nccl,all-families,all-archs";
/// Types of elements, as the features are called.
const ELEMENTS: &[&str] = &["f16", "bf16", "f32"];

/// What to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    targets: Vec<Target>,
    elements: String,
    source: bool,
}

impl Plan {
    /// Reads the flags: `--only ARCH`, which may be repeated, `--elements LIST` and `--no-source`.
    pub fn parse(flags: &[&str]) -> Done<Plan> {
        let mut plan = Plan {
            targets: Vec::new(),
            elements: ELEMENTS.join(","),
            source: true,
        };
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            match *flag {
                "--no-source" => plan.source = false,
                "--elements" => {
                    let list = flags.next().copied().unwrap_or_default();
                    if !list.split(',').all(|element| ELEMENTS.contains(&element)) {
                        return Err(Failure::new(format!("dist has no elements `{list}`"))
                            .todo(format!("--elements with some of {}", ELEMENTS.join(","))));
                    }
                    plan.elements = list.to_owned();
                }
                "--only" => {
                    let arch = flags.next().copied().unwrap_or_default();
                    let target = TARGETS.iter().find(|t| t.arch == arch).ok_or_else(|| {
                        let known: Vec<&str> = TARGETS.iter().map(|t| t.arch).collect();
                        Failure::new(format!("dist makes no `{arch}`")).todo(format!("--only {}", known.join(" or ")))
                    })?;
                    plan.targets.push(*target);
                }
                other => {
                    return Err(
                        Failure::new(format!("dist has no flag `{other}`")).todo("`cargo xtask help` lists the flags")
                    );
                }
            }
        }
        if plan.targets.is_empty() {
            plan.targets = TARGETS.to_vec();
        }
        Ok(plan)
    }
}

/// One line of the report.
struct Made {
    file: PathBuf,
    notes: Vec<String>,
}

/// Makes everything into `target/dist`.
pub fn run(plan: &Plan) -> Done {
    let version = env!("CARGO_PKG_VERSION");
    let place = workspace().join("target/dist");
    let work = workspace().join("target/dist-work");
    for folder in [&place, &work] {
        fs::create_dir_all(folder).map_err(io("making", folder))?;
    }
    let mut steps = Steps::new(2 + 3 * plan.targets.len() + usize::from(plan.source)).leaving_last_word();
    let ready = steps.step("set up both CUDA compilers", both_toolkits)?;
    let tools = steps.step("set up zig and cargo-zigbuild", Tools::ready)?;
    let contents = Contents {
        archs: ready.archs(),
        elements: plan.elements.split(',').map(str::to_owned).collect(),
        families: families()?,
    };
    let mut made = Vec::new();
    for target in &plan.targets {
        let file = place.join(target.file(version));
        let title = format!(
            "build for {} and glibc {}.{}",
            target.arch, target.glibc.0, target.glibc.1
        );
        let binary = steps.step(&title, || {
            tools::standard_library(target)?;
            build(&tools, &ready, target, &plan.elements)
        })?;
        let needs = steps.step("read what it needs", || judged(&binary, target))?;
        fs::copy(&binary, &file).map_err(io("copying", &binary))?;
        let ran = steps.step("run it where nothing else is", || {
            smoke::run(&file, target, Some(&contents), &work)
        })?;
        made.push(Made {
            file,
            notes: vec![needs, ran],
        });
    }
    if plan.source {
        let name = format!("topoforge-{version}-source");
        let file = steps.step("bundle the source and its crates", || {
            bundle::make(&place, &name, &work)
        })?;
        made.push(Made {
            file,
            notes: vec!["builds with --offline".to_owned()],
        });
    }
    let _ = fs::remove_dir_all(&work);
    report(&made, &place)
}

/// The families of this checkout: a descriptor's file is named as its family is.
fn families() -> Done<Vec<String>> {
    let folder = workspace().join("topologies");
    let mut names: Vec<String> = (fs::read_dir(&folder).map_err(io("reading", &folder))?.flatten())
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "ron"))
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// Judges and runs a program that is there already.
pub fn check_file(file: &Path) -> Done {
    let bytes = fs::read(file).map_err(io("reading", file))?;
    let machine = elf::Needs::read(&bytes)?.machine;
    let target = TARGETS
        .iter()
        .find(|target| target.machine == machine)
        .ok_or_else(|| Failure::new(format!("{} is for processor {machine}", file.display())))?;
    let work = workspace().join("target/dist-work");
    println!("{}", judged(file, target)?);
    println!("{}", smoke::run(file, target, None, &work)?);
    let _ = fs::remove_dir_all(&work);
    Ok(())
}

/// Makes a source bundle and builds it without network, cargo's store or nvcc.
pub fn prove_bundle() -> Done {
    let work = workspace().join("target/dist-work");
    fs::create_dir_all(&work).map_err(io("making", &work))?;
    let bundle = bundle::make(&work, "topoforge-source", &work)?;
    bundle::prove(&bundle, &work)?;
    fs::remove_dir_all(&work).map_err(io("removing", &work))
}

/// Both toolkits, and no architecture without one.
fn both_toolkits() -> Done<Ready> {
    let ready = setup::run(Wish {
        distribution: true,
        cuda13: true,
    })?;
    let left = ready.left_out();
    if left.is_empty() {
        return Ok(ready);
    }
    let mut failure = Failure::new("a distribution holds machine code for every architecture");
    for reason in left {
        failure = failure.tried(reason);
    }
    Err(failure.todo("name toolkits that have them: TOPOFORGE_NVCC=/cuda-11.8/bin/nvcc:/cuda-13.0/bin/nvcc"))
}

fn build(tools: &Tools, ready: &Ready, target: &Target, elements: &str) -> Done<PathBuf> {
    let features = format!("{FEATURES},{elements}");
    let mut command = tools.cargo(&[
        "--release",
        "--package",
        "topoforge",
        "--bin",
        "topoforge",
        "--no-default-features",
        "--features",
        &features,
        "--message-format",
        "json-render-diagnostics",
        "--target",
        &target.with_floor(),
    ]);
    ready.hand_to(&mut command);
    command.env("RUSTFLAGS", remapped());
    // Kernels are the same for every processor of the host: built for the first, they are found for the second.
    if std::env::var_os("TOPOFORGE_CACHE").is_none() {
        command.env("TOPOFORGE_CACHE", workspace().join("target/topoforge-cache"));
    }
    // A distribution holds topoforge's own families.
    command.env_remove("TOPOFORGE_TOPOLOGIES");
    built(&capture(&mut command, true)?)
}

/// The caller's flags, and that no folder of this machine is named in the program.
fn remapped() -> std::ffi::OsString {
    let mut flags = std::env::var_os("RUSTFLAGS").unwrap_or_default();
    let home = std::env::var_os("HOME").unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME").map_or(Path::new(&home).join(".cargo"), PathBuf::from);
    let rustup = std::env::var_os("RUSTUP_HOME").map_or(Path::new(&home).join(".rustup"), PathBuf::from);
    for (folder, name) in [(workspace(), "topoforge"), (cargo, "cargo"), (rustup, "rustup")] {
        // A folder with a blank in its name cannot be told in this variable, and is then named as it is.
        if !folder.to_string_lossy().contains(' ') {
            flags.push(" --remap-path-prefix=");
            flags.push(&folder);
            flags.push(format!("={name}"));
        }
    }
    flags
}

/// What the program asks for, in words, if every machine at the floor has it.
fn judged(binary: &Path, target: &Target) -> Done<String> {
    let bytes = fs::read(binary).map_err(io("reading", binary))?;
    let needs = elf::Needs::read(&bytes)?;
    let faults = check::faults(&needs, target);
    if !faults.is_empty() {
        let what = format!("{} would not start on every machine with glibc", binary.display());
        return Err(faults.into_iter().fold(Failure::new(what), Failure::tried));
    }
    let highest = check::highest(&needs).map_or("none".to_owned(), |(major, minor)| format!("{major}.{minor}"));
    Ok(format!(
        "needs {}; glibc {highest} or newer",
        needs.libraries.join(", ")
    ))
}

/// SHA256SUMS beside the files, and the table on standard output.
fn report(made: &[Made], place: &Path) -> Done {
    let mut sums = String::new();
    for one in made {
        let digest = sha256::hex_file(&one.file).map_err(io("reading", &one.file))?;
        let bytes = fs::metadata(&one.file).map_err(io("reading", &one.file))?.len();
        let name = one.file.file_name().unwrap_or_default().to_string_lossy();
        sums.push_str(&format!("{digest}  {name}\n"));
        println!("{name}: {:.1} MB", bytes as f64 / 1e6);
        for note in &one.notes {
            println!("  {note}");
        }
    }
    let file = place.join("SHA256SUMS");
    fs::write(&file, sums).map_err(io("writing", &file))?;
    println!("in {}, with SHA256SUMS", place.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_choose_targets_and_unknown_ones_are_refused() {
        assert_eq!(Plan::parse(&[]).unwrap().targets.len(), 2);
        let one = Plan::parse(&["--only", "aarch64", "--no-source"]).unwrap();
        assert_eq!(
            (one.targets[0].arch, one.targets.len(), one.source),
            ("aarch64", 1, false)
        );
        let some = Plan::parse(&["--elements", "f16,bf16"]).unwrap();
        assert_eq!(some.elements, "f16,bf16");
        for (flags, word) in [
            (&["--only"][..], "x86_64 or aarch64"),
            (&["--fast"], "--fast"),
            (&["--elements", "f16,f8"], "f16,bf16,f32"),
            (&["--elements"], "f16,bf16,f32"),
        ] {
            let said = Plan::parse(flags).unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn a_distribution_has_every_standard_feature() {
        let manifest = include_str!("../../../Cargo.toml");
        let (_, standard) = manifest.split_once("\nstandard = [").expect("a group of this name");
        let (standard, _) = standard.split_once(']').expect("its end");
        for feature in standard.split(',').map(|feature| feature.trim().trim_matches('"')) {
            let there = ELEMENTS.contains(&feature) || FEATURES.split(',').any(|ours| ours == feature);
            assert!(there, "{feature}");
        }
    }

    #[test]
    fn no_folder_of_this_machine_is_left_in_a_program() {
        let flags = remapped().into_string().unwrap();
        let workspace = format!("--remap-path-prefix={}=topoforge", workspace().display());
        assert!(flags.contains(&workspace) && flags.contains("=cargo"), "{flags}");
    }
}

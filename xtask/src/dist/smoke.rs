//! Runs the distributed program where nothing else is: a folder that holds it, the C library and no more, as the root of its
//! world, without devices, `/proc`, `/sys` or a network. For another processor through qemu, where that is installed.
//!
//! What cannot be run here is said, never passed over. Start at [`run`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::contents::Contents;
use super::targets::Target;
use crate::failure::{Done, Failure, io};
use crate::steps::{capture, shown};

/// What must work without a GPU, a driver and a toolkit. The first two say what is inside.
const COMMANDS: &[&[&str]] = &[
    &["version"],
    &["families", "--json"],
    &["plan", "nvlink-pair", "--payload", "80KiB"],
    &["qualify", "--family", "nvlink-pair", "--device", "host"],
];

/// How it went, in words for the report. What it says of itself must name all of `contents`, if there is a list.
pub fn run(binary: &Path, target: &Target, contents: Option<&Contents>, work: &Path) -> Done<String> {
    if target.arch == std::env::consts::ARCH {
        return in_bare_root(binary, target, contents, work);
    }
    let found = ["qemu-aarch64-static", "qemu-aarch64"]
        .into_iter()
        .find(|name| target.arch == "aarch64" && capture(Command::new(name).arg("--version"), false).is_ok());
    let Some(qemu) = found else {
        return Ok(format!(
            "not run: this machine is {} and has no qemu for it",
            std::env::consts::ARCH
        ));
    };
    let system = std::env::var_os("QEMU_LD_PREFIX").map_or(PathBuf::from("/usr/aarch64-linux-gnu"), PathBuf::from);
    let loader = system.join(target.loader.trim_start_matches('/'));
    if !loader.is_file() {
        return Ok(format!(
            "not run: qemu is here, but no {} for it: install libc6-arm64-cross, or name a system with QEMU_LD_PREFIX",
            loader.display()
        ));
    }
    all(contents, &|args| {
        let mut command = Command::new(qemu);
        command.arg("-L").arg(&system).arg(binary).args(args);
        command
    })?;
    Ok(format!("{} commands ran by {qemu}", COMMANDS.len()))
}

fn in_bare_root(binary: &Path, target: &Target, contents: Option<&Contents>, work: &Path) -> Done<String> {
    let root = work.join("bare-root");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).map_err(io("making", &root))?;
    let inside = root.join("topoforge");
    fs::copy(binary, &inside).map_err(io("copying", binary))?;
    // The loader itself says which files of the C library it would take.
    let listed = capture(Command::new(target.loader).arg("--list").arg(binary), false)?;
    let mut files: Vec<PathBuf> = listed
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect();
    files.push(target.loader.into());
    for file in &files {
        let to = root.join(file.strip_prefix("/").unwrap_or(file));
        let folder = to.parent().unwrap_or(&root);
        fs::create_dir_all(folder).map_err(io("making", folder))?;
        fs::copy(file, &to).map_err(io("copying", file))?;
    }
    let ways: [&[&str]; 2] = [&["unshare", "--map-root-user", "--net", "chroot"], &["chroot"]];
    let start = |way: &[&str], args: &[&str]| {
        let mut command = Command::new(way[0]);
        command.args(&way[1..]).arg(&root).arg("/topoforge").args(args);
        // Nothing of this machine's environment either.
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    };
    let mut refusals = Vec::new();
    for way in ways {
        // Whether the way is open is asked with a program of the system, so that a fault of ours is not taken for that.
        let mut probe = Command::new(way[0]);
        probe.args(&way[1..]).arg("/").arg("true");
        match capture(&mut probe, false) {
            Ok(_) => {
                all(contents, &|args| start(way, args))?;
                doctor(&mut start(way, &["doctor"]))?;
                return Ok(format!(
                    "{} commands ran in a bare root ({})",
                    COMMANDS.len() + 1,
                    way.join(" ")
                ));
            }
            Err(failure) => refusals.push(failure.to_string()),
        }
    }
    Ok(format!("not run: no way into a bare root: {}", refusals.join("; ")))
}

fn all(contents: Option<&Contents>, command: &dyn Fn(&[&str]) -> Command) -> Done {
    let mut said = Vec::new();
    for args in COMMANDS {
        let output = capture(&mut command(args), false)?;
        if output.trim().is_empty() {
            return Err(Failure::new(format!("`topoforge {}` said nothing", args.join(" "))));
        }
        said.push(output);
    }
    let faults = contents.map_or_else(Vec::new, |contents| contents.faults(&said[0], &said[1]));
    if faults.is_empty() {
        return Ok(());
    }
    let what = "the program does not hold what a distribution holds";
    Err(faults.into_iter().fold(Failure::new(what), Failure::tried))
}

/// There is no driver in a bare root: that must be found, said, and be no crash.
fn doctor(command: &mut Command) -> Done {
    let output = command
        .output()
        .map_err(|error| Failure::new(format!("`{}` cannot be started: {error}", shown(command))))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(1) && said.contains("driver") && !said.contains("panicked") {
        return Ok(());
    }
    Err(Failure::new(format!(
        "`topoforge doctor` without a driver ended with {}: {said}",
        output.status
    )))
}

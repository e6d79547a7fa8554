//! The source bundle: everything that git knows of the checkout, and every crate that it needs, for machines without a
//! network.
//!
//! Equal commits give equal bundles: names in order, one owner, the commit's time. Start at [`make`]; [`prove`] builds one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Done, Failure, io};
use crate::steps::{capture, cargo, program, run, workspace};

/// Makes `folder/NAME.tar.gz` and returns its path.
pub fn make(folder: &Path, name: &str, work: &Path) -> Done<PathBuf> {
    let stage = work.join("bundle");
    let _ = fs::remove_dir_all(&stage);
    let tree = stage.join(name);
    for file in files()? {
        let (from, to) = (workspace().join(&file), tree.join(&file));
        let folder = to.parent().unwrap_or(&tree);
        fs::create_dir_all(folder).map_err(io("making", folder))?;
        fs::copy(&from, &to).map_err(io("copying", &from))?;
    }
    // Cargo says itself what has to be written where, so that it takes crates from the folder.
    let mut vendor = cargo(&["vendor", "--locked", "vendor"]);
    let sources = capture(vendor.current_dir(&tree), false)
        .map_err(|failure| failure.todo("crates that are not here yet are fetched: connect to the network"))?;
    let settings = tree.join(".cargo/config.toml");
    let mut text = fs::read_to_string(&settings).unwrap_or_default();
    text.push_str("\n# Every crate is here: nothing is fetched.\n");
    text.push_str(&sources);
    text.push_str("\n[net]\noffline = true\n");
    fs::create_dir_all(tree.join(".cargo")).map_err(io("making", &settings))?;
    fs::write(&settings, text).map_err(io("writing", &settings))?;
    let bundle = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--format=gnu",
    ])
    .arg(format!("--mtime=@{}", commit_time()?))
    .arg("--use-compress-program=gzip -n9")
    .arg("--create")
    .arg("--file")
    .arg(&bundle)
    .arg("--directory")
    .arg(&stage)
    .arg(name);
    run(&mut tar)?;
    let _ = fs::remove_dir_all(&stage);
    Ok(bundle)
}

/// Unpacks a bundle and builds it as on a machine without network, cargo's own store of crates or nvcc.
pub fn prove(bundle: &Path, work: &Path) -> Done {
    let place = work.join("unpacked");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).map_err(io("making", &place))?;
    let mut tar = Command::new("tar");
    run(tar
        .arg("--extract")
        .arg("--file")
        .arg(bundle)
        .arg("--directory")
        .arg(&place))?;
    let mut trees = fs::read_dir(&place).map_err(io("reading", &place))?.flatten();
    let tree = trees
        .next()
        .map(|entry| entry.path())
        .ok_or_else(|| Failure::new("the bundle is empty"))?;
    let home = place.join("empty-cargo-home");
    fs::create_dir_all(&home).map_err(io("making", &home))?;
    let mut build = Command::new(program("CARGO", "cargo"));
    build
        .args(["run", "--offline", "--quiet", "--bin", "topoforge", "--", "families"])
        .current_dir(&tree)
        .env("CARGO_HOME", &home)
        .env("CARGO_TARGET_DIR", tree.join("target"))
        .env("TOPOFORGE_NVCC", "none");
    for name in ["TOPOFORGE_TOPOLOGIES", "TOPOFORGE_CACHE", "RUSTFLAGS"] {
        build.env_remove(name);
    }
    let said = capture(&mut build, true)?;
    if !said.contains("nvlink-pair") {
        return Err(Failure::new("the program built from the bundle lists no families").tried(said));
    }
    fs::remove_dir_all(&place).map_err(io("removing", &place))
}

/// What git knows of, as it is in the folder now.
fn files() -> Done<Vec<PathBuf>> {
    let mut list = Command::new("git");
    list.args(["ls-files", "-z"]).current_dir(workspace());
    let names = capture(&mut list, false).map_err(|failure| {
        Failure::new("a source bundle is made from a git checkout")
            .tried(failure.to_string())
            .todo("without one: cargo xtask dist --no-source")
    })?;
    let files = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
    // One that git knows and that was just removed is not part of what is built.
    Ok(files.filter(|file| workspace().join(file).is_file()).collect())
}

fn commit_time() -> Done<String> {
    let mut log = Command::new("git");
    log.args(["log", "-1", "--format=%ct"]).current_dir(workspace());
    Ok(capture(&mut log, false)?.trim().to_owned())
}

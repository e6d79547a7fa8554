//! A short run of every fuzz target in fuzz/, so that none stops building and easy finds show at once.
//!
//! By plain cargo with the instrumentation that libFuzzer steers by; long runs are cargo-fuzz's (fuzz/README.md). Start at
//! [`smoke`].

use std::fs;
use std::path::Path;

use crate::failure::{Done, io};
use crate::steps::{cargo, run, workspace};

/// Targets with the folder and ending of their seeds.
const TARGETS: &[(&str, &str, &str)] = &[
    ("smi", "tests/data/import", "txt"),
    ("p2p", "tests/data/import", "txt"),
    ("nccl_xml", "tests/data/import", "xml"),
    ("ron", "topologies", "ron"),
];

/// What cargo-fuzz sets, without a sanitizer: it needs no nightly toolchain.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cdebug-assertions -Ccodegen-units=1";

/// Seconds a target.
const SECONDS: u32 = 10;

/// Builds all targets and runs each for some seconds from its seeds. What is found lies in `fuzz/artifacts`.
pub fn smoke() -> Done {
    let target = workspace().join("target/fuzz");
    // With a target named, build scripts are left without the instrumentation, which they could not link.
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    for (name, seeds, ending) in TARGETS {
        let corpus = target.join("seeds").join(name);
        copy_seeds(&workspace().join(seeds), ending, &corpus)?;
        let found = workspace().join("fuzz/artifacts").join(name);
        fs::create_dir_all(&found).map_err(io("making", &found))?;
        let mut fuzz = cargo(&["run", "--quiet", "--release", "--target", &triple]);
        fuzz.args(["--manifest-path", "fuzz/Cargo.toml", "--bin", name, "--"]);
        fuzz.arg(&corpus)
            .arg(format!("-max_total_time={SECONDS}"))
            .args([
                "-max_len=8192",
                "-timeout=10",
                "-rss_limit_mb=2048",
                "-verbosity=0",
                "-print_final_stats=1",
            ])
            .arg(format!("-artifact_prefix={}/", found.display()))
            .env("RUSTFLAGS", FLAGS)
            .env("CARGO_TARGET_DIR", &target);
        eprintln!("    {name}: {SECONDS} s");
        run(&mut fuzz)?;
        // Only what is found stays; an empty folder says nothing.
        let _ = fs::remove_dir(&found);
    }
    let _ = fs::remove_dir(workspace().join("fuzz/artifacts"));
    Ok(())
}

fn copy_seeds(from: &Path, ending: &str, to: &Path) -> Done {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).map_err(io("making", to))?;
    for entry in fs::read_dir(from).map_err(io("reading", from))?.flatten() {
        let file = entry.path();
        if file.extension().is_some_and(|end| end == ending) {
            fs::copy(&file, to.join(entry.file_name())).map_err(io("copying", &file))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fuzz_target_is_run_and_has_seeds() {
        let manifest = include_str!("../../fuzz/Cargo.toml");
        let mut named: Vec<&str> = (manifest.lines())
            .filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")?.strip_suffix(".rs\""))
            .collect();
        let mut run: Vec<&str> = TARGETS.iter().map(|(name, ..)| *name).collect();
        named.sort_unstable();
        run.sort_unstable();
        assert_eq!(named, run);
        for (name, folder, ending) in TARGETS {
            let seeds = fs::read_dir(workspace().join(folder)).unwrap().flatten();
            let seeds = seeds.filter(|seed| seed.path().extension().is_some_and(|end| end == *ending));
            assert!(seeds.count() > 3, "{name}");
        }
    }
}

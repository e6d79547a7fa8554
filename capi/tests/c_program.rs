//! A C program, compiled against the checked-in header and run with the library.
#![cfg(feature = "host-executor")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library, which cargo does not build for a test that does not link with it: built here, into the same folder and with
/// the features that the workspace has.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let folder = test
        .parent()
        .and_then(Path::parent)
        .expect("target/debug or target/release");
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args([
        "build",
        "--lib",
        "-p",
        "topoforge",
        "-p",
        "topoforge-capi",
        "--target-dir",
    ]);
    build
        .arg(folder.parent().expect("the target folder"))
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    if folder.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().expect("cargo").success(), "the library does not build");
    folder.join("libtopoforge.so")
}

#[test]
fn a_c_program_sums_is_refused_misuse_and_told_that_there_is_no_gpu() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = library();
    assert!(library.exists(), "{} is not built", library.display());
    let folder = std::env::temp_dir().join(format!("topoforge-capi-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let program = folder.join("program");
    let compiled = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-I"])
        .arg(here.join("include"))
        .arg(here.join("tests/program.c"))
        .arg(&library)
        .args(["-lpthread", "-o"])
        .arg(&program)
        .status()
        .expect("a C compiler");
    assert!(compiled.success(), "the program does not compile");
    let has_gpu = Path::new("/dev/nvidiactl").exists();
    let run = Command::new(&program)
        .arg(if has_gpu { "gpu" } else { "no-gpu" })
        .env("LD_LIBRARY_PATH", library.parent().expect("a folder"))
        .env_remove("TOPOFORGE_POLICY")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success() && said.contains("all as it should be"),
        "{said}\n{run:?}"
    );
    let _ = std::fs::remove_dir_all(folder);
}

/// The same header for C++.
#[test]
fn the_header_is_c_plus_plus_too() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()))
        .args([
            "-std=c++11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsyntax-only",
            "-x",
            "c++",
        ])
        .arg(here.join("include/topoforge.h"))
        .status()
        .expect("a C++ compiler");
    assert!(compiled.success());
}

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

/// What the binding says on a machine without a GPU, in place of a crash. `torch` is a stand-in without CUDA.
const PYTHON: &str = r#"
import sys, types
sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: False))
import topoforge
assert topoforge.version() and len(topoforge.new_id()) == 128
def said(call):
    try:
        call()
    except (topoforge.Error, RuntimeError, TypeError) as error:
        return str(error)
    raise AssertionError("not refused")
def misses(text, word):
    return [] if word in text else [f"no `{word}` in: {text}"]
new, join = topoforge.new_id, topoforge.Communicator.from_rank
wrong = misses(said(topoforge.Communicator.from_torchrun), "torch finds no GPU")
wrong += misses(said(lambda: join(0, 2, b"x", 0)), "no id of tf_id_new")
wrong += misses(said(lambda: join(5, 2, new(), 0)), "ranks go from 0")
if sys.argv[1] == "no-gpu":
    wrong += misses(said(lambda: join(0, 1, new(), 0)), "install the NVIDIA driver")
print("\n".join(wrong) or "all as it should be")
"#;

/// Skipped, and says so, without python3.
#[test]
fn the_python_binding_says_in_words_what_is_missing() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: no python3 here");
        return;
    }
    let has_gpu = Path::new("/dev/nvidiactl").exists();
    let run = Command::new("python3")
        .args(["-c", PYTHON, if has_gpu { "gpu" } else { "no-gpu" }])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/python"))
        .env("TOPOFORGE_LIBRARY", library())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&run.stdout);
    assert_eq!(said.trim(), "all as it should be", "{run:?}");
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

//! What engines build on, checked with features and crates that the workspace's own tests leave out: the operation on
//! candle tensors, on the CPU and compiled for CUDA, and one file of calls compiled against cudarc's NCCL and against
//! topoforge. Start at [`check`].

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::failure::{Done, Failure, io};
use crate::setup::Ready;
use crate::steps::{cargo, run, workspace};

/// candle's build script compiles candle's own kernels, which takes minutes and the whole of CUDA. For types nothing of
/// them is needed: this answers in place of nvcc and makes empty files.
const NO_NVCC: &str = r#"#!/bin/sh
case "$1" in
--version)
  printf 'a stand-in for nvcc\n\n\nCuda compilation tools, release 12.8, V12.8.93\n'; exit ;;
--list-gpu-code)
  echo sm_90; exit ;;
esac
folder=. made= last=
while [ $# -gt 0 ]; do
  case "$1" in
  -o) made=$2; shift ;;
  --output-directory) folder=$2; shift ;;
  esac
  last=$1; shift
done
[ -n "$made" ] || made=$folder/$(basename "$last" .cu).ptx
: > "$made"
"#;

/// Tests on candle's CPU tensors, types with candle's CUDA, then the drop-in. Each has a target folder of its own, so that
/// the other features do not rebuild everybody's.
pub fn check(ready: &Ready) -> Done {
    let mut candle = cargo(&[
        "test",
        "--features",
        "candle",
        "--test",
        "candle",
        "--example",
        "row_parallel",
    ]);
    ready.hand_to(&mut candle);
    candle.env("CARGO_TARGET_DIR", workspace().join("target/candle"));
    run(&mut candle)?;
    candle_cuda(&workspace().join("target/candle"))?;
    let mut drop_in = cargo(&["check", "--manifest-path", "examples/drop-in/Cargo.toml"]);
    // Only types count.
    drop_in.env("TOPOFORGE_NVCC", "none");
    drop_in.env("CARGO_TARGET_DIR", workspace().join("target/drop-in"));
    run(&mut drop_in)
}

/// Whether the operation on candle's CUDA tensors compiles against candle as it is published.
fn candle_cuda(target: &Path) -> Done {
    let folder = target.join("stand-in");
    fs::create_dir_all(&folder).map_err(io("making", &folder))?;
    let nvcc = folder.join("nvcc");
    fs::write(&nvcc, NO_NVCC).map_err(io("writing", &nvcc))?;
    fs::set_permissions(&nvcc, fs::Permissions::from_mode(0o755)).map_err(io("changing the mode of", &nvcc))?;
    let mut path: Vec<PathBuf> = vec![folder];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(path).map_err(|error| Failure::new(format!("PATH: {error}")))?;
    let mut check = cargo(&["check", "--features", "candle-cuda", "--lib"]);
    check
        .env("PATH", path)
        .env("NVCC", &nvcc)
        .env("CUDA_COMPUTE_CAP", "90")
        // Ours are built elsewhere, and not by a stand-in.
        .env("TOPOFORGE_NVCC", "none")
        .env("CARGO_TARGET_DIR", target);
    run(&mut check)
}

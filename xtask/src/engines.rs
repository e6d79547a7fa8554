//! What engines build on, checked with features and crates that the workspace's own tests leave out: the operation on
//! candle tensors, and one file of calls compiled against cudarc's NCCL and against topoforge.

use crate::failure::Done;
use crate::setup::Ready;
use crate::steps::{cargo, run, workspace};

/// Tests on candle's CPU tensors, then the drop-in. Each has a target folder of its own, so that the other features do not
/// rebuild everybody's.
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
    let mut drop_in = cargo(&["check", "--manifest-path", "examples/drop-in/Cargo.toml"]);
    // Only types count.
    drop_in.env("TOPOFORGE_NVCC", "none");
    drop_in.env("CARGO_TARGET_DIR", workspace().join("target/drop-in"));
    run(&mut drop_in)
}

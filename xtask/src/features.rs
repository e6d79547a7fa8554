//! topoforge's features: each alone, none, and all at once.
//!
//! Alone they are checked by `cargo check` without nvcc, which is quick; all together they are built with the toolkits
//! found, and every kernel of every element type is proven on the host executor. Start at [`alone`] and [`together`].

use crate::failure::Done;
use crate::setup::Ready;
use crate::steps::{cargo, run};

/// Every feature but the groups, as topoforge's Cargo.toml has them.
const FEATURES: &[&str] = &[
    "cli",
    "host-executor",
    "nvml",
    "nccl",
    "cudarc-nccl",
    "f16",
    "bf16",
    "f32",
    "nvlink",
    "nvswitch",
    "pcie",
    "mixed",
    "host-staged",
    "sm-70",
    "sm-75",
    "sm-80",
    "sm-86",
    "sm-89",
    "sm-90",
    "sm-100",
    "sm-103",
    "sm-110",
    "sm-120",
    "sm-121",
    "require-cuda",
];

/// No feature, then each on its own.
pub fn alone(ready: &Ready) -> Done {
    for feature in std::iter::once(&"").chain(FEATURES) {
        // Without an architecture to build for, `require-cuda` refuses by design.
        let (asked, needs_nvcc) = match *feature {
            "require-cuda" => ("require-cuda,sm-90", true),
            other => (other, false),
        };
        eprintln!("    {}", if asked.is_empty() { "no feature" } else { asked });
        let mut args = vec!["check", "--quiet", "-p", "topoforge", "--no-default-features"];
        args.extend(["--features", asked, "--lib"]);
        if asked == "cli" {
            args.push("--bins");
        }
        let mut command = cargo(&args);
        if needs_nvcc {
            ready.hand_to(&mut command);
        } else {
            command.env("TOPOFORGE_NVCC", "none");
        }
        run(&mut command)?;
    }
    Ok(())
}

/// All of them but the engines: builds, and proves every element type's kernels on the host executor.
pub fn together(ready: &Ready) -> Done {
    let all = FEATURES.join(",");
    let mut command = cargo(&[
        "test",
        "-p",
        "topoforge",
        "--features",
        &all,
        "--test",
        "families",
        "--test",
        "host_executor",
    ]);
    ready.hand_to(&mut command);
    run(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_feature_of_topoforge_is_left_out() {
        let manifest = include_str!("../../Cargo.toml");
        let (_, rest) = manifest.split_once("[features]\n").expect("a table of features");
        let table = rest.split_once("\n[").map_or(rest, |(table, _)| table);
        // Engines are built apart, in a target folder of their own: candle takes minutes.
        let groups = [
            "default",
            "standard",
            "all-families",
            "all-archs",
            "candle",
            "candle-cuda",
        ];
        let mut named: Vec<&str> = (table.lines())
            .filter_map(|line| line.split_once(" = ["))
            .map(|(name, _)| name.trim())
            .filter(|name| !groups.contains(name))
            .collect();
        let mut checked = FEATURES.to_vec();
        named.sort_unstable();
        checked.sort_unstable();
        assert_eq!(named, checked);
    }
}

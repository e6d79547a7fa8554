//! What a change has to pass. Cheap checks come first, and the test runner's summary comes last.

use std::ffi::OsString;

use crate::engines;
use crate::failure::Done;
use crate::setup::{self, Ready, Wish};
use crate::steps::{Steps, cargo};
use crate::{dist, features, fuzz, tutorials};

/// Set-up, format, lints, documentation, tests.
pub fn test() -> Done {
    let nextest = has_nextest();
    let mut steps = Steps::new(if nextest { 7 } else { 6 }).leaving_last_word();
    let ready = steps.step("set up the CUDA compiler", || setup::run(Wish::default()))?;
    lints(&mut steps, &ready)?;
    steps.step("the quick parts of the tutorials", || tutorials::run(&ready, true))?;
    tests(&mut steps, &ready, nextest)
}

/// The same with both toolkits at once, the long tests, a build that must do without nvcc, each feature alone and all of
/// them, a crate that depends on this one, the tutorials, the source bundle, candle with CUDA, and fuzz targets.
pub fn more() -> Done {
    let mut steps = Steps::new(14).leaving_last_word();
    let wish = Wish {
        distribution: true,
        cuda13: true,
    };
    let ready = steps.step("set up both CUDA compilers", || setup::run(wish))?;
    let mut without = cargo(&["check", "--workspace", "--all-targets"]);
    without.env("TOPOFORGE_NVCC", "none");
    steps.command(without)?;
    lints(&mut steps, &ready)?;
    steps.step("each feature alone", || features::alone(&ready))?;
    steps.step("all features: every element type on the host executor", || {
        features::together(&ready)
    })?;
    steps.step("examples/dependent", || tutorials::dependent(&ready))?;
    steps.step("the tutorials", || tutorials::run(&ready, false))?;
    steps.step("the source bundle, without a network", dist::prove_bundle)?;
    steps.step("what engines build on", || engines::check(&ready))?;
    steps.step("ten seconds of every fuzz target", fuzz::smoke)?;
    // Documentation first and as it is: its ignored programs are not meant to compile.
    let mut documentation = cargo(&["test", "--workspace", "--doc", "--no-fail-fast"]);
    ready.hand_to(&mut documentation);
    steps.command(documentation)?;
    // By plain cargo: nextest spells the choice of ignored tests differently.
    let all = [
        "test",
        "--workspace",
        "--lib",
        "--bins",
        "--tests",
        "--no-fail-fast",
        "--",
        "--include-ignored",
    ];
    let mut long = cargo(&all);
    ready.hand_to(&mut long);
    steps.command(long)
}

fn lints(steps: &mut Steps, ready: &Ready) -> Done {
    steps.command(cargo(&["fmt", "--all", "--check"]))?;
    let mut clippy = cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    ready.hand_to(&mut clippy);
    steps.command(clippy)?;
    let mut doc = cargo(&["doc", "--no-deps", "--workspace"]);
    ready.hand_to(&mut doc);
    let mut flags = std::env::var_os("RUSTDOCFLAGS").unwrap_or_default();
    flags.push(OsString::from(" -Dwarnings"));
    doc.env("RUSTDOCFLAGS", flags);
    steps.command(doc)
}

fn tests(steps: &mut Steps, ready: &Ready, nextest: bool) -> Done {
    let mut parts = vec![vec!["test", "--workspace", "--no-fail-fast"]];
    if nextest {
        // nextest runs no documentation tests.
        parts = vec![
            vec!["test", "--workspace", "--doc", "--no-fail-fast"],
            vec!["nextest", "run", "--workspace", "--no-fail-fast"],
        ];
    }
    for args in parts {
        let mut command = cargo(&args);
        ready.hand_to(&mut command);
        steps.command(command)?;
    }
    Ok(())
}

fn has_nextest() -> bool {
    cargo(&["nextest", "--version"])
        .output()
        .is_ok_and(|output| output.status.success())
}

//! `cargo xtask`: from a fresh clone to a running demonstration, and everything a change has to pass.
//!
//! The tasks call cargo, the machine's package tools and the built binary, and say what they run and how long it took.
//! Nothing here is linked into topoforge, and nothing here opens a CUDA library. Start at [`main`].

mod a2a;
mod calibration;
mod checks;
mod demo;
mod dist;
mod engines;
mod failure;
mod features;
mod fuzz;
mod setup;
mod steps;
mod tutorials;

use std::process::ExitCode;

use failure::Failure;

const HELP: &str = "\
cargo xtask <task>

  setup         find nvcc, or fetch the CUDA compiler into .toolkit (no root, nothing installed)
    --cuda11      fetch the distribution's CUDA 11 or 12 (for sm_70) even if another nvcc is found
    --cuda13      fetch CUDA 13 as well (sm_100 to sm_121)
  demo          set up, build, prove every family and tune one; without a GPU on the host executor
  test          set up, then format, lints, documentation and all tests
  check-more    test, then with both toolkits, each feature alone and all, the long tests, a build without nvcc
  a2a-gap       gaps of AlltoAllv plans to proved optima and lower bounds (builds a solver, about two minutes)
  a2a-sweep     AlltoAllv plans against what others would do: the tables of docs/alltoallv.md (some minutes)
  tutorials     run the commands of the tutorials in docs/
    --quick       only those that need no build
  fuzz          ten seconds of every fuzz target
  dependent     build and run examples/dependent, a crate that brings its own descriptors
  dist          make the one-file programs for clusters and the source bundle in target/dist
    --only ARCH   x86_64 or aarch64 only
    --elements L  some of f16,bf16,f32 (all of them)
    --no-source   no source bundle
    --check FILE  only judge and run a program that is there already
  calibration   fit the cost model on published figures and print its errors
  help          this text

Environment read by set-up and by every build:
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        [] | ["help" | "--help" | "-h", ..] => {
            help();
            Ok(())
        }
        ["setup", flags @ ..] => setup::Wish::parse(flags).and_then(|wish| {
            let ready = setup::run(wish)?;
            ready.print();
            Ok(())
        }),
        ["tutorials"] => setup::run(setup::Wish::default()).and_then(|ready| tutorials::run(&ready, false)),
        ["tutorials", "--quick"] => setup::run(setup::Wish::default()).and_then(|ready| tutorials::run(&ready, true)),
        ["dependent"] => setup::run(setup::Wish::default()).and_then(|ready| tutorials::dependent(&ready)),
        ["dist", "--check", file] => dist::check_file(file.as_ref()),
        ["dist", flags @ ..] => dist::Plan::parse(flags).and_then(|plan| dist::run(&plan)),
        ["fuzz"] => fuzz::smoke(),
        ["demo"] => demo::run(),
        ["test"] => checks::test(),
        ["check-more"] => checks::more(),
        ["a2a-gap"] => a2a::gap(),
        ["a2a-sweep"] => a2a::sweep(),
        ["calibration"] => {
            calibration::run();
            Ok(())
        }
        other => Err(Failure::new(format!("no task `{}`", other.join(" "))).todo("`cargo xtask help` lists the tasks")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn help() {
    print!("{HELP}");
    for var in topoforge_codegen::env::ALL {
        println!("  {:<22} {}", var.name, var.meaning);
    }
}

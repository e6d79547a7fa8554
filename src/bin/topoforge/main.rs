//! The `topoforge` command: plan, prove, time and match from a terminal or a script.
//!
//! It holds no logic that a library user would need: commands ask the library and hand what they get to `report`, the
//! one place that prints. Exit code 0 only on success, 1 when the work failed, 2 on bad usage or unreadable input. Start
//! at `main`, then `args`.

mod args;
mod commands;
mod device;
mod failure;
mod names;
mod progress;
mod report;

use args::{Args, Command};
use clap::{CommandFactory, FromArgMatches};
use failure::{Failure, Outcome};
use report::Output;
use std::process::ExitCode;

fn main() -> ExitCode {
    let matches = match Args::command().long_version(report::long_version()).try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return usage(&error),
    };
    let args = match Args::from_arg_matches(&matches) {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    let mut output = Output::new(args.json, args.quiet);
    match run(&args.command, &mut output) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Failed(reason)) => {
            output.error(&reason);
            ExitCode::from(1)
        }
        Err(failure) => {
            output.failure(&failure);
            ExitCode::from(failure.code())
        }
    }
}

fn run(command: &Command, output: &mut Output) -> Result<Outcome, Failure> {
    match command {
        Command::Families => commands::inventory::families(output),
        Command::Devices => commands::inventory::devices(output),
        Command::Version => commands::inventory::version(output),
        Command::Plan(args) => commands::plan::run(args, output),
        Command::Simulate(args) => commands::simulate::run(args, output),
        Command::Match(args) => commands::matching::run(args, output),
        Command::Probe(args) => commands::machine::probe(args, output),
        Command::Explain(args) => commands::machine::explain(args, output),
        Command::Doctor(args) => commands::doctor::run(args, output),
        Command::Qualify(args) => commands::qualify::run(args, output),
        Command::Tune(args) => commands::tune::run(args, output),
        Command::Bench(args) => commands::bench::run(args, output),
        Command::Floor(args) => commands::floor::run(args, output),
        Command::Rank(args) => commands::rank::run(args, output),
        Command::Launch(args) => commands::launch::run(args, output),
        Command::Start(args) => commands::start::run(args, output),
        Command::Soak(args) => commands::soak::run(args, output),
        Command::Alltoallv(command) => commands::alltoallv::run(command, output),
    }
}

/// Help and versions go to stdout with code 0, faults to stderr with code 2.
fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // The parser never got to tell us.
        let json = std::env::args_os().any(|a| a == "--json");
        Output::new(json, false).failure_of_usage(error);
    } else {
        let printed = error
            .print()
            .and_then(|()| std::io::Write::flush(&mut std::io::stdout()));
        // A reader that has gone away wants no help; a full disk is a failure like any other.
        if let Err(e) = printed
            && e.kind() != std::io::ErrorKind::BrokenPipe
        {
            Output::new(false, false).error(&format!("cannot write to stdout: {e}"));
            return ExitCode::from(1);
        }
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

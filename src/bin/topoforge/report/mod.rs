//! All reports: one JSON document or tables on stdout, everything else on stderr.
//!
//! Commands fill in the structs of the submodules; nothing else in this program writes to stdout. Field names here are
//! the JSON's and part of format 1: add, never rename. Start at [`Output::emit`].

pub mod alltoallv;
pub mod chart;
pub mod cuda;
pub mod doctor;
pub mod figures;
pub mod floor;
mod head;
pub mod inventory;
pub mod machine;
pub mod nccl_tests;
pub mod plans;
pub mod proofs;
pub mod ranks;
pub mod simulation;
pub mod soak;
mod table;
pub mod took;

pub use inventory::long_version;

use crate::failure::Failure;
use crate::progress::Progress;
use serde::Serialize;
use std::io::{ErrorKind, Write, stderr, stdout};

/// Version of the JSON.
const FORMAT: u32 = 1;

/// What can be reported.
pub trait Report: Serialize {
    /// For people; ends with a line break.
    fn text(&self) -> String;
}

#[derive(Serialize)]
struct Document<'a, R> {
    format: u32,
    #[serde(flatten)]
    report: &'a R,
}

/// A failure as a document, so that whoever asked for JSON always gets one.
#[derive(Serialize)]
struct FailureReport<'a> {
    error: FailureBody<'a>,
}

#[derive(Serialize)]
struct FailureBody<'a> {
    exit_code: u8,
    messages: &'a [String],
}

impl Report for FailureReport<'_> {
    /// Only JSON has it on stdout.
    fn text(&self) -> String {
        String::new()
    }
}

/// Where text goes.
#[derive(Debug)]
pub struct Output {
    json: bool,
    quiet: bool,
    progress: Progress,
}

impl Output {
    /// As the global flags say.
    pub fn new(json: bool, quiet: bool) -> Self {
        Self {
            json,
            quiet,
            progress: Progress::new(quiet),
        }
    }

    /// Prints the report. A reader that has gone away is no fault of ours.
    ///
    /// # Errors
    /// Stdout cannot be written.
    pub fn emit<R: Report>(&mut self, report: &R) -> Result<(), Failure> {
        self.progress.clear();
        let text = if self.json {
            let document = Document { format: FORMAT, report };
            let mut text = serde_json::to_string_pretty(&document)
                .map_err(|e| Failure::work(format!("the report cannot be written as JSON: {e}")))?;
            text.push('\n');
            text
        } else {
            report.text()
        };
        let mut out = stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::work(format!("cannot write to stdout: {e}"))),
            _ => Ok(()),
        }
    }

    /// The line of progress.
    pub fn show(&mut self, text: &str) {
        self.progress.show(text);
    }

    /// Something worth knowing.
    pub fn note(&mut self, text: &str) {
        if !self.quiet {
            self.line("note", text);
        }
    }

    /// Something that should not be overlooked.
    pub fn warn(&mut self, text: &str) {
        self.line("warning", text);
    }

    /// Why the exit code is not 0.
    pub fn error(&mut self, text: &str) {
        self.line("error", text);
    }

    /// Why there is no report; with `--json` as a document as well.
    pub fn failure(&mut self, failure: &Failure) {
        self.fail(failure.code(), failure.lines());
        for line in failure.lines() {
            self.error(line);
        }
    }

    /// The same for what the parser of arguments says, in its own words.
    pub fn failure_of_usage(&mut self, error: &clap::Error) {
        let text = error.render().to_string();
        // Behind the first gap come usage and a pointer to the help.
        let said = text.lines().take_while(|line| !line.trim().is_empty());
        let said: Vec<String> = said
            .map(|line| line.trim_start_matches("error: ").trim().to_owned())
            .collect();
        self.fail(2, &said);
        let _ = error.print();
    }

    fn fail(&mut self, exit_code: u8, messages: &[String]) {
        let error = FailureBody { exit_code, messages };
        if self.json {
            // There is nobody left to tell when this fails too.
            let _ = self.emit(&FailureReport { error });
        }
    }

    /// Nothing to do about a stderr that is gone.
    fn line(&mut self, kind: &str, text: &str) {
        self.progress.clear();
        let _ = writeln!(stderr(), "{kind}: {text}");
    }
}

//! Runs the steps of a task one after the other: says each before it runs, and how long it took.
//!
//! The last step of a task is left the last word, so that what a test runner prints at its end stays at the end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::failure::{Done, Failure};

/// The folder of the workspace.
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// A program of Rust's tools: what the variable names, else its usual name.
pub fn program(variable: &str, name: &str) -> OsString {
    std::env::var_os(variable).unwrap_or_else(|| name.into())
}

/// A cargo command in the workspace, by the cargo that runs this task.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(program("CARGO", "cargo"));
    command.args(args).current_dir(workspace());
    command
}

/// Numbers and times the steps of one task.
pub struct Steps {
    number: usize,
    total: usize,
    last_speaks: bool,
}

impl Steps {
    /// A task of `total` steps.
    pub fn new(total: usize) -> Self {
        Steps {
            number: 0,
            total,
            last_speaks: false,
        }
    }

    /// Prints nothing after the last step has succeeded.
    pub fn leaving_last_word(mut self) -> Self {
        self.last_speaks = true;
        self
    }

    /// Announces a step, does it, says how long it took.
    pub fn step<T>(&mut self, title: &str, work: impl FnOnce() -> Done<T>) -> Done<T> {
        self.number += 1;
        eprintln!("==> [{}/{}] {title}", self.number, self.total);
        let start = Instant::now();
        let result = work();
        let took = start.elapsed().as_secs_f64();
        let ended = if result.is_ok() { "done" } else { "FAILED" };
        if result.is_err() || self.number < self.total || !self.last_speaks {
            eprintln!("    {ended} in {took:.1} s");
        }
        result
    }

    /// A step that is one command; its output goes straight through.
    pub fn command(&mut self, mut command: Command) -> Done {
        let shown = shown(&command);
        self.step(&shown, || run(&mut command))
    }
}

/// Runs a command with its output going straight through.
pub fn run(command: &mut Command) -> Done {
    let status = command
        .stdin(Stdio::null())
        .status()
        .map_err(|error| Failure::new(format!("`{}` cannot be started: {error}", shown(command))))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("`{}` ended with {status}", shown(command))))
    }
}

/// Runs a command and returns its standard output; its messages go through when `loud`, else into the failure.
pub fn capture(command: &mut Command, loud: bool) -> Done<String> {
    let stderr = if loud { Stdio::inherit() } else { Stdio::piped() };
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .and_then(|child| child.wait_with_output())
        .map_err(|error| Failure::new(format!("`{}` cannot be started: {error}", shown(command))))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let tail = lines[lines.len().saturating_sub(6)..].join("\n");
    Err(Failure::new(format!(
        "`{}` ended with {}\n{tail}",
        shown(command),
        output.status
    )))
}

/// The text value of `"key"` in a JSON document in which that key stands once. Numbers and null give `None`.
pub fn text_of(json: &str, key: &str) -> Option<String> {
    let after = json.split_once(&format!("\"{key}\""))?.1;
    let value = after.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let mut text = String::new();
    let mut chars = value.chars();
    loop {
        match chars.next()? {
            '"' => return Some(text),
            '\\' => text.push(chars.next()?),
            other => text.push(other),
        }
    }
}

/// The program that a cargo command built, from its messages in JSON: the target folder may be anywhere.
pub fn built(messages: &str) -> Done<PathBuf> {
    messages
        .lines()
        .filter_map(|line| text_of(line, "executable"))
        .next_back()
        .map(PathBuf::from)
        .ok_or_else(|| Failure::new("cargo built no binary `topoforge`"))
}

/// The command as one line.
pub fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words = vec![program.file_name().unwrap_or(program.as_os_str()).to_string_lossy()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy()));
    words.join(" ")
}

//! Runs the command and reads what it says. No test stands here.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The command without GPUs, whatever the machine has.
pub fn command(line: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_topoforge"));
    command
        .args(line)
        .env("CUDA_VISIBLE_DEVICES", "")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null());
    command
}

/// What came of it.
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs it to the end; a signal or a panic is a failed test.
pub fn run(line: &[&str]) -> Ran {
    ran(line, command(line).output().expect("the command starts"))
}

pub fn ran(line: &[&str], output: Output) -> Ran {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    let code = output
        .status
        .code()
        .unwrap_or_else(|| panic!("{line:?} was killed: {stderr}"));
    assert!(
        code <= 2 && !stderr.contains("panicked"),
        "{line:?} ended with {code}: {stderr}"
    );
    Ran { code, stdout, stderr }
}

impl Ran {
    /// Stdout as the one document that it must be.
    pub fn document(&self) -> Value {
        let mut documents = serde_json::Deserializer::from_str(&self.stdout).into_iter::<Value>();
        let first = documents
            .next()
            .unwrap_or_else(|| panic!("no document; stderr: {}", self.stderr));
        let first = first.unwrap_or_else(|e| panic!("{e}: {}", self.stdout));
        assert!(documents.next().is_none(), "more than one document: {}", self.stdout);
        assert_eq!(first["format"], 1, "{first}");
        first
    }
}

/// A fresh file of this test's own.
#[allow(dead_code)]
pub fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("writable");
    path
}

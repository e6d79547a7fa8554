//! `cargo xtask tutorials`: runs the commands of the tutorials in docs/ as they stand there, and looks for what they promise.
//!
//! A block ```` ```sh ```` is run, one marked `quick` in quick runs too; all blocks of a page share one shell in an empty folder.
//! Each line of an ```` ```output ```` block must stand in what the block before it printed, in this order. Other blocks
//! (`console`) are for reading only. In the shell, `topoforge` is the workspace's own and `$TOPOFORGE` its folder. Start at [`run`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::{Done, Failure, io};
use crate::setup::Ready;
use crate::steps::{Steps, built, capture, cargo, workspace};

/// The pages, in the order of the README.
const PAGES: &[&str] = &["tutorial-descriptor", "tutorial-crate", "tutorial-one-file"];

/// A block of commands and what they must print.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Block {
    /// Line of the page on which its commands begin.
    line: usize,
    quick: bool,
    commands: String,
    expected: Vec<String>,
}

/// Runs all pages, or of all pages what needs no build.
pub fn run(ready: &Ready, quick: bool) -> Done {
    let mut steps = Steps::new(1 + PAGES.len());
    let binary = steps.step("cargo build --bin topoforge", || {
        let mut build = cargo(&[
            "build",
            "--bin",
            "topoforge",
            "--message-format",
            "json-render-diagnostics",
        ]);
        ready.hand_to(&mut build);
        built(&capture(build.env_remove("TOPOFORGE_TOPOLOGIES"), true)?)
    })?;
    for page in PAGES {
        let file = workspace().join("docs").join(format!("{page}.md"));
        let text = fs::read_to_string(&file).map_err(io("reading", &file))?;
        let mut blocks = blocks(&text)?;
        blocks.retain(|block| block.quick || !quick);
        steps.step(&format!("docs/{page}.md: {} blocks", blocks.len()), || {
            follow(page, &blocks, &binary, ready)
        })?;
    }
    Ok(())
}

/// Runs a page's blocks in one shell and judges what each printed.
fn follow(page: &str, blocks: &[Block], binary: &Path, ready: &Ready) -> Done {
    let folder = workspace().join("target/tutorials").join(page);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(io("making", &folder))?;
    let mut script = String::from("set -euo pipefail\nexec 2>&1\n");
    for (index, block) in blocks.iter().enumerate() {
        script.push_str(&format!("echo '{}'\n{}", mark(index), block.commands));
    }
    // `target/debug` and then the target folder itself, so that the builds of a page reuse what is built.
    let place = binary.parent().map(Path::to_owned).unwrap_or_default();
    let target = place.parent().map(Path::to_owned).unwrap_or_default();
    let mut path = vec![place];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let mut shell = Command::new("bash");
    shell
        .args(["--norc", "-c", &script])
        .current_dir(&folder)
        .env("TOPOFORGE", workspace())
        .env("CARGO_TARGET_DIR", target)
        .env("CUDA_VISIBLE_DEVICES", "")
        .env_remove("TOPOFORGE_TOPOLOGIES")
        .stdin(Stdio::null());
    if let Ok(path) = std::env::join_paths(path) {
        shell.env("PATH", path);
    }
    ready.hand_to(&mut shell);
    let output = shell
        .output()
        .map_err(|error| Failure::new(format!("bash cannot be started: {error}")))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    judge(page, blocks, &said, output.status.success())?;
    fs::remove_dir_all(&folder).map_err(io("removing", &folder))
}

fn mark(index: usize) -> String {
    format!("@@@ block {index}")
}

/// Whether every block ran and printed what the page says, the first that did not being named.
fn judge(page: &str, blocks: &[Block], said: &str, success: bool) -> Done {
    let mut rest = said;
    for (index, block) in blocks.iter().enumerate() {
        let at = format!("docs/{page}.md:{}", block.line);
        let Some((_, after)) = rest.split_once(&format!("{}\n", mark(index))) else {
            return Err(Failure::new(format!("{at}: the commands before it failed")).tried(tail(rest)));
        };
        let (own, later) = match after.find(&mark(index + 1)) {
            Some(end) => (&after[..end], &after[end..]),
            None => (after, ""),
        };
        if later.is_empty() && index + 1 < blocks.len() || later.is_empty() && !success {
            return Err(Failure::new(format!("{at}: its commands failed")).tried(tail(own)));
        }
        let mut unread = own;
        for line in &block.expected {
            match unread.split_once(line.as_str()) {
                Some((_, behind)) => unread = behind,
                None => {
                    return Err(Failure::new(format!("{at}: its commands do not print `{line}`")).tried(tail(own)));
                }
            }
        }
        rest = later;
    }
    Ok(())
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

/// The blocks of a page. A fence that is not closed is an error, since commands would be lost.
fn blocks(page: &str) -> Done<Vec<Block>> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        let mut body = String::new();
        loop {
            match lines.next() {
                Some((_, "```")) => break,
                Some((_, text)) => body.push_str(&format!("{text}\n")),
                None => return Err(Failure::new(format!("line {}: a block is not closed", number + 1))),
            }
        }
        match kind.split_whitespace().collect::<Vec<_>>()[..] {
            ["sh"] | ["sh", "quick"] => blocks.push(Block {
                line: number + 2,
                quick: kind.ends_with("quick"),
                commands: body,
                expected: Vec::new(),
            }),
            ["output"] => {
                let last = blocks.last_mut();
                let last = last.ok_or_else(|| Failure::new(format!("line {}: output of nothing", number + 1)))?;
                last.expected = body.lines().map(str::to_owned).collect();
            }
            _ => {}
        }
    }
    Ok(blocks)
}

/// Builds and runs `examples/dependent`: a crate outside of the workspace, as a user has it.
pub fn dependent(ready: &Ready) -> Done {
    let folder = workspace().join("examples/dependent");
    // Its crates are among the workspace's: with the same lock nothing is fetched and much is built already.
    let (from, to) = (workspace().join("Cargo.lock"), folder.join("Cargo.lock"));
    fs::copy(&from, &to).map_err(io("copying", &from))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    let mut command = cargo(&["run", "--quiet", "--offline"]);
    ready.hand_to(&mut command);
    command.current_dir(&folder).env("CARGO_TARGET_DIR", target);
    let said = capture(command.env_remove("TOPOFORGE_TOPOLOGIES"), true)?;
    for line in [
        "2 of them of this crate",
        "a machine wired as lab-trio gets lab-trio",
        "a machine wired as nvswitch-2 gets nvswitch-2",
        "lab-pair: 2 ranks got the sum",
        "lab-trio: 3 ranks got the sum",
    ] {
        if !said.contains(line) {
            return Err(Failure::new(format!("examples/dependent does not print `{line}`")).tried(said));
        }
    }
    print!("{said}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str =
        "# T\n```sh quick\none\n```\ntext\n```output\nfirst\nsecond\n```\n```console\n$ no\n```\n```sh\ntwo\n```\n";

    fn said(first: &str, second: &str) -> String {
        format!("{}\n{first}{}\n{second}", mark(0), mark(1))
    }

    #[test]
    fn commands_and_what_they_must_print_are_read_from_a_page() {
        let found = blocks(PAGE).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].line, found[0].quick, found[1].quick), (3, true, false));
        assert_eq!((found[0].commands.as_str(), found[0].expected.len()), ("one\n", 2));
        assert!(blocks("```sh\nlost\n").is_err() && blocks("```output\nof nothing\n```\n").is_err());
    }

    #[test]
    fn what_a_page_promises_must_be_printed_in_its_order_and_by_its_own_block() {
        let found = blocks(PAGE).unwrap();
        let verdict = |text: &str, success| judge("page", &found, text, success).map_err(|f| f.to_string());
        assert!(verdict(&said("first\nand second\n", "x\n"), true).is_ok());
        let wrong = verdict(&said("second\nfirst\n", "second\n"), true).unwrap_err();
        assert!(
            wrong.contains("docs/page.md:3") && wrong.contains("`second`"),
            "{wrong}"
        );
        let failed = verdict(&said("first second\n", "error\n"), false).unwrap_err();
        assert!(failed.contains("docs/page.md:14: its commands failed"), "{failed}");
        let stopped = verdict(&format!("{}\nfirst second\nno such file\n", mark(0)), false).unwrap_err();
        assert!(stopped.contains("docs/page.md:3: its commands failed"), "{stopped}");
    }

    #[test]
    fn every_tutorial_has_commands_and_some_that_are_quick() {
        for page in PAGES {
            let file = workspace().join("docs").join(format!("{page}.md"));
            let found = blocks(&fs::read_to_string(file).unwrap()).unwrap();
            assert!(!found.is_empty(), "{page}");
        }
    }
}

//! Runs compilers: one answer, or one compilation. It never goes through a shell.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Runs and collects. A program file that somebody has just written can be "busy" for a moment while another thread
/// starts a child that still holds it open, so that answer is asked again a few times.
pub(crate) fn output(command: &mut Command) -> io::Result<Output> {
    command.stdin(Stdio::null());
    let mut tries = 0;
    loop {
        match command.output() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && tries < 50 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
}

/// Standard output of `program args`, or in words why there is none.
pub(crate) fn answer(program: &Path, args: &[&str]) -> Result<String, String> {
    let asked = args.join(" ");
    let output = output(Command::new(program).args(args)).map_err(|error| format!("it cannot be started ({error})"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last = stderr.trim().lines().last().unwrap_or("no message");
        return Err(format!("`{asked}` ended with {}: {last}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as one line that a shell takes.
pub(crate) fn shown(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(quoted)
        .collect::<Vec<_>>()
        .join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./,:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_command_can_be_pasted() {
        let mut command = Command::new("nvcc");
        command.args(["-gencode", "arch=compute_70,code=[sm_70]", "it's"]);
        assert_eq!(
            shown(&command),
            r"nvcc -gencode 'arch=compute_70,code=[sm_70]' 'it'\''s'"
        );
    }
}

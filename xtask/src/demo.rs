//! From nothing to a proven and timed collective, on whatever the machine has.
//!
//! Whether there is a usable GPU is asked of the built binary: it opens the driver as it will when it serves, and this
//! task opens none.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::{Done, Failure};
use crate::setup::{self, Ready, Wish};
use crate::steps::{Steps, built, capture, cargo, text_of, workspace};

/// Sets up, builds the release binary, lists the families, proves all, tunes one.
pub fn run() -> Done {
    let mut steps = Steps::new(6).leaving_last_word();
    let ready = steps.step("set up the CUDA compiler", || setup::run(Wish::default()))?;
    let binary = steps.step("cargo build --release --bin topoforge", || build(&ready))?;
    let device = steps.step("ask for the best device: topoforge devices --json", || {
        let answer = capture(topoforge(&binary).args(["devices", "--json"]), true)?;
        let best = best_device(&answer)
            .ok_or_else(|| Failure::new("`topoforge devices --json` names no \"best\" device").tried(answer))?;
        eprintln!("    device: {best}");
        Ok(best)
    })?;
    let mut families = topoforge(&binary);
    families.arg("families");
    steps.command(families)?;
    let mut qualify = topoforge(&binary);
    qualify.args(["qualify", "--family", "all", "--device", &device]);
    if device != "host" {
        // Families of more ranks than there are GPUs are proven with ranks that share them, a hardware queue each.
        qualify.arg("--virtual").env("CUDA_DEVICE_MAX_CONNECTIONS", "32");
    }
    steps.command(qualify)?;
    let mut tune = topoforge(&binary);
    tune.args(["tune", "--family", "nvlink-pair", "--device", &device]);
    steps.command(tune)
}

fn topoforge(binary: &PathBuf) -> Command {
    let mut command = Command::new(binary);
    command.current_dir(workspace());
    command
}

fn build(ready: &Ready) -> Done<PathBuf> {
    let mut command = cargo(&[
        "build",
        "--release",
        "--package",
        "topoforge",
        "--bin",
        "topoforge",
        "--message-format",
        "json-render-diagnostics",
    ]);
    ready.hand_to(&mut command);
    built(&capture(&mut command, true)?)
}

fn best_device(answer: &str) -> Option<String> {
    text_of(answer, "best")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_device_is_read_from_either_layout() {
        assert_eq!(
            best_device(r#"{"format":1,"best":"cuda:0,1","devices":[]}"#).as_deref(),
            Some("cuda:0,1")
        );
        assert_eq!(
            best_device("{\n  \"format\": 1,\n  \"best\": \"host\"\n}").as_deref(),
            Some("host")
        );
    }

    #[test]
    fn an_answer_without_it_is_none() {
        assert_eq!(best_device(r#"{"format":1}"#), None);
        assert_eq!(best_device(r#"{"best":null}"#), None);
        assert_eq!(best_device(r#"{"best":"cu"#), None);
    }

    #[test]
    fn the_binary_is_found_in_cargos_messages() {
        let line = r#"{"reason":"compiler-artifact","filenames":["/t/topoforge"],"executable":"/t/release/topoforge","fresh":true}"#;
        assert_eq!(text_of(line, "executable").as_deref(), Some("/t/release/topoforge"));
        let library = r#"{"reason":"compiler-artifact","executable":null,"fresh":true}"#;
        assert_eq!(text_of(library, "executable"), None);
    }
}

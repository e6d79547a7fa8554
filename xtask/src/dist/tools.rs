//! What links a program for old machines: zig, which brings every glibc's symbols and a C++ compiler, and cargo-zigbuild,
//! which hands it to cargo. Both come from the Python index, pinned, into `.toolkit`; nothing is installed. And Rust's
//! standard library for a target, which rustup fetches.
//!
//! Start at [`Tools::ready`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::targets::Target;
use crate::failure::{Done, Failure};
use crate::setup::{self, Fetched, layout, wheels::Pip};
use crate::steps::{capture, program};

const ZIG: &str = "0.15.2";
const ZIGBUILD: &str = "0.22.3";

/// The two programs.
pub struct Tools {
    zig: PathBuf,
    zigbuild: PathBuf,
}

impl Tools {
    /// Finds them in the toolkit folder, or fetches them.
    ///
    /// # Errors
    /// No network, no pip, or other content than expected.
    pub fn ready() -> Done<Tools> {
        let folder = setup::folder().join(format!("zig-{ZIG}"));
        let tools = Tools {
            zig: folder.join("ziglang/zig"),
            zigbuild: folder.join("bin/cargo-zigbuild"),
        };
        if !(tools.zig.is_file() && tools.zigbuild.is_file()) {
            eprintln!("    fetching zig {ZIG} and cargo-zigbuild {ZIGBUILD} from the Python index (91 MB)");
            setup::forbidden("zig")?;
            setup::fetch_into(&setup::folder(), "ziglang/zig", fetch)?;
        }
        Ok(tools)
    }

    /// A cargo command that links with zig.
    pub fn cargo(&self, args: &[&str]) -> Command {
        let mut command = crate::steps::cargo(&[]);
        let mut path: Vec<PathBuf> = self.zigbuild.parent().map(Path::to_owned).into_iter().collect();
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let path = std::env::join_paths(path).unwrap_or_else(|_| OsString::from("/usr/bin:/bin"));
        command
            .arg("zigbuild")
            .args(args)
            .env("PATH", path)
            .env("CARGO_ZIGBUILD_ZIG_PATH", &self.zig);
        command
    }
}

fn fetch(temporary: &Path) -> Done<Fetched> {
    let tree = temporary.join("tree");
    let wanted = [format!("ziglang=={ZIG}"), format!("cargo-zigbuild=={ZIGBUILD}")];
    let fetched = Pip::find(None)?.fetch(&wanted, &temporary.join("download"), &tree)?;
    layout::note(&tree, &fetched)?;
    // Wheels carry programs of their own in a folder that pip would copy from.
    let scripts = tree.join(format!("cargo_zigbuild-{ZIGBUILD}.data/scripts"));
    let bin = tree.join("bin");
    std::fs::rename(&scripts, &bin).map_err(crate::failure::io("moving", &scripts))?;
    for file in [bin.join("cargo-zigbuild"), tree.join("ziglang/zig")] {
        layout::program_runs(&file)?;
    }
    capture(Command::new(tree.join("ziglang/zig")).arg("version"), false)?;
    Ok(Fetched {
        tree,
        name: format!("zig-{ZIG}"),
    })
}

/// Makes sure that Rust's standard library for the target is there.
///
/// # Errors
/// It is not, and rustup cannot fetch it.
pub fn standard_library(target: &Target) -> Done {
    let triple = target.triple;
    if has_standard_library(triple) {
        return Ok(());
    }
    let missing = |tried: String| {
        Failure::new(format!("Rust's standard library for {triple} is not installed"))
            .tried(tried)
            .todo(format!("with a network: rustup target add {triple}, or"))
            .todo("install it with the Rust of your distribution, or")
            .todo("leave this target out: cargo xtask dist --only ARCH")
    };
    if std::env::var("CARGO_NET_OFFLINE").is_ok_and(|value| value == "true") {
        return Err(missing("nothing, since CARGO_NET_OFFLINE forbids it".to_owned()));
    }
    eprintln!("    rustup target add {triple}");
    // rustup looks at the toolchain of the folder, as the cargo that runs this did.
    let mut add = Command::new("rustup");
    add.args(["target", "add", triple])
        .current_dir(crate::steps::workspace());
    capture(&mut add, false).map_err(|failure| missing(failure.to_string()))?;
    if has_standard_library(triple) {
        return Ok(());
    }
    Err(missing(
        "rustup target add, which succeeded for another toolchain than the one in use".to_owned(),
    ))
}

fn has_standard_library(triple: &str) -> bool {
    let mut ask = Command::new(program("RUSTC", "rustc"));
    ask.args(["--print", "target-libdir", "--target", triple]);
    let folder = capture(ask.current_dir(crate::steps::workspace()), false);
    folder.is_ok_and(|folder| {
        std::fs::read_dir(folder.trim()).is_ok_and(|mut entries| {
            entries.any(|entry| entry.is_ok_and(|e| e.file_name().to_string_lossy().starts_with("libstd-")))
        })
    })
}

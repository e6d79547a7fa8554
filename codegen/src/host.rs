//! Compiles kernel texts for the host executor with the C++ compiler that `cc` finds.
//!
//! Objects are kept by content hash beside the fatbins; `cc` then archives them and tells cargo to link them. No C++
//! library, no exceptions, no run-time types: nothing of C++ is needed to link or to run. Start at [`compile`].

use crate::jobs::{self, Jobs};
use crate::toolkit::{sha256, unique, write_if_changed};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fmt, fs, io};

const FLAGS: &[&str] = &[
    "-std=c++17",
    "-O2",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-asynchronous-unwind-tables",
    // A multiply and an add stay two roundings, as on the device.
    "-ffp-contract=off",
    "-fPIC",
    "-DTF_HOST",
    // Fibers poll thousands of times less often than GPU threads.
    "-DTF_POLLS_BETWEEN_CHECKS=16u",
    "-Wno-unused-function",
    "-c",
];

/// Why a kernel has no host form.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostError {
    /// `cc` finds no C++ compiler.
    NoCompiler(String),
    /// The compiler refused a text.
    Compile {
        /// Symbol of the kernel.
        kernel: String,
        /// What was run.
        command: String,
        /// What it said.
        stderr: String,
    },
    /// Files could not be written or the compiler not started.
    Io(io::Error),
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCompiler(e) => {
                write!(
                    f,
                    "the host executor needs a C++ compiler ({e}): install g++ or set CXX, or switch feature host-executor off"
                )
            }
            Self::Compile {
                kernel,
                command,
                stderr,
            } => write!(f, "{kernel} does not compile for the host\n  {command}\n{stderr}"),
            Self::Io(e) => write!(f, "compiling for the host executor: {e}"),
        }
    }
}

impl std::error::Error for HostError {}

/// Compiles triples of symbol, text and digest of the headers that the text includes, and links them into the crate that is being built as static library `library`.
///
/// # Errors
/// The first text that does not compile.
pub fn compile(
    texts: &[(&str, &str, String)],
    headers: &Path,
    cache: &Path,
    library: &str,
    limit: &Jobs,
) -> Result<(), HostError> {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .cpp_link_stdlib(None)
        .warnings(false)
        // Finding out whose compiler it is provokes messages (zig's wrapper) that mean nothing to whoever builds.
        .cargo_warnings(false)
        .cargo_metadata(true);
    let tool = build
        .try_get_compiler()
        .map_err(|e| HostError::NoCompiler(e.to_string()))?;
    let identity = format!(
        "{}\n{}\n{}",
        format_args!("{} {:?}", tool.path().display(), tool.args()),
        version(tool.path()),
        FLAGS.join(" ")
    );
    fs::create_dir_all(cache).map_err(HostError::Io)?;
    let jobs: Vec<(String, PathBuf, PathBuf)> = texts
        .iter()
        .map(|(symbol, text, digest)| {
            let key = sha256::hex(format!("{identity}\n{digest}\n{text}").as_bytes());
            (
                (*symbol).to_owned(),
                cache.join(format!("{key}.cpp")),
                cache.join(format!("{key}.o")),
            )
        })
        .collect();
    let results = jobs::run(jobs.len(), limit, |index, _| {
        let ((symbol, source, object), (_, text, _)) = (&jobs[index], &texts[index]);
        if whole(object) {
            return Ok(());
        }
        write_if_changed(source, text.as_bytes()).map_err(HostError::Io)?;
        compile_one(symbol, source, object, headers, &tool)
    });
    results.into_iter().collect::<Result<Vec<()>, _>>()?;
    for (_, _, object) in &jobs {
        build.object(object);
    }
    build
        .try_compile(library)
        .map_err(|e| HostError::NoCompiler(e.to_string()))
}

/// Compiles next to the object and renames, so that an interrupted build leaves nothing half-made.
fn compile_one(
    symbol: &str,
    source: &Path,
    object: &Path,
    headers: &Path,
    compiler: &cc::Tool,
) -> Result<(), HostError> {
    let unfinished = object.with_file_name(unique(".object-"));
    // With the arguments that CXX or a cross target bring along.
    let mut command = compiler.to_command();
    command
        .args(FLAGS)
        .arg("-I")
        .arg(headers)
        .args(["-x", "c++"])
        .arg(source)
        .arg("-o")
        .arg(&unfinished);
    let output = command.output().map_err(HostError::Io)?;
    if !output.status.success() {
        return Err(HostError::Compile {
            kernel: symbol.to_owned(),
            command: format!("{command:?}"),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        });
    }
    fs::rename(&unfinished, object).map_err(HostError::Io)
}

/// Whether an object is there and not the empty file that a crash can leave.
fn whole(object: &Path) -> bool {
    fs::metadata(object).is_ok_and(|m| m.len() > 0)
}

fn version(compiler: &Path) -> String {
    let output = Command::new(compiler).arg("--version").output();
    output
        .map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
        .unwrap_or_default()
}

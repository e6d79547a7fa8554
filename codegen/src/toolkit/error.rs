//! What can go wrong between "is there an nvcc" and "here is a fatbin", each with whose fault it is and what to do.
//!
//! Start at [`ToolkitError`] (finding and planning) and [`CompileError`] (compiling).

use std::fmt;
use std::path::PathBuf;

/// Finding a toolkit or planning its architectures failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolkitError {
    /// The user named an nvcc that is not there.
    Missing {
        /// The variable or folder that named it.
        named_by: String,
        /// What it named.
        path: PathBuf,
    },
    /// There is an nvcc, and it does not run or does not answer.
    Broken {
        /// The variable or folder that named it.
        named_by: String,
        /// The nvcc.
        path: PathBuf,
        /// What happened when it was asked.
        why: String,
    },
    /// `TOPOFORGE_ARCHS` cannot be read.
    Archs {
        /// The value.
        text: String,
        /// What is wrong with it.
        why: String,
    },
}

impl fmt::Display for ToolkitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ToolkitError::Missing { named_by, path } => write!(
                f,
                "{named_by} names {}, but no nvcc is there: correct it, or unset it so that others are looked for",
                path.display()
            ),
            ToolkitError::Broken { named_by, path, why } => write!(
                f,
                "nvcc at {} (from {named_by}) cannot be used: {why}; name another with TOPOFORGE_NVCC, \
                 or build without kernels with TOPOFORGE_NVCC=none",
                path.display()
            ),
            ToolkitError::Archs { text, why } => write!(
                f,
                "TOPOFORGE_ARCHS=\"{text}\": {why}; expected a list such as 70,80,90+ptx"
            ),
        }
    }
}

impl std::error::Error for ToolkitError {}

/// Compiling one kernel text failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum CompileError {
    /// The toolkits found build none of the wanted architectures.
    NothingPlanned,
    /// nvcc needs a host compiler to preprocess with, and there is none.
    NoHostCompiler {
        /// The names that were looked for in PATH.
        looked_for: Vec<String>,
    },
    /// nvcc refused the text.
    Nvcc {
        /// The job's name.
        job: String,
        /// The text, kept for reading.
        source: PathBuf,
        /// The whole command, to be run again by hand.
        command: String,
        /// What nvcc wrote.
        stderr: String,
    },
    /// A file of the cache or the output folder could not be read or written, or nvcc not be started.
    Io {
        /// What was being done.
        doing: String,
        /// With which file.
        path: PathBuf,
        /// The system's word.
        error: std::io::Error,
    },
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileError::NothingPlanned => write!(
                f,
                "no toolkit builds any of the wanted architectures: widen TOPOFORGE_ARCHS or name another toolkit \
                 with TOPOFORGE_NVCC"
            ),
            CompileError::NoHostCompiler { looked_for } => write!(
                f,
                "nvcc needs a C++ compiler to preprocess with, and PATH has none of {}: install g++ (package g++ or \
                 build-essential), or name one with NVCC_CCBIN",
                looked_for.join(", ")
            ),
            CompileError::Nvcc {
                job,
                source,
                command,
                stderr,
            } => write!(
                f,
                "nvcc refused {job}\n  text:    {}\n  command: {command}\n{}",
                source.display(),
                stderr.trim_end()
            ),
            CompileError::Io { doing, path, error } => {
                write!(f, "{doing} {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for CompileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CompileError::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

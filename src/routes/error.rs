//! Why a table is not read, made or written.

use std::fmt;
use std::path::PathBuf;

/// Why a table is not read, made or written. Nothing is half read and nothing half written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RoutesError {
    /// The file system refuses.
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried, e.g. `read`.
        action: &'static str,
        /// Its words.
        error: String,
    },
    /// The file ends before the table does: a copy was cut off.
    Truncated {
        /// The file.
        path: PathBuf,
        /// The line where it ends.
        line: usize,
    },
    /// The file is something else.
    Foreign {
        /// The file.
        path: PathBuf,
        /// The parser's words.
        fault: String,
    },
    /// Another version of topoforge wrote it.
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// It parses but says something that cannot be.
    Invalid {
        /// The file, or empty for a table that is being made.
        path: PathBuf,
        /// What, and what would do.
        fault: String,
    },
    /// The figures come from an emulation and mean nothing.
    Emulation {
        /// Kind and names of the device.
        device: String,
    },
}

impl fmt::Display for RoutesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, action, error } => write!(f, "cannot {action} {}: {error}", path.display()),
            Self::Truncated { path, line } => {
                write!(
                    f,
                    "{}:{line}: the file ends before the table does: copy it again or tune again",
                    path.display()
                )
            }
            Self::Foreign { path, fault } => {
                write!(
                    f,
                    "{} is no routes file: {fault}; `topoforge tune --out FILE` writes one",
                    path.display()
                )
            }
            Self::Format { path, found } => write!(
                f,
                "{} has format {found}, this version reads format {}: tune again with this version",
                path.display(),
                super::file::FORMAT
            ),
            Self::Invalid { path, fault } if path.as_os_str().is_empty() => write!(f, "no routes of this: {fault}"),
            Self::Invalid { path, fault } => write!(f, "{}: {fault}: tune again", path.display()),
            Self::Emulation { device } => {
                write!(
                    f,
                    "no routes are made on {device}: it is an emulation and its times mean nothing"
                )
            }
        }
    }
}

impl std::error::Error for RoutesError {}

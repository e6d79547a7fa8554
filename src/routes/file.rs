//! The text form, `routes.ron`: read whole or not at all, written through a temporary file.
//!
//! The structs here mirror the file; everything else works with [`Routes`]. Start at [`Routes::read`].

use super::error::RoutesError;
use super::identity::{Identity, NcclIdentity};
use super::table::{Route, Routes, Served};
use crate::device::{Geometry, Launch};
use crate::registry::{Element, Partials};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The format that this version writes and the only one it reads.
pub(super) const FORMAT: u32 = 2;

/// More than any table needs; a larger file is something else.
const MAX_FILE: u64 = 16 << 20;

#[derive(Serialize, Deserialize)]
#[serde(rename = "Routes", deny_unknown_fields)]
struct File {
    format: u32,
    identity: FileIdentity,
    routes: Vec<FileRoute>,
}

/// Looks at nothing but the version, so that other versions are named and not called broken.
#[derive(Deserialize)]
#[serde(rename = "Routes")]
struct Version {
    format: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "Identity", deny_unknown_fields)]
struct FileIdentity {
    kernel_set: String,
    driver: String,
    nccl: Option<FileNccl>,
    gpus: Vec<String>,
    layout: String,
    element: String,
    partials: String,
    family: String,
    placement: Vec<usize>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "Nccl", deny_unknown_fields)]
struct FileNccl {
    version: String,
    path: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "Route", deny_unknown_fields)]
struct FileRoute {
    up_to: u64,
    served: FileServed,
    us: Option<f64>,
    comparator: Option<String>,
    comparator_us: Option<f64>,
    reason: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum FileServed {
    Variant {
        name: String,
        blocks: u32,
        threads: u32,
        launch: String,
    },
    Comparator,
}

impl Routes {
    /// Reads a table, all of it or nothing.
    ///
    /// # Errors
    /// The file cannot be read, is cut off, is something else, has another format, or says what cannot be.
    pub fn read(path: &Path) -> Result<Self, RoutesError> {
        let io = |error: std::io::Error| io_error(path, "read", &error);
        let size = fs::metadata(path).map_err(io)?.len();
        if size > MAX_FILE {
            return Err(RoutesError::Foreign {
                path: path.to_owned(),
                fault: format!("it has {size} bytes"),
            });
        }
        let bytes = fs::read(path).map_err(io)?;
        let text = String::from_utf8(bytes).map_err(|e| RoutesError::Foreign {
            path: path.to_owned(),
            fault: format!("it is no text: {e}"),
        })?;
        Self::parse(&text, path)
    }

    /// Reads a table from text; `path` is for messages.
    ///
    /// # Errors
    /// As [`Routes::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, RoutesError> {
        let version: Result<Version, _> = ron::from_str(text);
        match version {
            Ok(Version { format: FORMAT }) => {}
            Ok(Version { format }) => {
                return Err(RoutesError::Format {
                    path: path.to_owned(),
                    found: format,
                });
            }
            Err(error) => return Err(syntax_error(text, path, &error)),
        }
        let file: File = ron::from_str(text).map_err(|error| syntax_error(text, path, &error))?;
        table(file).map_err(|fault| RoutesError::Invalid {
            path: path.to_owned(),
            fault,
        })
    }

    /// The text form.
    pub fn to_text(&self) -> String {
        let pretty = ron::ser::PrettyConfig::new().struct_names(true).indentor("  ");
        // Nothing in these structs can fail to be written.
        let body = ron::ser::to_string_pretty(&file(self), pretty).unwrap_or_default();
        format!(
            "// Written by `topoforge tune`; measured figures in microseconds a call. A route serves its size and all\n\
             // smaller ones down to the route before; above the last one the comparator serves.\n{body}\n"
        )
    }

    /// Writes the table: a reader sees the old file or the whole new one.
    ///
    /// # Errors
    /// The file system refuses; the old file is untouched then.
    pub fn write(&self, path: &Path) -> Result<(), RoutesError> {
        write_whole(path, &self.to_text()).map_err(|error| io_error(path, "write", &error))
    }
}

/// Writes a text file so that a reader sees the old one or the whole new one.
///
/// # Errors
/// The file system refuses; the old file is untouched then.
pub(crate) fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let temporary = temporary(path);
    let written = fs::File::create_new(&temporary).and_then(|mut f| {
        f.write_all(text.as_bytes())?;
        f.sync_all()
    });
    written.and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
        // A leftover is only untidy; what counts is the first error.
        let _ = fs::remove_file(&temporary);
    })
}

/// A name beside the file, so that the rename stays within one file system.
fn temporary(path: &Path) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(
        ".{}.{}.tmp",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    ));
    path.with_file_name(name)
}

fn io_error(path: &Path, action: &'static str, error: &std::io::Error) -> RoutesError {
    RoutesError::Io {
        path: path.to_owned(),
        action,
        error: error.to_string(),
    }
}

fn syntax_error(text: &str, path: &Path, error: &ron::error::SpannedError) -> RoutesError {
    let (path, at) = (path.to_owned(), error.span.end);
    let lines = text.lines().count().max(1);
    // A cut can leave half a word, which fails before the end: whatever fails on the last line of an open table is one.
    let cut = text.trim_start().starts_with("//") || text.contains("Routes(");
    if matches!(error.code, ron::Error::Eof) || (cut && at.line >= lines && !text.trim_end().ends_with(')')) {
        return RoutesError::Truncated { path, line: lines };
    }
    RoutesError::Foreign {
        path,
        fault: format!("line {}, column {}: {}", at.line, at.col, error.code),
    }
}

fn table(file: File) -> Result<Routes, String> {
    let i = file.identity;
    let layout = u64::from_str_radix(&i.layout, 16)
        .ok()
        .filter(|_| i.layout.len() == 16 && !i.layout.starts_with('+'))
        .ok_or_else(|| format!("layout `{}` must be 16 hexadecimal digits", i.layout))?;
    let element = Element::from_name(&i.element).ok_or_else(|| format!("unknown element `{}`", i.element))?;
    let identity = Identity {
        kernel_set: i.kernel_set,
        driver: i.driver,
        nccl: i.nccl.map(|n| NcclIdentity {
            version: n.version,
            path: n.path,
        }),
        gpus: i.gpus,
        layout,
        element,
        partials: Partials::for_element(element, &i.partials)
            .ok_or_else(|| format!("unknown partials `{}` of {element}", i.partials))?,
        family: i.family,
        placement: i.placement,
    };
    let routes = file.routes.into_iter().map(route).collect::<Result<Vec<_>, _>>()?;
    Routes::new(identity, routes)
}

fn route(r: FileRoute) -> Result<Route, String> {
    let served = match r.served {
        FileServed::Variant {
            name,
            blocks,
            threads,
            launch,
        } => {
            let launch = Launch::from_name(&launch)
                .ok_or_else(|| format!("unknown launch `{launch}`: plain, programmatic or early"))?;
            let geometry = Geometry::new(blocks, threads).launched(launch);
            Served::Variant { name, geometry }
        }
        FileServed::Comparator => Served::Comparator,
    };
    Ok(Route {
        up_to: r.up_to,
        served,
        us: r.us,
        comparator: r.comparator,
        comparator_us: r.comparator_us,
        reason: r.reason,
    })
}

fn file(routes: &Routes) -> File {
    let i = routes.identity();
    File {
        format: FORMAT,
        identity: FileIdentity {
            kernel_set: i.kernel_set.clone(),
            driver: i.driver.clone(),
            nccl: i.nccl.as_ref().map(|n| FileNccl {
                version: n.version.clone(),
                path: n.path.clone(),
            }),
            gpus: i.gpus.clone(),
            layout: format!("{:016x}", i.layout),
            element: i.element.name().to_owned(),
            partials: i.partials.sums(i.element).name().to_owned(),
            family: i.family.clone(),
            placement: i.placement.clone(),
        },
        routes: routes.routes().iter().map(file_route).collect(),
    }
}

fn file_route(r: &Route) -> FileRoute {
    FileRoute {
        up_to: r.up_to,
        served: match &r.served {
            Served::Variant { name, geometry } => FileServed::Variant {
                name: name.clone(),
                blocks: geometry.blocks,
                threads: geometry.threads,
                launch: geometry.launch.name().to_owned(),
            },
            Served::Comparator => FileServed::Comparator,
        },
        us: r.us,
        comparator: r.comparator.clone(),
        comparator_us: r.comparator_us,
        reason: r.reason.clone(),
    }
}

//! Reads the descriptors of a build: the crate's own folder, and those that `TOPOFORGE_TOPOLOGIES` names.
//!
//! A faulty descriptor, an unreadable one or two of one name are faults with their places, all of them at once; only a
//! folder that is not there stops the build. It tells cargo what to watch: the folders too, so that a file that is added
//! or removed is noticed. It plans nothing. Start at [`read`].

use crate::env::{self, Env};
use crate::manifest::FaultEntry;
use std::path::{Path, PathBuf};
use std::{fs, io};
use topoforge_planner::topology::{Topology, check_set, parse_descriptor_bytes};

/// One descriptor that could be read.
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// Its file as a message should show it.
    pub file: String,
    /// Its file as `include_str!` needs it: absolute, or relative to the crate.
    pub path: String,
    /// The text.
    pub text: String,
    /// What it describes.
    pub topology: Topology,
}

/// All of a build.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    /// In the order of folders and file names.
    pub good: Vec<Descriptor>,
    /// What is wrong with the others, each with its place.
    pub faults: Vec<FaultEntry>,
}

/// A folder that cannot be read.
#[derive(Debug)]
pub struct FolderError {
    /// Who named it.
    pub named_by: String,
    /// The folder, absolute.
    pub folder: PathBuf,
    /// What the system said.
    pub error: io::Error,
}

impl std::fmt::Display for FolderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (by, folder, error) = (&self.named_by, self.folder.display(), &self.error);
        write!(f, "{by} names {folder}, which cannot be read ({error}): ")?;
        if self.named_by == env::TOPOFORGE_TOPOLOGIES.name {
            write!(f, "make the folder, or correct or unset the variable")
        } else {
            write!(f, "make the folder and put descriptors, NAME.ron, into it")
        }
    }
}

/// The descriptors of `crate_dir/own` and, with `outside`, of the folders in `TOPOFORGE_TOPOLOGIES`. Prints cargo's
/// directives.
///
/// # Errors
/// A named folder that is not there.
pub fn read(crate_dir: &Path, own: &str, outside: bool, env: &Env) -> Result<Descriptors, FolderError> {
    let mut folders = vec![(crate_dir.join(own), own.to_owned(), "Forge::topologies".to_owned())];
    if let Some(list) = env.get(env::TOPOFORGE_TOPOLOGIES).filter(|_| outside) {
        let named = std::env::split_paths(list).filter(|p| !p.as_os_str().is_empty());
        folders.extend(named.map(|p| {
            let by = env::TOPOFORGE_TOPOLOGIES.name.to_owned();
            // A relative one is looked up where cargo runs the build script: in the crate.
            (crate_dir.join(&p), p.display().to_string(), by)
        }));
    }
    let mut read = Descriptors::default();
    for (folder, shown, named_by) in folders {
        println!("cargo::rerun-if-changed={}", folder.display());
        let files = files(&folder).map_err(|error| FolderError {
            named_by: named_by.clone(),
            folder: folder.clone(),
            error,
        })?;
        if files.is_empty() {
            println!("cargo::warning={named_by} names {shown}, which holds no descriptor (NAME.ron)");
        }
        for path in files {
            println!("cargo::rerun-if-changed={}", path.display());
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            one(
                &mut read,
                &path,
                format!("{}/{name}", shown.trim_end_matches('/')),
                crate_dir,
            );
        }
    }
    let set: Vec<(&str, &str, &Topology)> = (read.good.iter())
        .map(|d| (d.file.as_str(), d.text.as_str(), &d.topology))
        .collect();
    let twins: Vec<FaultEntry> = check_set(&set)
        .iter()
        .map(|f| FaultEntry { text: f.to_string() })
        .collect();
    read.faults.extend(twins);
    Ok(read)
}

/// `*.ron` in the order of their names, without the hidden files that editors leave.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|x| x == "ron") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn one(read: &mut Descriptors, path: &Path, file: String, crate_dir: &Path) {
    let fault = |text: String| FaultEntry {
        text: format!("{file}:1:1: {text}"),
    };
    // Relative where it can be, so that the manifest is the same in every checkout.
    let Some(include) = path.strip_prefix(crate_dir).unwrap_or(path).to_str() else {
        let text = "its path is not UTF-8, so that no program could name it: move it".to_owned();
        return read.faults.push(fault(text));
    };
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return read.faults.push(fault(format!("cannot be read: {error}"))),
    };
    match parse_descriptor_bytes(&bytes, &file) {
        Ok(topology) => read.good.push(Descriptor {
            path: include.to_owned(),
            text: String::from_utf8_lossy(&bytes).into_owned(),
            topology,
            file,
        }),
        Err(faults) => (read.faults).extend(faults.iter().map(|f| FaultEntry { text: f.to_string() })),
    }
}

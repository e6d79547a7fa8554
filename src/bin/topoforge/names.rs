//! Families and descriptors by the name that somebody typed, with near names for a slip.
//!
//! Reads files, never the machine. Start at [`family`] and [`descriptor`].

use crate::failure::Failure;
use std::path::Path;
use topoforge::planner::names::nearest;
use topoforge::planner::topology::{Topology, descriptor::MAX_BYTES, parse_descriptor, parse_descriptor_bytes};
use topoforge::registry::{Family, Registry};

/// The family of a name.
pub fn family(registry: &Registry, name: &str) -> Result<&'static Family, Failure> {
    registry.family(name).ok_or_else(|| {
        let known: Vec<&str> = registry.families().iter().map(|f| f.name).collect();
        let near = nearest(name, &known);
        Failure::usage(if known.is_empty() {
            format!("no family `{name}`: this build has none")
        } else if near.is_empty() {
            format!("no family `{name}`: there are {}", known.join(", "))
        } else {
            format!("no family `{name}`: did you mean {}?", near.join(" or "))
        })
    })
}

/// The topology that a family was compiled for.
pub fn topology(family: &Family) -> Result<Topology, Failure> {
    parse_descriptor(family.descriptor, family.file).map_err(faults)
}

/// How many ranks a family has, whether or not it has variants.
pub fn ranks(family: &Family) -> Result<usize, Failure> {
    match family.variants.first() {
        Some(variant) => Ok(variant.ranks.len()),
        None => Ok(topology(family)?.ranks),
    }
}

/// Whether an argument names a file rather than a family.
pub fn is_file(target: &str) -> bool {
    let path = Path::new(target);
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("ron")) || target.contains('/') || path.is_file()
}

/// The topology in a descriptor file; every fault of it at once.
pub fn descriptor(path: &Path) -> Result<Topology, Failure> {
    let file = path.display().to_string();
    let bytes = length(path)?;
    if bytes > MAX_BYTES as u64 {
        return Err(Failure::usage(format!(
            "{file}:1:1: the file has {bytes} bytes: expected a descriptor of at most {MAX_BYTES}"
        )));
    }
    let unreadable = |error: std::io::Error| Failure::usage(format!("cannot read {file}: {error}"));
    let bytes = std::fs::read(path).map_err(unreadable)?;
    parse_descriptor_bytes(&bytes, &file).map_err(faults)
}

/// Bytes of a regular file. Anything else is refused before it is opened: a pipe that nobody writes to would hang.
pub fn length(path: &Path) -> Result<u64, Failure> {
    let file = path.display();
    let meta = std::fs::metadata(path).map_err(|e| Failure::usage(format!("cannot read {file}: {e}")))?;
    if meta.is_file() {
        Ok(meta.len())
    } else {
        Err(Failure::usage(format!("cannot read {file}: it is no file")))
    }
}

/// Whether a file of this name may be written: a new one, or over a regular one. Pipes and devices would hang or worse.
pub fn writable(path: &Path) -> Result<(), Failure> {
    let file = path.display();
    match std::fs::metadata(path) {
        _ if path == Path::new("-") => Err(Failure::usage("cannot write -: stdout is for the report, name a file")),
        Ok(meta) if !meta.is_file() => Err(Failure::usage(format!("cannot write {file}: it is no file"))),
        Ok(_) => Ok(()),
        // Asked now, as what is to be written may be the work of minutes.
        Err(_) => match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            Some(folder) if !folder.is_dir() => Err(Failure::usage(format!(
                "cannot write {file}: there is no folder {}",
                folder.display()
            ))),
            _ => Ok(()),
        },
    }
}

fn faults(faults: Vec<topoforge::planner::topology::Fault>) -> Failure {
    Failure::Usage(faults.iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_a_folder_that_is_not_there_is_refused_before_the_work() {
        assert!(writable(Path::new("new.svg")).is_ok());
        let refused = writable(Path::new("no-such-folder/new.svg"));
        assert!(
            matches!(refused, Err(Failure::Usage(words)) if words[0].ends_with("there is no folder no-such-folder"))
        );
        assert!(writable(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn files_are_told_from_families() {
        assert!(is_file("x.ron") && is_file("topologies/x") && is_file("/x"));
        assert!(!is_file("nvlink-pair") && !is_file(""));
    }
}

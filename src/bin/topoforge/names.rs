//! Families and descriptors by the name that somebody typed, with near names for a slip.
//!
//! Reads files, never the machine. Start at [`family`] and [`descriptor`].

use crate::failure::Failure;
use std::path::Path;
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
        _ => Ok(()),
    }
}

fn faults(faults: Vec<topoforge::planner::topology::Fault>) -> Failure {
    Failure::Usage(faults.iter().map(ToString::to_string).collect())
}

/// At most three names within a third of the asked name's length and hardly farther than the nearest, which is first.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    let asked: String = name.to_lowercase().replace('_', "-");
    let mut near: Vec<(usize, &str)> = known.iter().map(|k| (distance(&asked, k), *k)).collect();
    near.retain(|(distance, _)| *distance <= asked.chars().count().div_ceil(3));
    near.sort_unstable();
    let most = near.first().map_or(0, |(distance, _)| distance + 1);
    near.retain(|(distance, _)| *distance <= most);
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Insertions, deletions and replacements between two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_come_nearest_first_and_far_ones_not_at_all() {
        let known = ["nvlink-pair", "nvlink-quad", "pix-pair"];
        assert_eq!(nearest("nvlink_pare", &known), ["nvlink-pair"]);
        assert_eq!(nearest("NVLINK-QUAD", &known), ["nvlink-quad"]);
        assert_eq!(nearest("pix-pear", &known)[0], "pix-pair");
        assert!(nearest("cube", &known).is_empty() && nearest("", &known).is_empty());
        assert_eq!(
            (distance("", "abc"), distance("abc", ""), distance("ab", "ba")),
            (3, 3, 2)
        );
    }

    #[test]
    fn files_are_told_from_families() {
        assert!(is_file("x.ron") && is_file("topologies/x") && is_file("/x"));
        assert!(!is_file("nvlink-pair") && !is_file(""));
    }
}

//! Builds the AlltoAllv catalogue of a descriptor, checks it, and leaves it in `OUT_DIR` for `families!` to embed.
//!
//! A machine too large for a catalogue is a fault at its place in the descriptor. A catalogue that does not come back from its
//! own bytes, or fails its check, ends the build: that is a mistake in the planner. Start at [`catalogue`].

use crate::descriptors::Descriptor;
use crate::manifest::{CatalogueEntry, FaultEntry};
use crate::toolkit::write_if_changed;
use std::path::{Path, PathBuf};
use std::{fmt, io};
use topoforge_planner::alltoallv::{Catalogue, Machine, base};
use topoforge_planner::topology::alltoallv_fault;

/// A catalogue that must not be embedded.
#[derive(Debug)]
pub enum CatalogueError {
    /// It is wrong: the descriptor's file, and what is wrong.
    Unsound(String, String),
    /// It cannot be written.
    Io(PathBuf, io::Error),
}

impl fmt::Display for CatalogueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsound(file, what) => write!(
                f,
                "{file}: the AlltoAllv catalogue fails its check ({what}): this is a mistake in topoforge, please report it"
            ),
            Self::Io(path, e) => write!(f, "writing {}: {e}", path.display()),
        }
    }
}

/// The catalogue of a descriptor that states a machine for AlltoAllv; none of others, and none with the faults noted.
///
/// # Errors
/// A catalogue that fails its check, or a file that cannot be written.
pub fn catalogue(
    descriptor: &Descriptor,
    out: &Path,
    faults: &mut Vec<FaultEntry>,
) -> Result<Option<CatalogueEntry>, CatalogueError> {
    let Some(machine) = &descriptor.topology.alltoallv else {
        return Ok(None);
    };
    let built = match Catalogue::of_machine(machine, base::recorded(machine)) {
        Ok(built) => built,
        Err(error) => {
            let found = alltoallv_fault(&descriptor.file, &descriptor.text, error.to_string());
            faults.extend(found.iter().map(|f| FaultEntry { text: f.to_string() }));
            return Ok(None);
        }
    };
    let bytes = built.to_bytes();
    check(machine, &bytes).map_err(|what| CatalogueError::Unsound(descriptor.file.clone(), what))?;
    let counts = built.counts();
    let name = &descriptor.topology.name;
    let entry = CatalogueEntry {
        file: format!("{name}.a2av"),
        families: counts.families as u64,
        shapes: counts.shapes as u64,
        orbits: counts.orbits as u64,
        base_steps: built.sequences.uniform.len() as u64,
        bytes: bytes.len() as u64,
    };
    let path = out.join(&entry.file);
    write_if_changed(&path, &bytes).map_err(|e| CatalogueError::Io(path, e))?;
    let profiles: String = (built.sequences.profiles.iter())
        .map(|recorded| format!(", {} for profile {}", recorded.steps.len(), recorded.profile.name()))
        .collect();
    println!(
        "topoforge: {name}: AlltoAllv catalogue of {} families, {} shapes, {} orbits and {} base steps{profiles} in {} bytes, checked",
        entry.families, entry.shapes, entry.orbits, entry.base_steps, entry.bytes
    );
    Ok(Some(entry))
}

/// Reads the bytes back and checks what they say against the machine.
fn check(machine: &Machine, bytes: &[u8]) -> Result<(), String> {
    let node = machine.fabric(None).map_err(|e| e.to_string())?;
    let read = Catalogue::parse(bytes).map_err(|e| e.to_string())?;
    read.verify(&node).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use topoforge_planner::topology::parse_descriptor;

    #[test]
    fn bytes_of_another_machine_or_damaged_ones_fail_the_check() {
        let machine = |gpus: usize| {
            let text = format!(
                "Topology(name: \"t\", ranks: {}, links: [], alltoallv: Machine(sockets: [[Switch(gpus: {gpus}, nics: 1), \
                 Switch(gpus: {gpus}, nics: 1)]], gb_per_s: (same_switch: 56, same_socket: 52, cross_socket: 40, nic: 48)))",
                2 * gpus
            );
            parse_descriptor(&text, "t.ron")
                .expect("sound")
                .alltoallv
                .expect("stated")
        };
        let (two, four) = (machine(2), machine(4));
        let mut bytes = Catalogue::of_machine(&two, Vec::new()).expect("builds").to_bytes();
        assert_eq!(check(&two, &bytes), Ok(()));
        let other = check(&four, &bytes).expect_err("another machine");
        assert!(other.contains("of another machine"), "{other}");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        assert!(check(&two, &bytes).expect_err("damaged").contains("checksum"));
    }
}

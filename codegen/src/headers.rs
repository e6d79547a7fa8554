//! The hand-written device headers, carried inside this crate so that a dependent's build needs no checkout.
//!
//! Start at [`write_to`]; [`digest`] is what content hashes take in.

use crate::toolkit::{sha256, write_if_changed};
use std::{io, path::Path};

/// File name and text of every header.
pub const HEADERS: &[(&str, &str)] = &[
    ("abi.cuh", include_str!("../../kernels/abi.cuh")),
    ("arch.cuh", include_str!("../../kernels/arch.cuh")),
    ("arch_host.h", include_str!("../../kernels/arch_host.h")),
    ("numerics.cuh", include_str!("../../kernels/numerics.cuh")),
    ("payload.cuh", include_str!("../../kernels/payload.cuh")),
    ("deadline.cuh", include_str!("../../kernels/deadline.cuh")),
    ("columns.cuh", include_str!("../../kernels/columns.cuh")),
    ("packet.cuh", include_str!("../../kernels/packet.cuh")),
    ("sentinel.cuh", include_str!("../../kernels/sentinel.cuh")),
    ("warp.cuh", include_str!("../../kernels/warp.cuh")),
    ("packet128.cuh", include_str!("../../kernels/packet128.cuh")),
    ("flag.cuh", include_str!("../../kernels/flag.cuh")),
    ("pull.cuh", include_str!("../../kernels/pull.cuh")),
];

/// The measuring and checking kernels, a translation unit of its own.
pub const TOOLS: &str = include_str!("../../kernels/tools.cu");

/// Digest over the headers that `protocol`'s kernels include, so that a change to one protocol leaves the others'
/// kernels untouched.
pub fn digest(protocol: &str) -> String {
    let own = format!("{protocol}.cuh");
    let foreign = ["packet.cuh", "sentinel.cuh", "packet128.cuh", "flag.cuh", "pull.cuh"];
    let mut text = String::new();
    for (name, content) in HEADERS {
        // Steps of whole warps are `packet128`'s, and those of its litmus.
        let included = *name != "warp.cuh" || matches!(protocol, "packet128" | "tools");
        if *name == own || included && !foreign.contains(name) {
            text.push_str(name);
            text.push('\n');
            text.push_str(content);
        }
    }
    sha256::hex(text.as_bytes())
}

/// Writes the headers into a folder; files that are already so are left alone.
///
/// # Errors
/// Whatever the file system says.
pub fn write_to(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (name, content) in HEADERS {
        write_if_changed(&folder.join(name), content.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_include_is_carried() {
        let names: Vec<_> = HEADERS.iter().map(|(n, _)| *n).collect();
        for (name, text) in HEADERS.iter().chain([&("tools.cu", TOOLS)]) {
            for line in text.lines().filter_map(|l| l.trim().strip_prefix("#include \"")) {
                let included = line.trim_end_matches('"');
                assert!(
                    names.contains(&included),
                    "{name} includes {included}, which HEADERS lacks"
                );
            }
        }
    }

    #[test]
    fn protocols_have_digests_of_their_own() {
        assert_ne!(digest("packet"), digest("flag"));
        assert_eq!(digest("packet").len(), 64);
    }
}

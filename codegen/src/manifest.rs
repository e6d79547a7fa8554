//! The manifest: what a build made, written by `build.rs` and read by `families!`.
//!
//! RON on disk, next to the fatbins it names. It holds no machine's paths, so that equal builds give equal manifests.
//! Start at [`Manifest`].

use crate::lower::{Element, KernelText, Partials, Protocol, RankPorts};
use crate::toolkit::sha256;
use serde::{Deserialize, Serialize};
use std::{fmt, fs, io, path::Path};

/// The format that this version writes and reads.
pub const FORMAT: u32 = 2;

/// File name in `OUT_DIR`.
pub const FILE: &str = "topoforge-manifest.ron";

/// Everything that a `families!` expansion needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`]; others are refused.
    pub format: u32,
    /// Version of topoforge that wrote it.
    pub version: String,
    /// Folder of the descriptors, relative to the crate.
    pub topologies: String,
    /// Whether kernels were compiled for the host executor.
    pub host: bool,
    /// Element types that were asked for.
    pub elements: Vec<Element>,
    /// Names of the sets of families that were asked for.
    pub sets: Vec<String>,
    /// Compute capabilities with machine code.
    pub archs: Vec<u32>,
    /// Compute capability of the PTX.
    pub ptx: Option<u32>,
    /// Wanted but not built, with the reason.
    pub left_out: Vec<(u32, String)>,
    /// `nvcc` versions that took part.
    pub toolkits: Vec<String>,
    /// Hash over all kernels and architectures.
    pub kernel_set: String,
    /// Sorted by hash.
    pub kernels: Vec<KernelEntry>,
    /// Sorted by name.
    pub families: Vec<FamilyEntry>,
    /// Descriptors that could not be read; `families!` turns each into a compile error.
    pub faults: Vec<FaultEntry>,
}

/// A compiled kernel group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelEntry {
    /// What it is.
    pub kernel: KernelText,
    /// Fatbins in `OUT_DIR`, one a toolkit.
    pub images: Vec<String>,
}

/// Everything compiled for one descriptor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FamilyEntry {
    /// The descriptor's name.
    pub name: String,
    /// Path of its file as a message should show it.
    pub file: String,
    /// Path of its file as `include_str!` needs it: absolute, or relative to the crate.
    pub path: String,
    /// Hash of its text, so that the macro notices a descriptor that changed after the build script ran.
    pub descriptor: String,
    /// Hash over descriptor and variants.
    pub hash: String,
    /// In shortlist order.
    pub variants: Vec<VariantEntry>,
    /// Other names that it goes by.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// What AlltoAllv knows of the machine, if its descriptor states one.
    #[serde(default)]
    pub alltoallv: Option<CatalogueEntry>,
}

/// A catalogue in `OUT_DIR`; see `topoforge_planner::alltoallv::Catalogue`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueEntry {
    /// Its file.
    pub file: String,
    /// Maximal families of lanes.
    pub families: u64,
    /// Shapes of families.
    pub shapes: u64,
    /// Orbits under the node's symmetry.
    pub orbits: u64,
    /// Steps of the base sequence.
    pub base_steps: u64,
    /// Length of the file.
    pub bytes: u64,
}

/// The hash of a family, over the digest of its descriptor's text and its variants.
pub fn family_hash(descriptor: &str, variants: &[VariantEntry]) -> String {
    let mut all = format!("{descriptor}\n");
    for v in variants {
        all.push_str(&format!("{} {} {:?}\n", v.name, v.kernel, v.ranks));
    }
    sha256::hex(all.as_bytes())[..16].into()
}

/// One variant of a family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariantEntry {
    /// `schedule/protocol/partials`, the last part with the element ahead (`bf16-f32`) where that is not f16, and
    /// `@host` where staged.
    pub name: String,
    /// Name of the schedule.
    pub schedule: String,
    /// How edges move bytes.
    pub protocol: Protocol,
    /// Slots in mapped host memory.
    pub staged: bool,
    /// Type of inputs and outputs.
    pub element: Element,
    /// Policies whose bits it gives.
    pub partials: Vec<Partials>,
    /// Hash of its kernel.
    pub kernel: String,
    /// Parts of the payload.
    pub chunks: u32,
    /// Stages of the schedule.
    pub stages: u32,
    /// 16-byte planes of a slot.
    pub planes: u32,
    /// One entry a rank.
    pub ranks: Vec<RankPorts>,
    /// Declared expressions.
    pub expressions: Vec<String>,
    /// Index into them for `rank * chunks + chunk`.
    pub expression_of: Vec<u16>,
    /// Upper bounds in bytes of the size classes that shortlisted it.
    pub classes: Vec<u64>,
}

/// A fault of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultEntry {
    /// `file:line:column: message`.
    pub text: String,
}

/// Why a manifest cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum ManifestError {
    /// It is not there or not readable.
    Io(io::Error),
    /// It is not a manifest, or cut.
    Syntax(String),
    /// It is of another version.
    Format(u32),
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => write!(
                f,
                "no build manifest ({e}): does build.rs call topoforge_codegen::Forge?"
            ),
            Self::Syntax(e) => write!(f, "the build manifest is damaged ({e}): rebuild"),
            Self::Format(found) => write!(
                f,
                "the build manifest has format {found}, this version reads {FORMAT}: rebuild with matching versions"
            ),
        }
    }
}

impl std::error::Error for ManifestError {}

impl Manifest {
    /// The text on disk.
    ///
    /// # Errors
    /// The serialiser's, as text.
    pub fn to_ron(&self) -> Result<String, String> {
        ron::ser::to_string_pretty(self, ron::ser::PrettyConfig::default().depth_limit(5)).map_err(|e| e.to_string())
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// See [`ManifestError`].
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        #[serde(rename = "Manifest")]
        struct Versioned {
            format: u32,
        }
        // The version first: another version's fields would only give a confusing message.
        let version: Versioned = ron::from_str(text).map_err(|e| ManifestError::Syntax(e.to_string()))?;
        if version.format != FORMAT {
            return Err(ManifestError::Format(version.format));
        }
        ron::from_str(text).map_err(|e| ManifestError::Syntax(e.to_string()))
    }

    /// Reads the manifest of an `OUT_DIR`.
    ///
    /// # Errors
    /// See [`ManifestError`].
    pub fn read(out_dir: &Path) -> Result<Self, ManifestError> {
        Self::parse(&fs::read_to_string(out_dir.join(FILE)).map_err(ManifestError::Io)?)
    }

    /// The kernel of a hash.
    pub fn kernel(&self, hash: &str) -> Option<&KernelEntry> {
        self.kernels.iter().find(|k| k.kernel.hash == hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(protocol: Protocol) -> KernelText {
        KernelText {
            hash: "0123456789abcdef".into(),
            symbol: format!("tf_{}_0123456789abcdef", protocol.name()),
            protocol,
            puts: 1,
            gets: 1,
            inputs: 0,
            tables: 1,
            text: String::new(),
        }
    }

    #[test]
    fn every_protocol_is_written_by_its_name_and_older_ones_as_before() {
        for (protocol, written) in [
            (Protocol::Packet, "Packet"),
            (Protocol::Sentinel, "Sentinel"),
            (Protocol::Packet128, "Packet128"),
            (Protocol::Flag, "Flag"),
            (Protocol::Pull, "Pull"),
        ] {
            let text = ron::ser::to_string(&kernel(protocol)).expect("plain data");
            assert!(text.contains(&format!("protocol:{written},")), "{text}");
            let read: KernelText = ron::from_str(&text).expect("what was written");
            assert_eq!(read, kernel(protocol));
        }
        // What a version that does not know a protocol says of it.
        let unknown = ron::ser::to_string(&kernel(Protocol::Packet128)).expect("plain data");
        let unknown = unknown.replace("Packet128", "Packet256");
        let error = ron::from_str::<KernelText>(&unknown)
            .expect_err("no such protocol")
            .to_string();
        assert!(error.contains("Packet256"), "{error}");
    }
}

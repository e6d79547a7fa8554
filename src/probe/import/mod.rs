//! What people already have, read into a [`Topology`]: `nvidia-smi topo -m` and `-p2p` text, NCCL topology XML, descriptors.
//!
//! Pure functions of text. A cell is read or the whole text is refused with its line and the reason: there is never a
//! partial topology. Nothing here asks the machine or proves that a link works. Start at [`import`]; tables of text are cut
//! out by `table`, XML is walked by `nccl_xml`.

mod clean;
mod labels;
mod nccl_xml;
mod p2p;
mod smi;
mod table;

pub use labels::{Class, Status};

use std::fmt;
use topoforge_planner::topology::{Topology, parse_descriptor};

/// Largest text that is looked at, in bytes.
pub const MAX_BYTES: usize = 4 << 20;

/// What a text is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// `nvidia-smi topo -m`, with `-p2p` tables behind it if there are any.
    Smi,
    /// `nvidia-smi topo -p2p r` and its kin.
    P2p,
    /// What `NCCL_TOPO_DUMP_FILE` writes.
    NcclXml,
    /// A descriptor.
    Ron,
}

impl Input {
    /// The name in reports and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Smi => "smi",
            Self::P2p => "p2p",
            Self::NcclXml => "nccl-xml",
            Self::Ron => "ron",
        }
    }

    /// What a text looks like. A wrong guess is refused by the importer, never half-read.
    pub fn guess(text: &str) -> Self {
        // A byte order mark hides no kind; whoever reads the text says what is to be done about it.
        let text = text.trim_start_matches('\u{feff}');
        let first = text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
        // A table pasted from a web page begins with a tag as well.
        if first.starts_with('<') && (text.contains("<system") || !table::has_rows(text)) {
            return Self::NcclXml;
        }
        if text.lines().any(|line| line.trim_start().starts_with("Topology(")) {
            return Self::Ron;
        }
        if table::has_p2p_only(text) {
            Self::P2p
        } else {
            Self::Smi
        }
    }
}

/// A GPU as the text names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportedGpu {
    /// The number printed, e.g. 3 for `GPU3`.
    pub index: usize,
    /// E.g. `NVIDIA H200`, where the text says.
    pub name: Option<String>,
    /// E.g. `GPU-…`, where the text says.
    pub uuid: Option<String>,
    /// PCI address, where the text says.
    pub pci: Option<String>,
}

/// A network device of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportedNic {
    /// As in the header, e.g. `NIC0`.
    pub name: String,
    /// What the legend makes of it, e.g. `mlx5_0`.
    pub device: Option<String>,
    /// PCI address, where the text says.
    pub pci: Option<String>,
    /// The label towards each GPU, in the order of the GPUs; `None` where the text does not say.
    pub classes: Vec<Option<String>>,
}

/// Two GPUs and what the text says of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedLink {
    /// The lower printed number.
    pub a: usize,
    /// The higher printed number.
    pub b: usize,
    /// The label as printed, e.g. `NV2`; `None` where only peer access was printed.
    pub class: Option<String>,
    /// Status of loads as printed, e.g. `OK`; `None` where it was not.
    pub read: Option<String>,
    /// Status of stores as printed.
    pub write: Option<String>,
}

/// A text that was read whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// What it was.
    pub source: Input,
    /// Which facts it held, e.g. `topo-m+p2p`.
    pub level: String,
    /// Rank `r` is `gpus[r]`.
    pub gpus: Vec<ImportedGpu>,
    /// In the order of the text.
    pub nics: Vec<ImportedNic>,
    /// Every pair once, sorted.
    pub links: Vec<ImportedLink>,
    /// What contradicts itself or could not be used.
    pub warnings: Vec<String>,
    /// What the text does not say and the topology had to assume.
    pub notes: Vec<String>,
    /// For the matcher and for descriptors.
    pub topology: Topology,
}

/// Why a text was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    /// Line, from 1.
    pub line: usize,
    /// What cannot be read safely, and what to give instead.
    pub reason: String,
}

impl ImportError {
    fn new(line: usize, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { line, reason }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for ImportError {}

/// Reads `text`; without `input` it is guessed from the text.
///
/// ```
/// use topoforge::probe::import::import;
/// let text = "        GPU0    GPU1\nGPU0     X      NV4\nGPU1    NV4      X\n";
/// let read = import(text, None)?;
/// assert_eq!((read.gpus.len(), read.links[0].class.as_deref()), (2, Some("NV4")));
/// # Ok::<(), topoforge::probe::import::ImportError>(())
/// ```
///
/// # Errors
/// [`ImportError`] with the line: a cut matrix, lost columns, tables of other tools, an error message.
pub fn import(text: &str, input: Option<Input>) -> Result<Imported, ImportError> {
    if text.len() > MAX_BYTES {
        let reason = format!("the text has {} bytes, at most {MAX_BYTES} are read", text.len());
        return Err(ImportError::new(1, reason));
    }
    match input.unwrap_or_else(|| Input::guess(text)) {
        Input::Smi => smi::read(text),
        Input::P2p => p2p::read(text),
        Input::NcclXml => nccl_xml::read(text),
        Input::Ron => descriptor(text),
    }
}

/// [`import`] of bytes: what is not UTF-8 is replaced, as terminals' escape bytes get damaged on the way. Bytes that cannot
/// be read even so are told to be no text.
///
/// # Errors
/// As [`import`].
pub fn import_bytes(bytes: &[u8], input: Option<Input>) -> Result<Imported, ImportError> {
    let utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    if utf16 {
        return Err(ImportError::new(1, "the text is UTF-16: save it as UTF-8"));
    }
    import(&String::from_utf8_lossy(bytes), input).map_err(|error| match binary(bytes) {
        // What a reader makes of such bytes would mislead.
        Some(at) => {
            let line = 1 + bytes[..at].iter().filter(|&&b| b == b'\n').count();
            ImportError::new(line, format!("not text: byte {at} is {:#04x}", bytes[at]))
        }
        None => error,
    })
}

/// The first byte that no text has; none where the text is too long to be looked at.
fn binary(bytes: &[u8]) -> Option<usize> {
    if bytes.len() > MAX_BYTES {
        return None;
    }
    let wrong = std::str::from_utf8(bytes).err().map(|e| e.valid_up_to());
    let text = &bytes[..wrong.unwrap_or(bytes.len())];
    text.iter().position(|&b| b == 0).or(wrong)
}

fn descriptor(text: &str) -> Result<Imported, ImportError> {
    let topology = parse_descriptor(text, "descriptor").map_err(|faults| match faults.first() {
        Some(fault) => ImportError::new(fault.line, fault.message.clone()),
        None => ImportError::new(1, "the descriptor is faulty"),
    })?;
    let gpu = |index| ImportedGpu {
        index,
        ..ImportedGpu::default()
    };
    Ok(Imported {
        source: Input::Ron,
        level: "descriptor".into(),
        gpus: (0..topology.ranks).map(gpu).collect(),
        nics: Vec::new(),
        links: links_of(&topology),
        warnings: Vec::new(),
        notes: Vec::new(),
        topology,
    })
}

/// The pairs of a topology in the words of `nvidia-smi`; a pair without a link is left out.
pub fn links_of(topology: &Topology) -> Vec<ImportedLink> {
    let mut out = Vec::new();
    for a in 0..topology.ranks {
        for b in a + 1..topology.ranks {
            let both = [topology.link(a, b), topology.link(b, a)];
            let Some(worst) = both.iter().flatten().map(|l| Class::of(l.class)).max() else {
                continue;
            };
            let peer = both.iter().all(|l| l.is_some_and(|l| l.class.is_peer()));
            let status = |able: fn(&topoforge_planner::topology::Link) -> bool| {
                let ok = peer && both.iter().all(|l| l.is_some_and(able));
                Some(if ok { "OK" } else { "NS" }.to_owned())
            };
            out.push(ImportedLink {
                a,
                b,
                class: worst.label(),
                read: status(|l| l.read),
                write: status(|l| l.write),
            });
        }
    }
    out
}

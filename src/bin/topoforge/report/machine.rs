//! Reports of a machine, live or read from a text: what it is, and which family fits it and why.
//!
//! Start at [`ProbeReport`] and [`ExplainReport`].

use super::Report;
use super::table::Table;
use serde::Serialize;
use std::fmt::Write;
use topoforge::device::edges::Measured;
use topoforge::probe::import::{ImportedGpu, ImportedLink, ImportedNic};

/// `topoforge probe`
#[derive(Debug, Serialize)]
pub struct ProbeReport {
    /// `live`, `smi`, `p2p`, `nccl-xml` or `ron`.
    pub source: &'static str,
    /// Which facts there were, e.g. `nvml+sysfs+cuda` or `topo-m`.
    pub level: String,
    /// In the order of ranks.
    pub gpus: Vec<GpuLine>,
    /// In the order of the source.
    pub nics: Vec<NicLine>,
    /// Every pair once, the lower number first.
    pub links: Vec<LinkLine>,
    /// What contradicts itself or was guessed.
    pub warnings: Vec<String>,
    /// What the source does not say and was assumed.
    pub notes: Vec<String>,
    /// With `--measure`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredReport>,
    /// Of the layout; names and figures stay out.
    pub fingerprint: String,
    /// The nearest family.
    #[serde(rename = "match")]
    pub best: BestMatch,
}

/// What edges do.
#[derive(Debug, Serialize)]
pub struct MeasuredReport {
    edges: Vec<EdgeLine>,
    fan_out: Vec<FanLine>,
}

#[derive(Debug, Serialize)]
struct EdgeLine {
    from: usize,
    to: usize,
    write_ns: f64,
    read_ns: f64,
    write_gb_per_s: f64,
    read_gb_per_s: f64,
}

#[derive(Debug, Serialize)]
struct FanLine {
    from: usize,
    peers: usize,
    gb_per_s: f64,
}

impl MeasuredReport {
    /// Of a measurement.
    pub fn of(measured: &Measured) -> Self {
        Self {
            edges: (measured.edges.iter())
                .map(|e| EdgeLine {
                    from: e.from,
                    to: e.to,
                    write_ns: e.write_ns,
                    read_ns: e.read_ns,
                    write_gb_per_s: e.write_gb_per_s,
                    read_gb_per_s: e.read_gb_per_s,
                })
                .collect(),
            fan_out: (measured.fan_out.iter())
                .map(|f| FanLine {
                    from: f.from,
                    peers: f.peers,
                    gb_per_s: f.gb_per_s,
                })
                .collect(),
        }
    }

    fn text(&self) -> String {
        let mut table = Table::default().text("edge").figure("write ns").figure("read ns");
        table = table.figure("write GB/s").figure("read GB/s");
        for e in &self.edges {
            table.row([
                format!("{} to {}", e.from, e.to),
                format!("{:.0}", e.write_ns),
                format!("{:.0}", e.read_ns),
                format!("{:.1}", e.write_gb_per_s),
                format!("{:.1}", e.read_gb_per_s),
            ]);
        }
        let mut out = table.render(2);
        for f in &self.fan_out {
            let _ = writeln!(
                out,
                "  {} to its {} peers at once: {:.1} GB/s",
                f.from, f.peers, f.gb_per_s
            );
        }
        out
    }
}

/// One GPU.
#[derive(Debug, Serialize)]
pub struct GpuLine {
    /// The number printed, or CUDA's.
    pub index: usize,
    /// E.g. `NVIDIA H200`.
    pub name: Option<String>,
    /// E.g. `GPU-…`.
    pub uuid: Option<String>,
    /// PCI address.
    pub pci: Option<String>,
}

impl From<&ImportedGpu> for GpuLine {
    fn from(gpu: &ImportedGpu) -> Self {
        Self {
            index: gpu.index,
            name: gpu.name.clone(),
            uuid: gpu.uuid.clone(),
            pci: gpu.pci.clone(),
        }
    }
}

/// One network device.
#[derive(Debug, Serialize)]
pub struct NicLine {
    /// As the source names it.
    pub name: String,
    /// The system's name.
    pub device: Option<String>,
    /// PCI address.
    pub pci: Option<String>,
    /// Class towards each GPU.
    pub classes: Vec<Option<String>>,
}

impl From<&ImportedNic> for NicLine {
    fn from(nic: &ImportedNic) -> Self {
        Self {
            name: nic.name.clone(),
            device: nic.device.clone(),
            pci: nic.pci.clone(),
            classes: nic.classes.clone(),
        }
    }
}

/// One pair.
#[derive(Debug, Serialize)]
pub struct LinkLine {
    /// The lower number.
    pub a: usize,
    /// The higher number.
    pub b: usize,
    /// The label as printed.
    pub class: Option<String>,
    /// Status of loads.
    pub read: Option<String>,
    /// Status of stores.
    pub write: Option<String>,
}

impl From<&ImportedLink> for LinkLine {
    fn from(link: &ImportedLink) -> Self {
        Self {
            a: link.a,
            b: link.b,
            class: link.class.clone(),
            read: link.read.clone(),
            write: link.write.clone(),
        }
    }
}

/// The nearest family, or that there is none.
#[derive(Debug, Serialize)]
pub struct BestMatch {
    /// Its name; none where none fits.
    pub family: Option<String>,
    /// Which rank of the machine plays each of the family's.
    pub placement: Vec<usize>,
    /// Sum of class differences.
    pub distance: Option<u32>,
    /// `exact`, `compatible`, `degraded` or `infeasible`.
    pub kind: &'static str,
    /// No placement is nearer.
    pub optimal: bool,
    /// GPUs that the family leaves over.
    pub idle: usize,
}

impl Report for ProbeReport {
    fn text(&self) -> String {
        let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let mut out = format!("{} GPUs ({}, {})\n", self.gpus.len(), self.source, self.level);
        let mut table = Table::default().figure("GPU").text("name").text("uuid").text("pci");
        for gpu in &self.gpus {
            table.row([gpu.index.to_string(), dash(&gpu.name), dash(&gpu.uuid), dash(&gpu.pci)]);
        }
        out.push_str(&table.render(2));
        if !self.links.is_empty() {
            out.push('\n');
            let mut table = (Table::default().text("link").text("class").text("read")).text("write");
            for link in &self.links {
                let ends = format!("{} - {}", link.a, link.b);
                table.row([ends, dash(&link.class), dash(&link.read), dash(&link.write)]);
            }
            out.push_str(&table.render(2));
        }
        if !self.nics.is_empty() {
            let names: Vec<&str> = self
                .nics
                .iter()
                .map(|n| n.device.as_deref().unwrap_or(&n.name))
                .collect();
            let _ = writeln!(out, "\nNICs: {}", names.join(", "));
        }
        for note in &self.notes {
            let _ = writeln!(out, "note: {note}");
        }
        if let Some(measured) = &self.measured {
            out.push('\n');
            out.push_str(&measured.text());
        }
        let _ = writeln!(out, "\nfingerprint: {}", self.fingerprint);
        let _ = match (&self.best.family, self.best.distance) {
            (Some(family), Some(distance)) => writeln!(
                out,
                "match: {family}, {}, distance {distance}, placement {:?}{}{}",
                self.best.kind,
                self.best.placement,
                taking(self.gpus.len(), self.best.idle),
                if self.best.optimal { "" } else { ", not proven nearest" }
            ),
            _ => writeln!(out, "match: no compiled family fits (`topoforge explain` says why)"),
        };
        out
    }
}

/// Says so where a family takes only some of the GPUs.
fn taking(gpus: usize, idle: usize) -> String {
    match idle {
        0 => String::new(),
        _ => format!(", on {} of {gpus} GPUs, {idle} idle", gpus.saturating_sub(idle)),
    }
}

/// `topoforge explain`
#[derive(Debug, Serialize)]
pub struct ExplainReport {
    /// As in [`ProbeReport`].
    pub source: &'static str,
    /// How many GPUs.
    pub ranks: usize,
    /// The family taken, if any.
    #[serde(rename = "match")]
    pub best: Option<String>,
    /// GPUs that the family taken leaves over.
    pub idle: usize,
    /// All families, nearest first.
    pub families: Vec<Explained>,
}

/// One family in words.
#[derive(Debug, Serialize)]
pub struct Explained {
    /// Its name.
    pub family: String,
    /// `exact`, `compatible`, `degraded` or `infeasible`.
    pub kind: &'static str,
    /// Sum of class differences.
    pub distance: Option<u32>,
    /// Which rank of the machine plays each of the family's.
    pub placement: Vec<usize>,
    /// What this fit means, or why there is none.
    pub words: Vec<String>,
    /// What would have to change for it to fit exactly.
    pub changes: Vec<String>,
    /// It is for another number of GPUs; the words are the same for all of those.
    #[serde(skip)]
    pub other_size: bool,
}

impl Report for ExplainReport {
    fn text(&self) -> String {
        let mut out = match &self.best {
            Some(family) => {
                let part = taking(self.ranks, self.idle);
                format!("{} GPUs ({}): {family} is taken{part}.\n", self.ranks, self.source)
            }
            None => format!("{} GPUs ({}): no compiled family fits.\n", self.ranks, self.source),
        };
        let (others, told): (Vec<_>, Vec<_>) = self.families.iter().partition(|f| f.other_size);
        for family in told {
            let distance = family.distance.map(|d| format!(", distance {d}")).unwrap_or_default();
            let _ = writeln!(out, "\n{} ({}{distance})", family.family, family.kind);
            for line in &family.words {
                let _ = writeln!(out, "  {line}");
            }
            for change in &family.changes {
                let _ = writeln!(out, "  to fit exactly: {change}");
            }
        }
        if !others.is_empty() {
            let names: Vec<&str> = others.iter().map(|f| f.family.as_str()).collect();
            let _ = writeln!(out, "\nFor another number of GPUs: {}", names.join(", "));
        }
        out
    }
}

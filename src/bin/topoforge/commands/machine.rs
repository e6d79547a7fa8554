//! `probe` and `explain`: what a machine is, live or read from a text, and which family fits it and why.
//!
//! A text that cannot be read safely is a fault of usage, with its line. Start at [`probe`].

use crate::args::{ExplainArgs, InputArg, ProbeArgs, Source};
use crate::failure::{Failure, Outcome};
use crate::names;
use crate::report::Output;
use crate::report::machine::{
    BestMatch, ExplainReport, Explained, GpuLine, LinkLine, MeasuredReport, NicLine, ProbeReport,
};
use std::io::Read;
use std::path::Path;
use topoforge::device::Sampling;
use topoforge::device::cuda::{CudaExecutor, CudaOptions};
use topoforge::matching::{FamilyMatch, match_subsets};
use topoforge::planner::matching::{Kind, Options, Reason};
use topoforge::planner::topology::{Topology, to_ron};
use topoforge::probe::import::{self, ImportedGpu, Input};
use topoforge::registry::Registry;

/// A machine from wherever.
struct Machine {
    source: &'static str,
    level: String,
    gpus: Vec<GpuLine>,
    nics: Vec<NicLine>,
    links: Vec<LinkLine>,
    warnings: Vec<String>,
    notes: Vec<String>,
    topology: Topology,
}

/// `topoforge probe`
pub fn probe(args: &ProbeArgs, output: &mut Output) -> Result<Outcome, Failure> {
    if let Some(path) = &args.save {
        savable(path, args.force)?;
    }
    let mut machine = machine(&args.source)?;
    machine.warnings.iter().for_each(|w| output.warn(w));
    let measured = if args.measure {
        Some(measure(&mut machine.topology)?)
    } else {
        None
    };
    // A search for a family may take long and be interrupted: what was asked for is on disk by then.
    if let Some(path) = &args.save {
        save(&machine, path)?;
        output.note(&format!("wrote {}", path.display()));
    }
    let found = match_subsets(&Registry::builtin(), &machine.topology, &Options::default());
    let best = found.first().filter(|m| m.is_feasible());
    let idle = best.map_or(0, |m| machine.topology.ranks.saturating_sub(m.found.placement.len()));
    output.emit(&ProbeReport {
        source: machine.source,
        level: machine.level,
        gpus: machine.gpus,
        nics: machine.nics,
        links: machine.links,
        warnings: machine.warnings,
        notes: machine.notes,
        measured,
        fingerprint: format!("{:016x}", machine.topology.layout_fingerprint()),
        best: BestMatch {
            family: best.map(|m| m.family.name.to_owned()),
            placement: best.map(|m| m.found.placement.clone()).unwrap_or_default(),
            distance: best.and_then(|m| m.found.distance),
            kind: best.map_or("infeasible", |m| kind(&m.found.kind)),
            optimal: best.is_none_or(|m| m.found.optimal),
            idle,
        },
    })?;
    Ok(Outcome::Done)
}

/// Measures the live machine and writes each edge's latency and rate of stores into its link.
fn measure(topology: &mut Topology) -> Result<MeasuredReport, Failure> {
    let devices: Vec<usize> = (0..topology.ranks).collect();
    let mut executor = CudaExecutor::new(&devices, devices.len(), CudaOptions::default()).map_err(Failure::work)?;
    let measured = executor.measure_edges(&Sampling::default()).map_err(Failure::work)?;
    for edge in &measured.edges {
        let link = topology
            .links
            .iter_mut()
            .find(|l| (l.from, l.to) == (edge.from, edge.to));
        if let Some(link) = link {
            link.latency_ns = Some(edge.write_ns.round().max(1.0) as u32);
            link.gb_per_s = Some((edge.write_gb_per_s * 10.0).round() as f32 / 10.0);
        }
    }
    Ok(MeasuredReport::of(&measured))
}

/// `topoforge explain`
pub fn explain(args: &ExplainArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let machine = machine(&args.source)?;
    machine.warnings.iter().for_each(|w| output.warn(w));
    let found = match_subsets(&Registry::builtin(), &machine.topology, &Options::default());
    let best = found.first().filter(|m| m.is_feasible());
    let taken = best.map(|m| m.found.distance.unwrap_or_default());
    output.emit(&ExplainReport {
        source: machine.source,
        ranks: machine.topology.ranks,
        best: best.map(|m| m.family.name.to_owned()),
        idle: best.map_or(0, |m| machine.topology.ranks.saturating_sub(m.found.placement.len())),
        families: (found.iter().enumerate())
            .map(|(place, m)| explained(place, m, taken, machine.topology.ranks))
            .collect(),
    })?;
    Ok(Outcome::Done)
}

const fn kind(kind: &Kind) -> &'static str {
    match kind {
        Kind::Exact => "exact",
        Kind::Compatible => "compatible",
        Kind::Degraded => "degraded",
        Kind::Infeasible(_) => "infeasible",
    }
}

fn explained(place: usize, m: &FamilyMatch, taken: Option<u32>, ranks: usize) -> Explained {
    let mut words = Vec::new();
    let mut changes = Vec::new();
    if m.is_feasible() {
        words.push(match (place, m.found.distance, taken) {
            (0, ..) => "taken: no other family is nearer".to_owned(),
            (_, Some(own), Some(best)) if own > best => format!("not taken: farther by {}", own - best),
            _ => "not taken: as near, but fewer GPUs or later by name".to_owned(),
        });
        words.push(match m.found.kind {
            Kind::Exact => "every link it uses is of the class it was compiled for".to_owned(),
            Kind::Compatible => "every link it uses is there, of the same or a better class".to_owned(),
            _ => {
                "every link it uses is there, but some are of a worse class: it is served only if it qualifies and wins"
                    .to_owned()
            }
        });
        let map: Vec<String> = (m.found.placement.iter().enumerate())
            .map(|(family, live)| format!("{family} on {live}"))
            .collect();
        words.push(format!("its ranks: {}", map.join(", ")));
        if m.found.placement.len() < ranks {
            words.push(format!(
                "it takes {} of the {ranks} GPUs; the rest stays idle",
                m.found.placement.len()
            ));
        }
        if !m.left_out.is_empty() {
            let n = m.left_out.len();
            words.push(format!(
                "{n} of its variants use links that are not there and are left out: {}",
                m.left_out.join(", ")
            ));
        }
        if !m.found.optimal {
            words.push(format!(
                "the search was cut short: a placement as near as {} may exist",
                m.found.lower_bound
            ));
        }
        changes.extend(grouped(m));
    } else if let Kind::Infeasible(reason) = &m.found.kind {
        words.push(format!("not taken: {reason}"));
        changes.push(match reason {
            Reason::RankCount { family, live } => {
                format!("make {family} GPUs visible instead of {live} (CUDA_VISIBLE_DEVICES)")
            }
            Reason::NoLink { class, .. } => format!("the machine would need a link as good as {class} there"),
            Reason::GaveUp { .. } => "raise the node limit of the search".to_owned(),
            _ => "list existing GPUs, each once".to_owned(),
        });
    }
    Explained {
        family: m.family.name.to_owned(),
        kind: kind(&m.found.kind),
        distance: m.found.distance,
        placement: m.found.placement.clone(),
        words,
        changes,
        other_size: matches!(m.found.kind, Kind::Infeasible(Reason::RankCount { .. })),
    }
}

/// Differences of one kind in one line.
fn grouped(m: &FamilyMatch) -> Vec<String> {
    let mut groups: Vec<(String, String, usize, u32)> = Vec::new();
    for change in &m.found.changes {
        let (live, family) = (change.live.to_string(), change.family.to_string());
        match groups.iter_mut().find(|g| (&g.0, &g.1) == (&live, &family)) {
            Some(group) => (group.2, group.3) = (group.2 + 1, group.3 + change.distance),
            None => groups.push((live, family, 1, change.distance)),
        }
    }
    let line = |(live, family, links, distance)| match links {
        1 => format!("1 link is {live} and would have to be {family} (distance {distance})"),
        n => format!("{n} links are {live} and would have to be {family} (distance {distance})"),
    };
    groups.into_iter().map(line).collect()
}

fn machine(source: &Source) -> Result<Machine, Failure> {
    match &source.from {
        Some(path) => imported(path, source.input),
        None => live(),
    }
}

fn live() -> Result<Machine, Failure> {
    let live = topoforge::probe::probe().map_err(Failure::work)?;
    let gpu = |g: &topoforge::probe::LiveGpu| {
        GpuLine::from(&ImportedGpu {
            index: g.ordinal,
            name: Some(g.name.clone()),
            uuid: Some(g.uuid.clone()),
            pci: Some(g.pci.clone()),
        })
    };
    Ok(Machine {
        source: "live",
        level: live.level.name().to_owned(),
        gpus: live.gpus.iter().map(gpu).collect(),
        nics: live.nics.iter().map(nic).collect(),
        links: import::links_of(&live.topology).iter().map(LinkLine::from).collect(),
        warnings: live.warnings,
        notes: vec!["peer access is granted, not proven: `topoforge doctor` proves it".to_owned()],
        topology: live.topology,
    })
}

fn nic(nic: &topoforge::probe::LiveNic) -> NicLine {
    use topoforge::driver::nvml::Ancestor;
    let label = |ancestor: &Ancestor| match ancestor {
        Ancestor::Internal | Ancestor::Single => "PIX",
        Ancestor::Multiple => "PXB",
        Ancestor::HostBridge => "PHB",
        Ancestor::Node => "NODE",
        Ancestor::System => "SYS",
    };
    NicLine {
        name: nic.name.clone(),
        device: Some(nic.name.clone()),
        pci: Some(nic.pci.clone()),
        classes: nic
            .ancestors
            .iter()
            .map(|a| a.as_ref().map(|a| label(a).to_owned()))
            .collect(),
    }
}

fn imported(path: &Path, input: InputArg) -> Result<Machine, Failure> {
    let file = path.display().to_string();
    let unreadable = |e: std::io::Error| Failure::usage(format!("cannot read {file}: {e}"));
    let most = import::MAX_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    if file == "-" {
        std::io::stdin()
            .lock()
            .take(most)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
    } else {
        names::length(path)?;
        let open = std::fs::File::open(path).map_err(unreadable)?;
        open.take(most).read_to_end(&mut bytes).map_err(unreadable)?;
    }
    let read = import::import_bytes(&bytes, kind_of(input))
        .map_err(|e| Failure::usage(format!("{file}:{}: {}", e.line, e.reason)))?;
    Ok(Machine {
        source: read.source.name(),
        level: read.level,
        gpus: read.gpus.iter().map(GpuLine::from).collect(),
        nics: read.nics.iter().map(NicLine::from).collect(),
        links: read.links.iter().map(LinkLine::from).collect(),
        warnings: read.warnings,
        notes: read.notes,
        topology: read.topology,
    })
}

/// How a file that `probe` wrote begins.
const WRITTEN: &str = "// Written by `topoforge probe`";

/// Whether the file may be written: a descriptor by its name, and nothing that somebody wrote by hand.
fn savable(path: &Path, force: bool) -> Result<(), Failure> {
    let file = path.display();
    names::writable(path)?;
    if path.extension().is_none_or(|end| end != "ron") {
        return Err(Failure::usage(format!(
            "--save {file}: a descriptor's name ends in .ron"
        )));
    }
    if force || !path.exists() {
        return Ok(());
    }
    let mut start = Vec::new();
    std::fs::File::open(path)
        .and_then(|f| f.take(WRITTEN.len() as u64).read_to_end(&mut start))
        .map_err(|e| Failure::usage(format!("cannot read {file}: {e}")))?;
    if start == WRITTEN.as_bytes() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{file} exists and was not written by probe: name another file, or write over it with --force"
    )))
}

/// A descriptor that compiles as it is: named after its file.
fn save(machine: &Machine, path: &Path) -> Result<(), Failure> {
    let stem = path
        .file_stem()
        .map(|s| s.to_string_lossy().to_lowercase())
        .unwrap_or_default();
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = stem.chars().map(letter).take(48).collect();
    let name = name.trim_matches('-');
    let mut topology = machine.topology.clone();
    topology.name = if name.is_empty() { "my-machine" } else { name }.to_owned();
    let text = format!(
        "{WRITTEN} ({}, {}).\n//\n// Found in: \n{}",
        machine.source,
        machine.level,
        to_ron(&topology)
    );
    std::fs::write(path, text).map_err(|e| Failure::work(format!("cannot write {}: {e}", path.display())))
}

const fn kind_of(arg: InputArg) -> Option<Input> {
    match arg {
        InputArg::Auto => None,
        InputArg::Smi => Some(Input::Smi),
        InputArg::P2p => Some(Input::P2p),
        InputArg::NcclXml => Some(Input::NcclXml),
        InputArg::Ron => Some(Input::Ron),
    }
}

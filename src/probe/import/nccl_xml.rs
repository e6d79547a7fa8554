//! NCCL's topology file, as `NCCL_TOPO_DUMP_FILE` writes and cloud images ship it: PCI tree, NVLinks, CPUs, NICs.
//!
//! Document types, and with them entities, are refused; depth and size are bounded. Classes follow NCCL's own reading of
//! the tree: a common switch is `PIX`, a common root behind several `PXB`, a common CPU `PHB`, else `SYS`. Start at
//! [`read`]; the XML itself becomes a tree in [`parse`].

use super::labels::{Class, MAX_LANES, gen_of_arch};
use super::{ImportError, Imported, ImportedGpu, ImportedLink, ImportedNic, Input};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use std::collections::{BTreeMap, BTreeSet};
use topoforge_planner::topology::{LinkClass, MAX_RANKS, Topology};

/// Deepest nesting of elements.
const MAX_DEPTH: usize = 32;
/// Most elements of a file.
const MAX_ELEMENTS: usize = 20_000;
/// Share of a PCIe link's bit rate that is left for payload, as in the class defaults.
const PAYLOAD: f32 = 0.76;

struct Element {
    name: String,
    line: usize,
    parent: Option<usize>,
    attributes: BTreeMap<String, String>,
}

impl Element {
    fn get(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    fn number(&self, name: &str) -> Result<Option<u64>, ImportError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let number = text.parse().map(Some);
        number.map_err(|_| {
            ImportError::new(
                self.line,
                format!("{name}=\"{}\" is no number", super::clean::quote(text)),
            )
        })
    }

    fn class(&self) -> Option<u32> {
        u32::from_str_radix(self.get("class")?.trim_start_matches("0x"), 16).ok()
    }
}

/// Reads a file.
pub(super) fn read(text: &str) -> Result<Imported, ImportError> {
    let tree = parse(text)?;
    check(&tree)?;
    let mut warnings = Vec::new();
    let mut notes = vec!["a file is a statement: `doctor` proves peer access".to_owned()];
    let gpus = gpus(&tree, &mut warnings)?;
    let classes = classes(&tree, &gpus, &mut warnings)?;
    if gpus.iter().any(|g| g.element.is_none()) {
        warnings.push(
            "the file lists GPUs as PCI devices only, so NVLinks are not known: dump the topology on the machine itself".into(),
        );
    }
    if classes.contains(&Class::Phb) {
        notes.push("the file does not tell host bridges apart: PHB may be NODE".into());
    }
    let n = gpus.len();
    let mut topology = Topology::new("imported", n);
    let mut links = Vec::new();
    for a in 0..n {
        for b in a + 1..n {
            let class = classes[a * n + b];
            let r#gen = gpus[a].arch.min(gpus[b].arch).map(gen_of_arch);
            topology = topology.with_pair(a, b, class.link(r#gen));
            links.push(ImportedLink {
                a: gpus[a].index,
                b: gpus[b].index,
                class: class.label(),
                read: None,
                write: None,
            });
        }
    }
    let topology = resources(&tree, &gpus, topology);
    let numa: Option<Vec<usize>> = gpus.iter().map(|g| numa(&tree, g.pci)).collect();
    let topology = with_numa(topology, numa);
    let gpu = |g: &Gpu| ImportedGpu {
        index: g.index,
        pci: tree[g.pci].get("busid").map(str::to_owned),
        ..ImportedGpu::default()
    };
    Ok(Imported {
        source: Input::NcclXml,
        level: "nccl-xml".into(),
        gpus: gpus.iter().map(gpu).collect(),
        nics: nics(&tree, &gpus),
        links,
        warnings,
        notes,
        topology,
    })
}

fn with_numa(mut topology: Topology, numa: Option<Vec<usize>>) -> Topology {
    topology.numa = numa.unwrap_or_default();
    topology
}

/// The elements in document order.
fn parse(text: &str) -> Result<Vec<Element>, ImportError> {
    let starts: Vec<usize> = std::iter::once(0)
        .chain(text.match_indices('\n').map(|(i, _)| i + 1))
        .collect();
    let line_at = |position: u64| {
        let position = usize::try_from(position).unwrap_or(usize::MAX);
        starts.partition_point(|&s| s <= position.saturating_sub(1)).max(1)
    };
    let mut reader = Reader::from_str(text);
    reader.config_mut().check_end_names = true;
    let mut tree: Vec<Element> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    loop {
        let event = reader.read_event();
        let line = line_at(reader.buffer_position());
        let event = event.map_err(|e| {
            ImportError::new(
                line_at(reader.error_position() + 1),
                format!("not well-formed XML: {}", one_line(&e.to_string())),
            )
        })?;
        match event {
            Event::Start(start) => {
                if open.len() == MAX_DEPTH {
                    return Err(ImportError::new(
                        line,
                        format!("elements are nested deeper than {MAX_DEPTH}"),
                    ));
                }
                push(&mut tree, &start, open.last().copied(), line)?;
                open.push(tree.len() - 1);
            }
            Event::Empty(start) => push(&mut tree, &start, open.last().copied(), line)?,
            Event::End(_) => {
                open.pop();
            }
            Event::DocType(_) => {
                let reason = "document types and entities are not read: remove the DOCTYPE";
                return Err(ImportError::new(line, reason));
            }
            Event::Text(text) => {
                if !text.chars().all(char::is_whitespace) {
                    let reason = "text between elements: a topology file has none";
                    return Err(ImportError::new(line, reason));
                }
            }
            Event::CData(_) | Event::GeneralRef(_) => {
                return Err(ImportError::new(
                    line,
                    "text between elements: a topology file has none",
                ));
            }
            Event::Eof => break,
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
    if let Some(&unclosed) = open.last() {
        let element = &tree[unclosed];
        let reason = format!(
            "<{}> is never closed: the file is cut",
            super::clean::quote(&element.name)
        );
        return Err(ImportError::new(element.line, reason));
    }
    if tree.is_empty() {
        return Err(ImportError::new(1, "no element: this is no topology file"));
    }
    Ok(tree)
}

fn push(
    tree: &mut Vec<Element>,
    start: &BytesStart<'_>,
    parent: Option<usize>,
    line: usize,
) -> Result<(), ImportError> {
    if tree.len() == MAX_ELEMENTS {
        return Err(ImportError::new(line, format!("more than {MAX_ELEMENTS} elements")));
    }
    if parent.is_none() && !tree.is_empty() {
        return Err(ImportError::new(
            line,
            "a second element at the top: give one file at a time",
        ));
    }
    let mut attributes = BTreeMap::new();
    for attribute in start.attributes() {
        let attribute = attribute
            .map_err(|e| ImportError::new(line, format!("not well-formed XML: {}", one_line(&e.to_string()))))?;
        let key = attribute.key.as_ref().to_owned();
        let value = quick_xml::escape::unescape(&attribute.value)
            .map_err(|_| ImportError::new(line, format!("attribute {key} uses an entity, which is not read")))?;
        attributes.insert(key, value.into_owned());
    }
    tree.push(Element {
        name: start.name().as_ref().to_owned(),
        line,
        parent,
        attributes,
    });
    Ok(())
}

fn one_line(text: &str) -> String {
    super::clean::quote(&text.replace('\n', " "))
}

/// What the file is, and that every element stands where NCCL puts it.
fn check(tree: &[Element]) -> Result<(), ImportError> {
    let root = &tree[0];
    if root.name != "system" {
        let reason = match root.name.as_str() {
            "graphs" | "graph" => "this is an NCCL graph file: give the topology file (NCCL_TOPO_DUMP_FILE)".to_owned(),
            "nvidia_smi_log" => {
                "this is `nvidia-smi -q -x`, which says nothing about links: give `nvidia-smi topo -m`".to_owned()
            }
            "topology" => "this is hwloc's file, which is not read: give NCCL's (NCCL_TOPO_DUMP_FILE)".to_owned(),
            other => format!(
                "the first element is <{}>, not <system>: this is no NCCL topology file",
                super::clean::quote(other)
            ),
        };
        return Err(ImportError::new(root.line, reason));
    }
    // First of all, so that no other rule hides whose file it is.
    for element in tree {
        let vendor = element.get("vendor").unwrap_or_default();
        let amd_gpu = element.name == "pci" && vendor == "0x1002" && element.class().is_some_and(is_display);
        if element.name == "xgmi" || element.get("gcn").is_some() || amd_gpu {
            let reason = "these are AMD GPUs: only NVIDIA's are read";
            return Err(ImportError::new(element.line, reason));
        }
    }
    for element in tree {
        let parent = element.parent.map(|p| tree[p].name.as_str());
        let fits = match element.name.as_str() {
            "cpu" => parent == Some("system"),
            "pci" => matches!(parent, Some("cpu" | "pci")),
            "gpu" => parent == Some("pci"),
            "nvlink" | "c2c" | "pcilink" => {
                matches!(parent, Some("gpu" | "pci" | "cpu")) && (element.name != "nvlink" || parent == Some("gpu"))
            }
            "nic" => matches!(parent, Some("pci" | "cpu" | "system")),
            "net" | "gin" => parent == Some("nic"),
            "system" => parent.is_none(),
            // Later versions may say more; it changes nothing here.
            _ => true,
        };
        if !fits {
            let (name, parent) = (&element.name, parent.unwrap_or("nothing"));
            let reason = format!("<{name}> stands in <{parent}>, where NCCL does not put it: its link cannot be told");
            return Err(ImportError::new(element.line, reason));
        }
    }
    Ok(())
}

/// Display and 3D controllers, and AMD's processing accelerators.
const fn is_display(class: u32) -> bool {
    matches!(class >> 8, 0x0300 | 0x0302 | 0x0380 | 0x1200)
}

struct Gpu {
    index: usize,
    /// The PCI element.
    pci: usize,
    /// The `<gpu>` element, if the file has one.
    element: Option<usize>,
    /// Compute capability, e.g. 80.
    arch: Option<u32>,
}

fn gpus(tree: &[Element], warnings: &mut Vec<String>) -> Result<Vec<Gpu>, ImportError> {
    let mut out: Vec<Gpu> = Vec::new();
    for (i, element) in tree.iter().enumerate().filter(|(_, e)| e.name == "gpu") {
        let index = element.number("dev")?;
        let arch = element.number("sm")?.and_then(|sm| u32::try_from(sm).ok());
        let pci = element.parent.unwrap_or_default();
        let index = index.map_or(out.len(), |i| usize::try_from(i).unwrap_or(usize::MAX));
        if out.iter().any(|g| g.index == index) {
            return Err(ImportError::new(
                element.line,
                format!("dev=\"{index}\" is there twice"),
            ));
        }
        if out.iter().any(|g| g.pci == pci) {
            return Err(ImportError::new(element.line, "two <gpu> elements in one PCI device"));
        }
        let vendor = tree[pci].get("vendor");
        if vendor.is_some_and(|v| v != "0x10de") {
            let vendor = super::clean::quote(vendor.unwrap_or_default());
            return Err(ImportError::new(
                tree[pci].line,
                format!("a GPU of vendor {vendor}: only NVIDIA's are read"),
            ));
        }
        let element = Some(i);
        out.push(Gpu {
            index,
            pci,
            element,
            arch,
        });
    }
    // Files for virtual machines name PCI devices and leave the rest to NCCL.
    if out.is_empty() {
        for (pci, element) in tree.iter().enumerate().filter(|(_, e)| e.name == "pci") {
            let is_gpu = element.class().is_some_and(|c| matches!(c >> 8, 0x0300 | 0x0302));
            let is_nvidia = element.get("vendor").is_none_or(|v| v == "0x10de");
            if is_gpu && is_nvidia {
                let index = out.len();
                out.push(Gpu {
                    index,
                    pci,
                    element: None,
                    arch: None,
                });
            }
        }
    }
    if out.is_empty() {
        let reason = "no GPU: neither a <gpu> element nor a PCI device of a GPU's class";
        return Err(ImportError::new(tree[0].line, reason));
    }
    if out.len() > MAX_RANKS {
        let reason = format!("{} GPUs: at most {MAX_RANKS} are supported", out.len());
        return Err(ImportError::new(tree[0].line, reason));
    }
    out.sort_by_key(|g| g.index);
    let mut seen = BTreeSet::new();
    for gpu in &out {
        let element = &tree[gpu.pci];
        let Some(address) = element.get("busid") else {
            return Err(ImportError::new(element.line, "a GPU's PCI device has no busid"));
        };
        if !seen.insert(address.to_lowercase()) {
            return Err(ImportError::new(
                element.line,
                format!("busid {} is there twice", super::clean::quote(address)),
            ));
        }
    }
    if tree[0].get("version").is_some_and(|v| v != "1") {
        warnings.push("the file is of another version than 1: what is new in it is not read".into());
    }
    Ok(out)
}

/// Row-major over GPUs.
fn classes(tree: &[Element], gpus: &[Gpu], warnings: &mut Vec<String>) -> Result<Vec<Class>, ImportError> {
    let n = gpus.len();
    let address = |g: &Gpu| tree[g.pci].get("busid").unwrap_or_default().to_lowercase();
    let by_address: BTreeMap<String, usize> = gpus.iter().enumerate().map(|(rank, g)| (address(g), rank)).collect();
    let mut direct = vec![0_u64; n * n];
    let mut switched = vec![0_u64; n];
    for (rank, gpu) in gpus.iter().enumerate() {
        let own = |e: &&Element| e.name == "nvlink" && e.parent.is_some() && e.parent == gpu.element;
        for link in tree.iter().filter(own) {
            let count = link.number("count")?.unwrap_or(1);
            let target = link.get("target").map(str::to_lowercase);
            let to = target.as_ref().and_then(|t| by_address.get(t)).copied();
            let class = link
                .get("tclass")
                .and_then(|c| u32::from_str_radix(c.trim_start_matches("0x"), 16).ok());
            match (to, class.map(|c| c >> 8)) {
                (Some(to), _) if to != rank => direct[rank * n + to] += count,
                (Some(_), _) => return Err(ImportError::new(link.line, "an NVLink from a GPU to itself")),
                (None, Some(0x0680)) => switched[rank] += count,
                // A GPU that is not part of the dump, or a CPU.
                (None, Some(_)) => {}
                (None, None) => {
                    let reason = "an NVLink whose target is neither in the file nor given a tclass";
                    return Err(ImportError::new(link.line, reason));
                }
            }
        }
        let most = direct[rank * n..][..n]
            .iter()
            .copied()
            .max()
            .unwrap_or(0)
            .max(switched[rank]);
        if most > u64::from(MAX_LANES) {
            let line = tree[gpu.pci].line;
            return Err(ImportError::new(
                line,
                format!("{most} NVLinks of one GPU: at most {MAX_LANES} are known"),
            ));
        }
    }
    let mut out = vec![Class::Sys; n * n];
    for a in 0..n {
        for b in a + 1..n {
            let (there, back) = (direct[a * n + b], direct[b * n + a]);
            let lanes = there.min(back).max(switched[a].min(switched[b]));
            if there != back {
                let (a, b) = (gpus[a].index, gpus[b].index);
                warnings.push(format!(
                    "GPU{a} states {there} NVLinks to GPU{b} but GPU{b} {back} to GPU{a}: the fewer count"
                ));
            }
            let class = match u8::try_from(lanes) {
                Ok(lanes) if lanes > 0 => Class::NvLink(lanes),
                _ => pcie(tree, gpus[a].pci, gpus[b].pci),
            };
            (out[a * n + b], out[b * n + a]) = (class, class);
        }
    }
    Ok(out)
}

fn path(tree: &[Element], from: usize) -> Vec<usize> {
    std::iter::successors(Some(from), |&i| tree[i].parent).collect()
}

/// The class of two PCI devices by what they have in common.
fn pcie(tree: &[Element], a: usize, b: usize) -> Class {
    let (up_a, up_b) = (path(tree, a), path(tree, b));
    let Some((at_a, common)) = up_a.iter().enumerate().find(|(_, i)| up_b.contains(i)) else {
        return Class::Sys;
    };
    let at_b = up_b.iter().position(|i| i == common).unwrap_or(0);
    match tree[*common].name.as_str() {
        // A host bridge or a function of the CPU is no switch.
        "pci" if tree[*common].class().is_some_and(|c| c >> 8 == 0x0600) => Class::Phb,
        "pci" if at_a <= 1 && at_b <= 1 => Class::Pix,
        "pci" => Class::Pxb,
        "cpu" => Class::Phb,
        _ => Class::Sys,
    }
}

fn numa(tree: &[Element], pci: usize) -> Option<usize> {
    let cpu = path(tree, pci).into_iter().find(|&i| tree[i].name == "cpu")?;
    // -1 stands for "nobody said".
    tree[cpu].get("numaid")?.parse().ok()
}

/// Payload rate of a PCIe port in 10^9 bytes a second, where the file states it.
fn rate(element: &Element) -> Option<f32> {
    let speed = element
        .get("link_speed")?
        .split_whitespace()
        .next()?
        .parse::<f32>()
        .ok()?;
    let width = element.get("link_width")?.parse::<u8>().ok()?;
    let encoding = if speed > 5.0 { 128.0 / 130.0 } else { 0.8 };
    let rate = speed * f32::from(width) / 8.0 * encoding * PAYLOAD;
    // Rounded, so that the figure can be read; nothing depends on it but ranking.
    let rate = (rate * 10.0).round() / 10.0;
    (rate.is_finite() && (0.1..10_000.0).contains(&rate)).then_some(rate)
}

/// Ports and uplinks that several PCIe links cross, each in both directions.
fn resources(tree: &[Element], gpus: &[Gpu], mut topology: Topology) -> Topology {
    let n = gpus.len();
    let below: Vec<Vec<usize>> = gpus.iter().map(|g| path(tree, g.pci)).collect();
    let crosses = |class: Option<LinkClass>| matches!(class, Some(LinkClass::Pcie(_)));
    for (i, element) in tree.iter().enumerate().filter(|(_, e)| e.name == "pci") {
        let Some(rate) = rate(element) else { continue };
        let inside: Vec<bool> = below.iter().map(|path| path.contains(&i)).collect();
        let mut out = Vec::new();
        for a in 0..n {
            for b in 0..n {
                if inside[a] && !inside[b] && crosses(topology.link(a, b).map(|l| l.class)) {
                    out.push((a, b));
                }
            }
        }
        if out.len() < 2 {
            continue;
        }
        // A bridge with one GPU below it and that GPU's port are one bottleneck.
        if let Some(same) = topology.resources.iter().position(|r| r.links == out) {
            for known in &mut topology.resources[same..=same + 1] {
                known.gb_per_s = known.gb_per_s.min(rate);
            }
            continue;
        }
        let back: Vec<(usize, usize)> = out.iter().map(|&(a, b)| (b, a)).collect();
        let name = match (0..n).find(|&r| gpus[r].pci == i) {
            Some(rank) => format!("port-{rank}"),
            None => format!("uplink-{i}"),
        };
        topology = topology.with_resource(format!("{name}-out"), rate, out);
        topology = topology.with_resource(format!("{name}-in"), rate, back);
    }
    topology
}

fn nics(tree: &[Element], gpus: &[Gpu]) -> Vec<ImportedNic> {
    let nets = tree.iter().enumerate().filter(|(_, e)| e.name == "net");
    nets.map(|(i, net)| {
        let up = path(tree, i);
        let pci = up.iter().copied().find(|&p| tree[p].name == "pci");
        let class = |g: &Gpu| pci.map(|pci| pcie(tree, g.pci, pci)).and_then(Class::label);
        ImportedNic {
            name: net.get("name").unwrap_or("net").to_owned(),
            device: net.get("name").map(str::to_owned),
            pci: pci.and_then(|p| tree[p].get("busid")).map(str::to_owned),
            classes: gpus.iter().map(class).collect(),
        }
    })
    .collect()
}

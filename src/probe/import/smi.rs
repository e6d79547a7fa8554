//! `nvidia-smi topo -m`: classes of GPU pairs and of NICs, with `-p2p` tables and `nvidia-smi -L` lines of the same paste.
//!
//! It says what was printed and takes the worse of two contradicting cells. Start at [`read`].

use super::labels::{Class, Status};
use super::p2p::{self, Access};
use super::table::{Table, scan};
use super::{ImportError, Imported, ImportedGpu, ImportedLink, ImportedNic, Input, clean};
use topoforge_planner::topology::{LinkClass, Topology};

/// Reads a paste that holds one `topo -m` table.
pub(super) fn read(text: &str) -> Result<Imported, ImportError> {
    let (p2p, topo): (Vec<Table>, Vec<Table>) = scan(text)?.into_iter().partition(Table::is_p2p);
    let Some(table) = topo.first() else {
        let line = p2p.first().map_or(1, |t| t.line);
        let reason = "only tables of `topo -p2p` are here, which say nothing about classes: read it as p2p";
        return Err(ImportError::new(line, reason));
    };
    if let Some(other) = topo[1..].iter().find(|t| !same(t, table)) {
        let reason = format!(
            "a second, different table (the first starts on line {}): give one machine's at a time",
            table.line
        );
        return Err(ImportError::new(other.line, reason));
    }
    let columns = table.gpus();
    let indices: Vec<usize> = columns.iter().filter_map(|&c| table.names[c].gpu).collect();
    let mut access = p2p::gather(&p2p)?;
    let errors = text
        .lines()
        .map(clean::line)
        .enumerate()
        .filter(|(_, l)| clean::is_error(l));
    for (at, line) in errors.take(3) {
        access
            .warnings
            .push(format!("line {}, outside the table: {}", at + 1, clean::quote(&line)));
    }
    if p2p.is_empty() {
        access.gpus.clone_from(&indices);
    } else if access.gpus != indices {
        let reason = "the -p2p table has other GPUs than the -m table: give tables of one machine";
        return Err(ImportError::new(p2p[0].line, reason));
    }
    let listed = listed(text);
    let mut warnings = table.warnings.clone();
    let classes = classes(table, &columns, &mut warnings)?;
    warnings.append(&mut access.warnings);
    if indices.windows(2).any(|w| w[1] != w[0] + 1) || indices.first().is_some_and(|&first| first != 0) {
        warnings.push(format!(
            "GPU numbers are not consecutive: {indices:?}; ranks are their order in the table"
        ));
    }
    for gpu in listed.iter().filter(|g| g.mig && indices.contains(&g.index)) {
        warnings.push(format!(
            "GPU{} is cut into MIG instances, which have no peer access: its links are taken for host links",
            gpu.index
        ));
    }
    let (links, topology) = links(&indices, &classes, &access, &listed, table, &columns);
    let mut notes = vec!["peer access is not proven by a table: `doctor` proves it".to_owned()];
    if access.read.is_none() && access.write.is_none() && indices.len() > 1 {
        notes.push("no -p2p table: every pair is taken to have peer access".into());
    }
    if classes.iter().any(|c| matches!(c, Class::NvLink(_))) {
        notes.push("NVLink generations are not printed: taken from the number of lanes".into());
    }
    let gpu = |&index: &usize| {
        let known = listed.iter().find(|g| g.index == index);
        ImportedGpu {
            index,
            name: known.map(|g| g.name.clone()),
            uuid: known.and_then(|g| g.uuid.clone()),
            pci: None,
        }
    };
    Ok(Imported {
        source: Input::Smi,
        level: if p2p.is_empty() { "topo-m" } else { "topo-m+p2p" }.into(),
        gpus: indices.iter().map(gpu).collect(),
        nics: nics(text, table, &columns),
        links,
        warnings,
        notes,
        topology,
    })
}

fn same(a: &Table, b: &Table) -> bool {
    a.names == b.names && a.rows.iter().zip(&b.rows).all(|(x, y)| x.cells == y.cells)
}

/// Row-major over GPUs, the same both ways; the diagonal is not used.
fn classes(table: &Table, columns: &[usize], warnings: &mut Vec<String>) -> Result<Vec<Class>, ImportError> {
    let n = columns.len();
    let mut out = vec![Class::Sys; n * n];
    for (a, &row) in columns.iter().enumerate() {
        for (b, &column) in columns.iter().enumerate().filter(|(b, _)| *b != a) {
            let word = &table.rows[row].cells[column];
            out[a * n + b] = Class::parse(word).ok_or_else(|| {
                let (from, to) = (&table.names[row].text, &table.names[column].text);
                let reason = format!("`{word}` between {from} and {to} is no class of a link");
                ImportError::new(table.rows[row].line, reason)
            })?;
        }
    }
    for a in 0..n {
        for b in a + 1..n {
            let (there, back) = (out[a * n + b], out[b * n + a]);
            if there != back {
                let (from, to) = (&table.names[columns[a]].text, &table.names[columns[b]].text);
                let worse = there.max(back);
                warnings.push(format!(
                    "{from} to {to} says {there} but {to} to {from} {back}: taken for {worse}"
                ));
                (out[a * n + b], out[b * n + a]) = (worse, worse);
            }
        }
    }
    Ok(out)
}

fn links(
    indices: &[usize],
    classes: &[Class],
    access: &Access,
    listed: &[Listed],
    table: &Table,
    columns: &[usize],
) -> (Vec<ImportedLink>, Topology) {
    let n = indices.len();
    let mut topology = Topology::new("imported", n);
    let mut links = Vec::new();
    let mig = |rank: usize| listed.iter().any(|g| g.mig && g.index == indices[rank]);
    for a in 0..n {
        for b in a + 1..n {
            let class = classes[a * n + b];
            let status = |of: Option<&Vec<Status>>| access.worst(of, a, b).map(|s| s.label().to_owned());
            links.push(ImportedLink {
                a: indices[a].min(indices[b]),
                b: indices[a].max(indices[b]),
                class: class.label(),
                read: status(access.read.as_ref()),
                write: status(access.write.as_ref()),
            });
            topology = if mig(a) || mig(b) {
                topology.with_pair(a, b, LinkClass::Host)
            } else {
                p2p::with_access(topology, (a, b), class.link(None), access)
            };
        }
    }
    links.sort_by_key(|l| (l.a, l.b));
    let numa: Option<Vec<usize>> = columns.iter().map(|&c| table.rows[c].numa).collect();
    topology.numa = numa.unwrap_or_default();
    (links, topology)
}

fn nics(text: &str, table: &Table, columns: &[usize]) -> Vec<ImportedNic> {
    let devices: Vec<(String, String)> = text
        .lines()
        .map(clean::line)
        .filter_map(|line| {
            let (name, device) = line.split_once(':')?;
            let name = name.split_whitespace().last()?;
            let device = device.trim();
            let nic = name.starts_with("NIC") && !device.is_empty() && !device.contains(char::is_whitespace);
            nic.then(|| (name.to_owned(), device.to_owned()))
        })
        .collect();
    let nics = (0..table.names.len()).filter(|i| table.names[*i].gpu.is_none());
    nics.map(|i| {
        let name = table.names[i].text.clone();
        let class = |&gpu: &usize| {
            // A NIC's row and column may disagree as well.
            let [a, b] = [&table.rows[gpu].cells[i], &table.rows[i].cells[gpu]].map(|w| Class::parse(w));
            a.zip(b).map(|(a, b)| a.max(b)).or(a).or(b).and_then(Class::label)
        };
        ImportedNic {
            device: devices.iter().find(|(n, _)| *n == name).map(|(_, d)| d.clone()),
            pci: None,
            classes: columns.iter().map(class).collect(),
            name,
        }
    })
    .collect()
}

/// A line of `nvidia-smi -L`.
struct Listed {
    index: usize,
    name: String,
    uuid: Option<String>,
    mig: bool,
}

fn listed(text: &str) -> Vec<Listed> {
    let mut out: Vec<Listed> = Vec::new();
    for raw in text.lines() {
        let line = clean::line(raw);
        let line = line.trim();
        if line.starts_with("MIG ") && line.contains("Device") {
            if let Some(gpu) = out.last_mut() {
                gpu.mig = true;
            }
            continue;
        }
        let Some((index, rest)) = line
            .strip_prefix("GPU ")
            .and_then(|rest| rest.split_once(": "))
            .and_then(|(index, rest)| Some((index.parse().ok()?, rest)))
        else {
            continue;
        };
        let (name, uuid) = match rest.split_once(" (UUID: ") {
            Some((name, uuid)) => (name, Some(uuid.trim_end_matches(')').to_owned())),
            None => continue,
        };
        out.push(Listed {
            index,
            name: name.to_owned(),
            uuid,
            mig: false,
        });
    }
    out
}

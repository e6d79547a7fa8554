//! `nvidia-smi topo -p2p`: what the driver claims about peer access, pair by pair.
//!
//! It says nothing about classes, so the topology takes the worst one where access is granted. An `OK` is a claim; `doctor`
//! proves it. Start at [`read`].

use super::labels::{Class, Status};
use super::table::{Table, Verb, scan};
use super::{ImportError, Imported, ImportedGpu, ImportedLink, Input};
use topoforge_planner::topology::{Link, LinkClass, Topology};

/// What tables of `-p2p` say of each pair, by place in `gpus`.
#[derive(Default)]
pub(super) struct Access {
    pub gpus: Vec<usize>,
    /// Row-major; `None` where no table said.
    pub read: Option<Vec<Status>>,
    pub write: Option<Vec<Status>>,
    pub warnings: Vec<String>,
}

impl Access {
    /// The worse of both directions.
    pub fn worst(&self, of: Option<&Vec<Status>>, a: usize, b: usize) -> Option<Status> {
        let n = self.gpus.len();
        of.map(|t| t[a * n + b].max(t[b * n + a]))
    }
}

/// Gathers what tables of `-p2p` say.
pub(super) fn gather(tables: &[Table]) -> Result<Access, ImportError> {
    let mut access = Access::default();
    for table in tables {
        let columns = table.gpus();
        let gpus: Vec<usize> = columns.iter().filter_map(|&c| table.names[c].gpu).collect();
        if access.gpus.is_empty() {
            access.gpus = gpus;
        } else if access.gpus != gpus {
            let reason = "this -p2p table has other GPUs than the one before: give tables of one machine";
            return Err(ImportError::new(table.line, reason));
        }
        let mut cells = Vec::new();
        for &row in &columns {
            for &column in &columns {
                let word = &table.rows[row].cells[column];
                let status = if row == column {
                    Some(Status::Ok)
                } else {
                    Status::parse(word)
                };
                cells.push(status.ok_or_else(|| {
                    let reason = format!("`{word}` is no status of -p2p");
                    ImportError::new(table.rows[row].line, reason)
                })?);
            }
        }
        asymmetries(table, &columns, &cells, &mut access.warnings);
        let (read, write) = match table.verb {
            Some(Verb::Read) => (true, false),
            Some(Verb::Write) => (false, true),
            Some(Verb::Both) => (true, true),
            Some(Verb::Other) => {
                access.warnings.push(format!(
                    "line {}: this -p2p table says nothing about reads and writes; it is not used",
                    table.line
                ));
                (false, false)
            }
            None => {
                access.warnings.push(format!(
                    "line {}: the command line is missing, so reads and writes are both taken to be as this table says",
                    table.line
                ));
                (true, true)
            }
        };
        for (wanted, known) in [(read, &mut access.read), (write, &mut access.write)] {
            if !wanted {
                continue;
            }
            // Two answers to one question: the worse counts.
            *known = Some(match known.take() {
                Some(old) => old.into_iter().zip(&cells).map(|(a, b)| a.max(*b)).collect(),
                None => cells.clone(),
            });
        }
    }
    Ok(access)
}

fn asymmetries(table: &Table, columns: &[usize], cells: &[Status], warnings: &mut Vec<String>) {
    let n = columns.len();
    for a in 0..n {
        for b in a + 1..n {
            let (there, back) = (cells[a * n + b], cells[b * n + a]);
            if there != back {
                let (from, to) = (&table.names[columns[a]].text, &table.names[columns[b]].text);
                let (x, y, worse) = (there.label(), back.label(), there.max(back).label());
                warnings.push(format!(
                    "{from} to {to} says {x} but {to} to {from} {y}: taken for {worse}"
                ));
            }
        }
    }
}

/// Reads a text of `-p2p` tables.
pub(super) fn read(text: &str) -> Result<Imported, ImportError> {
    let tables = scan(text)?;
    if let Some(other) = tables.iter().find(|t| !t.is_p2p() && t.gpus().len() > 1) {
        let reason = "this is no table of `topo -p2p`: read it as smi";
        return Err(ImportError::new(other.line, reason));
    }
    let access = gather(&tables)?;
    if access.read.is_none() && access.write.is_none() {
        let reason = "no table says whether reads or writes work: give `nvidia-smi topo -p2p r` and `-p2p w`";
        return Err(ImportError::new(tables.first().map_or(1, |t| t.line), reason));
    }
    let n = access.gpus.len();
    let mut topology = Topology::new("imported", n);
    let mut links = Vec::new();
    for a in 0..n {
        for b in a + 1..n {
            let read = access.worst(access.read.as_ref(), a, b);
            let write = access.worst(access.write.as_ref(), a, b);
            links.push(ImportedLink {
                a: access.gpus[a].min(access.gpus[b]),
                b: access.gpus[a].max(access.gpus[b]),
                class: None,
                read: read.map(|s| s.label().to_owned()),
                write: write.map(|s| s.label().to_owned()),
            });
            topology = with_access(topology, (a, b), Class::Sys.link(None), &access);
        }
    }
    // Columns may stand in any order.
    links.sort_by_key(|l| (l.a, l.b));
    Ok(Imported {
        source: Input::P2p,
        level: "p2p".into(),
        gpus: access
            .gpus
            .iter()
            .map(|&index| ImportedGpu {
                index,
                ..ImportedGpu::default()
            })
            .collect(),
        nics: Vec::new(),
        links,
        warnings: access.warnings,
        notes: vec!["-p2p says nothing about classes: every pair with access is taken for SYS".into()],
        topology,
    })
}

/// Both directions of a pair of `class` as far as access is granted; what no table says is taken as granted.
pub(super) fn with_access(
    mut topology: Topology,
    (a, b): (usize, usize),
    class: LinkClass,
    access: &Access,
) -> Topology {
    let n = access.gpus.len();
    for (from, to) in [(a, b), (b, a)] {
        let ok = |table: &Option<Vec<Status>>| table.as_ref().is_none_or(|t| t[from * n + to] == Status::Ok);
        let (read, write) = (ok(&access.read), ok(&access.write));
        let mut link = Link::new(from, to, if read || write { class } else { LinkClass::Host });
        if read || write {
            (link.read, link.write) = (read, write);
        }
        topology = topology.with_link(link);
    }
    topology
}

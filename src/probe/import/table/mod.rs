//! Square tables of `GPU#` rows and columns, cut out of whatever stands around them.
//!
//! It knows how terminals and people mangle tables (prefixes, bullets, wrapped rows, glued cells) and refuses what is
//! short, too long or out of place; it does not know what labels mean. A table is found by its `header`, filled by `rows`,
//! and both read a line's words through `cells`. Start at [`scan`].

mod cells;
mod header;
mod rows;

use super::ImportError;
use super::clean;
use cells::{row_start, words};
use header::header;
use rows::body;

pub(super) use cells::Name;

/// Longest line, in bytes: the widest table of 64 GPUs and their NICs stays far below.
const MAX_LINE: usize = 64 << 10;
/// Most lines a header or row may be wrapped over.
const MAX_WRAPS: usize = 16;

/// What was asked of `topo -p2p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Read,
    Write,
    Both,
    /// NVLink, atomics or properties: of no use here.
    Other,
}

#[derive(Debug)]
pub(super) struct Row {
    /// Line of its name, from 1.
    pub line: usize,
    /// One word a column.
    pub cells: Vec<String>,
    /// NUMA node, if one number says so.
    pub numa: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Table {
    /// Line of the header, from 1.
    pub line: usize,
    pub names: Vec<Name>,
    /// One a name, in their order.
    pub rows: Vec<Row>,
    /// What the command line before it asked for.
    pub verb: Option<Verb>,
    pub warnings: Vec<String>,
}

impl Table {
    /// Columns of GPUs.
    pub fn gpus(&self) -> Vec<usize> {
        (0..self.names.len()).filter(|&i| self.names[i].gpu.is_some()).collect()
    }

    /// Whether its cells are those of `-p2p`.
    pub fn is_p2p(&self) -> bool {
        let cells = || self.rows.iter().flat_map(|r| &r.cells).filter(|c| *c != "X");
        if cells().next().is_none() {
            return self.verb.is_some();
        }
        cells().all(|c| super::Status::parse(c).is_some())
    }
}

/// Whether the first row found is one of `-p2p`.
pub(super) fn has_p2p_only(text: &str) -> bool {
    let mut p2p = false;
    for raw in text.lines().take(4096).filter(|l| l.len() <= MAX_LINE) {
        let line = clean::line(raw);
        let Some((name, rest)) = row_start(&line, &[]) else {
            continue;
        };
        let words = words(&line[rest..]);
        if name.gpu.is_none() {
            continue;
        }
        if words.iter().any(|w| super::Class::parse(w).is_some()) {
            return false;
        }
        p2p |= words.iter().any(|w| super::Status::parse(w).is_some());
    }
    p2p
}

/// Whether any line looks like a row.
pub(super) fn has_rows(text: &str) -> bool {
    text.lines()
        .take(4096)
        .filter(|l| l.len() <= MAX_LINE)
        .any(|raw| row_start(&clean::line(raw), &[]).is_some())
}

/// All tables of a text, each whole.
pub(super) fn scan(text: &str) -> Result<Vec<Table>, ImportError> {
    if let Some(long) = text.lines().position(|l| l.len() > MAX_LINE) {
        let reason = format!("the line has more than {MAX_LINE} bytes: no table has");
        return Err(ImportError::new(long + 1, reason));
    }
    let lines: Vec<String> = text.lines().map(clean::line).collect();
    let mut tables: Vec<Table> = Vec::new();
    let mut verb = None;
    let mut at = 0;
    while at < lines.len() {
        if let Some(found) = verb_of(&lines[at]) {
            verb = Some(found);
        }
        if let Some((names, next)) = header(&lines, at)? {
            let (rows, next, warnings) = body(&lines, at, &names, next)?;
            tables.push(Table {
                line: at + 1,
                names,
                rows,
                verb: verb.take(),
                warnings,
            });
            at = next;
            continue;
        }
        if let Some((name, _)) = row_start(&lines[at], &[]) {
            let reason = match tables.last() {
                Some(_) => format!("row {} stands outside a table or is there twice", name.text),
                None => format!("row {} has no header above it: the header line is lost", name.text),
            };
            return Err(ImportError::new(at + 1, reason));
        }
        at += 1;
    }
    if tables.is_empty() {
        return Err(nothing(&lines));
    }
    Ok(tables)
}

/// Why there is no table at all.
fn nothing(lines: &[String]) -> ImportError {
    let numbered = || lines.iter().enumerate().map(|(i, l)| (i + 1, l));
    if let Some((line, maker)) = numbered().find_map(|(i, l)| clean::foreign(l).map(|m| (i, m))) {
        return ImportError::new(line, format!("this is {maker} tool's output: only NVIDIA's is read"));
    }
    if let Some((line, text)) = numbered().find(|(_, l)| clean::is_error(l)) {
        let reason = format!("an error message instead of a table: {}", clean::quote(text));
        return ImportError::new(line, reason);
    }
    let reason = "no table of GPU rows and columns: give the whole output of `nvidia-smi topo -m`";
    ImportError::new(lines.len().max(1), reason)
}

fn verb_of(line: &str) -> Option<Verb> {
    let (_, rest) = line.split_once("-p2p")?;
    let word = rest.split_whitespace().next()?;
    Some(match word {
        "r" => Verb::Read,
        "w" => Verb::Write,
        "rw" | "wr" => Verb::Both,
        "n" | "a" | "p" => Verb::Other,
        _ => return None,
    })
}

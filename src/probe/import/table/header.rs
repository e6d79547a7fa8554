//! A table's header: the names of its columns, over as many lines as it was wrapped, and which affinities follow the cells.
//!
//! Start at [`header`].

use super::cells::{Name, is_fence, row_start, split_names, word_starts};
use super::{ImportError, MAX_WRAPS, clean};
use topoforge_planner::topology::MAX_RANKS;

/// Most rows and columns, NICs included.
const MAX_COLUMNS: usize = 512;

/// The header that starts on line `at`, and the line its first row is on.
pub(super) fn header(lines: &[String], at: usize) -> Result<Option<(Vec<Name>, usize)>, ImportError> {
    let starts = word_starts(&lines[at]);
    let all_gpus = |word: &str| split_names(word).iter().all(|n| n.gpu.is_some());
    let Some(first) = starts.iter().position(|(_, w)| all_gpus(w)) else {
        return Ok(None);
    };
    let behind = starts.get(first + 1).map(|(_, w)| *w);
    let several = split_names(starts[first].1).len() > 1 || behind.is_some_and(|w| w.starts_with("GPU") && all_gpus(w));
    if row_start(&lines[at], &[]).is_some() {
        return Ok(None);
    }
    // A lone `GPU0` in prose is no header: what follows must be a NIC, the affinity words, or nothing.
    let rest: Vec<&str> = starts[first + 1..].iter().map(|(_, w)| *w).collect();
    let mut text = lines[at][starts[first].0..].to_owned();
    let mut next = at + 1;
    while next < lines.len() && next - at <= MAX_WRAPS {
        if row_start(&lines[next], &[]).is_some() || lines[next].trim().is_empty() && next > at + 1 {
            break;
        }
        if lines[next].trim().is_empty() {
            next += 1;
            continue;
        }
        if is_fence(&lines[next]) {
            next += 1;
            continue;
        }
        let word = lines[next].split_whitespace().next().unwrap_or_default();
        if clean::is_error(&lines[next]) || !continues_header(&lines[next]) {
            break;
        }
        // `NIC2` and `3` are one name; `NIC2` and `NIC3` are two.
        if split_names(word).len() > 1 || word.starts_with("GPU") || word.starts_with("NIC") || is_affinity(word) {
            text.push(' ');
        }
        text.push_str(&lines[next]);
        next += 1;
    }
    while next < lines.len() && lines[next].trim().is_empty() {
        next += 1;
    }
    let names = header_names(&text);
    let followed = (lines.get(next)).and_then(|l| row_start(l, &names)).is_some();
    if !several && !followed {
        let foreign_row = lines.get(next).is_some_and(|l| l.trim_start().starts_with("GPU"));
        let lone = rest.is_empty() || rest.iter().all(|w| is_affinity(w));
        if !(lone && foreign_row) {
            return Ok(None);
        }
    }
    if names.len() > MAX_COLUMNS {
        let reason = format!("{} columns: at most {MAX_COLUMNS} are read", names.len());
        return Err(ImportError::new(at + 1, reason));
    }
    let gpus = names.iter().filter(|n| n.gpu.is_some()).count();
    if gpus > MAX_RANKS {
        let reason = format!("{gpus} GPUs: at most {MAX_RANKS} are supported");
        return Err(ImportError::new(at + 1, reason));
    }
    for (i, name) in names.iter().enumerate() {
        if names[..i]
            .iter()
            .any(|n| n.text == name.text || n.gpu.is_some() && n.gpu == name.gpu)
        {
            return Err(ImportError::new(at + 1, format!("column {} is there twice", name.text)));
        }
    }
    Ok(Some((names, next)))
}

/// More names or affinity words, or the rest of a word that was cut.
fn continues_header(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let tail = words.next().is_some_and(|w| w.len() <= 12);
    tail && words.all(|w| is_affinity(w) || split_names(w).iter().all(|n| n.gpu.is_some() || is_nic(&n.text)))
}

fn is_nic(word: &str) -> bool {
    let first = word.starts_with(|c: char| c.is_ascii_alphabetic());
    first
        && word.ends_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

fn header_names(text: &str) -> Vec<Name> {
    let mut names = Vec::new();
    for word in text.split_whitespace() {
        for name in split_names(word) {
            if is_affinity(&name.text) {
                return names;
            }
            names.push(name);
        }
    }
    names
}

/// Where columns of names end: the affinity columns.
fn is_affinity(word: &str) -> bool {
    ["CPU", "NUMA", "GPU", "Affinity", "ID"].contains(&word)
}

/// Which words stand behind the cells.
pub(super) struct Affinity {
    cpu: bool,
    pub(super) expects_numa: bool,
}

impl Affinity {
    pub(super) fn of(header: &str) -> Self {
        let words: Vec<&str> = header.split_whitespace().collect();
        let cpu = words.iter().any(|w| w.ends_with("CPU"));
        let numa = words.iter().position(|w| *w == "NUMA");
        // The `NUMA` of `GPU NUMA ID` is another.
        let expects_numa = numa.is_some_and(|i| i == 0 || words[i - 1] != "GPU");
        Self { cpu, expects_numa }
    }

    /// The NUMA node that stands behind the cells, where it is one number.
    pub(super) fn numa(&self, rest: &str) -> Option<usize> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        if words.first() == Some(&"NUMA") {
            return words.get(1)?.parse().ok();
        }
        if !self.expects_numa {
            return None;
        }
        let word = words.get(usize::from(self.cpu))?;
        let number = word.strip_suffix("N/A").unwrap_or(word);
        // Not a node but the end of a list of CPUs that grew into it.
        (number.len() <= 3).then(|| number.parse().ok()).flatten()
    }
}

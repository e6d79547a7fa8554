//! Square tables of `GPU#` rows and columns, cut out of whatever stands around them.
//!
//! It knows how terminals and people mangle tables (prefixes, bullets, wrapped rows, glued cells) and refuses what is
//! short, too long or out of place; it does not know what labels mean. Start at [`scan`].

use super::ImportError;
use super::clean;
use super::labels::{MAX_LANES, WORDS};
use topoforge_planner::topology::MAX_RANKS;

/// Most rows and columns, NICs included.
const MAX_COLUMNS: usize = 512;
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

/// A row's or column's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub text: String,
    /// The number, for `GPU#`.
    pub gpu: Option<usize>,
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

/// `GPU12` at the start of `text`: the number and how long the name is.
fn gpu_name(text: &str) -> Option<(usize, usize)> {
    let digits = text.strip_prefix("GPU")?;
    let len = digits.bytes().take_while(u8::is_ascii_digit).count();
    let number = (1..=4).contains(&len).then(|| digits[..len].parse().ok()).flatten()?;
    Some((number, 3 + len))
}

/// Splits `GPU0GPU1`, `NIC7NIC8` and `NIC9CPU`; any other word is one name.
fn split_names(word: &str) -> Vec<Name> {
    let mut out = Vec::new();
    let mut rest = word;
    while !rest.is_empty() {
        let known = gpu_name(rest).map(|(n, len)| (Some(n), len)).or_else(|| {
            let digits = rest.strip_prefix("NIC")?;
            let len = digits.bytes().take_while(u8::is_ascii_digit).count();
            (len > 0).then_some((None, 3 + len))
        });
        let (gpu, len) = known.unwrap_or((None, rest.len()));
        out.push(Name {
            text: rest[..len].to_owned(),
            gpu,
        });
        rest = &rest[len..];
    }
    out
}

/// Where columns of names end: the affinity columns.
fn is_affinity(word: &str) -> bool {
    ["CPU", "NUMA", "GPU", "Affinity", "ID"].contains(&word)
}

/// Byte offset of each word.
fn word_starts(line: &str) -> Vec<(usize, &str)> {
    let mut out = Vec::new();
    let mut rest = 0;
    for word in line.split_whitespace() {
        let at = rest + line[rest..].find(word).unwrap_or(0);
        out.push((at, word));
        rest = at + word.len();
    }
    out
}

/// The header that starts on line `at`, and the line its first row is on.
fn header(lines: &[String], at: usize) -> Result<Option<(Vec<Name>, usize)>, ImportError> {
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

fn is_fence(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && line.chars().all(|c| "`~-+=:> ".contains(c))
}

/// A row's name on this line and the byte offset behind it: a GPU's or one of `names`, with a cell behind.
fn row_start(line: &str, names: &[Name]) -> Option<(Name, usize)> {
    for (at, word) in word_starts(line) {
        let gpu = gpu_name(word).map(|(number, len)| {
            let text = word[..len].to_owned();
            (
                Name {
                    text,
                    gpu: Some(number),
                },
                at + len,
            )
        });
        let nic = || {
            let longest = names
                .iter()
                .filter(|n| word.starts_with(&n.text))
                .max_by_key(|n| n.text.len())?;
            Some((longest.clone(), at + longest.text.len()))
        };
        let Some((name, end)) = gpu.or_else(nic) else {
            continue;
        };
        if cell(line[end..].trim_start()).is_some() {
            return Some((name, end));
        }
    }
    None
}

/// The cell at the start of `text` and its length. A cell ends at a blank, at what may be the next cell, or where digits are
/// glued on. It looks no farther than that, so that a long line of glued cells costs no more than its length.
fn cell(text: &str) -> Option<(String, usize)> {
    let lanes = |text: &str| {
        text.strip_prefix("NV")
            .is_some_and(|d| d.starts_with(|c: char| c.is_ascii_digit()))
    };
    let next_ok = |rest: &str| {
        rest.is_empty()
            || rest.starts_with(|c: char| c.is_whitespace() || c.is_ascii_digit())
            || lanes(rest)
            || WORDS.iter().any(|w| rest.starts_with(w))
    };
    if let Some(digits) = text.strip_prefix("NV") {
        let len = digits.bytes().take_while(u8::is_ascii_digit).count();
        let whole = len > 0 && next_ok(&digits[len..]);
        return whole.then(|| (text[..2 + len].to_owned(), 2 + len));
    }
    WORDS
        .iter()
        .find(|w| text.starts_with(**w) && next_ok(&text[w.len()..]))
        .map(|w| ((*w).to_owned(), w.len()))
}

fn words(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while let Some((word, len)) = cell(rest) {
        out.push(word);
        rest = rest[len..].trim_start();
    }
    out
}

/// Why a row's text does not hold one cell a column.
enum Misfit {
    /// Cells end too early; `rest` is what stands there instead.
    Short { found: usize, rest: String },
    /// More cells than columns.
    Long,
    /// `NV18` and an affinity that starts with a digit grew together.
    Glued(String),
}

/// Exactly `count` cells and what stands behind them.
fn cells(text: &str, count: usize) -> Result<(Vec<String>, &str), Misfit> {
    let mut out: Vec<String> = Vec::new();
    let mut rest = text.trim_start();
    while out.len() < count {
        let Some((word, len)) = cell(rest) else {
            let word = rest.split(['-', ',']).next().unwrap_or_default();
            if word.len() < rest.len() && word.strip_prefix("NV").is_some_and(|d| d.parse::<u32>().is_ok()) {
                return Err(Misfit::Glued(word.to_owned()));
            }
            let rest = rest.split_whitespace().next().unwrap_or_default().to_owned();
            return Err(Misfit::Short { found: out.len(), rest });
        };
        let lanes = word.strip_prefix("NV").map(|d| d.parse::<u32>().unwrap_or(u32::MAX));
        if lanes.is_some_and(|n| n == 0 || n > u32::from(MAX_LANES)) {
            return Err(Misfit::Glued(word));
        }
        out.push(word);
        rest = rest[len..].trim_start();
    }
    // `N/A` is an affinity, `X` and the classes are not.
    match cell(rest) {
        Some((word, len)) if word != "N/A" && word != "U" && !rest[len..].starts_with(|c: char| c.is_ascii_digit()) => {
            Err(Misfit::Long)
        }
        _ => Ok((out, rest)),
    }
}

type Body = (Vec<Row>, usize, Vec<String>);

/// One row a name, from line `at`; the line behind them.
fn body(lines: &[String], header: usize, names: &[Name], mut at: usize) -> Result<Body, ImportError> {
    let mut rows: Vec<Option<Row>> = names.iter().map(|_| None).collect();
    let mut last = header;
    let mut warnings = Vec::new();
    let missing = |rows: &[Option<Row>]| rows.iter().position(Option::is_none);
    let affinity = Affinity::of(&lines[header..at.min(lines.len())].join(" "));
    while let Some(open) = missing(&rows) {
        let cut = |what: &str| {
            let name = &names[open].text;
            ImportError::new(last + 1, format!("{what} before row {name}: the table is cut"))
        };
        let Some(line) = lines.get(at) else {
            return Err(cut("the text ends"));
        };
        let Some((name, end)) = row_start(line, names) else {
            refuse_between(line, at, names, &cut)?;
            at += 1;
            continue;
        };
        let Some(place) = names.iter().position(|n| n.text == name.text) else {
            let reason = format!("row {} has no column: columns are lost", name.text);
            return Err(ImportError::new(at + 1, reason));
        };
        if rows[place].is_some() {
            return Err(ImportError::new(at + 1, format!("row {} is there twice", name.text)));
        }
        let (row, next) = row(lines, at, end, names, place, &affinity)?;
        if row.cells.len() > place
            && row.numa.is_none()
            && affinity.expects_numa
            && names[place].gpu.is_some()
            && row_is_bare(&lines[at], end, names.len())
        {
            warnings.push(format!("line {}: {} has no affinity", at + 1, name.text));
        }
        rows[place] = Some(row);
        last = next - 1;
        at = next;
    }
    Ok((rows.into_iter().flatten().collect(), at, warnings))
}

fn row_is_bare(line: &str, end: usize, count: usize) -> bool {
    cells(&line[end..], count).is_ok_and(|(_, rest)| rest.trim().is_empty())
}

/// A line between rows that is no row: blank and fence lines pass, what says more is refused.
fn refuse_between(line: &str, at: usize, names: &[Name], cut: &dyn Fn(&str) -> ImportError) -> Result<(), ImportError> {
    let text = line.trim();
    if text.is_empty() || is_fence(text) {
        return Ok(());
    }
    if text.to_lowercase().contains("legend") || text.starts_with("X ") {
        return Err(cut("the legend comes"));
    }
    if let Some(maker) = clean::foreign(text) {
        let reason = format!("this is {maker} tool's table: only NVIDIA's is read");
        return Err(ImportError::new(at + 1, reason));
    }
    if clean::is_error(text) {
        let reason = format!("an error message inside the table: {}", clean::quote(text));
        return Err(ImportError::new(at + 1, reason));
    }
    // What is left of an affinity that was wrapped.
    if text.chars().all(|c| c.is_ascii_digit() || " \t,-N/A".contains(c)) {
        return Ok(());
    }
    let named = text
        .split_whitespace()
        .next()
        .is_some_and(|w| names.iter().any(|n| n.text == w));
    let reason = if named {
        format!(
            "row {}: its first cell is no label of nvidia-smi: {}",
            text.split_whitespace().next().unwrap_or_default(),
            clean::quote(text)
        )
    } else {
        format!("no row of the table: {}", clean::quote(text))
    };
    Err(ImportError::new(at + 1, reason))
}

/// The row whose name stands on line `at`, joined with the lines it was wrapped over, and the line behind it.
fn row(
    lines: &[String],
    at: usize,
    end: usize,
    names: &[Name],
    place: usize,
    affinity: &Affinity,
) -> Result<(Row, usize), ImportError> {
    let (count, name) = (names.len(), &names[place].text);
    let mut texts = vec![lines[at][end..].to_owned()];
    let mut next = at + 1;
    loop {
        let results: Vec<_> = texts.iter().map(|t| cells(t, count)).collect();
        let more = lines.get(next).filter(|l| {
            next - at <= MAX_WRAPS && !l.trim().is_empty() && row_start(l, names).is_none() && !is_fence(l)
        });
        if let Some(Ok((cells, rest))) = results.iter().find(|r| r.is_ok()) {
            if let (Some(last), Some(more)) = (cells.last(), more)
                && last.starts_with("NV")
                && rest.is_empty()
                && texts[0].ends_with(|c: char| c.is_ascii_digit())
                && more.starts_with(|c: char| c.is_ascii_digit())
            {
                let reason = format!(
                    "row {name} ends in `{last}` and the next line begins with digits: cannot tell where the cell ends"
                );
                return Err(ImportError::new(at + 1, reason));
            }
            diagonal(cells, names, place, at)?;
            let numa = affinity.numa(rest);
            let cells = cells.clone();
            return Ok((
                Row {
                    line: at + 1,
                    cells,
                    numa,
                },
                next,
            ));
        }
        let short = results.iter().find_map(|r| match r {
            Err(Misfit::Short { found, rest }) if rest.is_empty() || more.is_some() => Some((*found, rest.clone())),
            _ => None,
        });
        let (Some(_), Some(more)) = (short, more) else {
            return Err(misfit(results.into_iter().next(), name, count, at));
        };
        if !continues_row(more) {
            return Err(misfit(results.into_iter().next(), name, count, at));
        }
        // A terminal cuts inside a cell; an editor cuts at a blank.
        let joined: Vec<String> = texts
            .iter()
            .flat_map(|t| [format!("{t}{more}"), format!("{t} {}", more.trim_start())])
            .collect();
        texts = joined;
        texts.dedup();
        texts.truncate(8);
        next += 1;
    }
}

/// Whether a line can be the rest of a row: the end of a cut cell, then cells or affinities.
fn continues_row(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    let head = first.len() <= 6 || words_of(first);
    head && line.split_whitespace().skip(1).all(words_of)
}

fn words_of(word: &str) -> bool {
    let affinity = word.chars().all(|c| c.is_ascii_digit() || ",-N/A".contains(c));
    affinity || cell(word).is_some()
}

fn misfit(result: Option<Result<(Vec<String>, &str), Misfit>>, name: &str, count: usize, at: usize) -> ImportError {
    let reason = match result {
        Some(Err(Misfit::Long)) => {
            format!("row {name} has more than the header's {count} columns: columns of the header are lost")
        }
        Some(Err(Misfit::Glued(word))) => {
            format!("row {name}: cannot tell where `{word}` ends and the affinity begins")
        }
        Some(Err(Misfit::Short { found, rest })) => {
            let affinity = rest.chars().all(|c| c.is_ascii_digit() || ",-N/A".contains(c));
            match clean::foreign(&rest) {
                Some(maker) => {
                    format!("row {name}: `{rest}` is a label of {maker} tool: only NVIDIA's tables are read")
                }
                None if affinity => {
                    format!("row {name} has {found} of {count} cells: the table is cut or columns are lost")
                }
                None => format!("row {name}: `{}` is no label of nvidia-smi", clean::quote(&rest)),
            }
        }
        _ => format!("row {name} cannot be read"),
    };
    ImportError::new(at + 1, reason)
}

/// `X` stands where a row meets its own column, and only there.
fn diagonal(cells: &[String], names: &[Name], place: usize, at: usize) -> Result<(), ImportError> {
    let name = &names[place].text;
    match cells.iter().position(|c| c == "X") {
        Some(x) if x == place && cells.iter().filter(|c| *c == "X").count() == 1 => Ok(()),
        Some(x) => {
            let wrong = if x == place {
                "another column too".to_owned()
            } else {
                format!("column {}", names[x].text)
            };
            let reason = format!("row {name} has its X in {wrong}: cells or columns are lost");
            Err(ImportError::new(at + 1, reason))
        }
        None => Err(ImportError::new(
            at + 1,
            format!("row {name} has no X in its own column: cells are lost"),
        )),
    }
}

/// Which words stand behind the cells.
struct Affinity {
    cpu: bool,
    expects_numa: bool,
}

impl Affinity {
    fn of(header: &str) -> Self {
        let words: Vec<&str> = header.split_whitespace().collect();
        let cpu = words.iter().any(|w| w.ends_with("CPU"));
        let numa = words.iter().position(|w| *w == "NUMA");
        // The `NUMA` of `GPU NUMA ID` is another.
        let expects_numa = numa.is_some_and(|i| i == 0 || words[i - 1] != "GPU");
        Self { cpu, expects_numa }
    }

    /// The NUMA node that stands behind the cells, where it is one number.
    fn numa(&self, rest: &str) -> Option<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glued_cells_split_in_one_way_only() {
        assert_eq!(words("SYSSYS X NODENODE"), ["SYS", "SYS", "X", "NODE", "NODE"]);
        assert_eq!(words("NV1NV18"), ["NV1", "NV18"]);
        assert_eq!(words("PIXIE"), Vec::<String>::new());
        assert!(cells("X NV180-51 0", 2).is_err());
        assert!(matches!(cells("X SYS0-51 0", 2), Ok((_, "0-51 0"))));
    }

    #[test]
    fn glued_names_split() {
        let names: Vec<String> = split_names("NIC7NIC8").into_iter().map(|n| n.text).collect();
        assert_eq!(names, ["NIC7", "NIC8"]);
        assert_eq!(split_names("mlx5_0").len(), 1);
    }
}

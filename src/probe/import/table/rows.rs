//! A table's rows: one a name, joined where they were wrapped, refused where they are short, too long or out of place.
//!
//! Start at [`body`].

use super::cells::{Misfit, Name, cell, cells, is_fence, row_start};
use super::header::Affinity;
use super::{ImportError, MAX_WRAPS, Row, clean};

type Body = (Vec<Row>, usize, Vec<String>);

/// One row a name, from line `at`; the line behind them.
pub(super) fn body(lines: &[String], header: usize, names: &[Name], mut at: usize) -> Result<Body, ImportError> {
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

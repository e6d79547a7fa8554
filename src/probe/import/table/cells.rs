//! Words of a table's line: names of rows and columns, and cells, however they have grown together.
//!
//! It sees one line and never says what a line is for. Start at [`cells`] and [`row_start`].

use super::super::labels::{MAX_LANES, WORDS};

/// A row's or column's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Name {
    pub text: String,
    /// The number, for `GPU#`.
    pub gpu: Option<usize>,
}

/// `GPU12` at the start of `text`: the number and how long the name is.
pub(super) fn gpu_name(text: &str) -> Option<(usize, usize)> {
    let digits = text.strip_prefix("GPU")?;
    let len = digits.bytes().take_while(u8::is_ascii_digit).count();
    let number = (1..=4).contains(&len).then(|| digits[..len].parse().ok()).flatten()?;
    Some((number, 3 + len))
}

/// Splits `GPU0GPU1`, `NIC7NIC8` and `NIC9CPU`; any other word is one name.
pub(super) fn split_names(word: &str) -> Vec<Name> {
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

/// Byte offset of each word.
pub(super) fn word_starts(line: &str) -> Vec<(usize, &str)> {
    let mut out = Vec::new();
    let mut rest = 0;
    for word in line.split_whitespace() {
        let at = rest + line[rest..].find(word).unwrap_or(0);
        out.push((at, word));
        rest = at + word.len();
    }
    out
}

/// A row's name on this line and the byte offset behind it: a GPU's or one of `names`, with a cell behind.
pub(super) fn row_start(line: &str, names: &[Name]) -> Option<(Name, usize)> {
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
pub(super) fn cell(text: &str) -> Option<(String, usize)> {
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

pub(super) fn words(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while let Some((word, len)) = cell(rest) {
        out.push(word);
        rest = rest[len..].trim_start();
    }
    out
}

/// Why a row's text does not hold one cell a column.
pub(super) enum Misfit {
    /// Cells end too early; `rest` is what stands there instead.
    Short { found: usize, rest: String },
    /// More cells than columns.
    Long,
    /// `NV18` and an affinity that starts with a digit grew together.
    Glued(String),
}

/// Exactly `count` cells and what stands behind them.
pub(super) fn cells(text: &str, count: usize) -> Result<(Vec<String>, &str), Misfit> {
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

pub(super) fn is_fence(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && line.chars().all(|c| "`~-+=:> ".contains(c))
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

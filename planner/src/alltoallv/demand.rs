//! Demands: how many bytes each rank has for each other rank; read from text, or made from a seed.
//!
//! A demand never overflows later: entries are bounded on the way in. Entries of a rank for itself are a local copy and
//! no part of it. It knows nothing about machines. Start at [`Demand`], [`Kind`] says what can be made.

use super::maths::{Dice, power};
use super::spec::MAX_RANKS;
use std::fmt;

/// Most bytes of one pair: sums over 4,096 ranks stay far below 2^63.
pub const MAX_PAIR: u64 = 1 << 48;
/// Letters of an entry that a fault shows.
const SHOWN: usize = 40;

/// Bytes for each ordered pair of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    ranks: usize,
    bytes: Vec<u64>,
}

/// Why something is no demand, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemandError {
    /// Line of the text, or row of the matrix, from 1; 0 where it is about the whole.
    pub line: usize,
    /// Number in the line, from 1; 0 where it is about the whole line.
    pub entry: usize,
    /// What is wrong, and what was expected.
    pub message: String,
}

impl fmt::Display for DemandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.entry) {
            (0, _) => write!(f, "demand: {}", self.message),
            (line, 0) => write!(f, "demand, line {line}: {}", self.message),
            (line, entry) => write!(f, "demand, line {line}, entry {entry}: {}", self.message),
        }
    }
}

impl std::error::Error for DemandError {}

/// Demands that can be made from a seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Each pair the same.
    Uniform,
    /// Each rank has its own order of destinations, weighted by place to the power `-s`.
    Zipf(f64),
    /// The same for all ranks alike, with 20 % of noise: some destinations are hot.
    Hot(f64),
    /// Each pair from 0 to twice the average.
    Random,
    /// The same, but this part of the pairs has nothing.
    Sparse(f64),
}

impl Kind {
    /// Reads `uniform`, `zipf:0.6`, `hot` or `hot:0.6`, `random`, `sparse:0.4`.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, figure) = text.split_once(':').map_or((text, None), |(n, f)| (n, Some(f)));
        let figure = |least: f64, most: f64, default: f64| match figure {
            None => Ok(default),
            Some(f) => match f.parse::<f64>() {
                Ok(x) if x >= least && x <= most => Ok(x),
                _ => Err(format!("`{f}` in `{text}`: expected a number from {least} to {most}")),
            },
        };
        match name {
            "zipf" => Ok(Self::Zipf(figure(0.0, 4.0, 0.6)?)),
            "hot" => Ok(Self::Hot(figure(0.0, 4.0, 0.6)?)),
            "sparse" => Ok(Self::Sparse(figure(0.0, 1.0, 0.4)?)),
            "uniform" | "random" if text != name => Err(format!("`{text}`: {name} takes no number")),
            "uniform" => Ok(Self::Uniform),
            "random" => Ok(Self::Random),
            _ => Err(format!(
                "`{text}` is no demand: expected uniform, zipf:0.6, hot:0.6, random, sparse:0.4 or a file"
            )),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(s) => write!(f, "zipf:{s}"),
            Self::Hot(s) => write!(f, "hot:{s}"),
            Self::Random => f.write_str("random"),
            Self::Sparse(part) => write!(f, "sparse:{part}"),
        }
    }
}

impl Demand {
    /// A demand of `ranks` ranks in which nobody has anything for anybody.
    pub fn zero(ranks: usize) -> Self {
        Self {
            ranks,
            bytes: vec![0; ranks * ranks],
        }
    }

    /// A matrix that needs no check.
    pub(super) fn from_checked(ranks: usize, bytes: Vec<u64>) -> Self {
        Self { ranks, bytes }
    }

    /// From a matrix, row by row; a row is what one rank sends.
    ///
    /// # Errors
    /// The matrix is not square, has too many ranks, or an entry is over [`MAX_PAIR`].
    pub fn new(ranks: usize, bytes: Vec<u64>) -> Result<Self, DemandError> {
        let whole = |message| DemandError {
            line: 0,
            entry: 0,
            message,
        };
        if ranks == 0 || ranks > MAX_RANKS {
            return Err(whole(format!("{ranks} ranks: expected 1 to {MAX_RANKS}")));
        }
        if bytes.len() != ranks * ranks {
            return Err(whole(format!(
                "{} entries for {ranks} ranks: expected {}",
                bytes.len(),
                ranks * ranks
            )));
        }
        let mut demand = Self { ranks, bytes };
        for at in 0..demand.bytes.len() {
            let (row, column) = (at / ranks, at % ranks);
            if row == column {
                demand.bytes[at] = 0;
            } else if demand.bytes[at] > MAX_PAIR {
                return Err(DemandError {
                    line: row + 1,
                    entry: column + 1,
                    message: format!("{} bytes: expected at most {MAX_PAIR}", demand.bytes[at]),
                });
            }
        }
        Ok(demand)
    }

    /// From text: a line for each rank, bytes for each rank in it, apart by blanks or commas; `#` begins a comment.
    ///
    /// # Errors
    /// The first entry that is no number of bytes, or the first line of another length.
    pub fn parse(text: &str) -> Result<Self, DemandError> {
        let mut rows: Vec<(usize, Vec<u64>)> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let words = line
                .split(|c: char| c.is_whitespace() || c == ',')
                .filter(|w| !w.is_empty());
            let mut row = Vec::new();
            for (entry, word) in words.enumerate() {
                let fault = |message| DemandError {
                    line: at + 1,
                    entry: entry + 1,
                    message,
                };
                let bytes = word.parse::<u64>().map_err(|_| {
                    // Whatever it is, a line is enough to find it.
                    let cut = word.char_indices().nth(SHOWN).map_or(word.len(), |(at, _)| at);
                    let (word, more) = (&word[..cut], if cut < word.len() { ".." } else { "" });
                    fault(format!(
                        "`{word}`{more}: expected a whole number of bytes, at most {MAX_PAIR}"
                    ))
                })?;
                if bytes > MAX_PAIR {
                    return Err(fault(format!("{bytes} bytes: expected at most {MAX_PAIR}")));
                }
                if row.len() == MAX_RANKS {
                    return Err(fault(format!("expected at most {MAX_RANKS} entries")));
                }
                row.push(bytes);
            }
            if !row.is_empty() {
                rows.push((at + 1, row));
            }
            // One line too many is enough to tell.
            if rows.len() > rows[..].first().map_or(0, |(_, row)| row.len()) && !rows.is_empty() {
                break;
            }
        }
        let ranks = rows.first().map_or(0, |(_, row)| row.len());
        for (line, row) in &rows {
            if row.len() != ranks {
                return Err(DemandError {
                    line: *line,
                    entry: 0,
                    message: format!("{} entries: expected {ranks}, as in the first line", row.len()),
                });
            }
        }
        if rows.len() != ranks || ranks == 0 {
            let many = if rows.len() > ranks { "more than " } else { "" };
            return Err(DemandError {
                line: 0,
                entry: 0,
                message: format!(
                    "{many}{} lines of {ranks} entries: expected as many lines as entries, at least one",
                    rows.len().min(ranks)
                ),
            });
        }
        Self::new(ranks, rows.into_iter().flat_map(|(_, row)| row).collect())
    }

    /// A demand of a kind in which a rank has `bytes` bytes to send, on average over ranks for `Random` and `Sparse`.
    ///
    /// # Errors
    /// An entry would be over [`MAX_PAIR`], or there are too many ranks.
    pub fn make(kind: Kind, ranks: usize, bytes: u64, seed: u64) -> Result<Self, DemandError> {
        if ranks == 0 || ranks > MAX_RANKS {
            return Self::new(ranks, Vec::new());
        }
        let mut dice = Dice::new(seed ^ 0xa2a5_eed0);
        let others = ranks.saturating_sub(1).max(1) as f64;
        let exponent = match kind {
            Kind::Zipf(s) | Kind::Hot(s) => s,
            _ => 0.0,
        };
        let steps: Vec<f64> = (0..ranks).map(|place| power((place + 1) as f64, -exponent)).collect();
        let mut weights = steps.clone();
        dice.shuffle(&mut weights);
        let mut all = vec![0; ranks * ranks];
        for (row, out) in all.chunks_mut(ranks).enumerate() {
            let mut wish = vec![0.0; ranks];
            if matches!(kind, Kind::Zipf(_)) {
                weights.copy_from_slice(&steps);
                dice.shuffle(&mut weights);
            }
            for (column, wish) in wish.iter_mut().enumerate().filter(|(column, _)| *column != row) {
                *wish = match kind {
                    Kind::Uniform => 1.0,
                    Kind::Zipf(_) => weights[column],
                    Kind::Hot(_) => weights[column] * (0.8 + 0.4 * dice.unit()),
                    Kind::Random => 2.0 * dice.unit(),
                    Kind::Sparse(part) => {
                        let kept = dice.unit() >= part;
                        let size = 2.0 * dice.unit();
                        if kept { size } else { 0.0 }
                    }
                };
            }
            let sum: f64 = match kind {
                Kind::Random | Kind::Sparse(_) => others,
                _ => wish.iter().sum(),
            };
            for (out, wish) in out.iter_mut().zip(&wish) {
                *out = if sum > 0.0 {
                    (bytes as f64 * (wish / sum) + 0.5) as u64
                } else {
                    0
                };
            }
        }
        Self::new(ranks, all)
    }

    /// One of 50 skewed demands: `s` from 0.4 to 0.8, even numbers hot, odd ones with an order of each rank's own.
    ///
    /// # Errors
    /// As [`Demand::make`].
    pub fn skewed(number: u64, ranks: usize, bytes: u64) -> Result<Self, DemandError> {
        let s = 0.4 + 0.1 * (number / 2 % 5) as f64;
        let kind = if number.is_multiple_of(2) {
            Kind::Hot(s)
        } else {
            Kind::Zipf(s)
        };
        Self::make(kind, ranks, bytes, number)
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Bytes from one rank to another.
    pub fn get(&self, from: usize, to: usize) -> u64 {
        self.bytes[from * self.ranks + to]
    }

    /// The whole matrix, row by row.
    pub fn bytes(&self) -> &[u64] {
        &self.bytes
    }

    /// Bytes of all pairs.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// The same demand with rank `r` renamed to `names[r]`; `None` where `names` is no permutation.
    pub fn renamed(&self, names: &[usize]) -> Option<Self> {
        let mut seen = vec![false; self.ranks];
        for &name in names {
            if std::mem::replace(seen.get_mut(name)?, true) {
                return None;
            }
        }
        let mut to = Self::zero(self.ranks);
        for (at, &bytes) in self.bytes.iter().enumerate() {
            to.bytes[names.get(at / self.ranks)? * self.ranks + names.get(at % self.ranks)?] = bytes;
        }
        Some(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_and_faults_are_placed() {
        let read = Demand::parse("# two ranks\n 0, 5 # five\n\n7 9\n").expect("reads");
        assert_eq!((read.ranks(), read.bytes()), (2, &[0, 5, 7, 0][..]));
        let fault = |text: &str| Demand::parse(text).expect_err("is refused").to_string();
        assert_eq!(
            fault("0 1\n2 x"),
            "demand, line 2, entry 2: `x`: expected a whole number of bytes, at most 281474976710656"
        );
        assert_eq!(
            fault("0 1\n\n2"),
            "demand, line 3: 1 entries: expected 2, as in the first line"
        );
        assert!(fault("0 -1\n0 0").starts_with("demand, line 1, entry 2: `-1`"));
        assert!(fault(&"9".repeat(1 << 20)).len() < 200);
        assert!(fault("0 300000000000000\n0 0").contains("expected at most 281474976710656"));
        assert!(fault("").contains("0 lines of 0 entries") && fault("0 1").contains("1 lines of 2 entries"));
        assert!(fault("0 1\n1 0\n1 1\n").contains("more than 2 lines"));
    }

    #[test]
    fn made_demands_send_what_was_asked_for() {
        for kind in [Kind::Uniform, Kind::Zipf(0.6), Kind::Hot(0.4)] {
            let demand = Demand::make(kind, 8, 1 << 20, 3).expect("made");
            for row in demand.bytes().chunks(8) {
                assert!(row.iter().sum::<u64>().abs_diff(1 << 20) < 8, "{kind}: {row:?}");
            }
            assert_eq!(demand, Demand::make(kind, 8, 1 << 20, 3).expect("made"));
        }
        let sparse = Demand::make(Kind::Sparse(0.4), 32, 1 << 20, 3).expect("made");
        let zeros = sparse.bytes().iter().filter(|b| **b == 0).count();
        assert!((350..500).contains(&zeros), "{zeros}");
        assert!(Demand::make(Kind::Uniform, 2, u64::MAX, 1).is_err() && Demand::make(Kind::Uniform, 0, 1, 1).is_err());
        assert_eq!(Demand::make(Kind::Uniform, 1, 9, 1).expect("made").total(), 0);
    }

    #[test]
    fn kinds_are_read_back_as_written() {
        for text in ["uniform", "zipf:0.6", "hot:0.5", "random", "sparse:0.4"] {
            assert_eq!(Kind::parse(text).expect("reads").to_string(), text);
        }
        assert_eq!(Kind::parse("hot"), Ok(Kind::Hot(0.6)));
        for text in ["zipf:x", "zipf:9", "sparse:2", "uniform:1", "", "hot:nan"] {
            assert!(Kind::parse(text).is_err(), "{text}");
        }
    }
}

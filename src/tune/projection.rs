//! What the planned routes would save in a step of a program, by arithmetic on measured figures.
//!
//! A projection, never a measurement of the program: calls are counted, not overlapped, and everything else in a step is
//! taken to stay as it is. Start at [`project`].

use super::payloads::{PayloadError, parse_size};
use super::report::Row;
use std::fmt;
use std::str::FromStr;

/// How often a step calls each size: `5KiB:128,25KiB:64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepCalls {
    calls: Vec<(u64, u64)>,
}

/// Milliseconds of a step without collectives, from and to: `8..20`, or one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTime {
    /// The shortest.
    pub from_ms: f64,
    /// The longest.
    pub to_ms: f64,
}

/// Where a text is no list of calls or no time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepError {
    /// First character of the part that is wrong, counted from 1.
    pub column: usize,
    /// That part.
    pub text: String,
    /// What would do.
    pub expected: String,
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { column, text, expected } = self;
        write!(f, "column {column}: `{text}`: {expected}")
    }
}

impl std::error::Error for StepError {}

/// More calls of a size than any step makes: a mistyped count.
const MOST_CALLS: u64 = 1_000_000_000;

impl StepCalls {
    /// From counted calls; sizes that occur twice add up.
    pub fn new(calls: &[(u64, u64)]) -> Self {
        let mut all = std::collections::BTreeMap::new();
        for (bytes, count) in calls.iter().filter(|(_, count)| *count > 0) {
            let known: &mut u64 = all.entry(*bytes).or_default();
            *known = known.saturating_add(*count);
        }
        Self {
            calls: all.into_iter().collect(),
        }
    }

    /// Sizes in bytes with their counts, ascending.
    pub fn list(&self) -> &[(u64, u64)] {
        &self.calls
    }
}

impl FromStr for StepCalls {
    type Err = StepError;

    fn from_str(text: &str) -> Result<Self, StepError> {
        let mut calls = Vec::new();
        let mut column = 1;
        for part in text.split(',') {
            let error = |at: usize, text: &str, expected: String| StepError {
                column: column + at,
                text: text.to_owned(),
                expected,
            };
            let shape = "write a size and a count, e.g. 5KiB:128";
            let Some((size, count)) = part.split_once(':') else {
                return Err(error(0, part, shape.to_owned()));
            };
            let bytes = parse_size(size).map_err(|e: PayloadError| error(0, size, e.to_string()))?;
            let digits = !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit());
            let number = count
                .parse::<u64>()
                .ok()
                .filter(|n| digits && (1..=MOST_CALLS).contains(n));
            let at = size.chars().count() + 1;
            let number = number.ok_or_else(|| error(at, count, format!("a count is 1 to {MOST_CALLS}; {shape}")))?;
            calls.push((bytes, number));
            column += part.chars().count() + 1;
        }
        Ok(Self::new(&calls))
    }
}

impl FromStr for StepTime {
    type Err = StepError;

    fn from_str(text: &str) -> Result<Self, StepError> {
        let (from, to) = text.split_once("..").unwrap_or((text, text));
        let second = if text.contains("..") {
            from.chars().count() + 3
        } else {
            1
        };
        let read = |part: &str, column: usize| {
            let digits = part.bytes().all(|b| b.is_ascii_digit() || b == b'.');
            let plain = digits && !part.starts_with('.') && !part.ends_with('.');
            let value = part.parse::<f64>().ok().filter(|v| plain && *v > 0.0 && *v <= 1e6);
            value.ok_or_else(|| StepError {
                column,
                text: part.to_owned(),
                expected: "write milliseconds above zero, e.g. 12 or 8..20".to_owned(),
            })
        };
        let (from_ms, to_ms) = (read(from, 1)?, read(to, second)?);
        if from_ms > to_ms {
            return Err(StepError {
                column: 1,
                text: text.to_owned(),
                expected: "give the smaller one first".to_owned(),
            });
        }
        Ok(Self { from_ms, to_ms })
    }
}

/// What steps would gain.
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    /// Collectives of a step today, microseconds.
    pub current_us: f64,
    /// The same with the planned routes; where the comparator is kept, its time.
    pub planned_us: f64,
    /// Per cent more steps in the same time, at the longest and at the shortest step.
    pub gain: (f64, f64),
}

/// `100 * ((C + current) / (C + planned) - 1)` at both ends of C.
///
/// # Errors
/// In words: a size that was not tuned, or one without a comparator's figure, has no current time.
pub fn project(rows: &[Row], calls: &StepCalls, step: StepTime) -> Result<Projection, String> {
    let (mut current_us, mut planned_us) = (0.0, 0.0);
    for (bytes, count) in calls.list() {
        let row = rows.iter().find(|r| r.bytes == *bytes);
        let row = row.ok_or_else(|| format!("{bytes} bytes were not tuned: no projection"))?;
        let today = row.comparator_us.ok_or_else(|| {
            format!("{bytes} bytes have no comparator's figure, so nobody knows what a step takes today: no projection")
        })?;
        let planned = row.us.filter(|_| row.selected).unwrap_or(today);
        current_us += *count as f64 * today;
        planned_us += *count as f64 * planned;
    }
    let gain = |ms: f64| 100.0 * ((ms * 1e3 + current_us) / (ms * 1e3 + planned_us) - 1.0);
    Ok(Projection {
        current_us,
        planned_us,
        gain: (gain(step.to_ms), gain(step.from_ms)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: u64, us: f64, comparator_us: Option<f64>, selected: bool) -> Row {
        Row {
            bytes,
            route: Some("r".to_owned()),
            geometry: None,
            us: Some(us),
            comparator: None,
            comparator_us,
            ratio: None,
            selected,
            reason: String::new(),
            comparators: Vec::new(),
            candidates: 1,
            loaded: None,
        }
    }

    #[test]
    fn calls_and_times_are_read_and_slips_have_their_column() {
        let calls: StepCalls = "5KiB:128,25KiB:64,5KiB:2".parse().expect("reads");
        assert_eq!(calls.list(), [(5120, 130), (25_600, 64)]);
        for (text, column, said) in [
            ("", 1, "size and a count"),
            ("5KiB", 1, "size and a count"),
            ("5KiB:128,", 10, "size and a count"),
            ("5KiB:128,7QiB:1", 10, "no payload size"),
            ("5KiB:128,10KiB:", 16, "a count is"),
            ("5KiB:-1", 6, "a count is"),
            ("5KiB:0", 6, "a count is"),
            ("5KiB:1.5", 6, "a count is"),
            ("3:1", 1, "whole number of"),
        ] {
            let error = text.parse::<StepCalls>().expect_err(text);
            assert!(
                error.column == column && error.expected.contains(said),
                "{text}: {error}"
            );
        }
        let time = |text: &str| text.parse::<StepTime>().map(|t| (t.from_ms, t.to_ms));
        assert_eq!((time("8..20"), time("2.5")), (Ok((8.0, 20.0)), Ok((2.5, 2.5))));
        for (text, column) in [
            ("", 1),
            ("8..", 4),
            ("..8", 1),
            ("20..8", 1),
            ("8..x", 4),
            ("-1", 1),
            ("inf", 1),
            ("8...9", 4),
            ("0", 1),
        ] {
            assert_eq!(time(text).map_err(|e| e.column), Err(column), "{text}");
        }
    }

    #[test]
    fn the_gain_is_the_formula_at_both_ends_and_kept_comparators_gain_nothing() {
        let rows = [row(5120, 2.0, Some(8.0), true), row(25_600, 9.0, Some(10.0), false)];
        let step = StepTime {
            from_ms: 8.0,
            to_ms: 20.0,
        };
        let found = project(&rows, &"5KiB:100,25KiB:10".parse().expect("reads"), step).expect("projects");
        assert_eq!((found.current_us, found.planned_us), (900.0, 300.0));
        let expected = |c: f64| 100.0 * ((c + 900.0) / (c + 300.0) - 1.0);
        assert!((found.gain.0 - expected(20_000.0)).abs() < 1e-9 && (found.gain.1 - expected(8000.0)).abs() < 1e-9);
        assert!(found.gain.0 < found.gain.1);
        let kept = project(&rows, &"25KiB:10".parse().expect("reads"), step).expect("projects");
        assert_eq!(kept.gain, (0.0, 0.0));
    }

    #[test]
    fn without_a_figure_for_today_there_is_no_projection() {
        let step = StepTime {
            from_ms: 8.0,
            to_ms: 8.0,
        };
        let calls: StepCalls = "5KiB:1".parse().expect("reads");
        assert!(project(&[row(5120, 2.0, None, true)], &calls, step).is_err_and(|e| e.contains("comparator")));
        assert!(project(&[], &calls, step).is_err_and(|e| e.contains("not tuned")));
    }
}

//! Which of two figures wins. Pure arithmetic on microseconds; start at [`judge`].

use std::fmt;

/// A route must be faster than the comparator by more than this share.
pub const MARGIN: f64 = 0.01;

/// The median; the mean of the two middle ones where the number is even. None without samples or with one that is no
/// finite positive number, which no clock gives.
pub fn median(samples: &[f64]) -> Option<f64> {
    if samples.is_empty() || !samples.iter().all(|s| s.is_finite() && *s > 0.0) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    Some(if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    })
}

/// Whether a compiled route serves a payload, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// More than the margin faster: the comparator takes this many times as long.
    Faster(f64),
    /// Not more than the margin faster: the comparator stays.
    WithinMargin(f64),
    /// Slower: the comparator stays.
    Slower(f64),
    /// There was nothing to compare with.
    Unopposed,
}

impl Verdict {
    /// Whether the compiled route is taken.
    pub const fn selected(self) -> bool {
        matches!(self, Self::Faster(_) | Self::Unopposed)
    }

    /// Comparator's time over ours.
    pub const fn ratio(self) -> Option<f64> {
        match self {
            Self::Faster(ratio) | Self::WithinMargin(ratio) | Self::Slower(ratio) => Some(ratio),
            Self::Unopposed => None,
        }
    }
}

/// Compares medians in microseconds.
pub fn judge(ours: f64, comparator: Option<f64>) -> Verdict {
    match comparator.map(|c| c / ours) {
        None => Verdict::Unopposed,
        Some(ratio) if ratio > 1.0 + MARGIN => Verdict::Faster(ratio),
        Some(ratio) if ratio >= 1.0 => Verdict::WithinMargin(ratio),
        // A figure that is no number never takes a route.
        Some(ratio) => Verdict::Slower(ratio),
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Faster(ratio) => write!(f, "{ratio:.2}x faster than the comparator"),
            Self::WithinMargin(ratio) => {
                write!(
                    f,
                    "kept the comparator: {:.1} % slower is within the margin of 1 %",
                    (ratio - 1.0) * 100.0
                )
            }
            Self::Slower(ratio) => write!(f, "kept the comparator: it takes {ratio:.2} of our time"),
            Self::Unopposed => f.write_str("nothing to compare with"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparator_half_a_percent_slower_than_ours_is_kept() {
        let verdict = judge(2.0, Some(2.0 * 1.005));
        assert!(
            matches!(verdict, Verdict::WithinMargin(_)) && !verdict.selected(),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_route_must_be_more_than_one_percent_faster() {
        assert!(!judge(1.0, Some(1.01)).selected());
        assert!(judge(1.0, Some(1.0101)).selected());
        assert!(!judge(2.0, Some(1.0)).selected());
        assert!(!judge(f64::NAN, Some(1.0)).selected() && !judge(1.0, Some(f64::NAN)).selected());
        assert!(judge(2.0, None).selected());
    }

    #[test]
    fn one_slow_sample_does_not_move_the_median() {
        assert_eq!(median(&[2.0, 900.0, 1.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 900.0]), Some(3.0));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
        assert_eq!(median(&[1.0, 0.0]), None);
    }
}

//! Which route serves a call: a table agreed at set-up, looked up by type, operation, size and alignment alone, so that all
//! ranks decide alike.
//!
//! Knows no device. What it counts is per communicator and costs an addition. Start at [`Dispatch::decide`].

use super::{Dtype, ReduceOp};
use crate::device::Geometry;
use crate::registry::Element;
use std::cell::Cell;
use std::fmt::{self, Write};

/// One range of sizes of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// Type of the elements.
    pub element: Element,
    /// The largest payload in bytes; it begins behind the previous range of this type.
    pub up_to: u64,
    /// The variant that serves it; none for the comparator.
    pub variant: Option<String>,
    /// How it is launched.
    pub geometry: Option<Geometry>,
    /// Why it is so.
    pub reason: String,
}

/// What a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Elements a rank.
    pub count: usize,
    /// Their type.
    pub dtype: Dtype,
    /// The reduction.
    pub op: ReduceOp,
    /// Both addresses on 16-byte boundaries.
    pub aligned: bool,
}

impl Call {
    /// Payload a rank; none where it is no number.
    pub const fn bytes(&self) -> Option<u64> {
        (self.count as u64).checked_mul(self.dtype.bytes() as u64)
    }
}

/// Why the comparator serves a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Compiled routes sum.
    Op,
    /// The table has no range of this type.
    Dtype,
    /// Kernels move 16-byte vectors.
    Misaligned,
    /// Nothing that large was tuned.
    TooLarge,
    /// It was faster, or no variant passed its proof; the range's reason says which.
    Won,
}

impl Why {
    /// Every value, in declaration order.
    pub const ALL: [Self; 5] = [Self::Op, Self::Dtype, Self::Misaligned, Self::TooLarge, Self::Won];
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Op => "not a sum",
            Self::Dtype => "a type without routes",
            Self::Misaligned => "an address is not on a 16-byte boundary",
            Self::TooLarge => "larger than every tuned size",
            Self::Won => "the comparator won here",
        })
    }
}

/// Who serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// An empty payload is no call.
    Nothing,
    /// Range number.
    Range(usize),
    /// The comparator, with the reason.
    Comparator(Why),
}

/// The agreed table, with counters of this communicator.
#[derive(Debug)]
pub struct Dispatch {
    ranges: Vec<Range>,
    hits: Vec<Cell<u64>>,
    misses: [Cell<u64>; Why::ALL.len()],
    one_expression: bool,
}

impl Dispatch {
    /// Ranges of one type must stand together and ascend.
    pub fn new(ranges: Vec<Range>) -> Self {
        let hits = vec![Cell::new(0); ranges.len()];
        Self {
            ranges,
            hits,
            misses: Default::default(),
            one_expression: false,
        }
    }

    /// Sums of a type with routes never go to the comparator: what no range holds is served in pieces, what is misaligned
    /// through a copy. The table must hold one expression.
    #[must_use]
    pub const fn with_one_expression(mut self, on: bool) -> Self {
        self.one_expression = on;
        self
    }

    /// Whether the routes serve this call although they do not match it.
    pub(super) const fn insists(&self, why: Why) -> bool {
        self.one_expression && !matches!(why, Why::Op | Why::Dtype)
    }

    /// Decides and counts. Depends on nothing but the call and the table, never on the rank or on time.
    pub fn decide(&self, call: Call) -> Decision {
        if call.count == 0 {
            return Decision::Nothing;
        }
        let decision = self.look_up(call);
        let counter = match decision {
            Decision::Range(index) => &self.hits[index],
            Decision::Comparator(why) => &self.misses[why as usize],
            Decision::Nothing => return decision,
        };
        counter.set(counter.get() + 1);
        decision
    }

    fn look_up(&self, call: Call) -> Decision {
        if call.op != ReduceOp::Sum {
            return Decision::Comparator(Why::Op);
        }
        let Some((first, table)) = call.dtype.element().and_then(|e| self.table(e)) else {
            return Decision::Comparator(Why::Dtype);
        };
        if !call.aligned {
            return Decision::Comparator(Why::Misaligned);
        }
        let Some(bytes) = call.bytes() else {
            return Decision::Comparator(Why::TooLarge);
        };
        let index = table.partition_point(|r| r.up_to < bytes);
        match table.get(index) {
            None => Decision::Comparator(Why::TooLarge),
            Some(Range { variant: None, .. }) => Decision::Comparator(Why::Won),
            Some(_) => Decision::Range(first + index),
        }
    }

    /// The ranges of a type and the number of the first one.
    fn table(&self, element: Element) -> Option<(usize, &[Range])> {
        let first = self.ranges.iter().position(|r| r.element == element)?;
        let mine = self.ranges[first..].iter().take_while(|r| r.element == element);
        let end = first + mine.count();
        Some((first, &self.ranges[first..end]))
    }

    /// The number of the range that would serve sums of this type and size whatever their alignment; for payloads that
    /// none holds, that of the largest one that a variant serves, to be called in pieces.
    pub(super) fn piecewise(&self, element: Element, bytes: u64) -> Option<usize> {
        let (first, table) = self.table(element)?;
        let served = |r: &Range| r.variant.is_some();
        let index = table.partition_point(|r| r.up_to < bytes);
        let own = table.get(index).filter(|r| served(r)).map(|_| index);
        // Pieces are whole vectors.
        let largest = || table.iter().rposition(|r| served(r) && r.up_to >= 16);
        own.or_else(largest).map(|index| first + index)
    }

    /// The table.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Calls served by each range, and by the comparator.
    pub fn counts(&self) -> (Vec<u64>, u64) {
        let misses = self.misses.iter().map(Cell::get).sum();
        (self.hits.iter().map(Cell::get).collect(), misses)
    }

    /// Calls that the comparator got for one reason.
    pub fn misses(&self, why: Why) -> u64 {
        self.misses[why as usize].get()
    }

    /// The table in words, a line a range.
    pub fn explain(&self) -> String {
        let (hits, misses) = self.counts();
        let mut text = String::new();
        let mut from = 0;
        let mut element = None;
        // Writing to a String cannot fail.
        for (range, hits) in self.ranges.iter().zip(hits) {
            if element != Some(range.element) {
                (element, from) = (Some(range.element), 0);
            }
            let who = range.variant.as_deref().unwrap_or("comparator");
            let geometry = range.geometry.map(|g| format!(" in {g}")).unwrap_or_default();
            let _ = writeln!(
                text,
                "{}, {} to {} bytes: {who}{geometry}, {hits} calls; {}",
                range.element,
                from + 1,
                range.up_to,
                range.reason
            );
            from = range.up_to;
        }
        let rest = if self.one_expression {
            "sums that no range matches: the same routes, in pieces or through a copy; everything else: comparator"
        } else {
            "everything else: comparator"
        };
        let _ = write!(text, "{rest}; {misses} calls went there so far");
        let by_reason = Why::ALL.iter().filter(|w| self.misses(**w) > 0);
        let reasons: Vec<String> = by_reason.map(|w| format!("{} {w}", self.misses(*w))).collect();
        if !reasons.is_empty() {
            let _ = write!(text, " ({})", reasons.join(", "));
        }
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Dispatch {
        let range = |up_to, variant: Option<&str>| Range {
            element: Element::F16,
            up_to,
            variant: variant.map(String::from),
            geometry: None,
            reason: "because".into(),
        };
        Dispatch::new(vec![range(1024, Some("a")), range(4096, None), range(8192, Some("b"))])
    }

    fn sum(bytes: usize) -> Call {
        Call {
            count: bytes / 2,
            dtype: Dtype::F16,
            op: ReduceOp::Sum,
            aligned: true,
        }
    }

    #[test]
    fn a_range_serves_what_lies_above_the_previous_one() {
        let t = table();
        let decide = |bytes| t.decide(sum(bytes));
        assert_eq!(decide(0), Decision::Nothing);
        assert_eq!([decide(2), decide(1024)], [Decision::Range(0); 2]);
        assert_eq!(decide(1026), Decision::Comparator(Why::Won));
        assert_eq!(decide(4098), Decision::Range(2));
        assert_eq!(decide(8194), Decision::Comparator(Why::TooLarge));
        assert_eq!(t.counts(), (vec![2, 0, 1], 2));
        assert_eq!((t.misses(Why::Won), t.misses(Why::TooLarge)), (1, 1));
    }

    #[test]
    fn what_does_not_match_goes_to_the_comparator_with_its_reason() {
        let t = table();
        let misses = [
            (
                Call {
                    aligned: false,
                    ..sum(64)
                },
                Why::Misaligned,
            ),
            (
                Call {
                    op: ReduceOp::Max,
                    ..sum(64)
                },
                Why::Op,
            ),
            (
                Call {
                    dtype: Dtype::I32,
                    ..sum(64)
                },
                Why::Dtype,
            ),
            (
                Call {
                    count: usize::MAX,
                    ..sum(64)
                },
                Why::TooLarge,
            ),
        ];
        for (call, why) in misses {
            assert_eq!(t.decide(call), Decision::Comparator(why));
            assert_eq!(t.misses(why), 1);
        }
        assert_eq!(t.counts(), (vec![0; 3], 4));
    }

    #[test]
    fn pieces_come_from_the_own_range_or_else_the_largest_served() {
        let t = table();
        let of = |bytes| t.piecewise(Element::F16, bytes);
        assert_eq!(
            [of(2), of(2048), of(8192), of(1 << 30)],
            [Some(0), Some(2), Some(2), Some(2)]
        );
        assert_eq!(Dispatch::new(Vec::new()).piecewise(Element::F16, 2), None);
    }

    #[test]
    fn the_explanation_names_every_range_and_its_reason_and_every_miss() {
        let t = table();
        t.decide(sum(10));
        t.decide(Call {
            aligned: false,
            ..sum(10)
        });
        let text = t.explain();
        for part in [
            "f16, 1 to 1024 bytes: a, 1 calls; because",
            "1025 to 4096 bytes: comparator",
            "1 calls went there so far (1 an address is not",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}

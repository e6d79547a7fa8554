//! Which route serves a call: a table agreed at set-up, looked up by size alone, so that all ranks decide alike.
//!
//! Knows no device. What it counts is per communicator and costs an addition. Start at [`Dispatch::decide`].

use crate::device::Geometry;
use std::cell::Cell;
use std::fmt::Write;

/// One range of sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// The largest payload in bytes; it begins behind the previous range.
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
    /// Payload a rank.
    pub bytes: u64,
    /// Both addresses on 16-byte boundaries.
    pub aligned: bool,
}

/// Who serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// An empty payload is no call.
    Nothing,
    /// Range number.
    Range(usize),
    /// The comparator, with the reason.
    Comparator(&'static str),
}

/// The agreed table, with counters of this communicator.
#[derive(Debug)]
pub struct Dispatch {
    ranges: Vec<Range>,
    hits: Vec<Cell<u64>>,
    misses: Cell<u64>,
}

impl Dispatch {
    /// Ranges must ascend.
    pub fn new(ranges: Vec<Range>) -> Self {
        let hits = vec![Cell::new(0); ranges.len()];
        Self {
            ranges,
            hits,
            misses: Cell::new(0),
        }
    }

    /// Decides and counts. Depends on nothing but the call and the table, never on the rank or on time.
    pub fn decide(&self, call: Call) -> Decision {
        if call.bytes == 0 {
            return Decision::Nothing;
        }
        let decision = self.look_up(call);
        let counter = match decision {
            Decision::Range(index) => &self.hits[index],
            _ => &self.misses,
        };
        counter.set(counter.get() + 1);
        decision
    }

    fn look_up(&self, call: Call) -> Decision {
        if !call.aligned {
            return Decision::Comparator("an address is not on a 16-byte boundary");
        }
        let index = self.ranges.partition_point(|r| r.up_to < call.bytes);
        match self.ranges.get(index) {
            None => Decision::Comparator("larger than every tuned size"),
            Some(Range { variant: None, .. }) => Decision::Comparator("the comparator won here"),
            Some(_) => Decision::Range(index),
        }
    }

    /// The table.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Calls served by each range, and by the comparator.
    pub fn counts(&self) -> (Vec<u64>, u64) {
        (self.hits.iter().map(Cell::get).collect(), self.misses.get())
    }

    /// The table in words, a line a range.
    pub fn explain(&self) -> String {
        let (hits, misses) = self.counts();
        let mut text = String::new();
        let mut from = 0;
        for (range, hits) in self.ranges.iter().zip(hits) {
            let who = range.variant.as_deref().unwrap_or("comparator");
            let geometry = range.geometry.map(|g| format!(" in {g}")).unwrap_or_default();
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{} to {} bytes: {who}{geometry}, {hits} calls; {}",
                from + 1,
                range.up_to,
                range.reason
            );
            from = range.up_to;
        }
        let _ = writeln!(
            text,
            "above {from} bytes, misaligned or not ours: comparator, {misses} calls so far"
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Dispatch {
        let range = |up_to, variant: Option<&str>| Range {
            up_to,
            variant: variant.map(String::from),
            geometry: None,
            reason: "because".into(),
        };
        Dispatch::new(vec![range(1024, Some("a")), range(4096, None), range(8192, Some("b"))])
    }

    #[test]
    fn a_range_serves_what_lies_above_the_previous_one() {
        let t = table();
        let decide = |bytes| t.decide(Call { bytes, aligned: true });
        assert_eq!(decide(0), Decision::Nothing);
        assert_eq!([decide(2), decide(1024)], [Decision::Range(0); 2]);
        assert!(matches!(decide(1026), Decision::Comparator(_)));
        assert_eq!(decide(4098), Decision::Range(2));
        assert!(matches!(decide(8194), Decision::Comparator(_)));
        assert_eq!(t.counts(), (vec![2, 0, 1], 2));
    }

    #[test]
    fn misaligned_calls_go_to_the_comparator() {
        let call = Call {
            bytes: 64,
            aligned: false,
        };
        assert!(matches!(table().decide(call), Decision::Comparator(_)));
    }

    #[test]
    fn the_explanation_names_every_range_and_its_reason() {
        let t = table();
        t.decide(Call {
            bytes: 10,
            aligned: true,
        });
        let text = t.explain();
        for part in [
            "1 to 1024 bytes: a, 1 calls; because",
            "1025 to 4096 bytes: comparator",
            "above 8192",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}

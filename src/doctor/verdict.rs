//! From what was sent and what arrived to a verdict on each direction of a pair.
//!
//! Nothing here knows how bytes cross: a [`PairLink`] does that. Start at [`judge`].

use super::link::{PairLink, Verb};
use crate::device::DeviceError;
use crate::device::lines::LineTally;
use std::fmt;

/// f16 elements that cross as one 16-byte vector, and in one 128-byte line of `packet128`.
const VECTOR: usize = 8;
const LINE: usize = 60;

/// What became of the bytes on one edge. The order is from good to bad.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing ran on this edge: no kernel of that kind, or an earlier fault ended the test.
    NotRun,
    /// Every byte of every round was right.
    Right,
    /// Zeros arrived: writes are dropped or lead elsewhere; often an IOMMU.
    Zeros,
    /// An earlier round's bytes arrived: writes come after the word that announces them, or not at all.
    Stale,
    /// What is stored at once (16 bytes, or a 128-byte line) was part new, part old: stores are split on the way.
    Torn,
    /// Bytes that nobody sent.
    Wrong,
    /// The receiver waited past the deadline.
    Hang,
    /// The driver refused.
    Refused(String),
}

impl Verdict {
    /// Whether the edge may be used.
    pub fn is_right(&self) -> bool {
        *self == Self::Right
    }

    /// Whether the edge must not be used.
    pub fn is_bad(&self) -> bool {
        !matches!(self, Self::Right | Self::NotRun)
    }

    /// The word in reports and files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotRun => "not run",
            Self::Right => "ok",
            Self::Zeros => "zeros",
            Self::Stale => "stale",
            Self::Torn => "torn",
            Self::Wrong => "wrong",
            Self::Hang => "hang",
            Self::Refused(_) => "refused",
        }
    }

    /// The verdict of a word; what a refusal said is lost.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [
            Self::NotRun,
            Self::Right,
            Self::Zeros,
            Self::Stale,
            Self::Torn,
            Self::Wrong,
            Self::Hang,
            Self::Refused(String::new()),
        ];
        all.into_iter().find(|v| v.name() == name)
    }

    /// What to do about it; empty for a good one.
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NotRun | Self::Right => "",
            Self::Zeros => {
                "an IOMMU or access control services (ACS) often swallow peer writes: try iommu=pt, or switch ACS off"
            }
            Self::Stale => "writes are announced before they arrive: switch ACS redirection off, or update the driver",
            Self::Torn => "16-byte stores are split on the way: only flag-based kernels could work here",
            Self::Wrong => {
                "peer writes land in foreign memory: switch peer access off (NCCL_P2P_DISABLE=1) and report it"
            }
            Self::Hang => "writes never arrive: an IOMMU, ACS, or a driver that grants what it cannot do",
            Self::Refused(_) => "the driver grants no peer access here",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => write!(f, "refused: {reason}"),
            other => f.pad(other.name()),
        }
    }
}

/// An ordered pair: `from` acts on memory of `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairReport {
    /// Who stores or loads.
    pub from: usize,
    /// Whose memory it is.
    pub to: usize,
    /// Stores by the kernels that push.
    pub write: Verdict,
    /// Loads by the kernels that pull.
    pub read: Verdict,
    /// Lines stored by `packet128`, which nothing else needs whole: a bad verdict takes that protocol from the edge alone.
    pub lines: Verdict,
    /// Which kernels ran, and what the bad one saw.
    pub detail: Vec<String>,
}

/// Element `i` that `rank` sends in `round`: never zero, other for each rank and round, and exact when two are added.
fn element(rank: usize, round: u32, i: usize) -> u16 {
    1 + ((i * 37 + round as usize * 101 + rank * 499) % 1000) as u16
}

/// The values of a round.
pub(super) fn pattern(rank: usize, round: u32, elements: usize) -> Vec<u16> {
    (0..elements).map(|i| element(rank, round, i)).collect()
}

/// Elements of a round: small and large in turn, with an odd tail.
fn elements(round: u32) -> usize {
    [515, 16_384, 9, 4099][round as usize % 4]
}

/// What arrived, against what was sent now and earlier, in parts of so many elements that are stored at once; and how
/// many of them are torn.
fn compare(arrived: &[u16], sent: &[u16], earlier: &[Vec<u16>], part: usize) -> (Verdict, usize) {
    if arrived.len() != sent.len() {
        return (Verdict::Wrong, 0);
    }
    let (mut worst, mut torn) = (Verdict::Right, 0);
    let old = |i: usize, value: u16| value == 0 || earlier.iter().any(|e| e.get(i) == Some(&value));
    for (index, (got, want)) in arrived.chunks(part).zip(sent.chunks(part)).enumerate() {
        let at = index * part;
        let verdict = if got == want {
            Verdict::Right
        } else if got.iter().all(|v| *v == 0) {
            Verdict::Zeros
        } else if got.iter().enumerate().all(|(i, g)| old(at + i, *g)) {
            Verdict::Stale
        } else if got
            .iter()
            .zip(want)
            .enumerate()
            .all(|(i, (g, w))| g == w || old(at + i, *g))
        {
            Verdict::Torn
        } else {
            Verdict::Wrong
        };
        torn += usize::from(verdict == Verdict::Torn);
        worst = worst.max(verdict);
    }
    (worst, torn)
}

/// Sends `rounds` rounds over every path of a pair of ordinals `ends`, both directions at once, and judges each direction.
pub fn judge(link: &mut dyn PairLink, ends: [usize; 2], rounds: u32) -> [PairReport; 2] {
    let report = |from: usize, to: usize| PairReport {
        from,
        to,
        write: Verdict::NotRun,
        read: Verdict::NotRun,
        lines: Verdict::NotRun,
        detail: Vec::new(),
    };
    // `reports[r]`: rank `r` acts on the other's memory.
    let mut reports = [report(ends[0], ends[1]), report(ends[1], ends[0])];
    for path in 0..link.paths().len() {
        let (name, verb) = {
            let path = &link.paths()[path];
            (path.name.clone(), path.verb)
        };
        let mut verdicts = [Verdict::NotRun, Verdict::NotRun];
        let mut words = [String::new(), String::new()];
        let mut torn = [0, 0];
        let part = if verb == Verb::Lines { LINE } else { VECTOR };
        let mut earlier: [Vec<Vec<u16>>; 2] = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            let sent = [0, 1].map(|rank| pattern(rank, round, elements(round)));
            match link.exchange(path, round, [&sent[0], &sent[1]]) {
                Ok(arrived) => {
                    for (receiver, arrived) in arrived.iter().enumerate() {
                        let sender = 1 - receiver;
                        // A push is the sender's act, a pull the receiver's.
                        let actor = if verb == Verb::Read { receiver } else { sender };
                        let (verdict, parts) = compare(arrived, &sent[sender], &earlier[sender], part);
                        torn[actor] += parts;
                        if verdict.is_bad() && verdict > verdicts[actor] {
                            words[actor] = format!("{name}: {verdict} in round {round}");
                        }
                        verdicts[actor] = verdicts[actor].clone().max(verdict);
                    }
                }
                Err(DeviceError::Timeout { rank, .. }) => {
                    let waiter = rank.min(1);
                    let actor = if verb == Verb::Read { waiter } else { 1 - waiter };
                    verdicts[actor] = Verdict::Hang;
                    words[actor] = format!("{name}: nothing arrived in round {round}");
                    break;
                }
                Err(error) => {
                    verdicts = [Verdict::Refused(error.to_string()), Verdict::Refused(error.to_string())];
                    break;
                }
            }
            for (known, sent) in earlier.iter_mut().zip(sent) {
                known.push(sent);
            }
        }
        for (((report, verdict), words), torn) in reports.iter_mut().zip(verdicts).zip(words).zip(torn) {
            let mut seen = if words.is_empty() {
                format!("{name}: {verdict}")
            } else {
                words
            };
            if torn > 0 {
                seen.push_str(&format!(", {torn} torn"));
            }
            report.detail.push(seen);
            let slot = match verb {
                Verb::Write => &mut report.write,
                Verb::Lines => &mut report.lines,
                Verb::Read => &mut report.read,
            };
            *slot = slot.clone().max(verdict);
        }
    }
    for (actor, report) in reports.iter_mut().enumerate() {
        let Some(outcome) = link.watch_lines(actor) else {
            continue;
        };
        let (verdict, words) = match outcome {
            Ok(LineTally { seen, torn: 0, whole }) => {
                let verdict = if whole { Verdict::Right } else { Verdict::Hang };
                (verdict, format!("{seen} changes, none torn"))
            }
            Ok(LineTally { seen, torn, .. }) => (Verdict::Torn, format!("{torn} torn beside {seen} changes")),
            Err(DeviceError::Timeout { .. }) => (Verdict::Hang, "they never ended".to_owned()),
            Err(error) => (Verdict::Refused(error.to_string()), error.to_string()),
        };
        report.detail.push(format!("lines under a reader: {words}"));
        report.lines = report.lines.clone().max(verdict);
    }
    // Resetting a slot against the peer's next put, under skew: the kernels that signal by the payload itself.
    if let Some(outcome) = link.reset_against_put() {
        let verdict = if outcome.is_ok() {
            Verdict::Right
        } else {
            Verdict::Stale
        };
        for report in &mut reports {
            report.detail.push(match &outcome {
                Ok(()) => "reset against put: ok".to_owned(),
                Err(words) => format!("reset against put: {words}"),
            });
            report.write = report.write.clone().max(verdict.clone());
        }
    }
    reports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_never_zero_differ_by_rank_and_round_and_add_up_exactly() {
        for round in 0..16 {
            for i in 0..600 {
                let (a, b) = (element(0, round, i), element(1, round, i));
                assert!(a > 0 && b > 0 && a != b && a + b <= 2048);
                assert!((0..round).all(|r| element(0, r, i) != a));
            }
        }
    }

    #[test]
    fn what_arrived_is_told_apart() {
        let (now, before) = (pattern(0, 1, 16), pattern(0, 0, 16));
        let earlier = [before.clone()];
        let mixed: Vec<u16> = (0..16).map(|i| if i < 4 { now[i] } else { before[i] }).collect();
        let half: Vec<u16> = (0..16).map(|i| if i < 8 { now[i] } else { before[i] }).collect();
        let compare = |arrived: &[u16], sent: &[u16], earlier: &[Vec<u16>]| compare(arrived, sent, earlier, VECTOR).0;
        assert_eq!(compare(&now, &now, &earlier), Verdict::Right);
        assert_eq!(compare(&[0; 16], &now, &earlier), Verdict::Zeros);
        assert_eq!(compare(&before, &now, &earlier), Verdict::Stale);
        assert_eq!(
            compare(&half, &now, &earlier),
            Verdict::Stale,
            "whole lines are not torn"
        );
        assert_eq!(compare(&mixed, &now, &earlier), Verdict::Torn);
        assert_eq!(compare(&[7; 16], &now, &earlier), Verdict::Wrong);
        assert_eq!(compare(&now[..8], &now, &earlier), Verdict::Wrong);
    }

    #[test]
    fn torn_lines_are_counted_line_by_line() {
        let (now, before) = (pattern(0, 1, 300), pattern(0, 0, 300));
        // The second line is old, the third half old, the fifth too.
        let old = |i: usize| (60..120).contains(&i) || (120..128).contains(&i) || i == 299;
        let mixed: Vec<u16> = (0..300).map(|i| if old(i) { before[i] } else { now[i] }).collect();
        assert_eq!(compare(&mixed, &now, &[before], LINE), (Verdict::Torn, 2));
    }

    #[test]
    fn words_and_verdicts_belong_together() {
        for name in ["not run", "ok", "zeros", "stale", "torn", "wrong", "hang", "refused"] {
            assert_eq!(Verdict::from_name(name).map(|v| v.name()), Some(name));
        }
    }
}

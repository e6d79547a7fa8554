//! Which pairs can be tested at the same time: rounds of disjoint pairs, and how two verdicts on one edge become one.
//!
//! It runs nothing. Start at [`rounds`].

use super::verdict::PairReport;

/// Rounds of disjoint pairs in which each pair of `n` occurs once, as in a tournament.
pub fn rounds(n: usize) -> Vec<Vec<[usize; 2]>> {
    // An odd number plays with a guest whose pairs are left out.
    let even = n + n % 2;
    let mut seats: Vec<usize> = (0..even).collect();
    let mut out = Vec::new();
    for _ in 1..even {
        let pairs = (0..even / 2).map(|i| [seats[i].min(seats[even - 1 - i]), seats[i].max(seats[even - 1 - i])]);
        out.push(pairs.filter(|[_, b]| *b < n).collect());
        seats[1..].rotate_right(1);
    }
    out
}

/// Adds what was seen later to what is known of the same edges: the worse counts.
pub fn merge(known: &mut [PairReport], later: &[PairReport]) {
    for report in known {
        for other in later.iter().filter(|o| (o.from, o.to) == (report.from, report.to)) {
            if other.write > report.write || other.read > report.read || other.lines > report.lines {
                report
                    .detail
                    .extend(other.detail.iter().map(|d| format!("beside other pairs, {d}")));
            }
            report.write = report.write.clone().max(other.write.clone());
            report.read = report.read.clone().max(other.read.clone());
            report.lines = report.lines.clone().max(other.lines.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_pair_plays_once_and_nobody_twice_at_a_time() {
        for n in 0..=17 {
            let mut seen = BTreeSet::new();
            for round in rounds(n) {
                let players: BTreeSet<usize> = round.iter().flatten().copied().collect();
                assert_eq!(players.len(), 2 * round.len(), "{n}: {round:?}");
                seen.extend(round);
            }
            assert_eq!(seen.len(), n * n.saturating_sub(1) / 2, "{n}");
            assert!(seen.iter().all(|[a, b]| a < b && *b < n));
        }
    }

    #[test]
    fn the_worse_of_two_verdicts_counts() {
        let report = |write: Verdict| PairReport {
            from: 0,
            to: 1,
            write,
            read: Verdict::Right,
            lines: Verdict::NotRun,
            detail: vec!["packet: seen".into()],
        };
        let mut known = [report(Verdict::Right)];
        merge(&mut known, &[report(Verdict::Torn)]);
        assert_eq!((&known[0].write, known[0].detail.len()), (&Verdict::Torn, 2));
        merge(&mut known, &[report(Verdict::Right)]);
        assert_eq!((&known[0].write, known[0].detail.len()), (&Verdict::Torn, 2));
    }
}

//! Slot reuse: may a put of call `c + buffers` land on a slot whose value of call `c` is still unread?
//!
//! The model is the weakest that kernels promise. One thread handles one column of one chunk: it starts, then stage by
//! stage issues its puts and only then reads and resets what arrives, then ends. Chunks are taken apart, since
//! different threads may handle them. Happens-before edges: the thread's program order between stages (not among the
//! puts or the reads of one stage), `end(c-1) -> start(c)` on one rank (stream order), and a put to the read that
//! observed it. A slot is safe if the reset that follows the read in call `c` happens before the put of call
//! `c + buffers`.
//!
//! Unrolling is done with masks of ranks instead of a graph. Every edge stays in its call or goes to the next one, and
//! every call looks alike, so a path from call `c` to call `c + B` splits at the boundaries of calls into: the ends that
//! the read reaches, then `B - 1` times start to end, then the starts that the put can see. Tests hold this against a
//! graph unrolled over many calls and searched edge by edge. Start at [`first_hazard`].

use super::error::VerifyError;
use crate::schedule::ir::{Schedule, Transfer};

/// The first slot that may be overwritten unread, if any. Expects ranks (at most 64) and chunks in range.
pub(super) fn first_hazard(schedule: &Schedule, buffers: u32) -> Option<VerifyError> {
    let by_chunk = transfers_by_chunk(schedule);
    let mut reach = Reach::new(schedule.ranks, schedule.stages.len());
    for (chunk, transfers) in by_chunk.iter().enumerate() {
        reach.trace(transfers);
        for &(stage, from, to) in transfers {
            let mut ends = reach.ends_after_reads[stage * schedule.ranks + to];
            for _ in 1..buffers {
                let next = reach.across_call(ends);
                if next == ends {
                    break;
                }
                ends = next;
            }
            if ends & reach.starts_before_puts[stage * schedule.ranks + from] == 0 {
                let chunk = u32::try_from(chunk).unwrap_or(u32::MAX);
                return Some(VerifyError::SlotReuse {
                    stage,
                    from,
                    to,
                    chunk,
                    buffers,
                });
            }
        }
    }
    None
}

/// `(stage, from, to)` of each chunk, stages ascending.
fn transfers_by_chunk(schedule: &Schedule) -> Vec<Vec<(usize, usize, usize)>> {
    let mut by_chunk = vec![Vec::new(); schedule.chunks as usize];
    for (stage, s) in schedule.stages.iter().enumerate() {
        for &Transfer { from, to, chunk, .. } in &s.transfers {
            by_chunk[chunk as usize].push((stage, from, to));
        }
    }
    by_chunk
}

/// What reaches what within one call, as masks of ranks; indexed `[stage * ranks + rank]`.
struct Reach {
    ranks: usize,
    stages: usize,
    /// Whose start of the call happens before this rank's puts of the stage.
    starts_before_puts: Vec<u64>,
    /// Whose end of the call happens after this rank's reads of the stage.
    ends_after_reads: Vec<u64>,
    /// `[rank]`: whose end of the call happens after this rank's start of it.
    ends_after_start: Vec<u64>,
}

impl Reach {
    fn new(ranks: usize, stages: usize) -> Self {
        Self {
            ranks,
            stages,
            starts_before_puts: vec![0; ranks * stages],
            ends_after_reads: vec![0; ranks * stages],
            ends_after_start: vec![0; ranks],
        }
    }

    fn trace(&mut self, transfers: &[(usize, usize, usize)]) {
        let n = self.ranks;
        let own = |rank: usize| 1_u64 << rank;
        let mut rest = transfers;
        let mut past: Vec<u64> = (0..n).map(own).collect();
        for stage in 0..self.stages {
            let before = &mut self.starts_before_puts[stage * n..(stage + 1) * n];
            before.copy_from_slice(&past);
            let here = rest.partition_point(|t| t.0 == stage);
            for &(_, from, to) in &rest[..here] {
                past[to] |= before[from];
            }
            rest = &rest[here..];
        }
        let mut rest = transfers;
        let mut future: Vec<u64> = (0..n).map(own).collect();
        for stage in (0..self.stages).rev() {
            let after = &mut self.ends_after_reads[stage * n..(stage + 1) * n];
            after.copy_from_slice(&future);
            let here = rest.partition_point(|t| t.0 < stage);
            for &(_, from, to) in &rest[here..] {
                future[from] |= after[to];
            }
            rest = &rest[..here];
        }
        self.ends_after_start.copy_from_slice(&future);
    }

    /// From ends of one call to the ends of the next that happen after them.
    fn across_call(&self, ends: u64) -> u64 {
        let of = |r: usize| {
            if ends >> r & 1 == 1 {
                self.ends_after_start[r]
            } else {
                0
            }
        };
        (0..self.ranks).map(of).fold(0, |a, b| a | b)
    }
}

/// Which barriers a pulling kernel puts around its reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Barriers {
    /// Each reader waits for the start of each rank that it reads from.
    pub start: bool,
    /// Each rank waits for the reads of all who read from it before it ends.
    pub end: bool,
}

/// The first input that may be read before it is there, or overwritten before it is read. The input of call `c` is
/// written before `start(c)` and the one of call `c + 1` after `end(c)`, on the holder's stream.
pub(super) fn first_pull_hazard(schedule: &Schedule, barriers: Barriers) -> Option<VerifyError> {
    let n = schedule.ranks;
    // Program order of a rank: start, signal, wait for the holders, read, signal the holders, wait for readers, end.
    // `reads[r]`: whose start happens before r's reads; `ended[r]`: whose reads happen before r's end.
    let mut reads: Vec<u64> = (0..n).map(|r| 1 << r).collect();
    let mut ended = reads.clone();
    for t in schedule.transfers() {
        if barriers.start {
            reads[t.to] |= 1 << t.from;
        }
        if barriers.end {
            ended[t.from] |= 1 << t.to;
        }
    }
    let hazard = |t: &&Transfer| reads[t.to] >> t.from & 1 == 0 || ended[t.from] >> t.to & 1 == 0;
    let found = schedule.transfers().find(hazard)?;
    Some(VerifyError::InputReuse {
        holder: found.from,
        reader: found.to,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::ir::{Delivery, Stage, Values};

    fn schedule(ranks: usize, delivery: Delivery, stages: &[&[(usize, usize)]]) -> Schedule {
        let mut values = Values::default();
        let value = values.input(0);
        let transfer = |&(from, to): &(usize, usize)| Transfer {
            from,
            to,
            chunk: 0,
            value,
        };
        Schedule {
            name: "by-hand".into(),
            ranks,
            chunks: 1,
            delivery,
            values: values.into_vec(),
            stages: stages
                .iter()
                .map(|s| Stage {
                    transfers: s.iter().map(transfer).collect(),
                })
                .collect(),
            outputs: Vec::new(),
        }
    }

    #[test]
    fn broadcast_is_unsafe_with_any_number_of_buffers() {
        let broadcast = schedule(2, Delivery::Push, &[&[(0, 1)]]);
        for buffers in [1, 2, 3, 8, 100] {
            assert!(
                first_hazard(&broadcast, buffers).is_some(),
                "nothing ever comes back to rank 0"
            );
        }
    }

    #[test]
    fn one_buffer_is_enough_for_a_request_and_its_answer_but_not_for_a_swap() {
        let answered = schedule(2, Delivery::Push, &[&[(0, 1)], &[(1, 0)]]);
        assert_eq!(first_hazard(&answered, 1), None);
        let swap = schedule(2, Delivery::Push, &[&[(0, 1), (1, 0)]]);
        let hazard = VerifyError::SlotReuse {
            stage: 0,
            from: 0,
            to: 1,
            chunk: 0,
            buffers: 1,
        };
        assert_eq!(
            first_hazard(&swap, 1),
            Some(hazard),
            "rank 0 may be a call ahead of rank 1's read"
        );
        assert_eq!(first_hazard(&swap, 2), None);
    }

    #[test]
    fn a_ring_of_one_way_messages_needs_as_many_buffers_as_news_takes_to_come_round() {
        // Each call carries news one hop on, so rank 0 hears of rank 1's read of call c in call c + 3 only.
        let ring = schedule(4, Delivery::Push, &[&[(0, 1), (1, 2), (2, 3), (3, 0)]]);
        assert!(first_hazard(&ring, 3).is_some());
        assert_eq!(first_hazard(&ring, 4), None);
    }

    #[test]
    fn pulling_needs_both_barriers() {
        let pull = schedule(2, Delivery::Pull, &[&[(0, 1), (1, 0)]]);
        assert_eq!(first_pull_hazard(&pull, Barriers { start: true, end: true }), None);
        assert!(
            first_pull_hazard(
                &pull,
                Barriers {
                    start: true,
                    end: false
                }
            )
            .is_some()
        );
        assert!(
            first_pull_hazard(
                &pull,
                Barriers {
                    start: false,
                    end: true
                }
            )
            .is_some()
        );
    }

    /// The same question answered the slow way: a graph of events over many calls, searched edge by edge.
    fn unrolled_is_safe(schedule: &Schedule, buffers: usize) -> bool {
        let (n, stages) = (schedule.ranks, schedule.stages.len());
        let calls = buffers + 5;
        // Points of a rank's call: before the puts of stage 0, before those of stage 1, .., the end.
        let point = |call: usize, rank: usize, stage: usize| (call * n + rank) * (stages + 1) + stage;
        let mut after = vec![Vec::new(); calls * n * (stages + 1)];
        for call in 0..calls {
            for rank in 0..n {
                for stage in 0..stages {
                    after[point(call, rank, stage)].push(point(call, rank, stage + 1));
                }
                if call + 1 < calls {
                    after[point(call, rank, stages)].push(point(call + 1, rank, 0));
                }
            }
            for (stage, s) in schedule.stages.iter().enumerate() {
                for t in &s.transfers {
                    after[point(call, t.from, stage)].push(point(call, t.to, stage + 1));
                }
            }
        }
        let reaches = |from: usize, to: usize| {
            let (mut seen, mut open) = (vec![false; after.len()], vec![from]);
            while let Some(at) = open.pop() {
                if !std::mem::replace(&mut seen[at], true) {
                    open.extend(&after[at]);
                }
            }
            seen[to]
        };
        (0..calls - buffers).all(|call| {
            schedule.stages.iter().enumerate().all(|(stage, s)| {
                let safe = |t: &Transfer| reaches(point(call, t.to, stage + 1), point(call + buffers, t.from, stage));
                s.transfers.iter().all(safe)
            })
        })
    }

    #[test]
    fn masks_agree_with_an_unrolled_graph_on_random_traffic() {
        let mut state = 7_u64;
        let mut below = |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        let mut verdicts = [0; 2];
        for _ in 0..600 {
            let (ranks, stages) = (2 + below(5), 1 + below(4));
            let traffic: Vec<Vec<(usize, usize)>> = (0..stages)
                .map(|_| {
                    let pairs = (0..1 + below(2 * ranks)).map(|_| (below(ranks), below(ranks)));
                    pairs.filter(|(a, b)| a != b).collect()
                })
                .collect();
            let traffic: Vec<&[(usize, usize)]> = traffic.iter().map(Vec::as_slice).collect();
            let random = schedule(ranks, Delivery::Push, &traffic);
            for buffers in 1..=4 {
                let safe = first_hazard(&random, buffers).is_none();
                assert_eq!(
                    safe,
                    unrolled_is_safe(&random, buffers as usize),
                    "{buffers} buffers, {traffic:?}"
                );
                verdicts[usize::from(safe)] += 1;
            }
        }
        assert!(
            verdicts.iter().all(|&v| v > 300),
            "both verdicts must occur often: {verdicts:?}"
        );
    }
}

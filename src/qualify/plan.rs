//! How much is run to prove a collective: payloads, geometries, seeds and how often.
//!
//! A plan is data and gives the same chains on every run. Modes, skew, buffers and patterns rotate through the chains,
//! since the full product would take minutes. Start at [`QualifyPlan::quick`].

use super::case::Case;
use super::patterns::Pattern;
use crate::device::{Geometry, Mode};
use crate::registry::Element;

/// What is run. Chains of one thread count share one prepared collective, whatever their payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QualifyPlan {
    /// Chains a seed and thread count. Nine see every pattern once.
    pub rounds: u32,
    /// Dependent calls a chain (a replay, when captured). At least 3, so that both buffers are used again.
    pub calls: u32,
    /// Replays of captured chains.
    pub replays: u32,
    /// Payloads in bytes, even, taken in turn: let them shrink and grow.
    pub payloads: Vec<u64>,
    /// Geometries, grouped by threads; blocks are cut to what the device holds.
    pub geometries: Vec<Geometry>,
    /// Seeds of inputs and mixing.
    pub seeds: Vec<u32>,
    /// Hold-backs in nanoseconds, taken in turn by chains with a late rank.
    pub skews: Vec<u64>,
    /// Bytes of outputs that one chain may return; fewer calls are run for large payloads.
    pub memory: u64,
    /// Payloads in the very geometries in which they will serve: two chains each, one of them captured.
    pub served: Vec<(u64, Geometry)>,
}

const fn geometry(blocks: u32, threads: u32) -> Geometry {
    Geometry::new(blocks, threads)
}

impl QualifyPlan {
    /// For every build and every load: small payloads, odd tails, every pattern.
    pub fn quick() -> Self {
        Self {
            rounds: 9,
            calls: 3,
            replays: 2,
            payloads: vec![1030, 2, 528, 16, 2048, 14, 272, 18],
            geometries: vec![geometry(2, 32), geometry(1, 32), geometry(3, 32), geometry(1, 64)],
            seeds: vec![1],
            skews: vec![2_000, 50_000],
            memory: 64 << 20,
            served: Vec::new(),
        }
    }

    /// For a GPU before it serves: up to a MiB, more seeds, ranks late by up to milliseconds.
    pub fn thorough() -> Self {
        Self {
            rounds: 36,
            calls: 8,
            replays: 3,
            payloads: vec![
                1030,
                2,
                65_554,
                16,
                1 << 20,
                14,
                5120,
                18,
                40_960,
                262_142,
                272,
                81_920,
                528,
            ],
            geometries: vec![
                geometry(4, 32),
                geometry(16, 32),
                geometry(1, 64),
                geometry(8, 64),
                geometry(2, 128),
                geometry(16, 256),
                geometry(1, 512),
            ],
            seeds: vec![1, 2],
            skews: vec![5_000, 100_000, 3_000_000],
            memory: 256 << 20,
            served: Vec::new(),
        }
    }

    /// The same for payloads that will serve, each in its geometry: the plan's own payloads in blocks of as many threads
    /// too, and those that serve in no geometry but theirs, since a MiB takes long to compare.
    #[must_use]
    pub fn covering(mut self, served: &[(u64, Geometry)]) -> Self {
        for (_, geometry) in served {
            if !self.geometries.contains(geometry) {
                self.geometries.push(*geometry);
            }
        }
        self.served.extend(served);
        self
    }

    /// The largest payload, which scratch must hold: room for one element of any type at least.
    pub fn max_bytes(&self) -> u64 {
        let served = self.served.iter().map(|(bytes, _)| bytes);
        (self.payloads.iter().chain(served).max()).map_or(0, |most| *most.max(&4))
    }

    /// Thread counts in the order of their first geometry.
    pub fn threads(&self) -> Vec<u32> {
        let mut threads = Vec::new();
        for g in &self.geometries {
            if !threads.contains(&g.threads) {
                threads.push(g.threads);
            }
        }
        threads
    }

    /// The chains with blocks of `threads` threads. `first` is the number of the first one. Payloads are cut to whole
    /// elements.
    pub fn cases(
        &self,
        element: Element,
        threads: u32,
        max_blocks: u32,
        ranks: usize,
        in_place: bool,
        first: u32,
    ) -> Vec<Case> {
        let shapes: Vec<Geometry> = self
            .geometries
            .iter()
            .copied()
            .filter(|g| g.threads == threads)
            .collect();
        if self.payloads.is_empty() || self.seeds.is_empty() || shapes.is_empty() || max_blocks == 0 || ranks == 0 {
            return Vec::new();
        }
        let rounds = self.seeds.iter().flat_map(|s| (0..self.rounds).map(move |r| (s, r)));
        let rounds = rounds.map(|(seed, round)| (seed, shapes[round as usize % shapes.len()], None));
        let served = self.served.iter().filter(|(_, g)| g.threads == threads);
        let served = served.flat_map(|(bytes, shape)| [false, true].map(|graph| (*bytes, *shape, graph)));
        let served = served.map(|(bytes, shape, graph)| (&self.seeds[0], shape, Some((bytes, graph))));
        let mut cases = Vec::new();
        for (&seed, shape, serves) in rounds.chain(served) {
            let index = first + cases.len() as u32;
            let k = index as usize;
            let size = element.bytes() as u64;
            let bytes = serves.map_or(self.payloads[k % self.payloads.len()], |(bytes, _)| bytes);
            let bytes = (bytes / size * size).max(size);
            let patterns = Pattern::ALL.len();
            // The quotients keep two rotations of one period from always meeting in the same way.
            let graph = serves.map_or((k + k / patterns) % 2 == 1, |(_, graph)| graph);
            let late = (!self.skews.is_empty() && k % 3 == 1).then_some(k / 3);
            let mode = if graph {
                Mode::Graph {
                    replays: self.replays.max(1),
                }
            } else {
                Mode::Eager
            };
            let each = bytes.max(1) * ranks as u64 * if graph { u64::from(self.replays.max(1)) } else { 1 };
            let room = u32::try_from(self.memory / each).unwrap_or(u32::MAX).max(2);
            cases.push(Case {
                index,
                element,
                bytes,
                geometry: Geometry::new(shape.blocks.clamp(1, max_blocks), threads),
                calls: self.calls.clamp(1, room),
                mode,
                skew: late.map(|l| (l % ranks, self.skews[(l / ranks + l) % self.skews.len()])),
                in_place: in_place && (k / 2 + k / 8).is_multiple_of(2),
                pattern: Pattern::ALL[k % patterns],
                specials: (k / 3 + k / patterns) % 2 == 1,
                seed,
            });
        }
        cases
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn plans_mix_modes_skew_buffers_patterns_and_payload_changes() {
        for plan in [QualifyPlan::quick(), QualifyPlan::thorough()] {
            let mut cases = Vec::new();
            for threads in plan.threads() {
                cases.extend(plan.cases(Element::F16, threads, 16, 4, true, cases.len() as u32));
            }
            let count = |f: &dyn Fn(&Case) -> bool| cases.iter().filter(|c| f(c)).count();
            for part in [
                count(&|c| c.mode == Mode::Eager),
                count(&|c| c.mode != Mode::Eager),
                count(&|c| c.in_place),
                count(&|c| !c.in_place),
                count(&|c| c.specials),
                count(&|c| !c.specials),
                count(&|c| c.mode != Mode::Eager && c.in_place),
                count(&|c| c.mode != Mode::Eager && c.skew.is_some()),
            ] {
                assert!(part >= 2, "{part} of {}", cases.len());
            }
            assert!(count(&|c| c.skew.is_none()) > count(&|c| c.skew.is_some()));
            let patterns: BTreeSet<_> = cases.iter().map(|c| c.pattern).collect();
            assert_eq!(patterns.len(), Pattern::ALL.len());
            let payloads: BTreeSet<_> = cases.iter().map(|c| c.bytes).collect();
            assert_eq!(payloads.len(), plan.payloads.len());
            assert!(
                cases.windows(2).any(|w| w[0].bytes < w[1].bytes) && cases.windows(2).any(|w| w[0].bytes > w[1].bytes)
            );
        }
    }

    #[test]
    fn what_serves_is_run_eagerly_and_captured_in_its_own_geometry_alone() {
        let (small, large) = (Geometry::new(2, 32), Geometry::new(64, 256));
        let plan = QualifyPlan::quick().covering(&[(4096, small), (1 << 20, large)]);
        assert_eq!(plan.max_bytes(), 1 << 20);
        let of = |threads| plan.cases(Element::F16, threads, 64, 2, true, 5);
        for (bytes, geometry) in [(4096, small), (1 << 20, large)] {
            let own = of(geometry.threads);
            let own: Vec<&Case> = own.iter().filter(|c| c.bytes == bytes).collect();
            assert!(own.iter().all(|c| c.geometry == geometry), "{own:?}");
            assert_eq!(own.iter().filter(|c| c.mode == Mode::Eager).count(), 1);
            assert_eq!(own.len(), 2);
        }
        assert!(of(32).iter().chain(&of(64)).all(|c| c.bytes < 1 << 20));
        // Small ones, odd tails among them, meet the served blocks as well.
        assert!(of(256).iter().any(|c| c.bytes == 1030) && of(256).iter().any(|c| c.bytes == 2));
    }

    #[test]
    fn large_payloads_run_fewer_calls() {
        let plan = QualifyPlan {
            payloads: vec![1 << 20],
            ..QualifyPlan::thorough()
        };
        for case in plan.cases(Element::F16, 64, 8, 64, true, 0) {
            let replays = if let Mode::Graph { replays } = case.mode {
                replays
            } else {
                1
            };
            assert!(case.calls >= 2 && u64::from(case.calls * replays) * 64 <= 384, "{case}");
        }
    }
}

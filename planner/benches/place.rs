//! Times the matcher on renumbered machines of 2 to 64 ranks: `cargo bench -p topoforge-planner --bench place`.
//!
//! Bars: to 8 ranks under 1 ms, 16 under 20 ms, 17 to 64 within 2 s with a bound.

use std::time::Instant;
use topoforge_planner::matching::{Options, Pattern, place};
use topoforge_planner::topology::{LinkClass, PcieClass, Topology};

/// Seeded, so that every run times the same machines.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..n).collect();
        (1..n).rev().for_each(|i| all.swap(i, self.below(i + 1)));
        all
    }
}

/// Pairs below switches below sockets.
fn tree(n: usize) -> Topology {
    pairs(n, |a, b| {
        LinkClass::Pcie(match () {
            () if a / 2 == b / 2 => PcieClass::Pix,
            () if a / 4 == b / 4 => PcieClass::Pxb,
            () if a / (n / 2).max(1) == b / (n / 2).max(1) => PcieClass::Node,
            () => PcieClass::Sys,
        })
    })
}

/// Cube meshes of eight, joined over PCIe: uneven lanes leave few symmetries.
fn mesh(n: usize) -> Topology {
    const TWO: [(usize, usize); 8] = [(0, 3), (1, 2), (2, 3), (4, 7), (5, 6), (6, 7), (0, 4), (1, 5)];
    const ONE: [(usize, usize); 8] = [(0, 1), (0, 2), (1, 3), (4, 5), (4, 6), (5, 7), (2, 6), (3, 7)];
    pairs(n, |a, b| {
        let ends = (a % 8, b % 8);
        if a / 8 != b / 8 {
            LinkClass::Pcie(PcieClass::Sys)
        } else if TWO.contains(&ends) {
            LinkClass::NvLink { lanes: 2, r#gen: 2 }
        } else if ONE.contains(&ends) {
            LinkClass::NvLink { lanes: 1, r#gen: 2 }
        } else {
            LinkClass::Pcie(PcieClass::Sys)
        }
    })
}

/// Any class anywhere: the hardest to place.
fn noise(n: usize, seed: u64) -> Topology {
    let mut rng = Rng(seed);
    pairs(n, |_, _| match rng.below(6) {
        5 => LinkClass::NvLink { lanes: 2, r#gen: 2 },
        i => LinkClass::Pcie(PcieClass::ALL[i]),
    })
}

fn pairs(n: usize, mut class: impl FnMut(usize, usize) -> LinkClass) -> Topology {
    let mut topology = Topology::new("bench", n);
    for a in 0..n {
        for b in a + 1..n {
            topology = topology.with_pair(a, b, class(a, b));
        }
    }
    topology
}

fn main() {
    println!(
        "{:28} {:>10} {:>9} {:>9} optimal",
        "family on machine", "time", "distance", "bound"
    );
    let mut rng = Rng(7);
    for n in [2, 4, 6, 8, 12, 16, 24, 32, 64] {
        let machines = [("tree", tree(n)), ("mesh", mesh(n)), ("noise", noise(n, 3))];
        let other = noise(n, 4);
        for (name, family) in &machines {
            let renumbered = family.relabelled(&rng.permutation(n)).unwrap_or_else(|| family.clone());
            for (on, live) in [("renumbered", &renumbered), ("noise", &other)] {
                let mut best = None;
                for _ in 0..3 {
                    let at = Instant::now();
                    let found = std::hint::black_box(place(&Pattern::all_links(family), live, &Options::default()));
                    let took = at.elapsed();
                    if best.as_ref().is_none_or(|(t, _)| took < *t) {
                        best = Some((took, found));
                    }
                }
                let Some((took, found)) = best else { continue };
                println!(
                    "{:28} {:>10} {:>9} {:>9} {}",
                    format!("{n} {name} on {on}"),
                    format!("{took:.0?}"),
                    found.distance.map_or_else(|| "-".into(), |d| d.to_string()),
                    found.lower_bound,
                    found.optimal
                );
            }
        }
    }
}

//! Topologies and a seeded generator that the schedule tests share.
#![allow(dead_code)]

pub mod interpreter;

use topoforge_planner::topology::{LinkClass, PcieClass, Topology};

/// SplitMix64: tests are seeded and give the same cases everywhere.
pub struct Seeded(pub u64);

impl Seeded {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

pub const NVLINK: LinkClass = LinkClass::NvLink { lanes: 1, r#gen: 2 };
pub const PIX: LinkClass = LinkClass::Pcie(PcieClass::Pix);
pub const SYS: LinkClass = LinkClass::Pcie(PcieClass::Sys);

pub fn complete(ranks: usize, class: LinkClass) -> Topology {
    let all: Vec<usize> = (0..ranks).collect();
    Topology::new(format!("complete-{ranks}"), ranks).with_all_pairs(&all, class)
}

/// A hybrid cube mesh: two fully linked quads, and each rank linked to its twin in the other quad.
pub fn cube_mesh() -> Topology {
    with_mesh(Topology::new("cube-mesh", 8))
}

/// The cube mesh with PCIe peer access wherever NVLink is missing.
pub fn mixed() -> Topology {
    with_mesh(
        complete(8, SYS)
            .with_all_pairs(&[0, 1, 2, 3], PIX)
            .with_all_pairs(&[4, 5, 6, 7], PIX),
    )
}

fn with_mesh(mut topology: Topology) -> Topology {
    for quad in [[0, 1, 2, 3], [4, 5, 6, 7]] {
        topology = topology.with_all_pairs(&quad, NVLINK);
    }
    let twice = LinkClass::NvLink { lanes: 2, r#gen: 2 };
    for (a, b) in [(0, 3), (1, 2), (4, 7), (5, 6)] {
        topology = topology.with_pair(a, b, twice);
    }
    for rank in 0..4 {
        topology = topology.with_pair(rank, rank + 4, twice);
    }
    topology
}

//! The floor of a machine: what an empty launch, a dependent copy and one word to a peer cost, and how fast bytes cross.
//!
//! A yardstick, not a proof: for large payloads copy and wire can overlap. Plain data; executors measure it. Start at
//! [`Floor::reference`].

use super::{Geometry, Launch};

/// What no collective of two ranks can beat by much.
#[derive(Clone, Debug, PartialEq)]
pub struct Floor {
    /// An empty node in a graph of dependent nodes, microseconds, one a launch mode.
    pub nodes: Vec<(Launch, f64)>,
    /// Dependent copy nodes.
    pub copies: Vec<Copy>,
    /// Whether ranks meet in host memory; then the figures below are those of the way through it.
    pub staged: bool,
    /// One word from rank 0 to rank 1, microseconds.
    pub wire_us: f64,
    /// Bytes from rank 0 to rank 1, one direction, gigabytes a second: stores to the peer, or loads of host memory.
    pub gb_per_s: f64,
    /// One word over every edge, both directions.
    pub wires: Vec<Wire>,
    /// The way through host memory; none where it could not be measured.
    pub host: Option<HostWay>,
}

/// One word over one edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wire {
    /// The rank that writes first.
    pub from: usize,
    /// The rank that polls its own memory.
    pub to: usize,
    /// One way, microseconds.
    pub us: f64,
}

/// What host memory between two GPUs costs.
#[derive(Clone, Debug, PartialEq)]
pub struct HostWay {
    /// One dependent load of host memory, microseconds.
    pub load_us: f64,
    /// One word one way, microseconds: clocks between two polls in flight (0: one poll at a time), and the figure.
    pub words: Vec<(u32, f64)>,
    /// Stores, gigabytes a second.
    pub store_gb_per_s: f64,
    /// Loads of 16 bytes a thread, gigabytes a second: how they are issued, alone, and while the other GPU loads too.
    pub loads: Vec<(&'static str, f64, f64)>,
    /// A pair's sum by a prototype; only where ranks meet in host memory.
    pub prototypes: Vec<Prototype>,
}

/// A dependent call of a prototype that sums a pair's payloads through host memory, when polls begin otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prototype {
    /// Payload a rank.
    pub bytes: u64,
    /// Clocks before the first poll.
    pub hold: u32,
    /// Clocks between two polls in flight; 0: one at a time.
    pub gap: u32,
    /// Microseconds a call.
    pub us: f64,
}

impl HostWay {
    /// The fastest word.
    pub fn word_us(&self) -> Option<f64> {
        self.words.iter().map(|(_, us)| *us).min_by(f64::total_cmp)
    }
}

/// A dependent node that copies the payload, in its best geometry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Copy {
    /// Payload.
    pub bytes: u64,
    /// The best geometry, launched as it says.
    pub geometry: Geometry,
    /// Microseconds a node: the best pass's median.
    pub us: f64,
    /// The worst pass's median of the same geometry, captured anew: far above `us` where the device has two minds.
    pub worst_us: f64,
}

/// What one served launch costs the thread that makes it, its context being current.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaunchCost {
    /// Nanoseconds a call.
    pub ns: f64,
    /// Calls of the driver a call.
    pub driver_calls: f64,
}

impl Floor {
    /// Copy node, one-way latency and bytes over the bandwidth: microseconds. None for a payload or launch mode that was
    /// not measured.
    pub fn reference(&self, bytes: u64, launch: Launch) -> Option<f64> {
        let copy = self.copy(bytes, launch)?;
        Some(copy.us + self.wire_us + self.transfer_us(bytes))
    }

    /// The same without counting the part of the copy that can overlap with the transfer.
    pub fn overlapped(&self, bytes: u64, launch: Launch) -> Option<f64> {
        let copy = self.copy(bytes, launch)?;
        let (_, node) = self.nodes.iter().find(|(l, _)| *l == launch)?;
        Some(node + self.wire_us + (copy.us - node).max(self.transfer_us(bytes)))
    }

    /// The copy node of a payload and launch mode.
    pub fn copy(&self, bytes: u64, launch: Launch) -> Option<&Copy> {
        let mut copies = self.copies.iter();
        copies.find(|c| (c.bytes, c.geometry.launch) == (bytes, launch))
    }

    fn transfer_us(&self, bytes: u64) -> f64 {
        bytes as f64 / (self.gb_per_s * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_adds_copy_wire_and_transfer() {
        let floor = Floor {
            nodes: vec![(Launch::Plain, 0.5)],
            copies: vec![Copy {
                bytes: 100_000,
                geometry: Geometry::new(4, 64),
                us: 0.9,
                worst_us: 1.4,
            }],
            staged: false,
            wire_us: 0.6,
            gb_per_s: 100.0,
            wires: Vec::new(),
            host: None,
        };
        let close = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-9);
        assert!(close(floor.reference(100_000, Launch::Plain), 0.9 + 0.6 + 1.0));
        // The transfer outlasts what the copy adds to an empty node.
        assert!(close(floor.overlapped(100_000, Launch::Plain), 0.5 + 0.6 + 1.0));
        assert_eq!(floor.reference(100_000, Launch::Programmatic), None);
        assert_eq!(floor.reference(1, Launch::Plain), None);
    }
}

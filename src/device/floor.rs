//! The floor of a machine: what an empty launch, a dependent copy and one word to a peer cost, and how fast bytes cross.
//!
//! A yardstick, not a proof: for large payloads copy and wire can overlap. Plain data; executors measure it. Start at
//! [`Floor::reference`].

use super::Launch;

/// What no collective of two ranks can beat by much.
#[derive(Clone, Debug, PartialEq)]
pub struct Floor {
    /// An empty node in a graph of dependent nodes, microseconds, one a launch mode.
    pub nodes: Vec<(Launch, f64)>,
    /// Dependent copy nodes.
    pub copies: Vec<Copy>,
    /// One word from rank 0 to rank 1, microseconds.
    pub wire_us: f64,
    /// Stores to the peer, one direction, gigabytes a second.
    pub gb_per_s: f64,
}

/// A dependent node that copies the payload, in its best geometry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Copy {
    /// Payload.
    pub bytes: u64,
    /// How it was launched.
    pub launch: Launch,
    /// Microseconds a node.
    pub us: f64,
}

impl Floor {
    /// Copy node, one-way latency and bytes over the bandwidth: microseconds. None for a payload or launch mode that was
    /// not measured.
    pub fn reference(&self, bytes: u64, launch: Launch) -> Option<f64> {
        let copy = self.copies.iter().find(|c| (c.bytes, c.launch) == (bytes, launch))?;
        Some(copy.us + self.wire_us + self.transfer_us(bytes))
    }

    /// The same without counting the part of the copy that can overlap with the transfer.
    pub fn overlapped(&self, bytes: u64, launch: Launch) -> Option<f64> {
        let copy = self.copies.iter().find(|c| (c.bytes, c.launch) == (bytes, launch))?;
        let (_, node) = self.nodes.iter().find(|(l, _)| *l == launch)?;
        Some(node + self.wire_us + (copy.us - node).max(self.transfer_us(bytes)))
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
                launch: Launch::Plain,
                us: 0.9,
            }],
            wire_us: 0.6,
            gb_per_s: 100.0,
        };
        let close = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-9);
        assert!(close(floor.reference(100_000, Launch::Plain), 0.9 + 0.6 + 1.0));
        // The transfer outlasts what the copy adds to an empty node.
        assert!(close(floor.overlapped(100_000, Launch::Plain), 0.5 + 0.6 + 1.0));
        assert_eq!(floor.reference(100_000, Launch::Programmatic), None);
        assert_eq!(floor.reference(1, Launch::Plain), None);
    }
}

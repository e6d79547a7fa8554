//! What a status word says: which rank waited for which peer.
//!
//! Kernels know ports, not peers; the variant's tables know the peer behind a port. Start at [`timeout`].

use crate::device::DeviceError;
use crate::device::abi::Status;
use crate::driver::memfd::SharedMemory;
use crate::driver::memory::MappedHost;
use crate::process::Seen;
use crate::registry::Variant;
use std::sync::Arc;

/// Words from one rank's status to the next: a line each.
pub(super) const STATUS_WORDS: usize = 16;

/// Where the ranks' kernels report.
#[derive(Clone)]
pub(super) enum Reports {
    /// All ranks are of this process.
    Here(Arc<MappedHost>),
    /// A rank's part each, in memory that processes share, and what is known of those processes.
    Shared(Arc<[(Arc<SharedMemory>, usize)]>, Arc<Seen>),
}

impl Reports {
    /// The status of a rank as it is now.
    pub fn status(&self, rank: usize) -> Status {
        match self {
            Self::Here(host) => decode(|word| host.read_u32(rank * STATUS_WORDS + word)),
            Self::Shared(parts, _) => match parts.get(rank) {
                Some((memory, at)) => decode(|word| memory.load(at + 4 * word)),
                None => Status::default(),
            },
        }
    }

    /// What has gone wrong so far: host memory, a load a rank.
    pub fn verdict(&self, variant: &Variant) -> Result<(), DeviceError> {
        if let Self::Shared(_, seen) = self {
            gone(seen)?;
        }
        let dead = (0..variant.ranks.len()).find_map(|r| timeout(variant, r, &self.status(r)));
        dead.map_or(Ok(()), Err)
    }
}

/// Whether every rank's process is still there.
pub(super) fn gone(seen: &Seen) -> Result<(), DeviceError> {
    match seen.lost() {
        None => Ok(()),
        Some(rank) => Err(DeviceError::Lost {
            rank: Some(rank),
            reason: format!("rank {rank} is gone: its process ended; make a new communicator without it"),
        }),
    }
}

fn decode(word: impl Fn(usize) -> u32) -> Status {
    // `state` first: it is written last, so the rest is whole once it is set.
    let state = word(0);
    Status {
        state,
        rank: word(1),
        port: word(2),
        stage: word(3),
        counter: word(4),
        column: word(5),
    }
}

/// The peer behind a port: puts come first, then gets.
pub(super) fn peer_of(variant: &Variant, rank: usize, port: u32) -> Option<usize> {
    let ports = variant.ranks.get(rank)?;
    let peer = match port.checked_sub(variant.kernel.puts) {
        None => ports.puts.get(port as usize)?.peer,
        Some(get) => *ports.gets.get(get as usize)?,
    };
    Some(peer as usize)
}

/// The error that a rank's status stands for, if it is one.
pub(super) fn timeout(variant: &Variant, rank: usize, status: &Status) -> Option<DeviceError> {
    (status.state != 0).then(|| DeviceError::Timeout {
        rank,
        peer: peer_of(variant, rank, status.port),
        stage: status.stage,
        column: status.column,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Element, Kernel, Memory, Partials, Protocol, PutPort, RankPorts};

    static KERNEL: Kernel = Kernel {
        hash: "h",
        symbol: "s",
        protocol: Protocol::Packet,
        puts: 2,
        gets: 2,
        inputs: 0,
        tables: 0,
        images: &[],
        host: None,
    };
    // Rank 1 of three has fewer ports than the kernel.
    static VARIANT: Variant = Variant {
        name: "v",
        schedule: "v",
        protocol: Protocol::Packet,
        memory: Memory::Peer,
        element: Element::F16,
        partials: &[Partials::F16],
        kernel: &KERNEL,
        chunks: 1,
        stages: 1,
        planes: 2,
        ranks: &[
            RankPorts {
                program: 0,
                puts: &[PutPort { peer: 1, region: 0 }, PutPort { peer: 2, region: 1 }],
                gets: &[2, 1],
                tables: &[],
            },
            RankPorts {
                program: 1,
                puts: &[PutPort { peer: 0, region: 1 }],
                gets: &[0],
                tables: &[],
            },
        ],
        expressions: &[],
        expression_of: &[],
        classes: &[],
    };

    #[test]
    fn ports_name_peers_puts_first() {
        let peers: Vec<_> = (0..5).map(|port| peer_of(&VARIANT, 0, port)).collect();
        assert_eq!(peers, [Some(1), Some(2), Some(2), Some(1), None]);
    }

    #[test]
    fn a_shorter_rank_program_keeps_the_kernels_port_numbers() {
        let peers: Vec<_> = (0..4).map(|port| peer_of(&VARIANT, 1, port)).collect();
        assert_eq!(peers, [Some(0), None, Some(0), None]);
    }

    #[test]
    fn a_status_becomes_an_error_that_names_the_peer() {
        let words = [1, 0, 2, 3, 9, 40];
        let status = decode(|w| words[w]);
        let expected = DeviceError::Timeout {
            rank: 0,
            peer: Some(2),
            stage: 3,
            column: 40,
        };
        assert_eq!(timeout(&VARIANT, 0, &status), Some(expected));
        assert_eq!(timeout(&VARIANT, 0, &decode(|_| 0)), None);
    }
}

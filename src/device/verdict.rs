//! What status words say: which rank waited for which peer.
//!
//! Kernels know ports, not peers; the variant's tables know the peer behind a port. Start at [`missing`].

use super::DeviceError;
use super::abi::Status;
use crate::process::Seen;
use crate::registry::Variant;

/// A status out of its words.
pub(crate) fn decode(word: impl Fn(usize) -> u32) -> Status {
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
pub(crate) fn peer_of(variant: &Variant, rank: usize, port: u32) -> Option<usize> {
    let ports = variant.ranks.get(rank)?;
    let peer = match port.checked_sub(variant.kernel.puts) {
        None => ports.puts.get(port as usize)?.peer,
        Some(get) => *ports.gets.get(get as usize)?,
    };
    Some(peer as usize)
}

/// The error that a rank's status stands for, if it is one.
pub(crate) fn timeout(variant: &Variant, rank: usize, status: &Status) -> Option<DeviceError> {
    (status.state != 0).then(|| DeviceError::Timeout {
        rank,
        peer: peer_of(variant, rank, status.port),
        stage: status.stage,
        column: status.column,
    })
}

/// The report that says most, if there is any. Ranks that wait for a waiting rank are innocent: the chain is followed to
/// the one that nobody excuses.
pub(crate) fn missing(variant: &Variant, status: impl Fn(usize) -> Status) -> Option<DeviceError> {
    let ranks = variant.ranks.len();
    let waits = |rank: usize| Some(status(rank)).filter(|s| s.state != 0);
    let mut rank = (0..ranks).find(|r| waits(*r).is_some())?;
    for _ in 0..ranks {
        match waits(rank).and_then(|s| peer_of(variant, rank, s.port)) {
            Some(peer) if waits(peer).is_some() => rank = peer,
            _ => break,
        }
    }
    timeout(variant, rank, &status(rank))
}

/// Whether every rank's process is still there.
pub(crate) fn gone(seen: &Seen) -> Result<(), DeviceError> {
    match seen.lost() {
        None => Ok(()),
        Some(rank) => Err(DeviceError::Lost {
            rank: Some(rank),
            reason: format!("rank {rank} is gone: its process ended; make a new communicator without it"),
        }),
    }
}

/// Whether every rank's process is still there and has not left either: whether a call could end.
pub(crate) fn together(seen: &Seen) -> Result<(), DeviceError> {
    gone(seen)?;
    match seen.left() {
        None => Ok(()),
        Some(rank) => Err(DeviceError::Lost {
            rank: Some(rank),
            reason: format!("rank {rank} has left: make a new communicator without it"),
        }),
    }
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

    #[test]
    fn who_waits_for_a_waiting_rank_is_innocent() {
        // Rank 0 waits for rank 1, which waits for rank 0 in another place: somebody is named, and it ends.
        let by_rank = |words: [[u32; 6]; 2]| move |rank: usize| decode(|w| words[rank][w]);
        let both = by_rank([[1, 0, 3, 0, 0, 0], [1, 1, 2, 0, 0, 0]]);
        assert!(missing(&VARIANT, both).is_some());
        // Rank 0 waits for rank 1 (port 3), which waits for nobody any more.
        let one = by_rank([[1, 0, 3, 0, 0, 0], [0; 6]]);
        assert!(matches!(
            missing(&VARIANT, one),
            Some(DeviceError::Timeout {
                rank: 0,
                peer: Some(1),
                ..
            })
        ));
        assert_eq!(missing(&VARIANT, |_| Status::default()), None);
    }
}

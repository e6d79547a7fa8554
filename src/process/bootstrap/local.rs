//! An id of 128 bytes that all ranks know, as a bootstrap: rank 0 listens on an abstract Unix socket, the others connect.
//!
//! Whoever connects must be of the same user, know the id and have a rank that nobody has; anybody else is turned away
//! without harm to the others, and whom rank 0 turned away is in its error. Late ranks are waited for. The socket's name
//! is a hash: the id itself is not visible in `/proc/net/unix`. Start at [`LocalSocket::join`].

use super::centre::{self, HEAD_START, Host};
use super::lines::{MOST, receive_all, receive_message, send_all};
use super::{Alarm, Bootstrap};
use crate::driver::socket;
use crate::process::wire::{Reader, Writer, hash};
use crate::process::{JoinError, bounded};
use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

/// Bytes of an id, as many as NCCL's has.
pub const ID_BYTES: usize = 128;

pub(super) const MAGIC: &[u8; 4] = b"tfb1";
pub(super) const HELLO: usize = 4 + ID_BYTES + 4 + 4 + 8;
pub(super) const WELCOME: u8 = 1;
pub(super) const TURNED_AWAY: u8 = 2;

/// Joined ranks.
pub struct LocalSocket {
    rank: usize,
    world: usize,
    seat: Seat,
    patience: Duration,
}

enum Seat {
    /// Rank 0, with everybody's connection; its own is none.
    Centre(Vec<Option<UnixStream>>),
    /// Connected to rank 0.
    Edge(UnixStream),
    /// The only rank.
    Alone,
}

impl LocalSocket {
    /// Joins `world` ranks that know `id`, each with a rank of its own, waiting at most `patience` for the last one.
    ///
    /// # Errors
    /// Ranks are missing, or one is not who it says it is: they are named.
    pub fn join(id: &[u8; ID_BYTES], rank: usize, world: usize, patience: Duration) -> Result<Self, JoinError> {
        if world == 0 || world > 64 || rank >= world {
            return Err(JoinError::Misuse {
                reason: format!("rank {rank} of {world}: there are 1 to 64 ranks, counted from 0"),
            });
        }
        let patience = bounded(patience);
        let end = Instant::now() + patience;
        let seat = match rank {
            _ if world == 1 => Seat::Alone,
            0 => Seat::Centre(Host::open(id, world, patience)?.receive(end)?),
            _ => Seat::Edge(connect(id, rank, world, end, patience)?),
        };
        Ok(Self {
            rank,
            world,
            seat,
            patience,
        })
    }
}

pub(super) fn address(id: &[u8; ID_BYTES]) -> Result<SocketAddr, JoinError> {
    // Two hashes, since one of 64 bits could be met by chance on a busy machine.
    let name = format!("topoforge-{:016x}{:016x}", hash(id), hash(&[&b"2"[..], id].concat()));
    SocketAddr::from_abstract_name(name.as_bytes()).map_err(|e| JoinError::system("naming a socket", &e))
}

/// The others: until rank 0 is there and says welcome.
fn connect(
    id: &[u8; ID_BYTES],
    rank: usize,
    world: usize,
    end: Instant,
    patience: Duration,
) -> Result<UnixStream, JoinError> {
    let address = address(id)?;
    let mut pause = Duration::from_millis(1);
    let mut closed = false;
    loop {
        if let Ok(stream) = UnixStream::connect_addr(&address) {
            let peer = socket::credentials(&stream).map_err(|e| JoinError::system("asking who rank 0 is", &e))?;
            if peer.uid != socket::own_uid() {
                return Err(JoinError::Refused {
                    reason: format!("a process of user {} waits where rank 0 should be", peer.uid),
                });
            }
            stream
                .set_nonblocking(true)
                .map_err(|e| JoinError::system("joining", &e))?;
            let left = end.saturating_duration_since(Instant::now()).as_millis() as u64;
            let mut hello = Writer::default();
            let mut hello = hello.u32(u32::from_le_bytes(*MAGIC)).done();
            hello.extend(id);
            hello.extend(Writer::default().u32(rank as u32).u32(world as u32).u64(left).done());
            let mut answer = [0];
            let heard =
                send_all(&stream, &hello, end).is_ok() && receive_all(&stream, &mut answer, end + HEAD_START).is_ok();
            match (heard, answer[0]) {
                (true, WELCOME) => return Ok(stream),
                (true, _) => {
                    let mut text = Vec::new();
                    let soon = Instant::now() + Duration::from_secs(1);
                    let mut size = [0; 4];
                    if receive_all(&stream, &mut size, soon).is_ok() {
                        text = vec![0; (u32::from_le_bytes(size) as usize).min(4096)];
                        let _ = receive_all(&stream, &mut text, soon);
                    }
                    return Err(JoinError::Refused {
                        reason: format!("rank 0 turned rank {rank} away: {}", String::from_utf8_lossy(&text)),
                    });
                }
                // It closed: an earlier group's rank 0 that was just leaving, or one that has all ranks.
                (false, _) => closed = true,
            }
        }
        if Instant::now() + pause >= end {
            let more = "; one that was there closed: is its group complete without this process, or did it fail?";
            return Err(JoinError::Missing {
                ranks: vec![0],
                after: patience,
                doing: format!("joining{}", if closed { more } else { "" }),
            });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// What the end of a connection means while bytes are gathered.
pub(super) fn fault(rank: usize, error: &io::Error, after: Duration) -> JoinError {
    let doing = "exchanging addresses".to_owned();
    if error.kind() == io::ErrorKind::TimedOut {
        let ranks = vec![rank];
        JoinError::Missing { ranks, after, doing }
    } else {
        JoinError::Lost { rank, doing }
    }
}

impl Bootstrap for LocalSocket {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn all_gather(&mut self, mine: &[u8], end: Instant) -> Result<Vec<Vec<u8>>, JoinError> {
        if mine.len() > MOST / self.world {
            let reason = format!("{} bytes are too much for a bootstrap", mine.len());
            return Err(JoinError::Misuse { reason });
        }
        let patience = self.patience;
        match &self.seat {
            Seat::Alone => Ok(vec![mine.to_vec()]),
            Seat::Edge(stream) => {
                let sent = send_all(stream, &Writer::default().bytes(mine).done(), end);
                let mut kind = [0];
                // Rank 0 may have begun to wait later than this one; its end would show at once.
                let end = end + patience + HEAD_START;
                // What it said before it went says why.
                receive_all(stream, &mut kind, end)
                    .map_err(|e| fault(0, sent.as_ref().err().unwrap_or(&e), patience))?;
                let message = receive_message(stream, end).map_err(|e| fault(0, &e, patience))?;
                if kind[0] != 0 {
                    return Err(JoinError::decode(0, &message));
                }
                let mut r = Reader::new(&message);
                let all: Option<Vec<_>> = (0..self.world).map(|_| r.bytes().map(<[u8]>::to_vec)).collect();
                all.ok_or_else(|| JoinError::Refused {
                    reason: "rank 0 sent too little: is it another version?".to_owned(),
                })
            }
            Seat::Centre(streams) => centre::gather(streams, mine, end, patience),
        }
    }

    fn alarms(&self) -> Vec<Alarm<'_>> {
        match &self.seat {
            Seat::Alone => Vec::new(),
            // Rank 0 says nothing between two gathers, unless the second has failed already.
            Seat::Edge(stream) => vec![Alarm {
                rank: 0,
                fd: stream.as_fd(),
                words: true,
            }],
            Seat::Centre(streams) => {
                let connected = streams.iter().enumerate();
                let alarms = connected.filter_map(|(rank, stream)| Some((rank, stream.as_ref()?.as_fd())));
                let words = false;
                alarms.map(|(rank, fd)| Alarm { rank, fd, words }).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::thread;

    const SOON: Duration = Duration::from_millis(1500);

    fn id(salt: &str) -> [u8; ID_BYTES] {
        let mut id = [7; ID_BYTES];
        let own = hash(format!("{salt} {}", std::process::id()).as_bytes());
        id[..8].copy_from_slice(&own.to_le_bytes());
        id
    }

    fn join(id: [u8; ID_BYTES], rank: usize, world: usize) -> thread::JoinHandle<Result<Vec<Vec<u8>>, JoinError>> {
        thread::spawn(move || {
            let mut joined = LocalSocket::join(&id, rank, world, SOON)?;
            joined.all_gather(&[rank as u8; 3], Instant::now() + SOON)
        })
    }

    #[test]
    fn everybody_gets_everybodys_bytes_in_order() {
        let id = id("all");
        let late: Vec<_> = [3, 1, 2, 0].map(|rank| join(id, rank, 4)).into_iter().collect();
        let want: Vec<Vec<u8>> = (0..4).map(|r| vec![r; 3]).collect();
        for rank in late {
            assert_eq!(rank.join().expect("no panic"), Ok(want.clone()));
        }
    }

    #[test]
    fn a_missing_rank_is_named_by_all_who_came() {
        let id = id("missing");
        let came: Vec<_> = [0, 2].map(|rank| join(id, rank, 3)).into_iter().collect();
        for rank in came {
            let e = rank.join().expect("no panic").expect_err("rank 1 never came");
            assert!(matches!(&e, JoinError::Missing { ranks, .. } if *ranks == [1]), "{e}");
        }
        let id = self::id("no centre");
        let e = join(id, 1, 2).join().expect("no panic").expect_err("rank 0 never came");
        assert!(matches!(&e, JoinError::Missing { ranks, .. } if *ranks == [0]), "{e}");
    }

    #[test]
    fn strangers_are_turned_away_and_harm_nobody() {
        let id = id("strangers");
        let centre = join(id, 0, 2);
        let dial = || loop {
            if let Ok(stream) = address(&id).map(|a| UnixStream::connect_addr(&a)).expect("named") {
                return stream;
            }
            thread::yield_now();
        };
        let silent = dial();
        let mut noisy = dial();
        noisy.write_all(&[0xaa; 4096]).expect("sent");
        drop(dial());
        let mut wrong = Writer::default().u32(u32::from_le_bytes(*MAGIC)).done();
        wrong.extend([8; ID_BYTES]);
        wrong.extend(Writer::default().u32(1).u32(2).u64(1000).done());
        let mut other = dial();
        other.write_all(&wrong).expect("sent");
        let mut answer = [0];
        receive_all(&other, &mut answer, Instant::now() + SOON).expect("answered");
        assert_eq!(answer, [TURNED_AWAY]);
        let edge = join(id, 1, 2);
        assert!(centre.join().expect("no panic").is_ok() && edge.join().expect("no panic").is_ok());
        drop(silent);
    }

    #[test]
    fn a_rank_that_comes_twice_or_from_another_world_is_named() {
        let id = id("twice");
        let centre = join(id, 0, 3);
        let first = join(id, 1, 3);
        thread::sleep(Duration::from_millis(150));
        let twice = join(id, 1, 3).join().expect("no panic").expect_err("taken");
        assert!(twice.to_string().contains("rank 1 came twice"), "{twice}");
        let other = join(id, 2, 4).join().expect("no panic").expect_err("another world");
        assert!(other.to_string().contains("of a world of 4, here are 3"), "{other}");
        let third = join(id, 2, 3);
        assert!(
            [centre, first, third]
                .into_iter()
                .all(|r| r.join().expect("no panic").is_ok())
        );
    }

    #[test]
    fn a_rank_that_ends_while_others_join_is_named_to_late_ones_too() {
        let id = id("ends");
        let centre = join(id, 0, 3);
        let stream = by_hand(&id, 3);
        receive_all(&stream, &mut [0], Instant::now() + SOON).expect("welcome");
        drop(stream);
        thread::sleep(Duration::from_millis(100));
        let late = join(id, 2, 3);
        for rank in [centre, late] {
            let e = rank.join().expect("no panic").expect_err("rank 1 is gone");
            assert!(matches!(e, JoinError::Lost { rank: 1, .. }), "{e}");
        }
    }

    /// Rank 1 of `world` by hand, welcomed.
    fn by_hand(id: &[u8; ID_BYTES], world: u8) -> UnixStream {
        let place = address(id).expect("named");
        let hello = [
            &MAGIC[..],
            &id[..],
            &[1, 0, 0, 0, world, 0, 0, 0],
            &3000_u64.to_le_bytes(),
        ]
        .concat();
        let stream = loop {
            if let Ok(stream) = UnixStream::connect_addr(&place) {
                break stream;
            }
            thread::yield_now();
        };
        (&stream).write_all(&hello).expect("sent");
        stream
    }

    #[test]
    fn a_rank_that_ends_after_its_part_is_named_by_all_and_rank_0_by_nobody() {
        let id = id("after its part");
        let said = std::sync::Arc::new(std::sync::Barrier::new(3));
        let rank = |rank: usize| {
            let said = said.clone();
            thread::spawn(move || {
                let mut joined = LocalSocket::join(&id, rank, 3, SOON).expect("joined");
                let first = joined.all_gather(&[rank as u8], Instant::now() + SOON);
                said.wait();
                if rank == 2 {
                    // Rank 0 goes first, if it goes.
                    thread::sleep(Duration::from_millis(100));
                }
                (first, joined.all_gather(&[], Instant::now() + SOON))
            })
        };
        let ranks = [rank(0), rank(2)];
        let gone = by_hand(&id, 3);
        receive_all(&gone, &mut [0], Instant::now() + SOON).expect("welcome");
        // It says its part and hears no answer: rank 0 finds out only when it sends one.
        gone.shutdown(std::net::Shutdown::Read).expect("shut");
        (&gone).write_all(&Writer::default().bytes(&[1]).done()).expect("sent");
        said.wait();
        drop(gone);
        for rank in ranks {
            let (first, second) = rank.join().expect("no panic");
            assert_eq!(first, Ok(vec![vec![0], vec![1], vec![2]]));
            assert!(matches!(second, Err(JoinError::Lost { rank: 1, .. })), "{second:?}");
        }
    }

    #[test]
    fn whoever_knocks_while_rank_0_gives_up_hears_why() {
        let id = id("farewell");
        let mut host = Host::open(&id, 3, SOON).expect("open");
        let knocks = by_hand(&id, 3);
        let doing = "joining".to_owned();
        let error = JoinError::Lost { rank: 2, doing };
        host.tell(&error);
        drop(host);
        let mut answer = [0; 2];
        receive_all(&knocks, &mut answer, Instant::now() + SOON).expect("answered");
        let message = receive_message(&knocks, Instant::now() + SOON).expect("the verdict");
        assert_eq!((answer, JoinError::decode(0, &message)), ([WELCOME, 1], error));
    }

    #[test]
    fn whoever_comes_when_the_group_is_complete_is_told_what_may_be() {
        let id = id("complete");
        let place = address(&id).expect("named");
        let listener = std::os::unix::net::UnixListener::bind_addr(&place).expect("bound");
        let late = thread::spawn(move || LocalSocket::join(&id, 1, 2, Duration::from_millis(400)).err());
        drop(listener.accept().expect("knocked"));
        drop(listener);
        let error = late
            .join()
            .expect("no panic")
            .map(|e| e.to_string())
            .unwrap_or_default();
        assert!(
            error.contains("rank 0") && error.contains("complete without"),
            "{error}"
        );
    }

    #[test]
    fn impossible_ranks_are_refused() {
        for (rank, world) in [(2, 2), (0, 0), (0, 65)] {
            assert!(LocalSocket::join(&[0; ID_BYTES], rank, world, SOON).is_err());
        }
    }

    #[test]
    fn patience_without_end_is_patience() {
        let id = id("for ever");
        let rank = |rank: usize| {
            thread::spawn(move || {
                let mut joined = LocalSocket::join(&id, rank, 2, Duration::MAX)?;
                joined.all_gather(&[], Instant::now() + SOON)
            })
        };
        let ranks = [rank(0), rank(1)];
        assert!(ranks.into_iter().all(|r| r.join().expect("no panic").is_ok()));
        // Nor does a stranger's word make rank 0 stumble.
        let id = self::id("boast");
        let place = address(&id).expect("named");
        let centre = join(id, 0, 2);
        let boast = [&MAGIC[..], &id[..], &[1, 0, 0, 0, 2, 0, 0, 0], &[255; 8]].concat();
        let mut stream = loop {
            if let Ok(stream) = UnixStream::connect_addr(&place) {
                break stream;
            }
            thread::yield_now();
        };
        stream.write_all(&boast).expect("sent");
        stream.write_all(&Writer::default().bytes(&[1]).done()).expect("sent");
        assert_eq!(centre.join().expect("no panic"), Ok(vec![vec![0; 3], vec![1]]));
    }
}

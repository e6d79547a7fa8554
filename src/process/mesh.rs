//! A socket from every rank to every other: messages, descriptors, and the end of a process seen at once.
//!
//! Each message is numbered, so that ranks which lost step are found and not confused. The bootstrap is needed only to
//! bring the sockets' names and keys round. Start at [`Mesh::join`].

use super::bootstrap::Bootstrap;
use super::connect;
use super::watch::{self, Watch, Watched};
use super::wire::{Reader, Writer};
use super::{JoinError, Seen, bounded};
use crate::driver::memfd::SharedMemory;
use crate::driver::socket::{self, Interest};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Length, number, kind, descriptors.
const HEAD: usize = 4 + 8 + 1 + 1;
/// The largest message that is believed.
const MOST: usize = 1 << 30;

const DATA: u8 = 0;
const GAVE_UP: u8 = 1;

/// What everybody sent, in the order of ranks.
pub struct Gathered {
    /// Messages; the own one too.
    pub bytes: Vec<Vec<u8>>,
    /// Descriptors; none for the own rank.
    pub fds: Vec<Vec<OwnedFd>>,
}

/// Bytes and what came with them.
type Message = (Vec<u8>, Vec<OwnedFd>);

struct Peer {
    stream: UnixStream,
    /// Its process, see [`socket::process`].
    process: Option<OwnedFd>,
    incoming: Vec<u8>,
    fds: VecDeque<OwnedFd>,
}

/// Joined processes of one machine.
pub struct Mesh {
    rank: usize,
    /// Names of ranks in errors: what they were called when they joined.
    names: Vec<usize>,
    peers: Vec<Option<Peer>>,
    board: Arc<SharedMemory>,
    watch: Option<Watch>,
    number: u64,
    patience: Duration,
    broken: Option<JoinError>,
}

/// Where the board says why a rank goes, see [`super::watch`]; ranks lie a line apart.
const fn left_at(rank: usize) -> usize {
    64 * rank
}

/// Bytes of the board that are the mesh's own; the rest is anybody's who knows the layout of [`Mesh::board`].
pub const BOARD_OWN: usize = 64 * 64;
/// Size of the board.
const BOARD: usize = BOARD_OWN + 4096;

impl Mesh {
    /// Connects the ranks that `bootstrap` joins. Every step waits at most `patience`, then and later.
    ///
    /// # Errors
    /// Ranks are missing, gone, of another machine, or somebody else's.
    pub fn join(bootstrap: &mut dyn Bootstrap, patience: Duration) -> Result<Self, JoinError> {
        let (rank, world) = (bootstrap.rank(), bootstrap.world());
        if world == 0 || world > 64 || rank >= world {
            return Err(JoinError::Misuse {
                reason: format!("rank {rank} of {world}: there are 1 to 64 ranks, counted from 0"),
            });
        }
        let patience = bounded(patience);
        let board = SharedMemory::create(BOARD).map_err(|e| JoinError::system("making shared memory", &e));
        let streams = connect::all(bootstrap, patience, board.as_ref().err().cloned())?;
        let peer = |stream| Peer {
            process: socket::process(&stream).ok(),
            stream,
            incoming: Vec::new(),
            fds: VecDeque::new(),
        };
        let mut mesh = Self {
            rank,
            names: (0..world).collect(),
            peers: streams.into_iter().map(|s| s.map(peer)).collect(),
            board: Arc::new(board?),
            watch: None,
            number: 0,
            patience,
            broken: None,
        };
        match mesh.share_board().and_then(|()| mesh.start_watch()) {
            Ok(()) => Ok(mesh),
            Err(error) => {
                // The others are told, or they would take it for a death.
                mesh.give_up(&error);
                Err(error)
            }
        }
    }

    fn start_watch(&mut self) -> Result<(), JoinError> {
        let failed = |e: io::Error| JoinError::system("watching the other ranks", &e);
        let mut watched = Vec::new();
        for (name, peer) in self.peers.iter().enumerate() {
            if let Some(peer) = peer {
                watched.push(Watched {
                    rank: name,
                    stream: peer.stream.try_clone().map_err(failed)?,
                    process: peer.process.as_ref().and_then(|p| p.try_clone().ok()),
                });
            }
        }
        self.watch = Some(Watch::start(self.rank, watched, self.board.clone(), left_at)?);
        Ok(())
    }

    /// Rank 0's board is everybody's.
    fn share_board(&mut self) -> Result<(), JoinError> {
        let own = self.board.clone();
        let fds = if self.rank == 0 { vec![own.fd()] } else { Vec::new() };
        let mut got = self.exchange(b"board", &fds)?;
        if self.rank != 0 {
            let fd = got.fds.first_mut().and_then(|f| f.pop());
            let fd = fd.ok_or_else(|| JoinError::Refused {
                reason: "rank 0 sent no shared memory: is it another version?".to_owned(),
            })?;
            let board = SharedMemory::open(fd, BOARD).map_err(|e| JoinError::system("mapping shared memory", &e))?;
            self.board = Arc::new(board);
        }
        Ok(())
    }

    /// This process's rank.
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    pub fn world(&self) -> usize {
        self.peers.len()
    }

    /// What a rank was called when it joined; errors use this name.
    pub fn name(&self, rank: usize) -> usize {
        self.names.get(rank).copied().unwrap_or(rank)
    }

    /// Every step from now on waits at most so long.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = bounded(patience);
    }

    /// From now on rank `r` is whom errors call `order[r]`. The same on all ranks; `order` is a permutation.
    pub fn renumber(&mut self, order: &[usize]) {
        let place = |name: usize| self.names.iter().position(|n| *n == name);
        let old: Vec<usize> = order.iter().filter_map(|name| place(*name)).collect();
        if old.len() != self.peers.len() {
            return;
        }
        let mut peers: Vec<Option<Peer>> = std::mem::take(&mut self.peers);
        self.rank = old.iter().position(|o| *o == self.rank).unwrap_or(self.rank);
        self.peers = old.iter().map(|o| peers[*o].take()).collect();
        self.names = order.to_vec();
    }

    /// Memory that all ranks share, zeroed at first; bytes from [`BOARD_OWN`] on are the user's.
    pub fn board(&self) -> &Arc<SharedMemory> {
        &self.board
    }

    /// The thread that notices ends; none after an end in order.
    pub fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()
    }

    /// What was seen of the peers' processes.
    pub fn seen(&self) -> Arc<Seen> {
        self.watch.as_ref().map(|w| w.seen().clone()).unwrap_or_default()
    }

    /// Everybody's bytes. Every rank calls it, equally often.
    ///
    /// # Errors
    /// A rank is gone, gave up or does not answer within the patience: it is named, and the mesh stays broken.
    pub fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, JoinError> {
        self.exchange(mine, &[]).map(|g| g.bytes)
    }

    /// Everybody's bytes and descriptors.
    ///
    /// # Errors
    /// As [`Mesh::all_gather`].
    pub fn exchange(&mut self, mine: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Gathered, JoinError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.number += 1;
        let outcome = self.round(DATA, mine, fds, Instant::now() + self.patience);
        if let Err(error) = &outcome {
            self.give_up(error);
        }
        outcome
    }

    /// Tells everybody, as far as they can be told at once, and stays broken.
    pub fn give_up(&mut self, error: &JoinError) {
        if self.broken.is_some() {
            return;
        }
        self.broken = Some(error.clone());
        if let (JoinError::Lost { rank, .. }, Some(watch)) = (error, &self.watch) {
            watch.seen().lose(*rank);
            watch::blame(&self.board, left_at(self.name(self.rank)), *rank);
        }
        let message = frame(self.number, GAVE_UP, 0, &error.encode());
        for peer in self.peers.iter().flatten() {
            let _ = socket::send(&peer.stream, &message, &[]);
        }
    }

    fn round(&mut self, kind: u8, mine: &[u8], fds: &[BorrowedFd<'_>], end: Instant) -> Result<Gathered, JoinError> {
        let world = self.peers.len();
        let message = frame(self.number, kind, fds.len() as u8, mine);
        let mut sent = vec![0; world];
        let mut got: Vec<Option<Message>> = (0..world).map(|_| None).collect();
        got[self.rank] = Some((mine.to_vec(), Vec::new()));
        sent[self.rank] = message.len();
        let mut ended = vec![false; world];
        loop {
            for rank in 0..world {
                let name = self.names[rank];
                let lost = || JoinError::Lost {
                    rank: name,
                    doing: "setting up".to_owned(),
                };
                let Some(peer) = &mut self.peers[rank] else { continue };
                if got[rank].is_none() {
                    // What it said before it went comes first.
                    let open = peer.fill();
                    got[rank] = peer.take(name, self.number)?;
                    if (!open || ended[rank]) && got[rank].is_none() {
                        return Err(lost());
                    }
                }
                while sent[rank] < message.len() {
                    let first = sent[rank] == 0;
                    match socket::send(&peer.stream, &message[sent[rank]..], if first { fds } else { &[] }) {
                        Ok(n) => sent[rank] += n,
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                        // It may have said why before it went.
                        Err(_) => return Err(peer.last_words(name).unwrap_or_else(lost)),
                    }
                }
            }
            if got.iter().all(Option::is_some) && sent.iter().all(|s| *s == message.len()) {
                break;
            }
            let mut interests = Vec::new();
            let mut processes = Vec::new();
            for (rank, peer) in self.peers.iter().enumerate() {
                let Some(peer) = peer else { continue };
                let (reads, writes) = (got[rank].is_none(), sent[rank] < message.len());
                if let (true, Some(process)) = (reads, &peer.process) {
                    processes.push((rank, Interest::in_end(process.as_fd()).reading()));
                }
                if reads || writes {
                    let mut interest = Interest::in_end(peer.stream.as_fd()).writing(writes);
                    interest.read = reads;
                    interests.push(interest);
                }
            }
            let sockets = interests.len();
            interests.extend(processes.iter().map(|(_, interest)| *interest));
            let heard =
                socket::wait(&mut interests, Some(end)).map_err(|e| JoinError::system("waiting for ranks", &e))?;
            for ((rank, _), seen) in processes.iter().zip(&interests[sockets..]) {
                ended[*rank] |= seen.readable || seen.gone;
            }
            if !heard && Instant::now() >= end {
                let missing = (0..world).filter(|r| got[*r].is_none() || sent[*r] < message.len());
                return Err(JoinError::Missing {
                    ranks: missing.map(|r| self.names[r]).collect(),
                    after: self.patience,
                    doing: "setting up".to_owned(),
                });
            }
        }
        let (bytes, fds) = got.into_iter().flatten().unzip();
        Ok(Gathered { bytes, fds })
    }
}

impl Drop for Mesh {
    /// Says goodbye, so that the others do not take it for a death.
    fn drop(&mut self) {
        // The thread has copies of the sockets.
        drop(self.watch.take());
        let word = left_at(self.name(self.rank));
        if self.broken.is_none() && self.board.load(word) == 0 {
            self.board.store(word, watch::LEFT);
        }
        for peer in self.peers.iter().flatten() {
            let _ = peer.stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Peer {
    /// Reads what is there; false when the other end is gone.
    fn fill(&mut self) -> bool {
        let mut part = vec![0; 64 << 10];
        let mut luggage = Vec::new();
        let open = loop {
            match socket::receive(&self.stream, &mut part, &mut luggage) {
                Ok(0) => break false,
                Ok(n) => self.incoming.extend(&part[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break true,
                Err(_) => break false,
            }
        };
        self.fds.extend(luggage);
        open
    }

    /// Why it gave up, if that is what it said last.
    fn last_words(&mut self, name: usize) -> Option<JoinError> {
        self.fill();
        let mut r = Reader::new(&self.incoming);
        loop {
            let (size, _, kind, _) = (r.u32()? as usize, r.u64()?, r.u8()?, r.u8()?);
            let bytes = r.take(size)?;
            if kind == GAVE_UP {
                return Some(JoinError::decode(name, bytes));
            }
        }
    }

    /// The next message, once it is whole.
    fn take(&mut self, name: usize, number: u64) -> Result<Option<Message>, JoinError> {
        let mut r = Reader::new(&self.incoming);
        let mut read = || Some((r.u32()? as usize, r.u64()?, r.u8()?, r.u8()? as usize));
        let Some((size, theirs, kind, fds)) = read() else {
            return Ok(None);
        };
        if size > MOST {
            let reason = format!("rank {name} sends nonsense: is it another version?");
            return Err(JoinError::Refused { reason });
        }
        if self.incoming.len() < HEAD + size {
            return Ok(None);
        }
        let bytes = self.incoming[HEAD..HEAD + size].to_vec();
        if kind == GAVE_UP {
            return Err(JoinError::decode(name, &bytes));
        }
        if theirs != number || self.fds.len() < fds {
            let reason =
                format!("rank {name} is at step {theirs}, this one at {number}: do all ranks run the same program?");
            return Err(JoinError::Refused { reason });
        }
        self.incoming.drain(..HEAD + size);
        Ok(Some((bytes, self.fds.drain(..fds).collect())))
    }
}

fn frame(number: u64, kind: u8, fds: u8, bytes: &[u8]) -> Vec<u8> {
    let mut message = Writer::default()
        .u32(bytes.len() as u32)
        .u64(number)
        .u8(kind)
        .u8(fds)
        .done();
    message.extend(bytes);
    message
}

#[cfg(test)]
mod tests {
    use super::super::bootstrap::LocalSocket;
    use super::super::wire::hash;
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::thread;

    const SOON: Duration = Duration::from_millis(2000);

    /// Runs `work` on every rank, a thread each.
    fn ranks<T: Send + 'static>(
        salt: &'static str,
        world: usize,
        patience: Duration,
        work: impl Fn(Mesh) -> T + Send + Clone + 'static,
    ) -> Vec<T> {
        let mut id = [3; 128];
        id[..8].copy_from_slice(&hash(format!("mesh {salt} {}", std::process::id()).as_bytes()).to_le_bytes());
        let rank = |rank| {
            let work = work.clone();
            thread::spawn(move || {
                let mut socket = LocalSocket::join(&id, rank, world, SOON).expect("joined");
                let mut mesh = Mesh::join(&mut socket, SOON).expect("meshed");
                mesh.patience = patience;
                work(mesh)
            })
        };
        let threads: Vec<_> = (0..world).map(rank).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    }

    #[test]
    fn large_messages_go_both_ways_at_once() {
        let done = ranks("large", 3, SOON, |mut mesh| {
            let mine = vec![mesh.rank() as u8; 3 << 20];
            let all = mesh.all_gather(&mine).expect("gathered");
            all.iter()
                .enumerate()
                .all(|(r, b)| b.len() == 3 << 20 && b.iter().all(|x| *x == r as u8))
        });
        assert_eq!(done, [true; 3]);
    }

    #[test]
    fn descriptors_come_with_the_message_they_were_sent_with() {
        let done = ranks("fds", 3, SOON, |mut mesh| {
            let rank = mesh.rank();
            let memory = SharedMemory::create(4096).expect("made");
            memory.store(0, 100 + rank as u32);
            let got = mesh.exchange(&[1], &[memory.fd()]).expect("exchanged");
            mesh.all_gather(&[2]).expect("gathered");
            got.fds
                .into_iter()
                .map(|mut fds| {
                    fds.pop()
                        .map_or(0, |fd| SharedMemory::open(fd, 4096).expect("mapped").load(0))
                })
                .collect::<Vec<_>>()
        });
        assert_eq!(done, [vec![0, 101, 102], vec![100, 0, 102], vec![100, 101, 0]]);
    }

    #[test]
    fn a_rank_that_leaves_in_order_is_told_from_one_that_is_lost() {
        let seen = ranks("leaves", 3, SOON, |mut mesh| {
            let rank = mesh.rank();
            mesh.all_gather(&[]).expect("gathered");
            if rank == 1 {
                return (None, None);
            }
            if rank == 2 {
                thread::sleep(Duration::from_millis(100));
                // As a killed process: the sockets close, nothing is said.
                mesh.broken = Some(JoinError::Misuse { reason: String::new() });
                return (None, None);
            }
            let seen = mesh.seen();
            let end = Instant::now() + SOON;
            while Instant::now() < end && (seen.left().is_none() || seen.lost().is_none()) {
                thread::sleep(Duration::from_millis(1));
            }
            (seen.left(), seen.lost())
        });
        assert_eq!(seen[0], (Some(1), Some(2)));
    }

    #[test]
    fn a_rank_that_goes_because_of_another_is_not_taken_for_the_lost_one() {
        let seen = ranks("blames", 3, SOON, |mut mesh| {
            mesh.all_gather(&[]).expect("gathered");
            match mesh.rank() {
                1 => {
                    let doing = "serving".to_owned();
                    mesh.give_up(&JoinError::Lost { rank: 2, doing });
                    None
                }
                2 => {
                    thread::sleep(Duration::from_millis(400));
                    mesh.broken = Some(JoinError::Misuse { reason: String::new() });
                    None
                }
                _ => {
                    let (seen, end) = (mesh.seen(), Instant::now() + SOON);
                    while Instant::now() < end && seen.lost().is_none() {
                        thread::sleep(Duration::from_millis(1));
                    }
                    seen.lost()
                }
            }
        });
        assert_eq!(seen[0], Some(2));
    }

    #[test]
    fn whoever_does_not_answer_or_lost_step_is_named_everywhere() {
        let errors = ranks("late", 3, Duration::from_millis(150), |mut mesh| {
            if mesh.rank() == 2 {
                thread::sleep(Duration::from_millis(600));
            }
            mesh.all_gather(&[]).err()
        });
        for (rank, e) in errors.into_iter().enumerate() {
            let e = e.unwrap_or_else(|| panic!("rank {rank} must fail"));
            assert!(
                matches!(&e, JoinError::Missing { ranks, .. } if *ranks == [2]),
                "rank {rank}: {e}"
            );
        }
        let errors = ranks("step", 2, SOON, |mut mesh| {
            mesh.number += mesh.rank() as u64;
            mesh.all_gather(&[]).err().map(|e| e.to_string())
        });
        assert!(
            errors.iter().flatten().any(|e| e.contains("the same program")),
            "{errors:?}"
        );
    }

    #[test]
    fn an_error_of_one_rank_reaches_all() {
        let errors = ranks("gives up", 3, SOON, |mut mesh| {
            if mesh.rank() == 1 {
                let reason = "no memory".to_owned();
                mesh.give_up(&JoinError::Misuse { reason });
            }
            mesh.all_gather(&[]).err().map(|e| e.to_string())
        });
        assert_eq!(errors[0].as_deref(), Some("rank 1 gave up: no memory"));
        assert_eq!(errors[2], errors[0]);
    }

    #[test]
    fn renumbered_ranks_keep_their_names_in_errors() {
        let done = ranks("renumber", 3, Duration::from_millis(150), |mut mesh| {
            let name = mesh.rank();
            mesh.renumber(&[2, 0, 1]);
            let all = mesh.all_gather(&[name as u8]).expect("gathered");
            let missing = if name == 2 {
                thread::sleep(Duration::from_millis(400));
                None
            } else {
                mesh.all_gather(&[]).err().and_then(|e| e.rank())
            };
            (mesh.rank(), all.concat(), missing)
        });
        assert_eq!(done[0], (1, vec![2, 0, 1], Some(2)));
        assert_eq!((done[1].0, done[1].2, done[2].0), (2, Some(2), 0));
    }

    #[test]
    fn a_thousand_meshes_leave_no_descriptor_behind() {
        let open = || std::fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or(0);
        // Of tests that run beside this one.
        let slack = 200;
        let before = open();
        for _ in 0..1000 {
            ranks("leak", 2, SOON, |mut mesh| mesh.all_gather(&[]).is_ok());
        }
        let (before, after) = (before + slack, open());
        assert!(after < before, "{after} descriptors after, {before} before");
        // Numbers are taken from below, so a leak shows here too.
        assert!(File::open("/dev/null").expect("opens").as_raw_fd() < before as i32);
    }
}

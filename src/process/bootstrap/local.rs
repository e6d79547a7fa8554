//! An id of 128 bytes that all ranks know, as a bootstrap: rank 0 listens on an abstract Unix socket, the others connect.
//!
//! Whoever connects must be of the same user, know the id and have a rank that nobody has; anybody else is turned away
//! without harm to the others, and whom rank 0 turned away is in its error. Late ranks are waited for. The socket's name
//! is a hash: the id itself is not visible in `/proc/net/unix`. Start at [`LocalSocket::join`].

use super::Bootstrap;
use crate::driver::socket::{self, Interest};
use crate::process::JoinError;
use crate::process::wire::{Reader, Writer, hash};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// Bytes of an id, as many as NCCL's has.
pub const ID_BYTES: usize = 128;

const MAGIC: &[u8; 4] = b"tfb1";
const HELLO: usize = 4 + ID_BYTES + 4 + 4 + 8;
/// How long somebody who has connected may take to say who they are.
const MANNERS: Duration = Duration::from_secs(2);
/// Most who have connected and said nothing.
const STRANGERS: usize = 256;
/// The largest message that is believed.
const MOST: usize = 16 << 20;
/// Rank 0 gives up a little before the others do, so that they hear from it who is missing.
const HEAD_START: Duration = Duration::from_millis(300);

const WELCOME: u8 = 1;
const TURNED_AWAY: u8 = 2;

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

fn address(id: &[u8; ID_BYTES]) -> Result<SocketAddr, JoinError> {
    // Two hashes, since one of 64 bits could be met by chance on a busy machine.
    let name = format!("topoforge-{:016x}{:016x}", hash(id), hash(&[&b"2"[..], id].concat()));
    SocketAddr::from_abstract_name(name.as_bytes()).map_err(|e| JoinError::system("naming a socket", &e))
}

/// Rank 0 while the others come.
struct Host<'a> {
    id: &'a [u8; ID_BYTES],
    world: usize,
    patience: Duration,
    listener: UnixListener,
    strangers: Vec<Stranger>,
    joined: Vec<Option<(UnixStream, i32)>>,
    /// Ranks whose process ended after they had joined; they may come again.
    gone: Vec<usize>,
    turned_away: Vec<String>,
}

struct Stranger {
    stream: UnixStream,
    said: Vec<u8>,
    since: Instant,
}

impl<'a> Host<'a> {
    fn open(id: &'a [u8; ID_BYTES], world: usize, patience: Duration) -> Result<Self, JoinError> {
        let address = address(id)?;
        let end = Instant::now() + patience;
        let listener = loop {
            match UnixListener::bind_addr(&address) {
                Ok(listener) => break listener,
                // An earlier group of the same id, or of the same torchrun, may be about to close its own.
                Err(e) if e.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                    return Err(JoinError::Refused {
                        reason: "another process waits as rank 0 with this id: is rank 0 running twice?".to_owned(),
                    });
                }
                Err(e) => return Err(JoinError::system("listening for ranks", &e)),
            }
        };
        listener
            .set_nonblocking(true)
            .map_err(|e| JoinError::system("listening for ranks", &e))?;
        Ok(Self {
            id,
            world,
            patience,
            listener,
            strangers: Vec::new(),
            joined: (0..world).map(|_| None).collect(),
            gone: Vec::new(),
            turned_away: Vec::new(),
        })
    }

    /// Waits for all ranks.
    fn receive(mut self, mut end: Instant) -> Result<Vec<Option<UnixStream>>, JoinError> {
        let failed = |e: io::Error| JoinError::system("waiting for ranks", &e);
        // Whoever is on the way is to hear who is gone, so all others are waited for.
        while self.missing().iter().any(|rank| !self.gone.contains(rank)) {
            let mut ready = vec![Interest::in_end(self.listener.as_fd()).reading()];
            ready.extend(
                self.strangers
                    .iter()
                    .map(|s| Interest::in_end(s.stream.as_fd()).reading()),
            );
            let seated: Vec<usize> = (1..self.world).filter(|r| self.joined[*r].is_some()).collect();
            ready.extend(seated.iter().filter_map(|r| {
                let (stream, _) = self.joined[*r].as_ref()?;
                Some(Interest::in_end(stream.as_fd()))
            }));
            let oldest = self.strangers.iter().map(|s| s.since + MANNERS).min();
            let until = oldest.map_or(end, |o| o.min(end));
            socket::wait(&mut ready, Some(until)).map_err(failed)?;
            let knocks = ready[0].readable;
            let strangers = self.strangers.len();
            let spoke: Vec<bool> = ready[1..=strangers].iter().map(|i| i.readable || i.gone).collect();
            let gone = ready[1 + strangers..].iter().position(|i| i.gone).map(|i| seated[i]);
            if let Some(rank) = gone {
                self.joined[rank] = None;
                self.gone.push(rank);
            }
            let mut kept = Vec::new();
            for (mut stranger, spoke) in std::mem::take(&mut self.strangers).into_iter().zip(spoke) {
                let polite = stranger.since.elapsed() < MANNERS;
                match if spoke { stranger.listen() } else { Some(false) } {
                    Some(true) => {
                        if let Some(theirs) = self.judge(stranger) {
                            end = end.min(theirs);
                        }
                    }
                    Some(false) if polite => kept.push(stranger),
                    _ => {}
                }
            }
            self.strangers = kept;
            if knocks {
                self.accept();
            }
            if Instant::now() >= end {
                break;
            }
        }
        let ranks = self.missing();
        if let Some(&rank) = ranks.iter().find(|rank| self.gone.contains(rank)) {
            let doing = "joining".to_owned();
            return Err(self.tell(JoinError::Lost { rank, doing }));
        }
        if !ranks.is_empty() {
            let mut doing = "joining".to_owned();
            for reason in &self.turned_away {
                doing = format!("{doing}; turned away: {reason}");
            }
            let after = self.patience;
            return Err(self.tell(JoinError::Missing { ranks, after, doing }));
        }
        Ok(self.joined.into_iter().map(|j| j.map(|(stream, _)| stream)).collect())
    }

    fn missing(&self) -> Vec<usize> {
        (1..self.world).filter(|r| self.joined[*r].is_none()).collect()
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let same_user = socket::credentials(&stream).is_ok_and(|c| c.uid == socket::own_uid());
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if !same_user {
                self.turn_away(&stream, "a process of another user".to_owned());
                continue;
            }
            if self.strangers.len() == STRANGERS {
                self.strangers.remove(0);
            }
            self.strangers.push(Stranger {
                stream,
                said: Vec::new(),
                since: Instant::now(),
            });
        }
    }

    fn turn_away(&mut self, mut stream: &UnixStream, reason: String) {
        let _ = stream.write(&Writer::default().u8(TURNED_AWAY).text(&reason).done());
        // Enough to see what is wrong.
        if self.turned_away.len() < 8 && !self.turned_away.contains(&reason) {
            self.turned_away.push(reason);
        }
    }

    /// Seats a rank or turns somebody away. The deadline of whom it seats.
    fn judge(&mut self, stranger: Stranger) -> Option<Instant> {
        let Stranger { stream, said, .. } = stranger;
        let pid = socket::credentials(&stream).map_or(0, |c| c.pid);
        let mut r = Reader::new(&said);
        let mut read = || {
            Some((
                r.take(4)?,
                r.take(ID_BYTES)?,
                r.u32()? as usize,
                r.u32()? as usize,
                r.u64()?,
            ))
        };
        let (magic, id, rank, world, patience) = read()?;
        let here = self.world;
        let refusal = if magic != MAGIC {
            Some(format!("process {pid} speaks another version or no topoforge"))
        } else if id != self.id {
            Some(format!("process {pid} has another id"))
        } else if world != here {
            Some(format!("rank {rank} is of a world of {world}, here are {here}"))
        } else if rank == 0 || rank >= here {
            Some(format!("process {pid} says it is rank {rank} of {here}"))
        } else if let Some((_, first)) = &self.joined[rank] {
            Some(format!(
                "rank {rank} came twice: as process {first} and as process {pid}"
            ))
        } else {
            None
        };
        if let Some(reason) = refusal {
            self.turn_away(&stream, reason);
            return None;
        }
        if (&stream).write(&[WELCOME]).is_ok_and(|n| n == 1) {
            self.joined[rank] = Some((stream, pid));
        }
        let theirs = Duration::from_millis(patience).saturating_sub(HEAD_START);
        Some(Instant::now() + theirs)
    }

    /// Tells all who are here why nothing comes of it.
    fn tell(&self, error: JoinError) -> JoinError {
        for (stream, _) in self.joined.iter().flatten() {
            let _ = send_all(stream, &verdict(&error), Instant::now() + Duration::from_millis(200));
        }
        error
    }
}

impl Stranger {
    /// True once all was said; none if it hung up or says too much.
    fn listen(&mut self) -> Option<bool> {
        let mut part = [0; HELLO];
        loop {
            // What is passed along is dropped, and so closed.
            match socket::receive(&self.stream, &mut part[..HELLO - self.said.len()], &mut Vec::new()) {
                Ok(0) => return None,
                Ok(n) => self.said.extend(&part[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Some(false),
                Err(_) => return None,
            }
            if self.said.len() == HELLO {
                return Some(true);
            }
        }
    }
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
                // It closed: an earlier group's rank 0 that was just leaving.
                (false, _) => {}
            }
        }
        if Instant::now() + pause >= end {
            return Err(JoinError::Missing {
                ranks: vec![0],
                after: patience,
                doing: "joining".to_owned(),
            });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn verdict(error: &JoinError) -> Vec<u8> {
    Writer::default().u8(1).bytes(&error.encode()).done()
}

fn late() -> io::Error {
    io::Error::from(io::ErrorKind::TimedOut)
}

fn send_all(stream: &UnixStream, mut bytes: &[u8], end: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket::send(stream, bytes, &[]) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if !socket::wait(&mut [Interest::in_end(stream.as_fd()).writing(true)], Some(end))? {
                    return Err(late());
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn receive_all(stream: &UnixStream, bytes: &mut [u8], end: Instant) -> io::Result<()> {
    let mut got = 0;
    while got < bytes.len() {
        match socket::receive(stream, &mut bytes[got..], &mut Vec::new()) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if !socket::wait(&mut [Interest::in_end(stream.as_fd()).reading()], Some(end))? {
                    return Err(late());
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// A message with its length before it.
fn receive_message(stream: &UnixStream, end: Instant) -> io::Result<Vec<u8>> {
    let mut size = [0; 4];
    receive_all(stream, &mut size, end)?;
    let size = u32::from_le_bytes(size) as usize;
    if size > MOST {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut bytes = vec![0; size];
    receive_all(stream, &mut bytes, end)?;
    Ok(bytes)
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
        let fault = |rank: usize, e: &io::Error| {
            let doing = "exchanging addresses".to_owned();
            if e.kind() == io::ErrorKind::TimedOut {
                let (ranks, after) = (vec![rank], patience);
                JoinError::Missing { ranks, after, doing }
            } else {
                JoinError::Lost { rank, doing }
            }
        };
        match &self.seat {
            Seat::Alone => Ok(vec![mine.to_vec()]),
            Seat::Edge(stream) => {
                let sent = send_all(stream, &Writer::default().bytes(mine).done(), end);
                let mut kind = [0];
                // Rank 0 may have begun to wait later than this one; its end would show at once.
                let end = end + patience + HEAD_START;
                // What it said before it went says why.
                receive_all(stream, &mut kind, end).map_err(|e| fault(0, sent.as_ref().err().unwrap_or(&e)))?;
                let message = receive_message(stream, end).map_err(|e| fault(0, &e))?;
                if kind[0] != 0 {
                    return Err(JoinError::decode(0, &message));
                }
                let mut r = Reader::new(&message);
                let all: Option<Vec<_>> = (0..self.world).map(|_| r.bytes().map(<[u8]>::to_vec)).collect();
                all.ok_or_else(|| JoinError::Refused {
                    reason: "rank 0 sent too little: is it another version?".to_owned(),
                })
            }
            Seat::Centre(streams) => {
                let mut all = vec![mine.to_vec()];
                let mut failed = None;
                for (rank, stream) in streams.iter().enumerate().skip(1) {
                    let Some(stream) = stream else { continue };
                    match receive_message(stream, end) {
                        Ok(bytes) => all.push(bytes),
                        Err(e) => {
                            failed.get_or_insert(fault(rank, &e));
                        }
                    }
                }
                let message = match &failed {
                    Some(error) => verdict(error),
                    None => {
                        let mut parts = Writer::default();
                        for bytes in &all {
                            parts.bytes(bytes);
                        }
                        Writer::default().u8(0).bytes(&parts.done()).done()
                    }
                };
                for (rank, stream) in streams.iter().enumerate() {
                    let Some(stream) = stream else { continue };
                    if let Err(e) = send_all(stream, &message, end) {
                        failed.get_or_insert(fault(rank, &e));
                    }
                }
                failed.map_or(Ok(all), Err)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let gone = address(&id).expect("named");
        let hello = [&MAGIC[..], &id[..], &[1, 0, 0, 0, 3, 0, 0, 0], &3000_u64.to_le_bytes()].concat();
        let stream = loop {
            if let Ok(stream) = UnixStream::connect_addr(&gone) {
                break stream;
            }
            thread::yield_now();
        };
        (&stream).write_all(&hello).expect("sent");
        receive_all(&stream, &mut [0], Instant::now() + SOON).expect("welcome");
        drop(stream);
        thread::sleep(Duration::from_millis(100));
        let late = join(id, 2, 3);
        for rank in [centre, late] {
            let e = rank.join().expect("no panic").expect_err("rank 1 is gone");
            assert!(matches!(e, JoinError::Lost { rank: 1, .. }), "{e}");
        }
    }

    #[test]
    fn impossible_ranks_are_refused() {
        for (rank, world) in [(2, 2), (0, 0), (0, 65)] {
            assert!(LocalSocket::join(&[0; ID_BYTES], rank, world, SOON).is_err());
        }
    }
}

//! Rank 0 of a [`super::LocalSocket`]: lets the others in one by one, and gathers what they say.
//!
//! Never waits for one rank alone: whoever is ready is heard, and an end is noticed whosever it is. Start at
//! [`Host::receive`] and [`gather`].

use super::lines::{Incoming, hear, send_all};
use super::local::{HELLO, ID_BYTES, MAGIC, TURNED_AWAY, WELCOME, address, fault};
use crate::driver::socket::{self, Interest};
use crate::process::wire::{Reader, Writer};
use crate::process::{JoinError, bounded};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// How long somebody who has connected may take to say who they are.
const MANNERS: Duration = Duration::from_secs(2);
/// Most who have connected and said nothing.
const STRANGERS: usize = 256;
/// Rank 0 gives up a little before the others do, so that they hear from it who is missing.
pub const HEAD_START: Duration = Duration::from_millis(300);
/// How long a failing rank 0 still listens to whoever has just connected.
const FAREWELL: Duration = Duration::from_millis(50);

/// Rank 0 while the others come.
pub struct Host<'a> {
    id: &'a [u8; ID_BYTES],
    world: usize,
    patience: Duration,
    listener: UnixListener,
    strangers: Vec<Stranger>,
    joined: Vec<Option<(UnixStream, i32)>>,
    /// Ranks whose process ended after they had come; they may come again.
    gone: Vec<usize>,
    turned_away: Vec<String>,
}

struct Stranger {
    stream: UnixStream,
    said: Vec<u8>,
    since: Instant,
}

impl<'a> Host<'a> {
    /// Listens at the place that `id` names.
    pub fn open(id: &'a [u8; ID_BYTES], world: usize, patience: Duration) -> Result<Self, JoinError> {
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

    /// Waits for all ranks until `end`, or until the one that waits least would give up. Everybody's connection; its own
    /// is none.
    pub fn receive(mut self, end: Instant) -> Result<Vec<Option<UnixStream>>, JoinError> {
        match self.wait(end) {
            Ok(()) => Ok(self.joined.into_iter().map(|j| j.map(|(stream, _)| stream)).collect()),
            Err(error) => {
                self.tell(&error);
                Err(error)
            }
        }
    }

    fn wait(&mut self, mut end: Instant) -> Result<(), JoinError> {
        // Whoever is on the way is to hear who is gone, so all others are waited for.
        while self.missing().iter().any(|rank| !self.gone.contains(rank)) {
            let mut ready = self.interests();
            let outsiders = ready.len();
            let seated: Vec<usize> = (1..self.world).filter(|r| self.joined[*r].is_some()).collect();
            ready.extend(seated.iter().filter_map(|r| {
                let (stream, _) = self.joined[*r].as_ref()?;
                Some(Interest::in_end(stream.as_fd()))
            }));
            let oldest = self.strangers.iter().map(|s| s.since + MANNERS).min();
            let until = oldest.map_or(end, |o| o.min(end));
            socket::wait(&mut ready, Some(until)).map_err(|e| JoinError::system("waiting for ranks", &e))?;
            let gone = ready[outsiders..].iter().zip(&seated).filter(|(i, _)| i.gone);
            let gone: Vec<usize> = gone.map(|(_, rank)| *rank).collect();
            for rank in gone {
                self.joined[rank] = None;
                self.gone.push(rank);
            }
            if let Some(theirs) = self.hear()? {
                end = end.min(theirs);
            }
            if Instant::now() >= end {
                break;
            }
        }
        let ranks = self.missing();
        if let Some(&rank) = ranks.iter().find(|rank| self.gone.contains(rank)) {
            let doing = "joining".to_owned();
            return Err(JoinError::Lost { rank, doing });
        }
        if !ranks.is_empty() {
            let mut doing = "joining".to_owned();
            for reason in &self.turned_away {
                doing = format!("{doing}; turned away: {reason}");
            }
            let after = self.patience;
            return Err(JoinError::Missing { ranks, after, doing });
        }
        Ok(())
    }

    fn missing(&self) -> Vec<usize> {
        (1..self.world).filter(|r| self.joined[*r].is_none()).collect()
    }

    /// Those who knock, and those who have said nothing yet.
    fn interests(&self) -> Vec<Interest<'_>> {
        let mut ready = vec![Interest::in_end(self.listener.as_fd()).reading()];
        let strangers = self.strangers.iter();
        ready.extend(strangers.map(|s| Interest::in_end(s.stream.as_fd()).reading()));
        ready
    }

    /// Lets in who knocks and listens to who has not said all yet. It asks everybody, since whatever a wait has seen may be
    /// old. The earliest deadline of whom it seats.
    fn hear(&mut self) -> Result<Option<Instant>, JoinError> {
        self.accept()?;
        let mut earliest: Option<Instant> = None;
        let mut kept = Vec::new();
        for mut stranger in std::mem::take(&mut self.strangers) {
            match stranger.listen() {
                Some(true) => {
                    if let Some(theirs) = self.judge(stranger) {
                        earliest = Some(earliest.map_or(theirs, |e| e.min(theirs)));
                    }
                }
                Some(false) if stranger.since.elapsed() < MANNERS => kept.push(stranger),
                _ => {}
            }
        }
        // The oldest go first: whoever knows what to say has said it.
        let excess = kept.len().saturating_sub(STRANGERS);
        kept.drain(..excess);
        self.strangers = kept;
        Ok(earliest)
    }

    fn accept(&mut self) -> Result<(), JoinError> {
        // A bound, so that who has said all is heard however many knock.
        for _ in 0..STRANGERS {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => continue,
                Err(e) => return Err(JoinError::system("letting ranks in", &e)),
            };
            let same_user = socket::credentials(&stream).is_ok_and(|c| c.uid == socket::own_uid());
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if !same_user {
                self.turn_away(&stream, "a process of another user".to_owned());
                continue;
            }
            self.strangers.push(Stranger {
                stream,
                said: Vec::new(),
                since: Instant::now(),
            });
        }
        Ok(())
    }

    fn turn_away(&mut self, stream: &UnixStream, reason: String) {
        let _ = socket::send(stream, &Writer::default().u8(TURNED_AWAY).text(&reason).done(), &[]);
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
        if !socket::send(&stream, &[WELCOME], &[]).is_ok_and(|n| n == 1) {
            // It came, and its process ended before it was heard.
            self.gone.push(rank);
            return None;
        }
        self.joined[rank] = Some((stream, pid));
        let theirs = bounded(Duration::from_millis(patience)).saturating_sub(HEAD_START);
        Some(Instant::now() + theirs)
    }

    /// Tells all who are here why nothing comes of it, those too who have only just connected.
    pub fn tell(&mut self, error: &JoinError) {
        let end = Instant::now() + FAREWELL;
        loop {
            let heard = self.hear();
            if heard.is_err() || self.strangers.is_empty() || Instant::now() >= end {
                break;
            }
            if socket::wait(&mut self.interests(), Some(end)).is_err() {
                break;
            }
        }
        for (stream, _) in self.joined.iter().flatten() {
            let _ = send_all(stream, &verdict(error), Instant::now() + Duration::from_millis(200));
        }
    }
}

impl Stranger {
    /// True once all was said; none if it hung up or says too much.
    fn listen(&mut self) -> Option<bool> {
        hear(&self.stream, &mut self.said, HELLO)
    }
}

fn verdict(error: &JoinError) -> Vec<u8> {
    Writer::default().u8(1).bytes(&error.encode()).done()
}

/// Everybody's bytes to everybody. Once a rank is gone, all others hear at once who, however far they are.
pub fn gather(
    streams: &[Option<UnixStream>],
    mine: &[u8],
    end: Instant,
    patience: Duration,
) -> Result<Vec<Vec<u8>>, JoinError> {
    let collected = collect(streams, mine, end, patience);
    let message = match &collected {
        Err(error) => verdict(error),
        Ok(all) => {
            let mut parts = Writer::default();
            for bytes in all {
                parts.bytes(bytes);
            }
            Writer::default().u8(0).bytes(&parts.done()).done()
        }
    };
    // Whoever is gone by now has said its part, and the others have what they came for: to fail here alone would look to
    // them as if rank 0 were the one at fault. What they do next together names who is gone.
    for stream in streams.iter().flatten() {
        let _ = send_all(stream, &message, end.max(Instant::now() + FAREWELL));
    }
    collected
}

fn collect(
    streams: &[Option<UnixStream>],
    mine: &[u8],
    end: Instant,
    patience: Duration,
) -> Result<Vec<Vec<u8>>, JoinError> {
    let mut got: Vec<Option<Vec<u8>>> = streams.iter().map(|_| None).collect();
    got[0] = Some(mine.to_vec());
    let mut coming: Vec<Incoming> = streams.iter().map(|_| Incoming::default()).collect();
    loop {
        let mut ranks = Vec::new();
        let mut interests = Vec::new();
        for (rank, stream) in streams.iter().enumerate() {
            let Some(stream) = stream else { continue };
            if got[rank].is_none() {
                got[rank] = coming[rank].read(stream).map_err(|e| fault(rank, &e, patience))?;
            }
            let mut interest = Interest::in_end(stream.as_fd());
            interest.read = got[rank].is_none();
            interests.push(interest);
            ranks.push(rank);
        }
        if got.iter().all(Option::is_some) {
            return Ok(got.into_iter().flatten().collect());
        }
        let heard = socket::wait(&mut interests, Some(end)).map_err(|e| JoinError::system("waiting for ranks", &e))?;
        // One that has said nothing yet may have done so before its end: it is read first.
        if let Some(index) = interests.iter().position(|i| i.gone && !i.read) {
            return Err(fault(
                ranks[index],
                &io::Error::from(io::ErrorKind::UnexpectedEof),
                patience,
            ));
        }
        if !heard && Instant::now() >= end {
            let ranks = (0..got.len()).filter(|r| got[*r].is_none()).collect();
            let (after, doing) = (patience, "exchanging addresses".to_owned());
            return Err(JoinError::Missing { ranks, after, doing });
        }
    }
}

//! How a [`super::mesh::Mesh`] comes to be: from a bootstrap to a connection between each two ranks.
//!
//! Twice everybody's bytes are gathered: before, where each rank listens, and after, how connecting went. A rank's own
//! failure travels with them, so that nobody waits for a rank that has given up. Start at [`all`].

use super::JoinError;
use super::bootstrap::lines::hear;
use super::bootstrap::{Alarm, Bootstrap};
use super::wire::{Reader, Writer, hash};
use crate::driver::socket::{self, Interest};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// Changes when what ranks say to each other does.
const FORMAT: u32 = 2;
/// Instead of a format: the rank could not even begin, and says why.
const FAILED: u32 = 0;
const KEY: usize = 32;
/// Key and rank.
const HELLO: usize = KEY + 4;
/// Most who have connected and said nothing.
const STRANGERS: usize = 256;

/// A connection to every other rank, in the order of ranks; none to itself. Where this rank has failed already, with
/// `trouble`, the others hear it.
pub(super) fn all(
    bootstrap: &mut dyn Bootstrap,
    patience: Duration,
    trouble: Option<JoinError>,
) -> Result<Vec<Option<UnixStream>>, JoinError> {
    let (rank, world) = (bootstrap.rank(), bootstrap.world());
    let end = Instant::now() + patience;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let door = trouble.map_or_else(|| Door::open(rank), Err);
    let mine = match &door {
        Ok(door) => Writer::default()
            .u32(FORMAT)
            .text(&boot)
            .text(&door.name)
            .bytes(&door.key)
            .done(),
        Err(error) => Writer::default().u32(FAILED).bytes(&error.encode()).done(),
    };
    let words = bootstrap.all_gather(&mine, end)?;
    let door = door?;
    let mut cards = Vec::new();
    for (peer, card) in words.iter().enumerate() {
        cards.push(Card::read(peer, card, &boot)?);
    }
    let mut streams: Vec<Option<UnixStream>> = (0..world).map(|_| None).collect();
    let alarms = bootstrap.alarms();
    let connecting = Connecting {
        door: &door,
        rank,
        alarms: &alarms,
        end,
        patience,
    };
    let connected = connecting.run(&cards, &mut streams);
    drop(alarms);
    // Nobody goes before all know how it went: a rank that went early would be taken for the one at fault.
    let word = connected.as_ref().map_or_else(JoinError::encode, |()| Vec::new());
    let words = bootstrap.all_gather(&word, Instant::now() + patience)?;
    match cause(&words) {
        Some(error) => Err(error),
        None => connected.map(|()| streams),
    }
}

/// What went wrong first, as far as ranks' words tell: a rank's own error, else whose end was seen, else who was missed.
fn cause(words: &[Vec<u8>]) -> Option<JoinError> {
    let said = words.iter().enumerate().filter(|(_, word)| !word.is_empty());
    said.map(|(rank, word)| JoinError::decode(rank, word))
        .min_by_key(|error| match error {
            JoinError::Missing { .. } => 2,
            JoinError::Lost { .. } => 1,
            _ => 0,
        })
}

/// Where this rank is called by others.
struct Door {
    listener: UnixListener,
    name: String,
    key: Vec<u8>,
}

impl Door {
    fn open(rank: usize) -> Result<Self, JoinError> {
        let mut key = vec![0; KEY + 16];
        File::open("/dev/urandom")
            .and_then(|mut f| f.read_exact(&mut key))
            .map_err(|e| JoinError::system("making a key", &e))?;
        let salt = key.split_off(KEY);
        let name = format!("topoforge-{:016x}-{rank}", hash(&salt));
        let listener = listen(&name).map_err(|e| JoinError::system("listening for ranks", &e))?;
        Ok(Self { listener, name, key })
    }
}

fn listen(name: &str) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What a rank brought to the bootstrap.
struct Card {
    name: String,
    key: Vec<u8>,
}

impl Card {
    fn read(rank: usize, bytes: &[u8], boot: &str) -> Result<Self, JoinError> {
        let refused = |reason: String| Err(JoinError::Refused { reason });
        let mut r = Reader::new(bytes);
        let format = r.u32();
        if format == Some(FAILED) {
            return Err(JoinError::decode(rank, r.bytes().unwrap_or_default()));
        }
        if format != Some(FORMAT) {
            let theirs = format.map_or("nothing that can be read".to_owned(), |f| format!("format {f}"));
            return refused(format!(
                "rank {rank} speaks {theirs}, this one format {FORMAT}: use one version"
            ));
        }
        let (Some(theirs), Some(name), Some(key)) = (r.text(), r.text(), r.bytes()) else {
            return refused(format!("rank {rank} sent too little: use one version"));
        };
        if theirs != boot {
            return refused(format!(
                "rank {rank} is on another machine: one communicator is for one machine"
            ));
        }
        let key = key.to_vec();
        Ok(Self { name, key })
    }
}

struct Connecting<'a> {
    door: &'a Door,
    rank: usize,
    alarms: &'a [Alarm<'a>],
    end: Instant,
    patience: Duration,
}

struct Stranger {
    stream: UnixStream,
    said: Vec<u8>,
}

impl Connecting<'_> {
    /// One connection to each other rank: those below this one are called, those above it call. What was connected before
    /// an error stays open, since its end would be taken for this rank's.
    fn run(&self, cards: &[Card], streams: &mut [Option<UnixStream>]) -> Result<(), JoinError> {
        for peer in 0..self.rank {
            streams[peer] = Some(self.dial(&cards[peer], peer)?);
        }
        self.accept(streams)
    }

    fn dial(&self, card: &Card, peer: usize) -> Result<UnixStream, JoinError> {
        let failed = |e: &io::Error| JoinError::system(&format!("connecting to rank {peer}"), e);
        let address = SocketAddr::from_abstract_name(&card.name).map_err(|e| failed(&e))?;
        let stream = match UnixStream::connect_addr(&address) {
            Ok(stream) => stream,
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                let doing = "connecting; or it is in another network name space (container)".to_owned();
                return Err(JoinError::Lost { rank: peer, doing });
            }
            Err(e) => return Err(failed(&e)),
        };
        if socket::credentials(&stream).map_err(|e| failed(&e))?.uid != socket::own_uid() {
            let reason = format!("rank {peer} belongs to another user");
            return Err(JoinError::Refused { reason });
        }
        stream.set_nonblocking(true).map_err(|e| failed(&e))?;
        let mut hello = card.key.clone();
        hello.extend((self.rank as u32).to_le_bytes());
        // An empty socket takes so little at once.
        match socket::send(&stream, &hello, &[]) {
            Ok(sent) if sent == hello.len() => Ok(stream),
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe && e.kind() != io::ErrorKind::ConnectionReset => {
                Err(failed(&e))
            }
            _ => Err(JoinError::Lost {
                rank: peer,
                doing: "connecting".to_owned(),
            }),
        }
    }

    /// Waits for the ranks above this one; whoever does not know the key is turned away.
    fn accept(&self, streams: &mut [Option<UnixStream>]) -> Result<(), JoinError> {
        let failed = |e: io::Error| JoinError::system("waiting for ranks", &e);
        let lost = |rank: usize| {
            let doing = "connecting".to_owned();
            Err(JoinError::Lost { rank, doing })
        };
        let mut strangers: Vec<Stranger> = Vec::new();
        loop {
            // Everybody is asked each time: what a wait has seen is old by the time one looks.
            let knocking = accept_all(&self.door.listener).map_err(failed)?;
            strangers.extend(knocking.into_iter().map(|stream| Stranger {
                stream,
                said: Vec::new(),
            }));
            let mut quiet = Vec::new();
            for mut stranger in strangers {
                match stranger.listen() {
                    Some(false) => quiet.push(stranger),
                    Some(true) => self.seat(stranger, streams),
                    None => {}
                }
            }
            strangers = quiet;
            // The oldest go first: whoever knows what to say has said it.
            let excess = strangers.len().saturating_sub(STRANGERS);
            strangers.drain(..excess);
            if streams.iter().skip(self.rank + 1).all(Option::is_some) {
                return Ok(());
            }

            let mut interests = vec![Interest::in_end(self.door.listener.as_fd()).reading()];
            interests.extend(strangers.iter().map(|s| Interest::in_end(s.stream.as_fd()).reading()));
            let watched = interests.len();
            let mut whose = Vec::new();
            for (peer, stream) in streams.iter().enumerate() {
                let Some(stream) = stream else { continue };
                whose.push(peer);
                interests.push(Interest::in_end(stream.as_fd()));
            }
            for alarm in self.alarms {
                whose.push(alarm.rank);
                let mut interest = Interest::in_end(alarm.fd);
                interest.read = alarm.words;
                interests.push(interest);
            }
            let heard = socket::wait(&mut interests, Some(self.end)).map_err(failed)?;
            let bad = interests[watched..].iter().position(|i| i.gone || i.readable);
            if let Some(index) = bad {
                return lost(whose[index]);
            }
            if !heard && Instant::now() >= self.end {
                let missing = (self.rank + 1..streams.len()).filter(|r| streams[*r].is_none());
                return Err(JoinError::Missing {
                    ranks: missing.collect(),
                    after: self.patience,
                    doing: "connecting".to_owned(),
                });
            }
        }
    }

    /// Takes the connection of a rank that knows the key and has none yet.
    fn seat(&self, stranger: Stranger, streams: &mut [Option<UnixStream>]) {
        let (key, peer) = stranger.said.split_at(KEY);
        let peer = Reader::new(peer).u32().unwrap_or(u32::MAX) as usize;
        if key == self.door.key && peer > self.rank && streams.get(peer).is_some_and(Option::is_none) {
            streams[peer] = Some(stranger.stream);
        }
    }
}

/// Whoever has connected and is of the same user.
fn accept_all(listener: &UnixListener) -> io::Result<Vec<UnixStream>> {
    let mut knocking = Vec::new();
    // A bound, so that who has said all is heard however many knock.
    for _ in 0..STRANGERS {
        match listener.accept() {
            Ok((stream, _)) => {
                let same_user = socket::credentials(&stream).is_ok_and(|c| c.uid == socket::own_uid());
                if same_user && stream.set_nonblocking(true).is_ok() {
                    knocking.push(stream);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(knocking)
}

impl Stranger {
    /// True once all was said; none if it hung up.
    fn listen(&mut self) -> Option<bool> {
        hear(&self.stream, &mut self.said, HELLO)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bootstrap::LocalSocket;
    use super::*;
    use std::io::Write;
    use std::thread;

    const LONG: Duration = Duration::from_secs(20);

    fn id(salt: &str) -> [u8; 128] {
        let mut id = [11; 128];
        id[..8].copy_from_slice(&hash(format!("connect {salt} {}", std::process::id()).as_bytes()).to_le_bytes());
        id
    }

    fn connecting(door: &Door, rank: usize) -> Connecting<'_> {
        Connecting {
            door,
            rank,
            alarms: &[],
            end: Instant::now() + LONG,
            patience: LONG,
        }
    }

    /// A rank whose call came between a wait that somebody else had ended and the look at who knocks was once dropped.
    #[test]
    fn a_rank_that_knocks_while_others_talk_is_let_in() {
        for round in 0..40 {
            let (door, other) = (Door::open(0).expect("a door"), Door::open(1).expect("a door"));
            let address = SocketAddr::from_abstract_name(&door.name).expect("a name");
            let stranger = |_| UnixStream::connect_addr(&address).expect("called");
            let mut strangers: Vec<UnixStream> = (0..100).map(stranger).collect();
            let card = Card {
                name: door.name.clone(),
                key: door.key.clone(),
            };
            thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..HELLO - 1 {
                        for stranger in &mut strangers {
                            // Once rank 1 is in, nobody listens any more.
                            let _ = stranger.write_all(&[1]);
                        }
                    }
                });
                let caller = scope.spawn(|| {
                    thread::sleep(Duration::from_micros(100 * round));
                    connecting(&other, 1).dial(&card, 0)
                });
                let mut streams = [None, None];
                let mut seats = connecting(&door, 0);
                seats.end = Instant::now() + Duration::from_secs(3);
                assert_eq!(seats.accept(&mut streams), Ok(()), "round {round}");
                assert!(streams[1].is_some() && caller.join().expect("no panic").is_ok());
            });
        }
    }

    #[test]
    fn a_death_while_ranks_connect_is_noticed_at_once_by_those_who_wait_for_it() {
        let id = id("dies");
        let rank = |rank: usize| {
            thread::spawn(move || {
                let mut socket = LocalSocket::join(&id, rank, 4, LONG).expect("joined");
                if rank == 3 {
                    // It says where it listens, and dies before it has called anybody.
                    let door = Door::open(rank).expect("a door");
                    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
                    let mut card = Writer::default();
                    let card = card.u32(FORMAT).text(&boot).text(&door.name).bytes(&door.key).done();
                    socket.all_gather(&card, Instant::now() + LONG).expect("gathered");
                    return None;
                }
                // The socket stays open: what is said on it counts, not its end.
                let error = all(&mut socket, LONG, None).err();
                Some((socket, error))
            })
        };
        let since = Instant::now();
        let ranks: Vec<_> = (0..4).map(rank).collect();
        let ends: Vec<_> = ranks.into_iter().map(|r| r.join().expect("no panic")).collect();
        for (_, error) in ends.into_iter().flatten() {
            assert!(matches!(error, Some(JoinError::Lost { rank: 3, .. })), "{error:?}");
        }
        assert!(since.elapsed() < LONG / 2, "nobody waited for patience to end");
    }

    #[test]
    fn a_rank_that_cannot_begin_says_so_to_all() {
        let id = id("trouble");
        let rank = |rank: usize| {
            thread::spawn(move || {
                let mut socket = LocalSocket::join(&id, rank, 3, LONG).expect("joined");
                let reason = "no descriptor left".to_owned();
                let trouble = (rank == 1).then_some(JoinError::Misuse { reason });
                all(&mut socket, LONG, trouble).err().map(|e| e.to_string())
            })
        };
        let ranks: Vec<_> = (0..3).map(rank).collect();
        let errors: Vec<_> = ranks.into_iter().map(|r| r.join().expect("no panic")).collect();
        let heard = Some("rank 1 gave up: no descriptor left".to_owned());
        assert_eq!(errors, [heard.clone(), Some("no descriptor left".to_owned()), heard]);
    }

    #[test]
    fn what_a_rank_says_of_itself_goes_before_what_others_saw() {
        let missing = JoinError::Missing {
            ranks: vec![2],
            after: LONG,
            doing: String::new(),
        };
        let doing = String::new();
        let lost = JoinError::Lost { rank: 1, doing };
        let error = "too many files".to_owned();
        let doing = "connecting".to_owned();
        let own = JoinError::System { doing, error };
        let words = [missing.encode(), lost.encode(), own.encode()];
        assert_eq!(cause(&words).and_then(|e| e.rank()), Some(2));
        assert_eq!(cause(&words[..2]).and_then(|e| e.rank()), Some(1));
        assert_eq!(cause(&[Vec::new(), Vec::new()]), None);
    }
}

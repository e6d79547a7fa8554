//! A thread that notices at once when a peer's process is gone: its end of the socket closes with it, or, where a forked
//! child keeps that open, the process itself is seen to end.
//!
//! Why a rank went is a word on the board that all ranks share: it left in order, or because of another one's end, or it
//! said nothing and so is the one that was lost. What is to happen then, e.g. setting abort words, is told to it by
//! [`Watch::on_loss`]. Start at `Watch::start`.

use super::JoinError;
use crate::driver::memfd::SharedMemory;
use crate::driver::socket::{self, Interest};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What is under way when a peer goes may still end well if it has all that it waits for.
const GRACE: Duration = Duration::from_millis(300);

/// A rank's word on the board: it left in order. 0 is nothing said.
pub(super) const LEFT: u32 = 1;
/// From here on: it goes because the rank of this number, above it, was lost.
const BLAMES: u32 = 2;

/// Says on the board whom this rank saw go first, so that its own end names that rank and not this one.
pub(super) fn blame(board: &SharedMemory, own_word: usize, lost: usize) {
    if board.load(own_word) == 0 {
        board.store(own_word, BLAMES + lost as u32);
    }
}

type Hook = Box<dyn Fn() + Send + Sync>;

/// What is known of the peers' processes.
#[derive(Default)]
pub struct Seen {
    /// The first one that went without a word, plus 1.
    lost: AtomicUsize,
    /// Ranks that left in order, a bit each.
    left: AtomicU64,
    hooks: Mutex<Vec<Weak<Hook>>>,
}

impl Seen {
    /// The rank whose process went without a word.
    pub fn lost(&self) -> Option<usize> {
        self.lost.load(Ordering::Acquire).checked_sub(1)
    }

    /// A rank that has left in order; nobody can call together with it any more.
    pub fn left(&self) -> Option<usize> {
        let bits = self.left.load(Ordering::Acquire);
        (bits != 0).then(|| bits.trailing_zeros() as usize)
    }

    /// Notes a loss that somebody else noticed.
    pub fn lose(&self, rank: usize) {
        let _ = self
            .lost
            .compare_exchange(0, rank + 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    fn fire(&self) {
        let hooks = self.hooks.lock().unwrap_or_else(|e| e.into_inner());
        for hook in hooks.iter().filter_map(Weak::upgrade) {
            hook();
        }
    }
}

/// Keeps a hook alive; dropping it takes the hook away.
pub struct Kept(#[allow(dead_code, reason = "held for its reference count")] Arc<Hook>);

/// Whom the thread watches.
pub(super) struct Watched {
    /// What errors call it.
    pub rank: usize,
    /// Its connection.
    pub stream: UnixStream,
    /// Its process, see [`socket::process`].
    pub process: Option<OwnedFd>,
}

/// The watching thread.
pub struct Watch {
    seen: Arc<Seen>,
    /// Closed to end the thread.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches `peers` for the rank `own`. `board` holds a word a rank at `left_at(rank)`.
    pub(super) fn start(
        own: usize,
        peers: Vec<Watched>,
        board: Arc<SharedMemory>,
        left_at: fn(usize) -> usize,
    ) -> Result<Self, JoinError> {
        let failed = |e: std::io::Error| JoinError::system("watching the other ranks", &e);
        let seen = Arc::new(Seen::default());
        let (wake, woken) = UnixStream::pair().map_err(failed)?;
        let shared = seen.clone();
        let thread = std::thread::Builder::new()
            .name("topoforge-watch".into())
            .spawn(move || watch(own, peers, &board, left_at, &woken, &shared))
            .map_err(failed)?;
        Ok(Self {
            seen,
            wake: Some(wake),
            thread: Some(thread),
        })
    }

    /// What it has seen.
    pub fn seen(&self) -> &Arc<Seen> {
        &self.seen
    }

    /// Has something done by the watching thread shortly after a loss, for as long as what is returned lives.
    pub fn on_loss(&self, hook: impl Fn() + Send + Sync + 'static) -> Kept {
        let hook: Arc<Hook> = Arc::new(Box::new(hook));
        let mut hooks = self.seen.hooks.lock().unwrap_or_else(|e| e.into_inner());
        hooks.retain(|h| h.strong_count() > 0);
        hooks.push(Arc::downgrade(&hook));
        Kept(hook)
    }
}

fn watch(
    own: usize,
    mut peers: Vec<Watched>,
    board: &SharedMemory,
    left_at: fn(usize) -> usize,
    woken: &UnixStream,
    seen: &Seen,
) {
    let mut act: Option<Instant> = None;
    loop {
        let mut ends = vec![Interest::in_end(woken.as_fd())];
        ends.extend(peers.iter().map(|p| Interest::in_end(p.stream.as_fd())));
        let of_processes = peers.iter().filter_map(|p| p.process.as_ref());
        ends.extend(of_processes.map(|p| Interest::in_end(p.as_fd()).reading()));
        if socket::wait(&mut ends, act).is_err() || ends[0].gone {
            return;
        }
        let (sockets, mut processes) = ends[1..].split_at(peers.len());
        let mut gone = Vec::new();
        for (peer, socket) in peers.iter().zip(sockets) {
            let mut ended = socket.gone;
            if let (Some(_), Some((process, rest))) = (&peer.process, processes.split_first()) {
                ended |= process.readable || process.gone;
                processes = rest;
            }
            gone.push(ended);
        }
        let mut gone = gone.into_iter();
        peers.retain(|Watched { rank, .. }| {
            if !gone.next().unwrap_or(false) {
                return true;
            }
            let word = board.load(left_at(*rank));
            if word == LEFT {
                seen.left.fetch_or(1 << (*rank % 64), Ordering::AcqRel);
                return false;
            }
            let lost = word.checked_sub(BLAMES).map_or(*rank, |lost| lost as usize);
            seen.lose(lost);
            blame(board, left_at(own), seen.lost().unwrap_or(lost));
            act.get_or_insert(Instant::now() + GRACE);
            false
        });
        if act.is_some_and(|at| Instant::now() >= at) {
            seen.fire();
            // Once more now and then: what was enqueued between is to end too.
            act = Some(Instant::now() + 4 * GRACE);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::process::{Command, Stdio};

    const PLACE: &str = "TOPOFORGE_TEST_PLACE";

    /// Not a test by itself: the process that the next one kills. Its child, which knows nothing, holds its connection.
    #[test]
    fn a_process_with_a_child() {
        let Some(place) = std::env::var_os(PLACE) else { return };
        let stream = UnixStream::connect(place).expect("connected");
        let held = Stdio::from(OwnedFd::from(stream.try_clone().expect("copied")));
        let mut child = Command::new("sleep").arg("60").stdin(held).spawn().expect("spawned");
        writeln!(&stream, "{}", child.id()).expect("said");
        child.wait().expect("waits");
    }

    #[test]
    fn a_death_is_noticed_though_a_child_of_the_process_holds_its_socket() {
        let place = std::env::temp_dir().join(format!("topoforge-watch-{}", std::process::id()));
        let listener = UnixListener::bind(&place).expect("bound");
        let own = std::env::current_exe().expect("this program");
        let name = concat!(module_path!(), "::a_process_with_a_child");
        let name = name.split_once("::").map_or(name, |(_, rest)| rest);
        let mut command = Command::new(own);
        command.args(["--exact", name]).env(PLACE, &place).stdout(Stdio::null());
        let mut process = command.spawn().expect("spawned");
        let (stream, _) = listener.accept().expect("connected");
        let mut child = String::new();
        BufReader::new(&stream).read_line(&mut child).expect("said");
        let board = Arc::new(SharedMemory::create(4096).expect("made"));
        let watched = Watched {
            rank: 1,
            process: socket::process(&stream).ok(),
            stream,
        };
        assert!(watched.process.is_some(), "this kernel has them");
        let watch = Watch::start(0, vec![watched], board, |rank| 64 * rank).expect("started");
        process.kill().expect("killed");
        let end = Instant::now() + Duration::from_secs(10);
        while watch.seen().lost().is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let lost = watch.seen().lost();
        let _ = Command::new("kill").arg(child.trim()).status();
        process.wait().expect("waits");
        let _ = std::fs::remove_file(place);
        assert_eq!(lost, Some(1));
    }
}

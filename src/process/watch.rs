//! A thread that notices at once when a peer's process is gone: its end of the socket closes with it.
//!
//! Why a rank went is a word on the board that all ranks share: it left in order, or because of another one's end, or it
//! said nothing and so is the one that was lost. What is to happen then, e.g. setting abort words, is told to it by
//! [`Watch::on_loss`]. Start at [`Watch::start`].

use super::JoinError;
use crate::driver::memfd::SharedMemory;
use crate::driver::socket::{self, Interest};
use std::os::fd::AsFd;
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

/// The watching thread.
pub struct Watch {
    seen: Arc<Seen>,
    /// Closed to end the thread.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches `peers`: name and connection of each. `board` holds a word a rank at `left_at(rank)`.
    pub fn start(
        own: usize,
        peers: Vec<(usize, UnixStream)>,
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
    mut peers: Vec<(usize, UnixStream)>,
    board: &SharedMemory,
    left_at: fn(usize) -> usize,
    woken: &UnixStream,
    seen: &Seen,
) {
    let mut act: Option<Instant> = None;
    loop {
        let mut ends = vec![Interest::in_end(woken.as_fd())];
        ends.extend(peers.iter().map(|(_, stream)| Interest::in_end(stream.as_fd())));
        if socket::wait(&mut ends, act).is_err() || ends[0].gone {
            return;
        }
        let gone: Vec<bool> = ends[1..].iter().map(|i| i.gone).collect();
        let mut gone = gone.into_iter();
        peers.retain(|(rank, _)| {
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

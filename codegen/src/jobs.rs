//! Many compilers at once, no more than cargo allows.
//!
//! Cargo (or make above it) hands its build scripts a *jobserver*: a pipe that holds a byte for every further process that
//! may run. This process was started with one such right; every further worker takes a byte before it starts a compiler and
//! puts it back behind it, so that `cargo build -j2` runs two compilers, however many build scripts run. Without a
//! jobserver the given bound alone holds. It compiles nothing itself. Start at [`run`].

use crate::env::{self, Env};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a worker without a token waits before it asks again. Compilers run for seconds.
const PAUSE: Duration = Duration::from_millis(10);

/// Linux's flag for reads that come back at once.
const O_NONBLOCK: i32 = 0o4000;

/// How many compilers may run at once, and whom to ask.
#[derive(Debug)]
pub struct Jobs {
    most: usize,
    server: Option<Server>,
}

impl Jobs {
    /// What the environment says: `TOPOFORGE_JOBS` or cargo's number as the bound, and the jobserver if there is one.
    pub fn from_env(env: &Env) -> Self {
        Self {
            most: env.jobs().max(1),
            server: Server::from_env(env),
        }
    }

    /// At most `most` at once, and nobody to ask. 0 counts as 1.
    pub fn at_most(most: usize) -> Self {
        Self {
            most: most.max(1),
            server: None,
        }
    }

    /// The bound.
    pub fn most(&self) -> usize {
        self.most
    }

    /// As many further tokens as are free at this moment, `most` of them; without a jobserver all.
    fn spare(&self, most: usize) -> Spare<'_> {
        match &self.server {
            None => Spare {
                threads: most,
                tokens: Vec::new(),
            },
            Some(server) => {
                let tokens: Vec<Token<'_>> = (0..most).map_while(|_| server.try_take()).collect();
                Spare {
                    threads: tokens.len(),
                    tokens,
                }
            }
        }
    }
}

/// Rights of one job beyond its first.
struct Spare<'a> {
    threads: usize,
    #[expect(dead_code, reason = "given back when dropped")]
    tokens: Vec<Token<'a>>,
}

/// Does `work` for every index below `count`, in the order of the indices as rights come free. `work` is also told how many
/// processors it may use: more than one only where there are fewer jobs than rights. Results come back in the order of the
/// indices.
///
/// The calling process's own right is used first, so that the work gets done even where no other is ever free.
pub fn run<T: Send>(count: usize, jobs: &Jobs, work: impl Fn(usize, usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(count));
    let more = (jobs.most / count.max(1)).saturating_sub(1);
    let worker = |own_right: bool| {
        while next.load(Ordering::Relaxed) < count {
            let token = match &jobs.server {
                Some(server) if !own_right => match server.try_take() {
                    Some(token) => Some(token),
                    None => {
                        // Never a blocking read: all work may be done before anybody gives a token back.
                        std::thread::sleep(PAUSE);
                        continue;
                    }
                },
                _ => None,
            };
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                break;
            }
            let spare = jobs.spare(more);
            let result = work(index, 1 + spare.threads);
            drop((spare, token));
            let mut done = done.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            done.push((index, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.most.min(count) {
            scope.spawn(|| worker(false));
        }
        worker(true);
    });
    let mut done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Both ends of a jobserver's pipe, opened anew, so that not waiting for a byte stays a matter of this process.
#[derive(Debug)]
struct Server {
    tokens: File,
    back: File,
}

impl Server {
    fn from_env(env: &Env) -> Option<Self> {
        let flags = [env::CARGO_MAKEFLAGS, env::MAKEFLAGS]
            .into_iter()
            .find_map(|var| env.text(var).filter(|text| auth(text).is_some()))?;
        let (read, write) = auth(&flags)?;
        // One that cannot be opened was closed on the way here, as make does for commands it does not take for a make.
        let tokens = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(read).ok()?;
        let back = OpenOptions::new().write(true).open(write).ok()?;
        Some(Self { tokens, back })
    }

    fn try_take(&self) -> Option<Token<'_>> {
        let mut byte = [0];
        loop {
            match (&self.tokens).read(&mut byte) {
                Ok(1) => {
                    return Some(Token {
                        server: self,
                        byte: byte[0],
                    });
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return None,
            }
        }
    }
}

/// One right to run a compiler, given back when dropped.
struct Token<'a> {
    server: &'a Server,
    byte: u8,
}

impl Drop for Token<'_> {
    fn drop(&mut self) {
        // A reader that is gone needs no tokens, and there is nobody else to tell.
        let _ = (&self.server.back).write_all(&[self.byte]);
    }
}

/// Where the two ends are: `--jobserver-auth=3,4` (file descriptors) or `--jobserver-auth=fifo:PATH`; the last one counts.
fn auth(flags: &str) -> Option<(PathBuf, PathBuf)> {
    let value = flags.split_whitespace().rev().find_map(|word| {
        word.strip_prefix("--jobserver-auth=")
            .or_else(|| word.strip_prefix("--jobserver-fds="))
    })?;
    if let Some(path) = value.strip_prefix("fifo:") {
        return Some((path.into(), path.into()));
    }
    let (read, write) = value.split_once(',')?;
    // Negative ones are make's way of saying that there is none.
    let end = |text: &str| Some(PathBuf::from(format!("/proc/self/fd/{}", text.parse::<u32>().ok()?)));
    Some((end(read)?, end(write)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// A jobserver with `tokens` in its pipe, and the ends, which must stay open.
    fn server(tokens: usize) -> (Env, std::io::PipeReader, std::io::PipeWriter) {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(&vec![b'+'; tokens]).unwrap();
        let flags = format!("-j --jobserver-auth={},{}", reader.as_raw_fd(), writer.as_raw_fd());
        let env = Env::default()
            .with(env::NUM_JOBS, "8")
            .with(env::CARGO_MAKEFLAGS, flags);
        (env, reader, writer)
    }

    /// The most that ran at once, and the most processors that one was given.
    fn observe(count: usize, jobs: &Jobs) -> (usize, usize) {
        let (running, most, threads) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let results = run(count, jobs, |index, given| {
            let now = running.fetch_add(given, Ordering::SeqCst) + given;
            most.fetch_max(now, Ordering::SeqCst);
            threads.fetch_max(given, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(15));
            running.fetch_sub(given, Ordering::SeqCst);
            index
        });
        assert_eq!(results, (0..count).collect::<Vec<_>>());
        (most.into_inner(), threads.into_inner())
    }

    #[test]
    fn no_more_run_at_once_than_cargo_has_tokens_for_and_all_come_back() {
        let (env, mut reader, writer) = server(2);
        let jobs = Jobs::from_env(&env);
        assert_eq!(jobs.most(), 8);
        let (most, threads) = observe(24, &jobs);
        // Two tokens and the right this process was started with.
        assert_eq!((most, threads), (3, 1));
        drop((jobs, writer));
        let mut left = Vec::new();
        reader.read_to_end(&mut left).unwrap();
        assert_eq!(left, b"++");
    }

    #[test]
    fn without_a_free_token_the_work_is_done_one_by_one() {
        let (env, _reader, _writer) = server(0);
        assert_eq!(observe(4, &Jobs::from_env(&env)), (1, 1));
    }

    #[test]
    fn a_single_job_takes_what_is_free_and_gives_it_back() {
        let (env, mut reader, writer) = server(3);
        let jobs = Jobs::from_env(&env);
        assert_eq!(observe(1, &jobs), (4, 4));
        drop((jobs, writer));
        let mut left = Vec::new();
        reader.read_to_end(&mut left).unwrap();
        assert_eq!(left.len(), 3);
    }

    #[test]
    fn tokens_come_back_after_a_panic_too() {
        let (env, mut reader, writer) = server(2);
        let jobs = Jobs::from_env(&env);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(6, &jobs, |_, _| panic!("a worker of this test"));
        }));
        assert!(panicked.is_err());
        drop((jobs, writer));
        let mut left = Vec::new();
        reader.read_to_end(&mut left).unwrap();
        assert_eq!(left.len(), 2);
    }

    #[test]
    fn without_a_jobserver_the_bound_alone_holds() {
        assert_eq!(observe(12, &Jobs::at_most(3)).0, 3);
        assert_eq!(observe(2, &Jobs::at_most(5)), (4, 2));
        assert_eq!(run(0, &Jobs::at_most(0), |index, _| index), Vec::<usize>::new());
    }

    #[test]
    fn every_spelling_of_the_ends_is_read_and_nonsense_is_none() {
        let ends = |text: &str| auth(text).map(|(r, w)| (r.display().to_string(), w.display().to_string()));
        let fds = Some(("/proc/self/fd/3".to_owned(), "/proc/self/fd/4".to_owned()));
        assert_eq!(ends("-j --jobserver-fds=3,4 --jobserver-auth=3,4"), fds);
        assert_eq!(ends("--jobserver-auth=9,9 --jobserver-auth=3,4"), fds);
        let fifo = Some(("/tmp/make.fifo".to_owned(), "/tmp/make.fifo".to_owned()));
        assert_eq!(ends("-j8 --jobserver-auth=fifo:/tmp/make.fifo"), fifo);
        for text in [
            "",
            "-j8",
            "--jobserver-auth=-2,-2",
            "--jobserver-auth=3",
            "--jobserver-auth=a,b",
        ] {
            assert_eq!(ends(text), None, "{text}");
        }
        let gone = Env::default().with(env::CARGO_MAKEFLAGS, "--jobserver-auth=fifo:/nowhere/at/all");
        assert!(Server::from_env(&gone).is_none());
    }
}

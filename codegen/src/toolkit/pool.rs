//! Many texts at once.
//!
//! Each nvcc is a chain of small programs that use one processor, so the pool runs as many texts as there are jobs
//! and splits a single text over processors only when there are fewer texts than that. Results come back in the order of
//! the texts, whichever was ready first.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{CompileError, Compiler, Fatbin, Job};

impl Compiler {
    /// Compiles all, at most `parallelism` at a time (0 counts as 1). One that fails does not stop the others, so that a
    /// build reports every faulty text at once.
    pub fn compile_all(&self, jobs: &[Job], parallelism: usize) -> Vec<Result<Vec<Fatbin>, CompileError>> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let workers = parallelism.clamp(1, jobs.len());
        let threads = (parallelism / jobs.len()).max(1);
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::with_capacity(jobs.len()));
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some((index, job)) = take(&next, jobs) {
                        let result = self.compile_with_threads(job, threads);
                        done.lock()
                            .unwrap_or_else(|poisoned| poisoned.into_inner())
                            .push((index, result));
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        done.sort_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, result)| result).collect()
    }
}

fn take<'a>(next: &AtomicUsize, jobs: &'a [Job]) -> Option<(usize, &'a Job)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    Some((index, jobs.get(index)?))
}

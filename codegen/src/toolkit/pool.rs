//! Many texts at once.
//!
//! Each nvcc is a chain of small programs that use one processor, so as many texts run as `jobs` allows, and a single text
//! is split over processors only when there are fewer texts than that. Results come back in the order of the texts,
//! whichever was ready first.

use super::{CompileError, Compiler, Fatbin, Job};
use crate::jobs::{self, Jobs};

impl Compiler {
    /// Compiles all, as many at a time as `limit` allows. One that fails does not stop the others, so that a build reports
    /// every faulty text at once.
    pub fn compile_all(&self, jobs: &[Job], limit: &Jobs) -> Vec<Result<Vec<Fatbin>, CompileError>> {
        jobs::run(jobs.len(), limit, |index, threads| {
            self.compile_with_threads(&jobs[index], threads)
        })
    }
}

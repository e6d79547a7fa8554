//! What a task says when it cannot go on: what failed, what was tried, what to do.

use std::fmt;

/// A task that did not succeed.
#[derive(Debug)]
pub struct Failure {
    what: String,
    tried: Vec<String>,
    todo: Vec<String>,
}

/// The result of a task or a part of one.
pub type Done<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure in one sentence.
    pub fn new(what: impl Into<String>) -> Self {
        Failure {
            what: what.into(),
            tried: Vec::new(),
            todo: Vec::new(),
        }
    }

    /// Adds something that was tried and how it ended.
    pub fn tried(mut self, what: impl Into<String>) -> Self {
        self.tried.push(what.into());
        self
    }

    /// Adds something the reader can do.
    pub fn todo(mut self, what: impl Into<String>) -> Self {
        self.todo.push(what.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        for (label, lines) in [("tried", &self.tried), ("do", &self.todo)] {
            for line in lines {
                write!(f, "\n  {label}: {}", line.trim_end().replace('\n', "\n    "))?;
            }
        }
        Ok(())
    }
}

/// Turns an error of the file system into a failure that names the file.
pub fn io<'a>(doing: &'a str, path: &'a std::path::Path) -> impl FnOnce(std::io::Error) -> Failure + 'a {
    move |error| Failure::new(format!("{doing} {}: {error}", path.display()))
}

//! What is going on, in one line of the terminal that is written over and over.
//!
//! Silent where stderr is no terminal or the user wants quiet. Start at [`Progress`].

use std::io::{IsTerminal, Write, stderr};

/// One line of stderr.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
    enabled: bool,
    width: usize,
}

impl Progress {
    /// Shows itself only on a terminal.
    pub fn new(quiet: bool) -> Self {
        let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
        Self {
            shown: false,
            enabled: !quiet && stderr().is_terminal(),
            width: columns.filter(|c| *c > 20).unwrap_or(80),
        }
    }

    /// Replaces the line.
    pub fn show(&mut self, text: &str) {
        if self.enabled {
            let line: String = text.chars().filter(|c| !c.is_control()).take(self.width - 1).collect();
            let _ = write!(stderr(), "\r\x1b[2K{line}").and_then(|()| stderr().flush());
            self.shown = true;
        }
    }

    /// Takes the line away, so that other text can be written.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(stderr(), "\r\x1b[2K").and_then(|()| stderr().flush());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

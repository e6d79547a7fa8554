//! Faults of a descriptor and where they stand in its text.
//!
//! A [`Fault`] is written for the person who wrote the descriptor: `file:line:column: message`, where the
//! message says what is wrong and what was expected. It never stops the parser: faults are collected.
//! Start reading at [`Fault`].

use std::fmt;

/// One thing wrong with a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The file as the caller named it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong and what was expected.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

impl std::error::Error for Fault {}

/// Collects faults by byte offset and turns offsets into lines and columns.
pub(super) struct Faults<'a> {
    file: &'a str,
    text: &'a str,
    found: Vec<(usize, String)>,
}

impl<'a> Faults<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Self {
        Self {
            file,
            text,
            found: Vec::new(),
        }
    }

    /// Notes `message` against the byte `offset` of the text.
    pub(super) fn add(&mut self, offset: usize, message: impl Into<String>) {
        self.found.push((offset, message.into()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Everything found, in the order of the text.
    pub(super) fn finish(mut self) -> Vec<Fault> {
        self.found.sort();
        self.found.dedup();
        // Offsets ascend, so one walk over the text places them all.
        let (mut seen, mut line, mut column) = (0, 1, 1);
        let place = |(offset, message): (usize, String)| {
            for c in self.text.get(seen..offset).unwrap_or_default().chars() {
                (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
            }
            seen = seen.max(offset);
            Fault {
                file: self.file.to_owned(),
                line,
                column,
                message,
            }
        };
        self.found.into_iter().map(place).collect()
    }
}

/// `line:column` of a byte offset, for messages that point at a second place.
pub(super) fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = 1 + before.matches('\n').count();
    let column = 1 + before.chars().rev().take_while(|&c| c != '\n').count();
    (line, column)
}

//! How a command ends other than well, and with which exit code.
//!
//! It prints nothing; `report` does. Start at [`Failure`].

/// How a command that made its report ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything asked for was done.
    Done,
    /// The report says what was not; this is one line of it.
    Failed(String),
}

/// Why a command made no report.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The caller asked for something that cannot be, or named input that cannot be read.
    Usage(Vec<String>),
    /// The machine or the build cannot do it.
    Work(Vec<String>),
}

impl Failure {
    /// A fault of usage in one line.
    pub fn usage(line: impl Into<String>) -> Self {
        Self::Usage(vec![line.into()])
    }

    /// A fault of usage that the library words.
    pub fn usage_of(line: impl ToString) -> Self {
        Self::usage(line.to_string())
    }

    /// A fault of machine or build in one line.
    pub fn work(line: impl ToString) -> Self {
        Self::Work(vec![line.to_string()])
    }

    /// The process's exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Work(_) => 1,
        }
    }

    /// What to tell, one line each.
    pub fn lines(&self) -> &[String] {
        match self {
            Self::Usage(lines) | Self::Work(lines) => lines,
        }
    }
}

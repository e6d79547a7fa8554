//! What a reader saw of 128-byte lines that a peer kept overwriting. Plain data; executors look, `doctor` judges.

/// Lines that were stored whole, read whole, and looked at between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineTally {
    /// How often a line was seen to have changed.
    pub seen: u64,
    /// How often a line was part old, part new.
    pub torn: u64,
    /// Whether the last of all stores was seen in every line.
    pub whole: bool,
}

//! What each directed edge of a machine does when measured. Plain data; executors measure it, `probe` shows it.

/// One directed edge: `from` stores to and loads from memory of `to`, one edge at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EdgeFigures {
    /// The rank that stores and loads.
    pub from: usize,
    /// The rank whose memory it is.
    pub to: usize,
    /// A word stored until it is seen, nanoseconds.
    pub write_ns: f64,
    /// One dependent load, nanoseconds.
    pub read_ns: f64,
    /// Bulk stores, gigabytes a second.
    pub write_gb_per_s: f64,
    /// Bulk loads, gigabytes a second.
    pub read_gb_per_s: f64,
}

/// A rank that stores to all its peers at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FanOut {
    /// The rank.
    pub from: usize,
    /// How many peers, at most eight.
    pub peers: usize,
    /// All stores together, gigabytes a second.
    pub gb_per_s: f64,
}

/// All edges that allow peer access, and what each rank reaches in total.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Measured {
    /// Sorted by their ends.
    pub edges: Vec<EdgeFigures>,
    /// One a rank with peers.
    pub fan_out: Vec<FanOut>,
}

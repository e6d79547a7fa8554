//! The report of `rank`.

use super::Report;
use super::table::Table;
use serde::Serialize;

/// What one rank of a group of processes did.
#[derive(Debug, Default, Serialize)]
pub struct RankDocument {
    pub rank: usize,
    pub world: usize,
    /// PCI address, or the processor.
    pub place: String,
    /// Collectives whose sums were right.
    pub calls: usize,
    /// The last group's table, in words.
    pub explain: String,
    pub cycles: Vec<Cycle>,
}

/// A group from joining to leaving.
#[derive(Debug, Serialize)]
pub struct Cycle {
    pub set_up_s: f64,
    pub total_s: f64,
    /// Of the GPU, after leaving.
    pub free_bytes: Option<u64>,
    /// Open files of the process, after leaving.
    pub descriptors: usize,
}

impl Report for RankDocument {
    fn text(&self) -> String {
        let Self {
            rank,
            world,
            place,
            calls,
            ..
        } = self;
        let mut out = format!("rank {rank} of {world} on {place}: {calls} calls, every sum right\n");
        let mut table = Table::default().figure("group").figure("set-up s").figure("total s");
        table = table.figure("free MiB").figure("descriptors");
        for (index, cycle) in self.cycles.iter().enumerate() {
            // The first ones and the last say whether anything leaks.
            if index < 3 || index + 1 == self.cycles.len() {
                table.row([
                    (index + 1).to_string(),
                    format!("{:.2}", cycle.set_up_s),
                    format!("{:.2}", cycle.total_s),
                    cycle
                        .free_bytes
                        .map_or_else(|| "-".to_owned(), |b| format!("{:.1}", b as f64 / 1048576.0)),
                    cycle.descriptors.to_string(),
                ]);
            }
        }
        out.push_str(&table.render(1));
        if *rank == 0 {
            out.push('\n');
            out.push_str(&self.explain);
        }
        out
    }
}

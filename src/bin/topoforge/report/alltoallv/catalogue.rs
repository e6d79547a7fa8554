//! The report of an AlltoAllv catalogue.
//!
//! Start at [`CatalogueReport`].

use crate::report::Report;
use crate::report::table::{Table, count};
use serde::Serialize;
use std::fmt::Write;

/// `topoforge alltoallv catalogue`
#[derive(Debug, Serialize)]
pub struct CatalogueReport {
    /// Maximal families of the larger part.
    pub families: usize,
    /// Its shapes.
    pub shapes: usize,
    /// Its orbits.
    pub orbits: usize,
    /// The whole blob.
    pub bytes: usize,
    /// Building and writing it, milliseconds, the shortest of three times; without planning recorded sequences.
    pub build_ms: f64,
    /// The descriptor's name.
    pub topology: String,
    /// GPUs of one node.
    pub ranks_per_node: usize,
    /// How many nodes; none for any number.
    pub nodes: Option<u32>,
    /// Steps of the sequence for uniform demand.
    pub base_steps: usize,
    /// Sequences for the descriptor's profiles, in its order.
    pub profiles: Vec<ProfileLine>,
    /// Planning all sequences, several plans for each, milliseconds, the shortest of three times.
    pub base_ms: f64,
    /// Whether it is compiled in; it was compared then.
    pub embedded: bool,
    /// A single node, a node among others.
    pub parts: Vec<PartLine>,
}

/// The sequence of a recorded demand profile.
#[derive(Debug, Serialize)]
pub struct ProfileLine {
    /// The profile's name.
    pub name: String,
    /// Of its sequence.
    pub steps: usize,
}

/// The families of a node in one surrounding.
#[derive(Debug, Serialize)]
pub struct PartLine {
    /// `one` or `several`.
    pub nodes: &'static str,
    /// Maximal families.
    pub families: usize,
    /// Lanes from group to group, whatever carries them.
    pub shapes: usize,
    /// Families up to symmetry; these are stored.
    pub orbits: usize,
    /// Exchanges of groups that change nothing, the empty one too.
    pub symmetries: usize,
    /// Ways that a lane can touch the node.
    pub lane_types: usize,
    /// Steps of the search.
    pub searched: u64,
}

impl Report for CatalogueReport {
    fn text(&self) -> String {
        let nodes = match self.nodes {
            None => "any number of nodes".to_owned(),
            Some(1) => "one node".to_owned(),
            Some(n) => format!("{n} nodes"),
        };
        let mut out = format!("{}, {} GPUs a node, {nodes}\n\n", self.topology, self.ranks_per_node);
        let mut table = (Table::default()
            .text("nodes")
            .figure("families")
            .figure("shapes")
            .figure("orbits"))
        .figure("symmetries")
        .figure("lane types")
        .figure("search steps");
        for part in &self.parts {
            table.row([
                part.nodes.to_owned(),
                count(part.families as u64),
                count(part.shapes as u64),
                count(part.orbits as u64),
                part.symmetries.to_string(),
                part.lane_types.to_string(),
                count(part.searched),
            ]);
        }
        out.push_str(&table.render(0));
        let base = match self.base_steps {
            0 => "no base sequence".to_owned(),
            n => format!("a base sequence of {n} steps"),
        };
        let profile = |line: &ProfileLine| format!(", profile {} of {}", line.name, line.steps);
        let profiles: String = self.profiles.iter().map(profile).collect();
        let planned = match self.base_steps {
            0 => String::new(),
            _ => format!(" (planned in {:.1} ms)", self.base_ms),
        };
        let embedded = if self.embedded {
            "the same as compiled in"
        } else {
            "not compiled in"
        };
        let _ = writeln!(
            out,
            "\n{} bytes with {base}{profiles}{planned}, built in {:.2} ms, checked, {embedded}",
            count(self.bytes as u64),
            self.build_ms
        );
        out
    }
}

//! Reports of what was planned and what fits: shortlists and matches.
//!
//! Start at [`PlanReport`] and [`MatchReport`].

use super::Report;
use super::table::{Table, figure, size};
use serde::Serialize;
use std::fmt::Write;

/// `topoforge plan`
#[derive(Debug, Serialize)]
pub struct PlanReport {
    /// The topology's name.
    pub topology: String,
    /// Candidates made.
    pub candidates: usize,
    /// Candidates that the verifier accepted.
    pub verified: usize,
    /// Class after class, each fastest shape first.
    pub shortlist: Vec<PlanLine>,
    #[serde(skip)]
    pub title: String,
    #[serde(skip)]
    pub unserved: String,
}

/// A schedule on a shortlist.
#[derive(Debug, Serialize)]
pub struct PlanLine {
    /// Its name.
    pub schedule: String,
    /// The declared sum of rank 0's first chunk.
    pub expression: String,
    /// Whether all ranks get the same bits.
    pub replicated: bool,
    /// How many.
    pub stages: usize,
    /// Of one call.
    pub predicted_us: f64,
    /// The size class.
    pub class: String,
    /// The payload it is ranked at.
    pub bytes: u64,
    /// What the prediction is for.
    pub protocol: String,
}

impl Report for PlanReport {
    fn text(&self) -> String {
        let mut out = format!("{}\n", self.title);
        if self.shortlist.is_empty() {
            let _ = writeln!(out, "{}", self.unserved);
        }
        for lines in self.shortlist.chunk_by(|a, b| a.class == b.class) {
            let at = size(lines[0].bytes);
            let _ = match lines[0].class.as_str() {
                "payload" => writeln!(out, "\nranked at {at}"),
                class => writeln!(out, "\n{class} payloads, ranked at {at}"),
            };
            let mut table = (Table::default().text("schedule").text("protocol").figure("stages"))
                .figure("predicted us")
                .text("replicated")
                .text("expression");
            for line in lines {
                table.row([
                    line.schedule.clone(),
                    line.protocol.clone(),
                    line.stages.to_string(),
                    figure(Some(line.predicted_us)),
                    if line.replicated { "yes" } else { "no" }.to_owned(),
                    cut(&line.expression, 60),
                ]);
            }
            out.push_str(&table.render(2));
        }
        out
    }
}

/// The beginning of a text that may be long; JSON has all of it.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let start: String = text.chars().take(most.saturating_sub(2)).collect();
    format!("{start}..")
}

/// `topoforge match`
#[derive(Debug, Serialize)]
pub struct MatchReport {
    /// `live`, or the descriptor's name.
    pub topology: String,
    /// How many ranks it has.
    pub ranks: usize,
    /// Where the facts come from: `nvml+cuda`, `cuda` or `descriptor`.
    pub level: String,
    /// The live GPUs' names in the order of ranks; none for a descriptor.
    pub gpus: Vec<String>,
    /// The nearest family that fits, if any.
    #[serde(rename = "match")]
    pub best: Option<String>,
    /// All families, nearest first.
    pub families: Vec<MatchLine>,
}

/// How one family fits.
#[derive(Debug, Serialize)]
pub struct MatchLine {
    /// Its name.
    pub family: String,
    /// `exact`, `compatible`, `degraded` or `infeasible`.
    pub kind: &'static str,
    /// Sum of class differences; none where it does not fit.
    pub distance: Option<u32>,
    /// Which live rank plays each of the family's; empty where it does not fit.
    pub placement: Vec<usize>,
    /// No placement is nearer.
    pub optimal: bool,
    /// Why it was not taken; none for the best.
    pub reason: Option<String>,
    /// Links of another class than the family's, in words.
    pub changes: Vec<String>,
}

impl Report for MatchReport {
    fn text(&self) -> String {
        let mut out = format!("{}, {} ranks ({})\n", self.topology, self.ranks, self.level);
        for (rank, gpu) in self.gpus.iter().enumerate() {
            let _ = writeln!(out, "  {rank}: {gpu}");
        }
        out.push('\n');
        let mut table = (Table::default()
            .text("family")
            .text("fit")
            .figure("distance")
            .text("placement"))
        .text("");
        for line in &self.families {
            let (distance, placement) = match line.distance {
                Some(distance) => (distance.to_string(), format!("{:?}", line.placement)),
                None => ("-".to_owned(), "-".to_owned()),
            };
            let why = match &line.reason {
                None => "taken".to_owned(),
                Some(reason) => reason.clone(),
            };
            table.row([line.family.clone(), line.kind.to_owned(), distance, placement, why]);
        }
        out.push_str(&table.render(0));
        let changes = self
            .families
            .first()
            .filter(|f| self.best.as_ref() == Some(&f.family))
            .map(|f| &f.changes);
        for change in changes.into_iter().flatten() {
            let _ = writeln!(out, "  link {change}");
        }
        out
    }
}

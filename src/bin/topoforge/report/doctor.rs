//! Report of `doctor`: findings on the machine and a verdict on every ordered pair.
//!
//! Start at [`DoctorReport`].

use super::Report;
use super::table::Table;
use serde::Serialize;
use std::fmt::Write;
use topoforge::doctor::PairReport;
use topoforge::doctor::system::Finding;

/// `topoforge doctor`
#[derive(Debug, Serialize)]
pub struct DoctorReport {
    /// In the order looked at.
    pub findings: Vec<FindingLine>,
    /// Every ordered pair of visible GPUs.
    pub pairs: Vec<PairLine>,
    /// The verdicts are of an earlier run on this boot.
    pub kept: bool,
}

/// One thing looked at.
#[derive(Debug, Serialize)]
pub struct FindingLine {
    /// E.g. `libcuda`.
    pub topic: &'static str,
    /// `ok`, `note` or `bad`.
    pub state: &'static str,
    /// What was found and what to do.
    pub text: String,
}

impl From<&Finding> for FindingLine {
    fn from(finding: &Finding) -> Self {
        Self {
            topic: finding.topic,
            state: finding.state.name(),
            text: finding.text.clone(),
        }
    }
}

/// One ordered pair.
#[derive(Debug, Serialize)]
pub struct PairLine {
    /// The GPU that stores or loads.
    pub from: usize,
    /// The GPU whose memory it is.
    pub to: usize,
    /// `ok`, `zeros`, `stale`, `torn`, `wrong`, `hang`, `refused` or `not run`.
    pub write: &'static str,
    /// The same for loads.
    pub read: &'static str,
    /// The same for 128-byte lines, which `packet128` alone needs whole.
    pub lines: &'static str,
    /// Which kernels ran and what they saw.
    pub detail: Vec<String>,
    /// What to do about the worse of both; empty where nothing is to be done.
    pub advice: &'static str,
}

impl From<&PairReport> for PairLine {
    fn from(r: &PairReport) -> Self {
        Self {
            from: r.from,
            to: r.to,
            write: r.write.name(),
            read: r.read.name(),
            lines: r.lines.name(),
            detail: r.detail.clone(),
            advice: (&r.write).max(&r.read).advice(),
        }
    }
}

impl Report for DoctorReport {
    fn text(&self) -> String {
        let mut table = Table::default().text("").text("topic").text("finding");
        for f in &self.findings {
            table.row([f.state.to_owned(), f.topic.to_owned(), f.text.clone()]);
        }
        let mut out = table.render(0);
        if !self.pairs.is_empty() {
            let kept = if self.kept {
                " (kept from an earlier run on this boot)"
            } else {
                ""
            };
            let _ = writeln!(out, "\npeer edges{kept}");
            let mut table = Table::default().text("edge").text("writes").text("reads");
            table = table.text("lines").text("seen");
            for p in &self.pairs {
                let edge = format!("{} to {}", p.from, p.to);
                let words = [p.write, p.read, p.lines].map(str::to_owned);
                table.row([edge].into_iter().chain(words).chain([p.detail.join("; ")]));
            }
            out.push_str(&table.render(2));
            let mut advice: Vec<&str> = self.pairs.iter().map(|p| p.advice).filter(|a| !a.is_empty()).collect();
            advice.dedup();
            for line in advice {
                let _ = writeln!(out, "  {line}");
            }
        }
        out
    }
}

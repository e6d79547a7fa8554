//! The report of a qualification: what was proven, what was refused and why, which planted faults were caught.
//!
//! Start at [`QualifyReport`].

use super::Report;
use super::table::{Table, count};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// `topoforge qualify`
#[derive(Debug, Default, Serialize)]
pub struct QualifyReport {
    /// `host` or `cuda:0,1`.
    pub device: String,
    /// Variants that were run.
    pub checked: usize,
    /// Variants without a fault.
    pub passed: usize,
    /// The others.
    pub failed: Vec<Failed>,
    /// Chains of dependent calls.
    pub chains: u64,
    /// Calls of all chains.
    pub calls: u64,
    /// f16 words compared with the reference.
    pub words: u64,
    /// Share of them that was finite, 0 to 1.
    pub finite_share: f64,
    /// Family by family.
    pub families: Vec<FamilyProof>,
    /// Families that were not run.
    pub skipped: Vec<Skipped>,
    /// Planted faults, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controls: Option<Vec<ControlLine>>,
}

/// A refused variant.
#[derive(Debug, Serialize)]
pub struct Failed {
    /// Its family.
    pub family: String,
    /// Its name.
    pub variant: String,
    /// What was wrong.
    pub reason: String,
}

/// A family that was run.
#[derive(Debug, Serialize)]
pub struct FamilyProof {
    /// Its name.
    pub family: String,
    /// Its ranks.
    pub ranks: usize,
    /// Whether ranks shared a GPU.
    pub virtual_ranks: bool,
    /// Variants that were run.
    pub checked: usize,
    /// Variants without a fault.
    pub passed: usize,
    /// f16 words compared.
    pub words: u64,
    /// Share of them that was finite, 0 to 1.
    pub finite_share: f64,
}

/// A family that was not run.
#[derive(Debug, Serialize)]
pub struct Skipped {
    /// Its name.
    pub family: String,
    /// Why.
    pub reason: String,
}

/// What came of one planted fault.
#[derive(Debug, Serialize)]
pub struct ControlLine {
    /// The family.
    pub family: String,
    /// The variant it was planted in.
    pub variant: String,
    /// Its name.
    pub fault: &'static str,
    /// `caught`, `missed` or `not run`.
    pub outcome: &'static str,
    /// In words.
    pub detail: String,
}

impl Report for QualifyReport {
    fn text(&self) -> String {
        let mut table = (Table::default()
            .text("family")
            .figure("ranks")
            .text("")
            .figure("variants")
            .figure("passed"))
        .figure("words compared")
        .figure("finite");
        for f in &self.families {
            table.row([
                f.family.clone(),
                f.ranks.to_string(),
                if f.virtual_ranks { "virtual" } else { "" }.to_owned(),
                f.checked.to_string(),
                f.passed.to_string(),
                count(f.words),
                percent(f.finite_share),
            ]);
        }
        let mut out = table.render(0);
        for skipped in &self.skipped {
            let _ = writeln!(out, "skipped {}: {}", skipped.family, skipped.reason);
        }
        for failed in &self.failed {
            let _ = writeln!(out, "FAILED {} {}: {}", failed.family, failed.variant, failed.reason);
        }
        if let Some(controls) = &self.controls {
            out.push('\n');
            out.push_str(&summary(controls));
        }
        let _ = writeln!(
            out,
            "\n{}: {} checked, {} passed, {} failed; {} words compared in {} calls, {} finite",
            self.device,
            self.checked,
            self.passed,
            self.failed.len(),
            count(self.words),
            count(self.calls),
            percent(self.finite_share)
        );
        out
    }
}

/// Faults by how often each was caught.
fn summary(controls: &[ControlLine]) -> String {
    let mut by_fault: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for line in controls {
        let column = match line.outcome {
            "caught" => 0,
            "missed" => 1,
            _ => 2,
        };
        by_fault.entry(line.fault).or_default()[column] += 1;
    }
    let mut table = Table::default()
        .text("planted fault")
        .figure("caught")
        .figure("missed")
        .figure("not run");
    for (fault, counts) in by_fault {
        table.row(std::iter::once(fault.to_owned()).chain(counts.map(|n| n.to_string())));
    }
    table.render(0)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

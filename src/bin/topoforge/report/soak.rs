//! The report of `soak`.

use super::Report;
use super::table::{Table, count, size};
use serde::Serialize;
use std::fmt::Write;
use topoforge::device::DeviceInfo;
use topoforge::device::soak::Tally;
use topoforge::registry::Family;
use topoforge::tune::Payloads;

/// What very many calls gave.
#[derive(Debug, Serialize)]
pub struct SoakDocument {
    device: String,
    gpus: Vec<String>,
    family: String,
    ranks: usize,
    payloads: Vec<u64>,
    seed: u32,
    /// One a variant that ran to its end, or to the first wrong words.
    pub lines: Vec<SoakLine>,
    /// What went wrong, in words.
    pub failed: Vec<String>,
}

/// One variant.
#[derive(Debug, Serialize)]
pub struct SoakLine {
    variant: String,
    calls: u64,
    words: u64,
    wrong_words: u64,
    first_wrong: Option<String>,
    /// Whether a call with a contribution dropped was seen to be wrong; none was made without `--control`.
    planted_fault_seen: Option<bool>,
    checked_on: &'static str,
    seconds: f64,
}

impl SoakLine {
    /// Of a finished soak.
    pub fn of(variant: &str, tally: &Tally, on_device: bool, seen: Option<bool>, seconds: f64) -> Self {
        Self {
            variant: variant.to_owned(),
            calls: tally.calls,
            words: tally.words,
            wrong_words: tally.wrong,
            first_wrong: tally.first.map(|w| w.to_string()),
            planted_fault_seen: seen,
            checked_on: if on_device { "device" } else { "host" },
            seconds,
        }
    }
}

impl SoakDocument {
    /// Without lines so far.
    pub fn of(device: &DeviceInfo, family: &Family, payloads: &Payloads, seed: u32) -> Self {
        Self {
            device: crate::device::spelled(device),
            gpus: device.names.clone(),
            family: family.name.to_owned(),
            ranks: device.names.len(),
            payloads: payloads.bytes().to_vec(),
            seed,
            lines: Vec::new(),
            failed: Vec::new(),
        }
    }
}

impl Report for SoakDocument {
    fn text(&self) -> String {
        let sizes: Vec<String> = self.payloads.iter().map(|b| size(*b)).collect();
        let mut out = format!(
            "soak of {} on {}, {} ranks, seed {}, payloads {} in turn\n\n",
            self.family,
            self.device,
            self.ranks,
            self.seed,
            sizes.join(", ")
        );
        let mut table = Table::default()
            .text("variant")
            .figure("calls")
            .figure("words compared");
        table = table.figure("wrong words").text("planted fault");
        table = table.text("checked on").figure("seconds");
        for line in &self.lines {
            table.row([
                line.variant.clone(),
                count(line.calls),
                count(line.words),
                count(line.wrong_words),
                match line.planted_fault_seen {
                    None => "-",
                    Some(true) => "seen",
                    Some(false) => "NOT SEEN",
                }
                .to_owned(),
                line.checked_on.to_owned(),
                format!("{:.1}", line.seconds),
            ]);
        }
        out.push_str(&table.render(0));
        for line in &self.failed {
            let _ = writeln!(out, "WRONG {line}");
        }
        out
    }
}

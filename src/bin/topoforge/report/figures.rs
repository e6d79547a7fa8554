//! Reports of measurements: what tuning chose, and a sweep without choosing.
//!
//! On an emulation each says so above its table: such times mean nothing. Start at [`TuneDocument`] and
//! [`BenchDocument`].

use super::Report;
use super::table::{Table, figure, size};
use serde::Serialize;
use std::fmt::Write;
use topoforge::device::Sampling;
use topoforge::device::floor::Floor;
use topoforge::tune::{BenchReport, LeftOut, TuneReport};

const EMULATION: &str = "EMULATION: these times mean nothing, and no routes file is written from them";

/// How figures were sampled.
#[derive(Debug, Serialize)]
struct SamplingLine {
    calls: u32,
    warmups: u32,
    samples: u32,
}

impl From<Sampling> for SamplingLine {
    fn from(s: Sampling) -> Self {
        Self {
            calls: s.calls,
            warmups: s.warmups,
            samples: s.samples,
        }
    }
}

#[derive(Debug, Serialize)]
struct LeftOutLine {
    name: String,
    reason: String,
}

fn left_out(all: &[LeftOut]) -> Vec<LeftOutLine> {
    let line = |l: &LeftOut| LeftOutLine {
        name: l.name.clone(),
        reason: l.reason.clone(),
    };
    all.iter().map(line).collect()
}

/// `topoforge tune`
#[derive(Debug, Serialize)]
pub struct TuneDocument {
    device: String,
    gpus: Vec<String>,
    emulation: bool,
    family: String,
    ranks: usize,
    partials: &'static str,
    memory: &'static str,
    sampling: SamplingLine,
    rows: Vec<TuneRow>,
    left_out: Vec<LeftOutLine>,
    /// Where the routes were written.
    routes_file: Option<String>,
}

#[derive(Debug, Serialize)]
struct TuneRow {
    bytes: u64,
    route: Option<String>,
    geometry: Option<String>,
    us: Option<f64>,
    comparator: Option<String>,
    comparator_us: Option<f64>,
    ratio: Option<f64>,
    selected: bool,
    reason: String,
    comparators: Vec<ComparatorLine>,
}

#[derive(Debug, Serialize)]
struct ComparatorLine {
    name: String,
    us: f64,
    requested: bool,
}

impl TuneDocument {
    /// Of a finished tuning.
    pub fn of(report: &TuneReport, routes_file: Option<String>) -> Self {
        let row = |r: &topoforge::tune::Row| TuneRow {
            bytes: r.bytes,
            route: r.route.clone(),
            geometry: r.geometry.map(|g| g.to_string()),
            us: r.us,
            comparator: r.comparator.clone(),
            comparator_us: r.comparator_us,
            ratio: r.ratio,
            selected: r.selected,
            reason: r.reason.clone(),
            comparators: (r.comparators.iter())
                .map(|c| ComparatorLine {
                    name: c.name.clone(),
                    us: c.us,
                    requested: c.requested,
                })
                .collect(),
        };
        Self {
            device: crate::device::spelled(&report.device),
            gpus: report.device.names.clone(),
            emulation: report.emulation,
            family: report.family.clone(),
            ranks: report.device.names.len(),
            partials: report.partials.name(),
            memory: report.memory.name(),
            sampling: report.sampling.into(),
            rows: report.rows.iter().map(row).collect(),
            left_out: left_out(&report.left_out),
            routes_file,
        }
    }
}

impl Report for TuneDocument {
    fn text(&self) -> String {
        let mut out = heading(&self.family, &self.device, &self.gpus, self.partials, &self.sampling);
        if self.emulation {
            let _ = writeln!(out, "{EMULATION}");
        }
        out.push('\n');
        let dash = || "-".to_owned();
        let mut table = (Table::default()
            .figure("payload")
            .text("route")
            .figure("geometry")
            .figure("us"))
        .text("comparator")
        .figure("us")
        .figure("ratio")
        .text("verdict");
        for row in &self.rows {
            table.row([
                size(row.bytes),
                row.route.clone().unwrap_or_else(dash),
                row.geometry.clone().unwrap_or_else(dash),
                figure(row.us),
                row.comparator.clone().unwrap_or_else(dash),
                figure(row.comparator_us),
                row.ratio.map_or_else(|| "-".to_owned(), |r| format!("{r:.2}x")),
                self.verdict(row),
            ]);
        }
        out.push_str(&table.render(0));
        if let Some(file) = &self.routes_file {
            let _ = writeln!(out, "\nroutes written to {file}");
        }
        out
    }
}

impl TuneDocument {
    fn verdict(&self, row: &TuneRow) -> String {
        match (self.emulation, row.selected) {
            (true, _) if row.route.is_some() => "proven, not timed".to_owned(),
            (_, true) if row.comparator.is_some() => "selected".to_owned(),
            (_, true) => format!("selected: {}", row.reason),
            (_, false) => row.reason.clone(),
        }
    }
}

/// `topoforge bench`
#[derive(Debug, Serialize)]
pub struct BenchDocument {
    device: String,
    gpus: Vec<String>,
    emulation: bool,
    family: String,
    ranks: usize,
    partials: &'static str,
    sampling: SamplingLine,
    columns: Vec<String>,
    rows: Vec<BenchLine>,
    left_out: Vec<LeftOutLine>,
}

#[derive(Debug, Serialize)]
struct BenchLine {
    bytes: u64,
    figures: Vec<Option<FigureCell>>,
    /// See `topoforge floor`; of the fastest launch mode that was tried.
    reference_us: Option<f64>,
}

#[derive(Debug, Serialize)]
struct FigureCell {
    us: f64,
    geometry: Option<String>,
}

impl BenchDocument {
    /// Of a finished sweep.
    pub fn of(report: &BenchReport, floor: Option<&Floor>) -> Self {
        let cell = |f: &topoforge::tune::Figure| FigureCell {
            us: f.us,
            geometry: f.geometry.map(|g| g.to_string()),
        };
        let row = |r: &topoforge::tune::BenchRow| BenchLine {
            bytes: r.bytes,
            figures: r.figures.iter().map(|f| f.as_ref().map(cell)).collect(),
            reference_us: floor.and_then(|floor| {
                let all = floor
                    .nodes
                    .iter()
                    .filter_map(|(launch, _)| floor.reference(r.bytes, *launch));
                all.min_by(f64::total_cmp)
            }),
        };
        Self {
            device: crate::device::spelled(&report.device),
            gpus: report.device.names.clone(),
            emulation: report.emulation,
            family: report.family.clone(),
            ranks: report.device.names.len(),
            partials: report.partials.name(),
            sampling: report.sampling.into(),
            columns: report.columns.clone(),
            rows: report.rows.iter().map(row).collect(),
            left_out: left_out(&report.left_out),
        }
    }
}

impl Report for BenchDocument {
    /// Names are long and many, so that columns have letters and a list says which is which.
    fn text(&self) -> String {
        let mut out = heading(&self.family, &self.device, &self.gpus, self.partials, &self.sampling);
        if self.emulation {
            let _ = writeln!(out, "{EMULATION}");
        }
        out.push('\n');
        let mut table = Table::default().figure("payload");
        for (index, name) in self.columns.iter().enumerate() {
            let _ = writeln!(out, "  {:>2} = {name}", index + 1);
            table = table.figure((index + 1).to_string());
        }
        let referenced = self.rows.iter().any(|r| r.reference_us.is_some());
        if referenced {
            table = table.figure("reference").figure("best");
        }
        for row in &self.rows {
            let best = row.figures.iter().flatten().map(|f| f.us).fold(f64::INFINITY, f64::min);
            let cells = row.figures.iter().map(|f| match f {
                Some(f) if f.us <= best => format!("*{:.2}", f.us),
                f => figure(f.as_ref().map(|f| f.us)),
            });
            let reference = [
                figure(row.reference_us),
                row.reference_us
                    .map_or_else(|| "-".to_owned(), |r| format!("{:.2}x", best / r)),
            ];
            let reference = reference.into_iter().filter(|_| referenced);
            table.row(std::iter::once(size(row.bytes)).chain(cells).chain(reference));
        }
        out.push_str("\nMicroseconds a call, each variant in its best geometry; * is the fastest.\n");
        out.push_str(&table.render(0));
        out
    }
}

fn heading(family: &str, device: &str, names: &[String], partials: &str, sampling: &SamplingLine) -> String {
    let mut names = names.to_vec();
    names.dedup();
    let several = |n: u32, what: &str| {
        if n == 1 {
            format!("one {what}")
        } else {
            format!("{n} {what}s")
        }
    };
    format!(
        "{family} on {device} ({}), {partials} partials, median of {} of {}\n",
        names.join(", "),
        several(sampling.samples, "sample"),
        several(sampling.calls, "dependent call")
    )
}

//! Reports of measurements: what tuning chose, and a sweep without choosing.
//!
//! Start at [`TuneDocument`] and [`BenchDocument`].

use super::Report;
use super::floor::cost_text;
use super::head::Head;
use super::table::{Table, figure, size};
use super::took::Took;
use serde::Serialize;
use std::fmt::Write;
use topoforge::device::Launch;
use topoforge::device::floor::{Floor, LaunchCost};
use topoforge::tune::{BenchReport, LeftOut, Projection, StepTime, TuneReport};

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
    #[serde(flatten)]
    head: Head,
    memory: &'static str,
    rows: Vec<TuneRow>,
    left_out: Vec<LeftOutLine>,
    /// Where the routes were written.
    routes_file: Option<String>,
    took: Took,
    projection: Option<ProjectionLine>,
}

/// Arithmetic on the rows, no measurement.
#[derive(Debug, Serialize)]
struct ProjectionLine {
    step_from_ms: f64,
    step_to_ms: f64,
    current_us: f64,
    planned_us: f64,
    gain_from_percent: f64,
    gain_to_percent: f64,
}

#[derive(Debug, Serialize)]
struct LoadedLine {
    streams: u32,
    us: f64,
    comparator: Option<String>,
    comparator_us: Option<f64>,
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
    /// Variants with geometries that were timed.
    candidates: usize,
    loaded: Option<LoadedLine>,
    /// See `topoforge floor`; of the route's launch mode.
    reference_us: Option<f64>,
    /// The route over it.
    over_reference: Option<f64>,
}

#[derive(Debug, Serialize)]
struct ComparatorLine {
    name: String,
    us: f64,
    requested: bool,
}

impl TuneDocument {
    /// Of a finished tuning.
    pub fn of(report: &TuneReport, floor: Option<&Floor>, routes_file: Option<String>, took: Took) -> Self {
        let reference = |r: &topoforge::tune::Row| yardstick(floor, r.bytes, r.geometry?.launch);
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
            candidates: r.candidates,
            loaded: r.loaded.as_ref().map(|l| LoadedLine {
                streams: l.streams,
                us: l.us,
                comparator: l.comparator.clone(),
                comparator_us: l.comparator_us,
            }),
            reference_us: reference(r),
            over_reference: reference(r).and_then(|reference| Some(r.us? / reference)),
        };
        Self {
            head: Head::of(
                &report.device,
                report.emulation,
                &report.family,
                (report.element, report.partials),
                report.sampling,
            ),
            memory: report.memory.name(),
            rows: report.rows.iter().map(row).collect(),
            left_out: left_out(&report.left_out),
            routes_file,
            took,
            projection: None,
        }
    }
}

impl Report for TuneDocument {
    fn text(&self) -> String {
        let mut out = self.head.text(None);
        out.push('\n');
        let dash = || "-".to_owned();
        let mut table = (Table::default()
            .figure("payload")
            .text("route")
            .figure("geometry")
            .figure("us"))
        .figure("x reference")
        .text("comparator")
        .figure("us")
        .figure("ratio")
        .text("verdict");
        let times = |r: Option<f64>| r.map_or_else(dash, |r| format!("{r:.2}x"));
        for row in &self.rows {
            table.row([
                size(row.bytes),
                row.route.clone().unwrap_or_else(dash),
                row.geometry.clone().unwrap_or_else(dash),
                figure(row.us),
                times(row.over_reference),
                row.comparator.clone().unwrap_or_else(dash),
                figure(row.comparator_us),
                times(row.ratio),
                self.verdict(row),
            ]);
        }
        out.push_str(&table.render(0));
        self.loads(&mut out);
        if let Some(p) = &self.projection {
            let _ = writeln!(
                out,
                "\nPROJECTION, not a measurement: collectives of a step {:.0} us today, {:.0} us as planned; with {} to {} ms\n\
                 besides, {:.2} to {:.2} % more steps in the same time",
                p.current_us, p.planned_us, p.step_from_ms, p.step_to_ms, p.gain_from_percent, p.gain_to_percent
            );
        }
        let _ = write!(out, "\n{}", self.took.lines());
        if let Some(file) = &self.routes_file {
            let _ = writeln!(out, "\nroutes written to {file}");
        }
        out
    }
}

impl TuneDocument {
    /// Adds what a step would gain.
    pub fn project(&mut self, found: Option<(StepTime, Projection)>) {
        self.projection = found.map(|(step, p)| ProjectionLine {
            step_from_ms: step.from_ms,
            step_to_ms: step.to_ms,
            current_us: p.current_us,
            planned_us: p.planned_us,
            gain_from_percent: p.gain.0,
            gain_to_percent: p.gain.1,
        });
    }

    fn loads(&self, out: &mut String) {
        let loaded = self.rows.iter().filter_map(|r| Some((r, r.loaded.as_ref()?)));
        for (row, l) in loaded {
            let against = match (&l.comparator, l.comparator_us) {
                (Some(name), Some(us)) => format!(", {name} {us:.2} us"),
                _ => String::new(),
            };
            let _ = writeln!(
                out,
                "{} beside {} busy streams a GPU: {:.2} us{against}",
                size(row.bytes),
                l.streams,
                l.us
            );
        }
    }

    fn verdict(&self, row: &TuneRow) -> String {
        match (self.head.emulation, row.selected) {
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
    #[serde(flatten)]
    head: Head,
    columns: Vec<String>,
    rows: Vec<BenchLine>,
    left_out: Vec<LeftOutLine>,
    /// Which of several groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    launches: Vec<LaunchLine>,
}

/// What a launch costs the host's thread.
#[derive(Debug, Serialize)]
struct LaunchLine {
    launch: &'static str,
    host_ns: f64,
    driver_calls: f64,
}

/// Several groups of GPUs.
#[derive(Debug, Serialize)]
pub struct BenchGroups<R> {
    /// In the order in which they were measured.
    pub groups: Vec<R>,
}

impl<R: Report> Report for BenchGroups<R> {
    fn text(&self) -> String {
        self.groups.iter().map(Report::text).collect::<Vec<_>>().join("\n")
    }
}

#[derive(Debug, Serialize)]
struct BenchLine {
    bytes: u64,
    figures: Vec<Option<FigureCell>>,
    /// See `topoforge floor`; of the launch mode of the fastest route.
    reference_us: Option<f64>,
    /// The fastest route over it.
    over_reference: Option<f64>,
    /// The fastest route with plain launches.
    plain: Option<ModeLine>,
    /// The same with programmatic ones.
    programmatic: Option<ModeLine>,
}

/// The fastest route of a launch mode beside that mode's reference.
#[derive(Debug, Serialize)]
struct ModeLine {
    route: String,
    geometry: String,
    us: f64,
    reference_us: Option<f64>,
    over_reference: Option<f64>,
}

/// The reference of a payload for a launch mode. Programmatic ones are one to the reader: the better node counts.
fn yardstick(floor: Option<&Floor>, bytes: u64, launch: Launch) -> Option<f64> {
    let same = Launch::ALL
        .into_iter()
        .filter(|l| l.is_programmatic() == launch.is_programmatic());
    same.filter_map(|l| floor?.reference(bytes, l)).min_by(f64::total_cmp)
}

#[derive(Debug, Serialize)]
struct FigureCell {
    us: f64,
    geometry: Option<String>,
}

impl BenchDocument {
    /// Of a finished sweep.
    pub fn of(report: &BenchReport, floor: Option<&Floor>, costs: &[(Launch, LaunchCost)]) -> Self {
        let cell = |f: &topoforge::tune::Figure| FigureCell {
            us: f.us,
            geometry: f.geometry.map(|g| g.to_string()),
        };
        let row = |r: &topoforge::tune::BenchRow| {
            let best = |programmatic: bool| {
                // Peer reads are no route, and NCCL has no geometry of ours.
                let routes = report
                    .columns
                    .iter()
                    .zip(&r.figures)
                    .filter(|(name, _)| !name.contains("/pull/"));
                let launched = routes.filter_map(|(name, f)| {
                    let f = (*f)?;
                    let (us, geometry) = if programmatic { f.programmatic } else { f.plain }?;
                    Some((name, us, geometry))
                });
                let (name, us, geometry) = launched.min_by(|a, b| a.1.total_cmp(&b.1))?;
                let reference = yardstick(floor, r.bytes, geometry.launch);
                Some(ModeLine {
                    route: name.clone(),
                    geometry: geometry.to_string(),
                    us,
                    reference_us: reference,
                    over_reference: reference.map(|reference| us / reference),
                })
            };
            let (plain, programmatic) = (best(false), best(true));
            let modes = [&plain, &programmatic].into_iter().flatten();
            let fastest = modes.min_by(|a, b| a.us.total_cmp(&b.us));
            BenchLine {
                bytes: r.bytes,
                figures: r.figures.iter().map(|f| f.as_ref().map(cell)).collect(),
                reference_us: fastest.and_then(|m| m.reference_us),
                over_reference: fastest.and_then(|m| m.over_reference),
                plain,
                programmatic,
            }
        };
        Self {
            head: Head::of(
                &report.device,
                report.emulation,
                &report.family,
                (report.element, report.partials),
                report.sampling,
            ),
            columns: report.columns.clone(),
            rows: report.rows.iter().map(row).collect(),
            left_out: left_out(&report.left_out),
            group: None,
            launches: (costs.iter())
                .map(|(launch, cost)| LaunchLine {
                    launch: launch.name(),
                    host_ns: cost.ns,
                    driver_calls: cost.driver_calls,
                })
                .collect(),
        }
    }
}

impl Report for BenchDocument {
    /// Names are long and many, so that columns have letters and a list says which is which.
    fn text(&self) -> String {
        let mut out = self.head.text(self.group.as_deref());
        out.push('\n');
        let mut table = Table::default().figure("payload");
        for (index, name) in self.columns.iter().enumerate() {
            let _ = writeln!(out, "  {:>2} = {name}", index + 1);
            table = table.figure((index + 1).to_string());
        }
        let has = |of: &dyn Fn(&BenchLine) -> Option<&ModeLine>| {
            self.rows
                .iter()
                .any(|r| of(r).is_some_and(|m| m.reference_us.is_some()))
        };
        let (plain, programmatic) = (has(&|r| r.plain.as_ref()), has(&|r| r.programmatic.as_ref()));
        for (shown, name) in [(plain, "plain"), (programmatic, "programmatic")] {
            if shown {
                table = table.figure(name).figure("reference").figure("times");
            }
        }
        for row in &self.rows {
            let best = row.figures.iter().flatten().map(|f| f.us).fold(f64::INFINITY, f64::min);
            let cells = row.figures.iter().map(|f| match f {
                Some(f) if f.us <= best => format!("*{:.2}", f.us),
                f => figure(f.as_ref().map(|f| f.us)),
            });
            let mode = |shown: bool, m: &Option<ModeLine>| {
                let over = m.as_ref().and_then(|m| m.over_reference);
                let cells = [
                    figure(m.as_ref().map(|m| m.us)),
                    figure(m.as_ref().and_then(|m| m.reference_us)),
                    over.map_or_else(|| "-".to_owned(), |r| format!("{r:.2}x")),
                ];
                cells.into_iter().filter(move |_| shown)
            };
            let modes = mode(plain, &row.plain).chain(mode(programmatic, &row.programmatic));
            table.row(std::iter::once(size(row.bytes)).chain(cells).chain(modes));
        }
        if plain || programmatic {
            out.push_str("Behind them the fastest route of each launch mode as a multiple of that mode's reference (`topoforge floor`).\n");
        }
        out.push_str("\nMicroseconds a call, each variant in its best geometry; * is the fastest.\n");
        out.push_str(&table.render(0));
        for line in &self.launches {
            let _ = writeln!(out, "{}", cost_text(line.launch, line.host_ns, line.driver_calls));
        }
        out
    }
}

//! How far the cost model can be trusted: its constants fitted on published figures with one machine left out, and the
//! error on that machine.
//!
//! It measures nothing and writes nothing; `cargo xtask calibration` prints what it finds and docs/cost-model.md keeps
//! it. Which schedule a published figure belongs to was not published: `model` says what each is taken for. Start at
//! [`leave_one_out`].

pub mod figures;
mod model;

pub use model::{Machine, Parameters};

use figures::Figure;
use std::fmt;

/// One figure and what was predicted for it, microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// What was measured.
    pub figure: Figure,
    /// The prediction for [`Figure::planned_us`].
    pub planned_us: f64,
    /// The prediction for [`Figure::other_us`].
    pub other_us: f64,
}

/// A machine whose figures took no part in the fit that predicts them.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftOut {
    /// The family that is nearest to the machine.
    pub name: &'static str,
    /// Fitted on all other machines.
    pub parameters: Parameters,
    /// Its figures.
    pub rows: Vec<Row>,
    /// Payload in KiB from which on the comparison is predicted to win (or to lose), with f32 partials or without,
    /// where one was published: `(wide, published from, published to, predicted)`.
    pub crossover: Option<(bool, f64, f64, Option<f64>)>,
}

impl LeftOut {
    /// Median absolute error of the planned column, a share of what was measured.
    pub fn planned_error(&self) -> f64 {
        median(
            self.rows
                .iter()
                .map(|r| (r.planned_us / r.figure.planned_us - 1.0).abs()),
        )
    }

    /// Median absolute error of the comparison column.
    pub fn other_error(&self) -> f64 {
        median(self.rows.iter().map(|r| (r.other_us / r.figure.other_us - 1.0).abs()))
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}

/// Published crossovers: the machine, the partials, and the payloads between which the faster one changed, KiB.
const CROSSOVERS: &[(&str, bool, f64, f64)] = &[("mixed-8", true, 384.0, 448.0), ("pix-quad", false, 1.0, 5.0)];

/// Fits on all machines but one, for each.
pub fn leave_one_out() -> Vec<LeftOut> {
    let machines = model::machines();
    let report = |at: usize| {
        let machine = &machines[at];
        let others: Vec<&Machine> = machines
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != at)
            .map(|m| m.1)
            .collect();
        let parameters = fit(&others);
        let published = CROSSOVERS.iter().find(|c| c.0 == machine.name);
        LeftOut {
            name: machine.name,
            rows: rows(machine, &parameters),
            crossover: published.map(|&(_, wide, from, to)| (wide, from, to, crossover(machine, &parameters, wide))),
            parameters,
        }
    };
    (0..machines.len()).map(report).collect()
}

/// Fits on all machines: the values that the planner uses.
pub fn fit_all() -> (Parameters, Vec<LeftOut>) {
    let machines = model::machines();
    let parameters = fit(&machines.iter().collect::<Vec<_>>());
    let report = |machine: &Machine| LeftOut {
        name: machine.name,
        rows: rows(machine, &parameters),
        crossover: CROSSOVERS
            .iter()
            .find(|c| c.0 == machine.name)
            .map(|&(_, wide, from, to)| (wide, from, to, crossover(machine, &parameters, wide))),
        parameters,
    };
    (parameters, machines.iter().map(report).collect())
}

fn rows(machine: &Machine, parameters: &Parameters) -> Vec<Row> {
    let row = |figure: &Figure| Row {
        figure: *figure,
        planned_us: machine.planned(parameters, figure.wide, figure.kib << 10),
        other_us: machine.other(parameters, figure.wide, figure.kib << 10),
    };
    machine.figures.iter().map(row).collect()
}

/// Largest payload, KiB, that a crossover is looked for at.
const LAST_KIB: f64 = 2048.0;

/// The first payload at which the faster of the two is another one than just below it.
fn crossover(machine: &Machine, parameters: &Parameters, wide: bool) -> Option<f64> {
    let ahead = |kib: f64| {
        let bytes = (kib * 1024.0) as u64;
        machine.planned(parameters, wide, bytes) < machine.other(parameters, wide, bytes) * (1.0 - 1e-9)
    };
    let mut kib = 0.25;
    let first = ahead(kib);
    while kib < LAST_KIB {
        kib *= 1.01;
        if ahead(kib) != first {
            return Some(kib);
        }
    }
    None
}

/// What a parameter that leaves its prior by a factor of e costs, in figures that are off by as much.
const PULL: f64 = 0.3;

/// Least absolute logarithmic error by descent along one parameter at a time; what the machines say nothing about
/// stays at its prior.
fn fit(machines: &[&Machine]) -> Parameters {
    let prior = Parameters::PRIOR.to_array();
    let loss = |values: &[f64]| {
        let parameters = Parameters::from_array(values);
        let mut total = 0.0;
        for machine in machines {
            // A machine counts as six figures at most, however many payloads it was measured at.
            let figures = machine.figures.len() as f64;
            let weight = figures.min(6.0) / figures;
            for row in rows(machine, &parameters) {
                total += weight * (row.planned_us / row.figure.planned_us).ln().abs();
                total += weight * (row.other_us / row.figure.other_us).ln().abs();
            }
        }
        let pull = values.iter().zip(&prior).map(|(v, p)| (v / p).ln().abs()).sum::<f64>();
        total + PULL * pull
    };
    let mut best = prior;
    let mut least = loss(&best);
    for step in [1.3, 1.1, 1.03, 1.01] {
        for _ in 0..30 {
            let before = least;
            for at in 0..best.len() {
                for factor in [step, 1.0 / step] {
                    let mut next = best;
                    next[at] = (next[at] * factor).clamp(prior[at] / 3.0, prior[at] * 3.0);
                    let found = loss(&next);
                    if found < least {
                        (best, least) = (next, found);
                    }
                }
            }
            if before - least < 1e-9 {
                break;
            }
        }
    }
    Parameters::from_array(&best)
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| 100.0 * share;
        writeln!(
            f,
            "{}: median error {:.1} % planned, {:.1} % comparison",
            self.name,
            percent(self.planned_error()),
            percent(self.other_error())
        )?;
        if let Some((wide, from, to, predicted)) = self.crossover {
            let partials = if wide { "f32" } else { "f16" };
            match predicted {
                Some(kib) => {
                    let held = kib >= from / 2.0 && kib <= to * 2.0;
                    let verdict = if held { "within a factor of 2" } else { "MISSED" };
                    writeln!(
                        f,
                        "  crossover, {partials} partials: published {from} to {to} KiB, predicted {kib:.0}: {verdict}"
                    )?;
                }
                None => writeln!(
                    f,
                    "  crossover, {partials} partials: published {from} to {to} KiB, none predicted: MISSED"
                )?,
            }
        }
        writeln!(
            f,
            "  | KiB | partials | planned | predicted | error | comparison | predicted | error |"
        )?;
        writeln!(f, "  |---|---|---|---|---|---|---|---|")?;
        for row in &self.rows {
            let error = |predicted: f64, measured: f64| percent(predicted / measured - 1.0);
            writeln!(
                f,
                "  | {} | {} | {:.2} | {:.2} | {:+.0} % | {:.2} | {:.2} | {:+.0} % |",
                row.figure.kib,
                if row.figure.wide { "f32" } else { "f16" },
                row.figure.planned_us,
                row.planned_us,
                error(row.planned_us, row.figure.planned_us),
                row.figure.other_us,
                row.other_us,
                error(row.other_us, row.figure.other_us)
            )?;
        }
        Ok(())
    }
}

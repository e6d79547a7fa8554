//! The report of a simulated exchange.
//!
//! Start at [`AlltoallvSimulationReport`].

use super::heading;
use crate::report::Report;
use crate::report::table::{Table, figure};
use serde::Serialize;
use std::fmt::Write;

/// `topoforge alltoallv simulate`
#[derive(Debug, Serialize)]
pub struct AlltoallvSimulationReport {
    /// The descriptor's name.
    pub topology: String,
    /// Of the machine.
    pub ranks: usize,
    /// As it was asked for.
    pub demand: String,
    /// Of all pairs.
    pub bytes: u64,
    /// The busiest resource's least load where lanes hold what they use.
    pub load_bound_us: f64,
    /// What is left of a rate where lanes meet, under the lossy law.
    pub eta: f64,
    /// Whether laws under which lanes share were simulated.
    pub sharing_simulated: bool,
    /// Ours first.
    pub strategies: Vec<StrategyLine>,
}

/// One way to exchange; times under each law, and as parts of ours.
#[derive(Debug, Serialize)]
pub struct StrategyLine {
    pub strategy: String,
    pub serial_us: Option<f64>,
    pub fluid_us: Option<f64>,
    pub lossy_us: Option<f64>,
    pub serial_ratio: Option<f64>,
    pub fluid_ratio: Option<f64>,
    pub lossy_ratio: Option<f64>,
}

impl Report for AlltoallvSimulationReport {
    fn text(&self) -> String {
        let mut out = heading(&self.topology, self.ranks, &self.demand, self.bytes);
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "load bound where lanes hold their links: {:.2} us\n",
            self.load_bound_us
        );
        let mut table = Table::default().text("strategy");
        for law in ["serial".to_owned(), "fluid".into(), format!("lossy {}", self.eta)] {
            table = table.figure(format!("{law}, us")).figure("x");
        }
        for line in &self.strategies {
            let pairs = [
                (line.serial_us, line.serial_ratio),
                (line.fluid_us, line.fluid_ratio),
                (line.lossy_us, line.lossy_ratio),
            ];
            let cells = pairs
                .into_iter()
                .flat_map(|(time, ratio)| [figure(time), figure(ratio)]);
            table.row(std::iter::once(line.strategy.clone()).chain(cells));
        }
        out.push_str(&table.render(0));
        if !self.sharing_simulated {
            out.push_str("lanes that share are simulated up to 64 ranks\n");
        }
        out
    }
}

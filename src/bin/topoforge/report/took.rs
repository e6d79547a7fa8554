//! Where time went: what every process pays, and what is ours.
//!
//! Start at [`Took`].

use super::Report;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;
use topoforge::driver::StartUp;

/// Times in seconds.
#[derive(Debug, Serialize)]
pub struct Took {
    total_s: f64,
    /// `cuInit` and opening the driver.
    cu_init_s: f64,
    /// Primary contexts.
    contexts_s: f64,
    /// NCCL's communicators, which the figure of ours holds.
    nccl_s: f64,
    /// Without `cuInit` and contexts.
    own_s: f64,
    phases: Vec<PhaseLine>,
}

#[derive(Debug, Serialize)]
struct PhaseLine {
    name: String,
    s: f64,
}

impl Took {
    /// Of a whole duration; `phases` are parts of it.
    pub fn of(total: Duration, start_up: StartUp, phases: &[(&str, Duration)]) -> Self {
        let foreign = start_up.init + start_up.contexts;
        Self {
            total_s: total.as_secs_f64(),
            cu_init_s: start_up.init.as_secs_f64(),
            contexts_s: start_up.contexts.as_secs_f64(),
            nccl_s: start_up.nccl.as_secs_f64(),
            own_s: total.saturating_sub(foreign).as_secs_f64(),
            phases: (phases.iter())
                .map(|(name, took)| PhaseLine {
                    name: (*name).to_owned(),
                    s: took.as_secs_f64(),
                })
                .collect(),
        }
    }

    /// Two lines for people.
    pub fn lines(&self) -> String {
        let parts: Vec<String> = self.phases.iter().map(|p| format!("{} {:.3}", p.name, p.s)).collect();
        let mut out = format!(
            "took {:.3} s, of it NCCL's communicators {:.3}",
            self.own_s, self.nccl_s
        );
        if !parts.is_empty() {
            let _ = write!(out, ": {}", parts.join(", "));
        }
        let _ = writeln!(
            out,
            "\nbeside it cuInit {:.3} s, contexts {:.3} s: {:.3} s in all",
            self.cu_init_s, self.contexts_s, self.total_s
        );
        out
    }
}

/// `topoforge start`
#[derive(Debug, Serialize)]
pub struct StartDocument {
    /// The table.
    pub routes_file: String,
    /// The GPUs.
    pub device: String,
    /// What serves now, in words.
    pub explain: String,
    /// Variants that no longer qualify.
    pub dropped: Vec<String>,
    /// Until the first call could be made.
    pub took: Took,
}

impl Report for StartDocument {
    fn text(&self) -> String {
        format!(
            "ready on {} from {}\n{}\n{}",
            self.device,
            self.routes_file,
            self.explain,
            self.took.lines()
        )
    }
}

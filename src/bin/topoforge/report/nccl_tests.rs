//! A sweep in the style of nccl-tests: the columns that people compare by eye, with every word checked.
//!
//! `algbw` is the payload over the time, `busbw` what each link carries of it: 2 (n-1) / n of that for an all-reduce of n
//! ranks. Start at [`NcclTestsDocument`].

use super::Report;
use serde::Serialize;
use std::fmt::Write;
use topoforge::device::{DeviceInfo, Sampling};
use topoforge::registry::Element;
use topoforge::tune::{Place, Places};

/// `topoforge bench --style nccl-tests`
#[derive(Debug, Serialize)]
pub struct NcclTestsDocument {
    device: String,
    gpus: Vec<String>,
    emulation: bool,
    family: String,
    ranks: usize,
    #[serde(rename = "type")]
    element: &'static str,
    redop: &'static str,
    warmups: u32,
    iterations: u32,
    rows: Vec<Row>,
    wrong_words: u64,
    average_busbw: f64,
}

#[derive(Debug, Serialize)]
struct Row {
    bytes: u64,
    count: u64,
    route: String,
    geometry: String,
    out_of_place: Cell,
    in_place: Cell,
}

#[derive(Debug, Serialize)]
struct Cell {
    us: f64,
    algbw: f64,
    busbw: f64,
    wrong: u64,
}

impl Cell {
    fn of(place: &Place, bytes: u64, ranks: usize) -> Self {
        // Bytes a microsecond are thousandths of gigabytes a second.
        let algbw = bytes as f64 / place.us / 1e3;
        let links = 2.0 * (ranks as f64 - 1.0) / ranks as f64;
        Self {
            us: place.us,
            algbw,
            busbw: algbw * links,
            wrong: place.wrong,
        }
    }
}

/// What nccl-tests calls a type.
const fn type_name(element: Element) -> &'static str {
    match element {
        Element::F16 => "half",
        Element::Bf16 => "bfloat16",
        Element::F32 => "float",
    }
}

impl NcclTestsDocument {
    /// Of a finished sweep.
    pub fn of(device: &DeviceInfo, family: &str, element: Element, sampling: &Sampling, places: &[Places]) -> Self {
        let ranks = device.names.len();
        let rows: Vec<Row> = (places.iter())
            .map(|p| Row {
                bytes: p.bytes,
                count: p.bytes / element.bytes() as u64,
                route: p.variant.clone(),
                geometry: p.geometry.to_string(),
                out_of_place: Cell::of(&p.beside, p.bytes, ranks),
                in_place: Cell::of(&p.over, p.bytes, ranks),
            })
            .collect();
        let cells = || rows.iter().flat_map(|r| [&r.out_of_place, &r.in_place]);
        let average_busbw = cells().map(|c| c.busbw).sum::<f64>() / cells().count().max(1) as f64;
        Self {
            device: crate::device::spelled(device),
            gpus: device.names.clone(),
            emulation: !device.timed,
            family: family.to_owned(),
            ranks,
            element: type_name(element),
            redop: "sum",
            warmups: sampling.warmups,
            iterations: sampling.samples * sampling.calls,
            wrong_words: cells().map(|c| c.wrong).sum(),
            average_busbw,
            rows,
        }
    }

    /// Words that were not the declared sum.
    pub const fn wrong_words(&self) -> u64 {
        self.wrong_words
    }
}

impl Report for NcclTestsDocument {
    fn text(&self) -> String {
        let first = self.rows.first().map_or(0, |r| r.bytes);
        let last = self.rows.last().map_or(0, |r| r.bytes);
        let mut out = format!(
            "# nThread 1 nGpus {} minBytes {first} maxBytes {last} warmup iters: {} iters: {} validation: 1 graph: 1\n#\n# Using \
             devices, family {}\n",
            self.ranks, self.warmups, self.iterations, self.family
        );
        for (rank, name) in self.gpus.iter().enumerate() {
            let _ = writeln!(out, "#  Rank {rank:2} on {} {name}", self.device);
        }
        if self.emulation {
            out.push_str("# EMULATION: times and bandwidths mean nothing\n");
        }
        let _ = writeln!(out, "#\n# {:60} {:^34} {:^34}", "", "out-of-place", "in-place");
        let half = format!("{:>9} {:>7} {:>7} {:>7}", "time", "algbw", "busbw", "#wrong");
        let units = format!("{:>9} {:>7} {:>7} {:>7}", "(us)", "(GB/s)", "(GB/s)", "");
        let _ = writeln!(
            out,
            "# {:>12} {:>13} {:>9} {:>7} {:>7} {half} {half}",
            "size", "count", "type", "redop", "root"
        );
        let _ = writeln!(
            out,
            "# {:>12} {:>13} {:>9} {:>7} {:>7} {units} {units}",
            "(B)", "(elements)", "", "", ""
        );
        for row in &self.rows {
            let _ = write!(
                out,
                "  {:>12} {:>13} {:>9} {:>7} {:>7}",
                row.bytes, row.count, self.element, self.redop, -1
            );
            for cell in [&row.out_of_place, &row.in_place] {
                let _ = write!(
                    out,
                    " {:>9.2} {:>7.2} {:>7.2} {:>7}",
                    cell.us, cell.algbw, cell.busbw, cell.wrong
                );
            }
            out.push('\n');
        }
        let verdict = if self.wrong_words == 0 { "OK" } else { "FAILED" };
        let _ = writeln!(out, "# Out of bounds values : {} {verdict}", self.wrong_words);
        let _ = writeln!(out, "# Avg bus bandwidth    : {:.4}\n#", self.average_busbw);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_what_nccl_tests_calls_them() {
        let place = Place {
            us: 10.0,
            samples: Vec::new(),
            words: 1,
            wrong: 3,
        };
        let cell = Cell::of(&place, 1_000_000, 4);
        assert_eq!((cell.algbw, cell.busbw, cell.wrong), (100.0, 150.0, 3));
        // With two ranks each byte crosses once: both are one.
        let cell = Cell::of(&place, 1_000_000, 2);
        assert_eq!(cell.algbw, cell.busbw);
    }
}

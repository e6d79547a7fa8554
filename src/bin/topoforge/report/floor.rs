//! The report of `floor`.

use super::Report;
use super::table::Table;
use serde::Serialize;
use std::fmt::Write;
use topoforge::device::DeviceInfo;
use topoforge::device::floor::Floor;

/// What a machine cannot do faster.
#[derive(Debug, Serialize)]
pub struct FloorDocument {
    device: String,
    gpus: Vec<String>,
    wire_us: f64,
    gb_per_s: f64,
    nodes: Vec<Node>,
    rows: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Node {
    launch: &'static str,
    us: f64,
}

#[derive(Debug, Serialize)]
struct Line {
    bytes: u64,
    launch: &'static str,
    copy_us: f64,
    reference_us: Option<f64>,
    overlapped_us: Option<f64>,
}

impl FloorDocument {
    /// Of a measurement.
    pub fn of(device: &DeviceInfo, floor: &Floor) -> Self {
        let mut rows: Vec<Line> = (floor.copies.iter())
            .map(|c| Line {
                bytes: c.bytes,
                launch: c.launch.name(),
                copy_us: c.us,
                reference_us: floor.reference(c.bytes, c.launch),
                overlapped_us: floor.overlapped(c.bytes, c.launch),
            })
            .collect();
        rows.sort_by_key(|r| (r.launch, r.bytes));
        Self {
            device: crate::device::spelled(device),
            gpus: device.names.clone(),
            wire_us: floor.wire_us,
            gb_per_s: floor.gb_per_s,
            nodes: (floor.nodes.iter())
                .map(|(launch, us)| Node {
                    launch: launch.name(),
                    us: *us,
                })
                .collect(),
            rows,
        }
    }
}

impl Report for FloorDocument {
    fn text(&self) -> String {
        let mut out = format!("floor of {} ({})\n", self.device, self.gpus.join(", "));
        let _ = writeln!(
            out,
            "a word to a peer {:.2} us, stores to a peer {:.0} GB/s",
            self.wire_us, self.gb_per_s
        );
        for node in &self.nodes {
            let _ = writeln!(out, "empty dependent node, {} launch: {:.2} us", node.launch, node.us);
        }
        out.push('\n');
        let mut table = Table::default().figure("payload").text("launch").figure("copy us");
        table = table.figure("reference us").figure("overlapped us");
        let figure = |us: Option<f64>| us.map_or_else(|| "-".into(), |us| format!("{us:.2}"));
        for row in &self.rows {
            table.row([
                super::table::size(row.bytes),
                row.launch.to_owned(),
                figure(Some(row.copy_us)),
                figure(row.reference_us),
                figure(row.overlapped_us),
            ]);
        }
        out.push_str(&table.render(0));
        out.push_str(
            "\nreference = copy + word + bytes over the bandwidth; overlapped = node + word + the longer of\n",
        );
        out.push_str("what the copy adds to a node and the transfer\n");
        out
    }
}

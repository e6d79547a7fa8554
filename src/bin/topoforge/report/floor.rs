//! The report of `floor`.

use super::Report;
use super::table::Table;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use topoforge::device::floor::{Floor, LaunchCost};
use topoforge::device::{DeviceInfo, Launch};

/// A pass this much slower than the best one is worth a word.
const TWO_MINDS: f64 = 1.2;

/// What a machine cannot do faster.
#[derive(Debug, Serialize)]
pub struct FloorDocument {
    device: String,
    gpus: Vec<String>,
    staged: bool,
    wire_us: f64,
    gb_per_s: f64,
    nodes: Vec<Node>,
    rows: Vec<Line>,
    edges: Vec<Edge>,
    host_memory: Option<HostMemory>,
    launches: Vec<LaunchLine>,
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
    geometry: String,
    copy_us: f64,
    copy_worst_us: f64,
    reference_us: Option<f64>,
    overlapped_us: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Edge {
    from: usize,
    to: usize,
    class: Option<String>,
    us: f64,
}

#[derive(Debug, Serialize)]
struct HostMemory {
    load_us: f64,
    words: Vec<Word>,
    store_gb_per_s: f64,
    loads: Vec<Loads>,
    prototypes: Vec<PrototypeLine>,
}

#[derive(Debug, Serialize)]
struct PrototypeLine {
    bytes: u64,
    hold_clocks: u32,
    clocks_between_polls: u32,
    us: f64,
}

#[derive(Debug, Serialize)]
struct Word {
    clocks_between_polls: u32,
    us: f64,
}

#[derive(Debug, Serialize)]
struct Loads {
    issued: &'static str,
    gb_per_s: f64,
    both_gb_per_s: f64,
}

#[derive(Debug, Serialize)]
struct LaunchLine {
    launch: &'static str,
    host_ns: f64,
    driver_calls: f64,
}

impl FloorDocument {
    /// Of a measurement; `classes` names edges by their ends.
    pub fn of(
        device: &DeviceInfo,
        floor: &Floor,
        costs: &[(Launch, LaunchCost)],
        classes: &BTreeMap<(usize, usize), String>,
    ) -> Self {
        let mut rows: Vec<Line> = (floor.copies.iter())
            .map(|c| Line {
                bytes: c.bytes,
                launch: c.geometry.launch.name(),
                geometry: c.geometry.to_string(),
                copy_us: c.us,
                copy_worst_us: c.worst_us,
                reference_us: floor.reference(c.bytes, c.geometry.launch),
                overlapped_us: floor.overlapped(c.bytes, c.geometry.launch),
            })
            .collect();
        rows.sort_by_key(|r| (r.launch, r.bytes));
        let edge = |w: &topoforge::device::floor::Wire| Edge {
            from: w.from,
            to: w.to,
            class: classes.get(&(w.from, w.to)).cloned(),
            us: w.us,
        };
        let host_memory = floor.host.as_ref().map(|h| HostMemory {
            load_us: h.load_us,
            words: (h.words.iter())
                .map(|(clocks, us)| Word {
                    clocks_between_polls: *clocks,
                    us: *us,
                })
                .collect(),
            store_gb_per_s: h.store_gb_per_s,
            loads: (h.loads.iter())
                .map(|(issued, alone, both)| Loads {
                    issued,
                    gb_per_s: *alone,
                    both_gb_per_s: *both,
                })
                .collect(),
            prototypes: (h.prototypes.iter())
                .map(|p| PrototypeLine {
                    bytes: p.bytes,
                    hold_clocks: p.hold,
                    clocks_between_polls: p.gap,
                    us: p.us,
                })
                .collect(),
        });
        Self {
            device: crate::device::spelled(device),
            gpus: device.names.clone(),
            staged: floor.staged,
            wire_us: floor.wire_us,
            gb_per_s: floor.gb_per_s,
            nodes: (floor.nodes.iter())
                .map(|(launch, us)| Node {
                    launch: launch.name(),
                    us: *us,
                })
                .collect(),
            rows,
            edges: floor.wires.iter().map(edge).collect(),
            host_memory,
            launches: costs.iter().map(launch_line).collect(),
        }
    }
}

fn launch_line((launch, cost): &(Launch, LaunchCost)) -> LaunchLine {
    LaunchLine {
        launch: launch.name(),
        host_ns: cost.ns,
        driver_calls: cost.driver_calls,
    }
}

/// A launch's cost in a line.
pub fn cost_text(launch: &str, ns: f64, driver_calls: f64) -> String {
    format!("host thread, {launch} launch, context current: {ns:.0} ns and {driver_calls:.2} driver calls a collective")
}

impl Report for FloorDocument {
    fn text(&self) -> String {
        let mut out = format!("floor of {} ({})\n", self.device, self.gpus.join(", "));
        let way = if self.staged {
            "through host memory"
        } else {
            "to a peer"
        };
        let _ = writeln!(
            out,
            "a word {way} {:.2} us, bytes {:.0} GB/s",
            self.wire_us, self.gb_per_s
        );
        for node in &self.nodes {
            let _ = writeln!(out, "empty dependent node, {} launch: {:.2} us", node.launch, node.us);
        }
        for line in &self.launches {
            let _ = writeln!(out, "{}", cost_text(line.launch, line.host_ns, line.driver_calls));
        }
        out.push('\n');
        let mut table = Table::default().figure("payload").text("launch").text("geometry");
        table = table.figure("copy us").figure("worst pass");
        table = table.figure("reference us").figure("overlapped us");
        let figure = |us: Option<f64>| us.map_or_else(|| "-".into(), |us| format!("{us:.2}"));
        for row in &self.rows {
            let minds = if row.copy_worst_us > TWO_MINDS * row.copy_us {
                "!"
            } else {
                ""
            };
            table.row([
                super::table::size(row.bytes),
                row.launch.to_owned(),
                row.geometry.clone(),
                figure(Some(row.copy_us)),
                format!("{minds}{:.2}", row.copy_worst_us),
                figure(row.reference_us),
                figure(row.overlapped_us),
            ]);
        }
        out.push_str(&table.render(0));
        out.push_str(
            "\nreference = copy + word + bytes over the bandwidth; overlapped = node + word + the longer of\n\
             what the copy adds to a node and the transfer; ! = the same nodes captured anew were a fifth slower\n",
        );
        if !self.edges.is_empty() {
            let mut table = Table::default().text("edge").text("class").figure("a word, us");
            for edge in &self.edges {
                table.row([
                    format!("{} - {}", edge.from, edge.to),
                    edge.class.clone().unwrap_or_else(|| "-".to_owned()),
                    format!("{:.2}", edge.us),
                ]);
            }
            let _ = write!(out, "\n{}", table.render(0));
        }
        if let Some(host) = &self.host_memory {
            host_text(host, &mut out);
            prototypes_text(&host.prototypes, &mut out);
        }
        out
    }
}

fn host_text(host: &HostMemory, out: &mut String) {
    let _ = writeln!(
        out,
        "\nthrough host memory: a load {:.2} us, stores {:.1} GB/s",
        host.load_us, host.store_gb_per_s
    );
    for word in &host.words {
        let polls = match word.clocks_between_polls {
            0 => "one poll at a time".to_owned(),
            clocks => format!("two polls, {clocks} clocks apart"),
        };
        let _ = writeln!(out, "  a word, {polls}: {:.2} us", word.us);
    }
    for loads in &host.loads {
        let _ = writeln!(
            out,
            "  loads of 16 bytes, {}: {:.1} GB/s, {:.1} GB/s each while both GPUs load",
            loads.issued, loads.gb_per_s, loads.both_gb_per_s
        );
    }
}

/// A row a way of polling, a column a payload.
fn prototypes_text(lines: &[PrototypeLine], out: &mut String) {
    if lines.is_empty() {
        return;
    }
    let mut sizes: Vec<u64> = lines.iter().map(|l| l.bytes).collect();
    sizes.dedup();
    let mut table = Table::default().text("a pair's sum by a prototype, us a call");
    for bytes in &sizes {
        table = table.figure(super::table::size(*bytes));
    }
    let first: Vec<&PrototypeLine> = lines.iter().filter(|l| Some(&l.bytes) == sizes.first()).collect();
    for way in first {
        let name = match (way.hold_clocks, way.clocks_between_polls) {
            (0, 0) => "polls at once, one after the other".to_owned(),
            (hold, 0) => format!("first poll after {hold} clocks"),
            (_, gap) => format!("two polls, {gap} clocks apart"),
        };
        let same =
            |l: &&PrototypeLine| (l.hold_clocks, l.clocks_between_polls) == (way.hold_clocks, way.clocks_between_polls);
        let cells = lines.iter().filter(same).map(|l| format!("{:.2}", l.us));
        table.row(std::iter::once(name).chain(cells));
    }
    let _ = write!(out, "\n{}", table.render(0));
}

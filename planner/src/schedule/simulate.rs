//! A schedule's predicted timeline: when each stage begins and ends, what holds it up, and the most loaded link.
//!
//! It adds up exactly what [`super::cost`] predicts and shows where it goes; it measures nothing. Start at
//! [`simulate`].

use super::cost::{FITTED, Profile, Protocol, Widths};
use super::edges::{EdgePolicy, Edges};
use super::ir::{Delivery, Rank, Schedule};
use crate::topology::Topology;
use std::fmt;

/// Something that bytes have to share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A directed edge.
    Edge(Rank, Rank),
    /// What a GPU sends to all peers that share its port.
    PortOut(Rank),
    /// What a GPU receives from all peers that share its port.
    PortIn(Rank),
    /// A shared capacity of the descriptor, by name.
    Resource(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edge(from, to) => write!(f, "edge {from} to {to}"),
            Self::PortOut(rank) => write!(f, "port of {rank}, outgoing"),
            Self::PortIn(rank) => write!(f, "port of {rank}, incoming"),
            Self::Resource(name) => f.write_str(name),
        }
    }
}

/// How much a place carries.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// What is loaded.
    pub place: Place,
    /// Bytes on the wire, the protocol's own included.
    pub bytes: f64,
    /// How long they take, microseconds.
    pub busy_us: f64,
}

/// One stage.
#[derive(Clone, Debug, PartialEq)]
pub struct StageTime {
    /// Microseconds from the start of the call.
    pub begins_us: f64,
    /// Microseconds from the start of the call.
    pub ends_us: f64,
    /// Messages under way.
    pub transfers: usize,
    /// What issuing, polling and the protocol cost, microseconds.
    pub overhead_us: f64,
    /// The slowest edge's latency, there and back for loads, microseconds.
    pub latency_us: f64,
    /// What the stage's bytes wait for; none where nothing is sent.
    pub busiest: Option<Load>,
}

/// A whole call.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// The protocol it is for.
    pub protocol: Protocol,
    /// Payload, bytes a rank.
    pub bytes: u64,
    /// Launch, first load and last store, microseconds; before the first stage.
    pub launch_us: f64,
    /// Both barriers of a pull, microseconds.
    pub barriers_us: f64,
    /// In order.
    pub stages: Vec<StageTime>,
    /// Reading, summing and resetting what was received, microseconds; counted once, behind the last stage.
    pub sums_us: f64,
    /// The prediction: all of these together.
    pub total_us: f64,
    /// The place that is busy longest over all stages; none where nothing is sent.
    pub most_loaded: Option<Load>,
}

/// The timeline of `schedule` on `topology` with `bytes` of payload a rank.
///
/// A schedule of another number of ranks than the topology gives a timeline without stages.
pub fn simulate(
    schedule: &Schedule,
    topology: &Topology,
    policy: EdgePolicy,
    widths: Widths,
    protocol: Protocol,
    bytes: u64,
) -> Timeline {
    let edges = Edges::new(topology, policy);
    let cost = protocol.cost(&FITTED);
    let fits = schedule.ranks == topology.ranks;
    let stages = if fits { &schedule.stages[..] } else { &[] };
    let partial = f64::from(widths.partials) / f64::from(widths.element.max(1));
    let part = bytes as f64 / f64::from(schedule.chunks.max(1));
    let mut now = FITTED.launch_us;
    let mut all: Vec<Load> = Vec::new();
    let mut timed = Vec::with_capacity(stages.len());
    let mut slowest = 0.0_f64;
    for stage in stages {
        let (mut loads, mut latency) = (Vec::new(), 0.0_f64);
        for t in &stage.transfers {
            let wide = if schedule.is_partial(t.value) { partial } else { 1.0 };
            let wire = part * wide * cost.wire;
            let (a, b) = match schedule.delivery {
                Delivery::Push => (t.from, t.to),
                Delivery::Pull => (t.to, t.from),
            };
            let us_per_byte = match schedule.delivery {
                Delivery::Push => edges.us_per_byte(a, b),
                Delivery::Pull => edges.us_per_byte_read(a, b),
            };
            latency = latency.max(edges.latency_us(a, b));
            add(&mut loads, Place::Edge(t.from, t.to), wire, us_per_byte);
            if edges.shares_port(a, b) {
                add(&mut loads, Place::PortOut(t.from), wire, us_per_byte);
                add(&mut loads, Place::PortIn(t.to), wire, us_per_byte);
            }
            for ((us_per_byte, mask), resource) in edges.resources().iter().zip(&topology.resources) {
                if mask[t.from] >> t.to & 1 == 1 {
                    add(&mut loads, Place::Resource(resource.name.clone()), wire, *us_per_byte);
                }
            }
        }
        slowest = slowest.max(latency);
        for load in &loads {
            let us_per_byte = if load.bytes > 0.0 {
                load.busy_us / load.bytes
            } else {
                0.0
            };
            add(&mut all, load.place.clone(), load.bytes, us_per_byte);
        }
        let busiest = most(&loads);
        let overhead = FITTED.stage_us + cost.stage_us;
        let latency = f64::from(cost.trips) * latency;
        let ends = now + overhead + latency + busiest.as_ref().map_or(0.0, |l| l.busy_us);
        timed.push(StageTime {
            begins_us: now,
            ends_us: ends,
            transfers: stage.transfers.len(),
            overhead_us: overhead,
            latency_us: latency,
            busiest,
        });
        now = ends;
    }
    let barriers_us = f64::from(cost.barriers) * (slowest + FITTED.barrier_us);
    let sums_us = if fits {
        let profile = Profile::of(schedule, &edges, widths);
        (profile.predict(protocol, bytes) - now - barriers_us).max(0.0)
    } else {
        0.0
    };
    Timeline {
        protocol,
        bytes,
        launch_us: FITTED.launch_us,
        barriers_us,
        stages: timed,
        sums_us,
        total_us: now + barriers_us + sums_us,
        most_loaded: most(&all),
    }
}

fn add(loads: &mut Vec<Load>, place: Place, bytes: f64, us_per_byte: f64) {
    let busy_us = bytes * us_per_byte;
    match loads.iter_mut().find(|l| l.place == place) {
        Some(load) => {
            load.bytes += bytes;
            load.busy_us += busy_us;
        }
        None => loads.push(Load { place, bytes, busy_us }),
    }
}

/// The longest busy; of equal ones a shared place says more than one edge.
fn most(loads: &[Load]) -> Option<Load> {
    let ordered = |a: &&Load, b: &&Load| {
        let close = (a.busy_us - b.busy_us).abs() < 1e-9;
        let by_time = if close {
            std::cmp::Ordering::Equal
        } else {
            a.busy_us.total_cmp(&b.busy_us)
        };
        by_time.then(a.place.cmp(&b.place))
    };
    loads.iter().max_by(ordered).cloned()
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>9}  {:>9}  what ({}, {} bytes a rank, predicted microseconds)",
            "from", "to", self.protocol, self.bytes
        )?;
        let line = |f: &mut fmt::Formatter<'_>, from: f64, to: f64| write!(f, "{from:>9.2}  {to:>9.2}  ");
        line(f, 0.0, self.launch_us)?;
        writeln!(f, "launch, first load, last store")?;
        for (at, stage) in self.stages.iter().enumerate() {
            line(f, stage.begins_us, stage.ends_us)?;
            write!(
                f,
                "stage {at}: {} transfers, {:.2} overhead, {:.2} latency",
                stage.transfers, stage.overhead_us, stage.latency_us
            )?;
            match &stage.busiest {
                Some(load) => writeln!(
                    f,
                    ", {:.2} for {:.0} bytes over {}",
                    load.busy_us, load.bytes, load.place
                )?,
                None => writeln!(f)?,
            }
        }
        let after = self.total_us - self.sums_us;
        if self.barriers_us > 0.0 {
            line(f, after - self.barriers_us, after)?;
            writeln!(f, "barriers before and after the reads")?;
        }
        line(f, after, self.total_us)?;
        writeln!(f, "sums and resets of what was received")?;
        match &self.most_loaded {
            Some(load) => {
                let share = 100.0 * load.busy_us / self.total_us;
                writeln!(
                    f,
                    "most loaded: {}, busy {:.2} ({share:.0} % of the call)",
                    load.place, load.busy_us
                )
            }
            None => writeln!(f, "nothing is sent"),
        }
    }
}

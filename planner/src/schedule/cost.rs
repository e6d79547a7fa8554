//! Predicted microseconds of a schedule, for ranking candidates and for nothing else: selection always measures.
//!
//! A call costs a launch floor, then for each stage the slowest edge's latency and the time of its bytes over the most
//! loaded edge, GPU port or shared capacity, then the time to read, sum and reset what was received. How far to trust it
//! is in docs/cost-model.md. Start at [`Profile::of`] and [`Profile::predict`].

use super::edges::Edges;
use super::ir::{Delivery, Schedule};
use std::fmt;

/// What nobody can read off a link: a handful of figures, fitted on published V100 medians (see
/// [`super::calibration`] and docs/cost-model.md).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// An empty collective, microseconds: launch, first load and last store.
    pub launch_us: f64,
    /// What a stage costs beside latency: issuing puts, and the poll that just missed.
    pub stage_us: f64,
    /// A flag's stage on top: a system-scope fence after the block's copies, and a block barrier on both sides.
    pub fence_us: f64,
    /// A sentinel's stage on top: on fast links packets win by about this much up to a few tens of KiB.
    pub sentinel_us: f64,
    /// One barrier of a pulling kernel beside its latency.
    pub barrier_us: f64,
    /// Reading and summing one received byte from local memory.
    pub sum_us_per_byte: f64,
    /// Resetting one received byte.
    pub reset_us_per_byte: f64,
}

/// The fitted values.
pub const FITTED: Constants = Constants {
    launch_us: 2.6,
    stage_us: 0.3,
    fence_us: 1.5,
    sentinel_us: 0.1,
    barrier_us: 2.6,
    sum_us_per_byte: 1e-3 / 400.0,
    reset_us_per_byte: 1e-3 / 250.0,
};

/// Figures closer than this differ by rounding.
const EQUAL: f64 = 1e-12;

/// How bytes and readiness cross an edge, as far as cost goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Data and epoch in one store: twice the bytes.
    Packet,
    /// The payload is the signal: once the bytes, the receiver resets.
    Sentinel,
    /// Lines of 128 bytes that carry their epoch and arrive whole: 16/15 of the bytes, links that keep lines only.
    Packet128,
    /// Block copies, a fence and a flag.
    Flag,
    /// A barrier, loads from the peers' inputs, a barrier.
    Pull,
}

impl Protocol {
    /// The protocols that can carry a schedule of this delivery, where links have what they need.
    pub fn for_delivery(delivery: Delivery) -> &'static [Self] {
        match delivery {
            Delivery::Push => &[Self::Packet, Self::Sentinel, Self::Packet128, Self::Flag],
            Delivery::Pull => &[Self::Pull],
        }
    }

    /// Whether it is right only over links that keep 128-byte lines whole.
    pub const fn needs_lines(self) -> bool {
        matches!(self, Self::Packet128)
    }

    /// What the protocol adds to a schedule.
    pub fn cost(self, constants: &Constants) -> ProtocolCost {
        let plain = ProtocolCost {
            wire: 1.0,
            stage_us: 0.0,
            us_per_received_byte: 0.0,
            barriers: 0,
            trips: 1,
        };
        match self {
            Self::Packet => ProtocolCost { wire: 2.0, ..plain },
            // Each line is cleared once more.
            Self::Sentinel => ProtocolCost {
                stage_us: constants.sentinel_us,
                us_per_received_byte: constants.reset_us_per_byte,
                ..plain
            },
            // A vote and a shuffle a stage; cutting and joining columns is taken to cost what a reset does.
            Self::Packet128 => ProtocolCost {
                wire: 16.0 / 15.0,
                stage_us: constants.sentinel_us,
                us_per_received_byte: constants.reset_us_per_byte,
                ..plain
            },
            Self::Flag => ProtocolCost {
                stage_us: constants.fence_us,
                ..plain
            },
            // A load goes there and back.
            Self::Pull => ProtocolCost {
                barriers: 2,
                trips: 2,
                ..plain
            },
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Packet => "packet",
            Self::Sentinel => "sentinel",
            Self::Packet128 => "packet128",
            Self::Flag => "flag",
            Self::Pull => "pull",
        })
    }
}

/// What a protocol adds to a schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProtocolCost {
    /// Bytes on the wire for each byte of payload.
    pub wire: f64,
    /// Added to each stage, microseconds.
    pub stage_us: f64,
    /// Local work for each received byte of payload, microseconds.
    pub us_per_received_byte: f64,
    /// Barriers around the call.
    pub barriers: u32,
    /// How often a stage pays the edge's latency.
    pub trips: u32,
}

/// Bytes of one element and of one partial sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Widths {
    /// 2 for f16 and bf16, 4 for f32.
    pub element: u32,
    /// What a partial sum has.
    pub partials: u32,
}

impl Default for Widths {
    /// f16 with f16 partials.
    fn default() -> Self {
        Self {
            element: 2,
            partials: 2,
        }
    }
}

/// What decides a schedule's cost on a topology, for any payload and protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    delivery: Delivery,
    /// Per stage: latency of the slowest edge, and microseconds a byte of payload on the busiest thing.
    stages: Vec<(f64, f64)>,
    /// Bytes that the busiest receiver gets in all stages, for each byte of payload.
    received: f64,
    /// Whether every edge that is used keeps 128-byte lines whole.
    lines: bool,
}

impl Profile {
    /// The profile of a schedule whose ranks are those of `edges`.
    pub fn of(schedule: &Schedule, edges: &Edges, widths: Widths) -> Self {
        let n = schedule.ranks;
        let part = 1.0 / f64::from(schedule.chunks.max(1));
        let partial = f64::from(widths.partials) / f64::from(widths.element.max(1));
        let mut received = vec![0.0; n];
        let mut link = vec![0.0; n * n];
        let (mut egress, mut ingress) = (vec![0.0; n], vec![0.0; n]);
        let mut shared = vec![0.0; edges.resources().len()];
        let mut stages = Vec::with_capacity(schedule.stages.len());
        for stage in &schedule.stages {
            for load in [&mut link, &mut egress, &mut ingress, &mut shared] {
                load.fill(0.0);
            }
            let mut latency = 0.0_f64;
            for t in &stage.transfers {
                let bytes = part * if schedule.is_partial(t.value) { partial } else { 1.0 };
                // A pull's request comes from the reader, so the reader's link is the one with the figures.
                let (a, b) = match schedule.delivery {
                    Delivery::Push => (t.from, t.to),
                    Delivery::Pull => (t.to, t.from),
                };
                let time = bytes
                    * match schedule.delivery {
                        Delivery::Push => edges.us_per_byte(a, b),
                        Delivery::Pull => edges.us_per_byte_read(a, b),
                    };
                latency = latency.max(edges.latency_us(a, b));
                received[t.to] += bytes;
                link[t.from * n + t.to] += time;
                if edges.shares_port(a, b) {
                    egress[t.from] += time;
                    ingress[t.to] += time;
                }
                for (load, (us_per_byte, mask)) in shared.iter_mut().zip(edges.resources()) {
                    if mask[t.from] >> t.to & 1 == 1 {
                        *load += bytes * us_per_byte;
                    }
                }
            }
            let loads = [&link, &egress, &ingress, &shared];
            let busiest = loads.into_iter().flatten().fold(0.0_f64, |a, &b| a.max(b));
            stages.push((latency, busiest));
        }
        let received = received.into_iter().fold(0.0, f64::max);
        Self {
            delivery: schedule.delivery,
            stages,
            received,
            lines: schedule.transfers().all(|t| edges.keeps_lines(t.from, t.to)),
        }
    }

    /// Microseconds of one call with `bytes` of payload a rank.
    pub fn predict(&self, protocol: Protocol, bytes: u64) -> f64 {
        self.predict_with(&FITTED, protocol, bytes)
    }

    /// [`Self::predict`] with other constants.
    pub fn predict_with(&self, constants: &Constants, protocol: Protocol, bytes: u64) -> f64 {
        let cost = protocol.cost(constants);
        let bytes = bytes as f64;
        let slowest = self.stages.iter().fold(0.0_f64, |a, s| a.max(s.0));
        let stage = |&(latency, us_per_byte): &(f64, f64)| {
            constants.stage_us + cost.stage_us + f64::from(cost.trips) * latency + bytes * cost.wire * us_per_byte
        };
        constants.launch_us
            + self.stages.iter().map(stage).sum::<f64>()
            + f64::from(cost.barriers) * (slowest + constants.barrier_us)
            + bytes * self.received * (constants.sum_us_per_byte * cost.wire + cost.us_per_received_byte)
    }

    /// Whether this is at least as good as `other` whatever the payload and protocol, and better in something: it has no
    /// more stages, waits, bytes or sums. One of another delivery is never compared.
    pub fn dominates(&self, other: &Self) -> bool {
        let key = |p: &Self| {
            let (latency, byte) = p.stages.iter().fold((0.0, 0.0), |a, s| (a.0 + s.0, a.1 + s.1));
            let slowest = p.stages.iter().fold(0.0_f64, |a, s| a.max(s.0));
            [p.stages.len() as f64, latency, slowest, byte, p.received]
        };
        let (own, theirs) = (key(self), key(other));
        let none_worse = own.iter().zip(&theirs).all(|(a, b)| *a <= b + EQUAL);
        let one_better = own.iter().zip(&theirs).any(|(a, b)| *a < b - EQUAL);
        self.delivery == other.delivery && none_worse && one_better
    }

    /// Whether the links have what the protocol needs.
    pub fn admits(&self, protocol: Protocol) -> bool {
        self.lines || !protocol.needs_lines()
    }

    /// The protocol with the lowest prediction, and that prediction.
    pub fn best(&self, bytes: u64) -> (Protocol, f64) {
        let all = Protocol::for_delivery(self.delivery);
        let fit = all.iter().filter(|p| self.admits(**p));
        let predictions = fit.map(|&p| (p, self.predict(p, bytes)));
        predictions
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap_or((all[0], f64::INFINITY))
    }
}

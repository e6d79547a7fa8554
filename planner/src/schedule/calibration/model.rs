//! What each published figure is taken for: a schedule and a protocol of ours, or a model of what it was compared with.
//!
//! Neither the schedules nor the protocols behind the figures were published in full; where two fitted the description,
//! the one that explains the figures was taken, so a little of the agreement is choice. Start at [`machines`].

use super::figures::{self, Figure};
use crate::schedule::cost::{Constants, FITTED, Profile, Protocol, Widths};
use crate::schedule::edges::{EdgePolicy, Edges};
use crate::schedule::generate::generate;
use crate::topology::parse_descriptor;

/// Everything that is fitted: the planner's own constants, and those of what it was compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// The planner's.
    pub cost: Constants,
    /// A conversion between f16 and f32 around a comparison, microseconds.
    pub convert_us: f64,
    /// NCCL's low-latency ring: one hop beside the link's latency, microseconds.
    pub ring_hop_us: f64,
    /// The same: what a step moves whatever the link, 10^9 bytes a second; its channels are few.
    pub ring_gb_per_s: f64,
    /// NCCL's ring for bulk, which runs at the links' rate: one hop beside the link's latency, microseconds.
    pub bulk_hop_us: f64,
}

impl Parameters {
    /// Where fits begin, and where they stay for what the figures say nothing about.
    pub const PRIOR: Self = Self {
        cost: Constants {
            launch_us: 2.5,
            stage_us: 0.3,
            fence_us: 1.5,
            barrier_us: 1.7,
            ..FITTED
        },
        convert_us: 2.0,
        ring_hop_us: 0.6,
        ring_gb_per_s: 6.0,
        bulk_hop_us: 7.0,
    };

    pub(super) fn to_array(self) -> [f64; 8] {
        let c = self.cost;
        [
            c.launch_us,
            c.stage_us,
            c.fence_us,
            c.barrier_us,
            self.convert_us,
            self.ring_hop_us,
            self.ring_gb_per_s,
            self.bulk_hop_us,
        ]
    }

    pub(super) fn from_array(values: &[f64]) -> Self {
        let at = |i: usize| values.get(i).copied().unwrap_or(f64::NAN);
        Self {
            cost: Constants {
                launch_us: at(0),
                stage_us: at(1),
                fence_us: at(2),
                barrier_us: at(3),
                ..FITTED
            },
            convert_us: at(4),
            ring_hop_us: at(5),
            ring_gb_per_s: at(6),
            bulk_hop_us: at(7),
        }
    }
}

/// What a comparison is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Other {
    /// Every rank reads its peer's input, one stage.
    PeerRead,
    /// NCCL.
    Nccl,
    /// A push kernel up to this many KiB, NCCL beyond.
    PushOrNccl(u64),
}

/// A measured machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The family that is nearest to it.
    pub name: &'static str,
    /// What was measured.
    pub figures: &'static [Figure],
    ranks: f64,
    narrow: Vec<(Profile, Protocol)>,
    wide: Vec<(Profile, Protocol)>,
    pull: Option<Profile>,
    push: Option<Profile>,
    other: Other,
    /// Slowest edge of the best ring.
    ring_us_per_byte: f64,
    ring_latency_us: f64,
}

impl Machine {
    /// Predicted microseconds of the planned schedule: the best of those that it may have been.
    pub(super) fn planned(&self, parameters: &Parameters, wide: bool, bytes: u64) -> f64 {
        let ways = if wide { &self.wide } else { &self.narrow };
        ways.iter()
            .map(|(profile, protocol)| profile.predict_with(&parameters.cost, *protocol, bytes))
            .fold(f64::INFINITY, f64::min)
    }

    /// Predicted microseconds of the comparison, conversions of f32 partials included.
    pub(super) fn other(&self, parameters: &Parameters, wide: bool, bytes: u64) -> f64 {
        let (moved, around) = if wide {
            (2 * bytes, 2.0 * parameters.convert_us)
        } else {
            (bytes, 0.0)
        };
        let by = |profile: &Option<Profile>, protocol| {
            let profile = profile.as_ref();
            profile.map_or(f64::INFINITY, |p| p.predict_with(&parameters.cost, protocol, moved))
        };
        around
            + match self.other {
                Other::PeerRead => by(&self.pull, Protocol::Pull),
                Other::PushOrNccl(most) if bytes <= most << 10 => by(&self.push, Protocol::Sentinel),
                Other::Nccl | Other::PushOrNccl(_) => self.nccl(parameters, moved),
            }
    }

    /// A ring of `2(n-1)` steps, each of an n-th of the payload, in the faster of two protocols.
    fn nccl(&self, parameters: &Parameters, bytes: u64) -> f64 {
        let steps = 2.0 * (self.ranks - 1.0);
        let part = bytes as f64 / self.ranks;
        let quick = parameters.ring_hop_us + part * 1e-3 / parameters.ring_gb_per_s;
        let bulk = parameters.bulk_hop_us + part * self.ring_us_per_byte;
        parameters.cost.launch_us + steps * (self.ring_latency_us + quick.min(bulk))
    }
}

/// The measured machines. `mixed-8` is taken to have run two or three stages of packets over NVLink with f16 partials, and to
/// have pushed its f16 inputs all at once with f32 ones: that is the only schedule of its kind whose bytes grow as the
/// figures do. The PCIe quad's planned column is taken for sentinels in one shot or two.
pub fn machines() -> Vec<Machine> {
    let descriptors = [
        ("nvlink-pair", include_str!("../../../../topologies/nvlink-pair.ron")),
        ("pix-pair", include_str!("../../../../topologies/pix-pair.ron")),
        ("mixed-8", include_str!("../../../../topologies/mixed-8.ron")),
        ("pix-quad", include_str!("../../../../topologies/pix-quad.ron")),
        ("nvlink-quad", include_str!("../../../../topologies/nvlink-quad.ron")),
    ];
    let machine = |&(name, figures): &(&'static str, &'static [Figure])| {
        let text = descriptors.iter().find(|d| d.0 == name)?.1;
        let topology = parse_descriptor(text, name).ok()?;
        let edges = Edges::new(&topology, EdgePolicy::Peer);
        let candidates = generate(&edges, 2048);
        let profiles = |shape: &str, partials: u32| -> Vec<Profile> {
            let widths = Widths { element: 2, partials };
            let of_shape = candidates.iter().filter(|c| c.shape == shape);
            of_shape.map(|c| Profile::of(&c.schedule, &edges, widths)).collect()
        };
        let ways = |list: &[(&str, Protocol)], partials: u32| -> Vec<(Profile, Protocol)> {
            let of = |&(shape, protocol): &(&str, Protocol)| {
                profiles(shape, partials).into_iter().map(move |p| (p, protocol))
            };
            list.iter().flat_map(of).collect()
        };
        let (narrow, wide): (&[_], &[_]) = match name {
            "mixed-8" => (
                &[("exchange-2x2x2", Protocol::Packet), ("exchange-4x2", Protocol::Packet)],
                &[("one-shot", Protocol::Flag)],
            ),
            "pix-quad" => (
                &[("one-shot", Protocol::Sentinel), ("two-shot", Protocol::Sentinel)],
                &[],
            ),
            _ => (&[("one-shot", Protocol::Packet)], &[("one-shot", Protocol::Packet)]),
        };
        let other = match name {
            "mixed-8" => Other::Nccl,
            "pix-quad" => Other::PushOrNccl(80),
            "nvlink-quad" => Other::PushOrNccl(u64::MAX >> 10),
            _ => Other::PeerRead,
        };
        let ring = candidates.iter().find(|c| c.schedule.name == "ring");
        let slowest = |of: &dyn Fn(usize, usize) -> f64| {
            let used = ring.map(|c| c.schedule.used_edges()).unwrap_or_default();
            used.into_iter().map(|(a, b)| of(a, b)).fold(0.0, f64::max)
        };
        Some(Machine {
            name,
            figures,
            ranks: topology.ranks as f64,
            narrow: ways(narrow, 2),
            wide: ways(wide, 4),
            pull: profiles("one-shot-pull", 2).pop(),
            push: profiles("one-shot", 2).pop(),
            other,
            ring_us_per_byte: slowest(&|a, b| edges.us_per_byte(a, b)),
            ring_latency_us: slowest(&|a, b| edges.latency_us(a, b)),
        })
    };
    figures::ALL.iter().filter_map(machine).collect()
}

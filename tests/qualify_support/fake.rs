//! An executor in memory: computes declared expressions with arithmetic of its own, or wrongly on request, and returns
//! scripted times. Start at [`Fake`].
#![allow(dead_code)]

use half::f16;
use std::collections::BTreeMap;
use topoforge::device::{
    Chain, Comparator, DeviceError, DeviceInfo, Executor, Fault, Geometry, Mode, NcclSetting, Outputs, Preparation,
    Prepared, Sampling, Timed,
};
use topoforge::planner::schedule::Expression;
use topoforge::qualify::mix::mix_f16;
use topoforge::registry::{Element, Family, Kernel, Memory, Partials, Protocol, RankPorts, Variant};

/// What a variant does wrong. Calls are counted over the life of a prepared collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Rank `to` never adds rank `from`.
    Dropped { from: usize, to: usize },
    /// Rank 0 sees rank 1's input of the call before.
    Stale,
    /// One bit of one word in one call.
    Bit { call: u32, rank: usize, element: usize },
    /// Sums in the reverse order.
    Order,
    /// Subnormal results become zero.
    Flush,
    /// A sum that starts from +0.
    PlusZero,
    /// Elements behind the last whole 16-byte vector are not written.
    Tail,
    /// Wrong only after the payload has shrunk.
    Shrunk,
    /// Wrong only when captured.
    Replay,
    /// Wrong only in place.
    InPlace,
    /// A wait never ends.
    Hangs,
    /// One call's outputs are missing.
    Short,
    /// The result is rounded twice: sums in f16 where f32 is declared.
    Narrow,
}

/// Times in microseconds of a name in a geometry at a payload.
pub type Clock = Box<dyn Fn(&str, Geometry, u64) -> f64>;

pub struct Fake {
    pub info: DeviceInfo,
    pub wrong: BTreeMap<&'static str, Wrong>,
    pub nccl: Option<Wrong>,
    pub has_nccl: bool,
    pub clock: Clock,
    pub max_blocks: u32,
    /// Times beside busy streams; none: as on an idle machine.
    pub loaded: Option<Clock>,
    /// Timing fails for this name.
    pub untimed: Option<&'static str>,
    pub live: BTreeMap<usize, Live>,
    /// Every chain that ran: name, bytes, geometry.
    pub ran: Vec<(&'static str, u64, Geometry)>,
    pub times: usize,
    next: usize,
}

pub struct Live {
    who: Who,
    calls: u32,
    largest: u64,
    previous: Vec<Vec<u16>>,
}

#[derive(Clone, Copy)]
enum Who {
    Variant(&'static Variant, Preparation),
    Other(Comparator, u64),
}

impl Fake {
    pub fn new(ranks: usize) -> Self {
        Self {
            info: DeviceInfo {
                kind: "cuda",
                names: vec!["Fake GPU".to_owned(); ranks],
                ordinals: (0..ranks).collect(),
                arch: 90,
                timed: true,
            },
            wrong: BTreeMap::new(),
            nccl: None,
            has_nccl: true,
            clock: Box::new(|_, _, _| 2.0),
            max_blocks: 16,
            loaded: None,
            untimed: None,
            live: BTreeMap::new(),
            ran: Vec::new(),
            times: 0,
            next: 0,
        }
    }

    fn add(&mut self, who: Who) -> Prepared {
        self.next += 1;
        self.live.insert(
            self.next,
            Live {
                who,
                calls: 0,
                largest: 0,
                previous: Vec::new(),
            },
        );
        Prepared(self.next)
    }

    fn name(&self, p: Prepared) -> &'static str {
        match self.live.get(&p.0).map(|l| l.who) {
            Some(Who::Variant(v, _)) => v.name,
            Some(Who::Other(Comparator::Nccl(NcclSetting::AsFound, ..), _)) => "nccl",
            Some(Who::Other(Comparator::Nccl(NcclSetting::Ll, ..), _)) => "nccl-ll",
            Some(Who::Other(Comparator::Nccl(NcclSetting::Ring, ..), _)) => "nccl-ring",
            Some(Who::Other(Comparator::TwoStagePull(_), _)) => "two-stage-pull",
            None => "released",
        }
    }
}

impl Executor for Fake {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn ranks(&self) -> usize {
        self.info.names.len()
    }

    fn prepare(&mut self, variant: &'static Variant, preparation: &Preparation) -> Result<Prepared, DeviceError> {
        Ok(self.add(Who::Variant(variant, *preparation)))
    }

    fn prepare_comparator(&mut self, comparator: Comparator, max_bytes: u64) -> Result<Prepared, DeviceError> {
        if !self.has_nccl {
            return Err(DeviceError::Unavailable {
                reason: "libnccl.so.2 is not here".to_owned(),
            });
        }
        Ok(self.add(Who::Other(comparator, max_bytes)))
    }

    fn release(&mut self, collective: Prepared) {
        self.live.remove(&collective.0);
    }

    fn max_blocks(&self, _: Prepared, _: u32) -> Result<u32, DeviceError> {
        Ok(self.max_blocks)
    }

    fn run(&mut self, chain: &Chain<'_>) -> Result<Outputs, DeviceError> {
        let name = self.name(chain.collective);
        let mut wrong = self.wrong.get(name).copied();
        let live = self.live.get_mut(&chain.collective.0).ok_or(DeviceError::Poisoned)?;
        let fixed = match live.who {
            Who::Variant(_, p) => p.threads != chain.geometry.threads || chain.bytes > p.max_bytes,
            Who::Other(_, max) => chain.bytes > max,
        };
        if fixed || chain.geometry.blocks == 0 || chain.geometry.blocks > self.max_blocks {
            return Err(DeviceError::Misuse {
                reason: format!("not prepared for {} x {}", chain.bytes, chain.geometry),
            });
        }
        self.ran.push((name, chain.bytes, chain.geometry));
        match live.who {
            Who::Other(..) => wrong = self.nccl,
            Who::Variant(_, Preparation { fault: Some(fault), .. }) => {
                wrong = match fault {
                    Fault::DroppedContribution => Some(Wrong::Dropped { from: 1, to: 0 }),
                    Fault::StaleHalf => Some(Wrong::Stale),
                    Fault::FrozenCounter => Some(Wrong::Hangs),
                    _ => None,
                };
            }
            Who::Variant(..) => {}
        }
        if wrong == Some(Wrong::Hangs) {
            return Err(DeviceError::Timeout {
                rank: 0,
                peer: Some(1),
                stage: 0,
                column: 3,
            });
        }
        let replays = if let Mode::Graph { replays } = chain.mode {
            replays
        } else {
            1
        };
        let read = |b: &Vec<u8>| b.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect();
        let mut inputs: Vec<Vec<u16>> = chain.inputs.iter().map(read).collect();
        let mut outputs = Outputs::new();
        for call in 0..chain.calls * replays {
            let output = live.call(&inputs, chain, wrong);
            let bytes = |o: &Vec<u16>| o.iter().flat_map(|w| w.to_le_bytes()).collect();
            outputs.push(output.iter().map(bytes).collect());
            live.previous = std::mem::take(&mut inputs);
            let within = call % chain.calls;
            inputs = (0..output.len())
                .map(|r| {
                    let mix =
                        |(i, w): (usize, &u16)| mix_f16(*w, i as u32, r as u32, within, chain.mix_seed, chain.specials);
                    output[r].iter().enumerate().map(mix).collect()
                })
                .collect();
        }
        if wrong == Some(Wrong::Short) {
            outputs.pop();
        }
        Ok(outputs)
    }

    fn time(&mut self, candidates: &[Timed], sampling: &Sampling) -> Result<Vec<Vec<f64>>, DeviceError> {
        self.times += 1;
        let mut all = Vec::new();
        for c in candidates {
            let name = self.name(c.collective);
            if name == "released" || self.untimed == Some(name) {
                return Err(DeviceError::Timeout {
                    rank: 1,
                    peer: None,
                    stage: 0,
                    column: 0,
                });
            }
            let us = (self.clock)(name, c.geometry, c.bytes);
            // One sample of each candidate is far off: a median does not care.
            all.push(
                (0..sampling.samples)
                    .map(|i| if i == 1 { 50.0 * us } else { us })
                    .collect(),
            );
        }
        Ok(all)
    }

    fn time_under_load(
        &mut self,
        candidates: &[Timed],
        sampling: &Sampling,
        _streams: u32,
    ) -> Result<Vec<Vec<f64>>, DeviceError> {
        let idle = std::mem::replace(&mut self.clock, Box::new(|_, _, _| 2.0));
        self.clock = self.loaded.take().unwrap_or_else(|| Box::new(|_, _, _| 2.0));
        let times = self.time(candidates, sampling);
        self.loaded = Some(std::mem::replace(&mut self.clock, idle));
        times
    }

    fn plants(&self, fault: Fault) -> bool {
        matches!(
            fault,
            Fault::DroppedContribution | Fault::StaleHalf | Fault::FrozenCounter | Fault::NoFence
        )
    }
}

impl Live {
    fn call(&mut self, inputs: &[Vec<u16>], chain: &Chain<'_>, wrong: Option<Wrong>) -> Vec<Vec<u16>> {
        let call = self.calls;
        self.calls += 1;
        let shrunk = chain.bytes < self.largest;
        self.largest = self.largest.max(chain.bytes);
        let ranks = inputs.len();
        let count = inputs[0].len();
        let (texts, partials): (Vec<String>, Partials) = match self.who {
            Who::Variant(v, _) => (v.expressions.iter().map(ToString::to_string).collect(), v.partials[0]),
            Who::Other(comparator, _) => (vec![left_fold((0..ranks).rev())], comparator.partials()),
        };
        let parse = |text: &String| Expression::parse(text).expect("a valid expression");
        let expressions: Vec<Expression> = texts.iter().map(parse).collect();
        (0..ranks)
            .map(|rank| {
                (0..count)
                    .map(|i| {
                        let e = match self.who {
                            Who::Variant(v, _) => {
                                let columns = count.div_ceil(8).div_ceil(v.chunks as usize);
                                usize::from(v.expression_of[rank * v.chunks as usize + i / 8 / columns])
                            }
                            Who::Other(..) => 0,
                        };
                        let mut values: Vec<u16> = inputs.iter().map(|r| r[i]).collect();
                        let mut narrow = partials == Partials::F16;
                        let mut reverse = false;
                        match wrong {
                            Some(Wrong::Dropped { from, to }) if to == rank => values[from] = 0,
                            Some(Wrong::Stale) if rank == 0 => {
                                values[1] = self.previous.get(1).and_then(|p| p.get(i)).copied().unwrap_or(0);
                            }
                            Some(Wrong::Order) => reverse = true,
                            Some(Wrong::Narrow) => narrow = true,
                            Some(Wrong::Tail) if i / 8 == count / 8 => return 0xa5a5,
                            Some(Wrong::Shrunk) if shrunk => values[0] = 0,
                            Some(Wrong::Replay) if chain.mode != Mode::Eager => values[0] = 0,
                            Some(Wrong::InPlace) if chain.in_place => values[0] = 0,
                            _ => {}
                        }
                        let mut out = evaluate(&expressions[e], &values, narrow, reverse);
                        match wrong {
                            Some(Wrong::Bit {
                                call: c,
                                rank: r,
                                element,
                            }) if (c, r, element) == (call, rank, i) => out ^= 1,
                            Some(Wrong::Flush) if out & 0x7c00 == 0 => out &= 0x8000,
                            Some(Wrong::PlusZero) if out == 0x8000 => out = 0,
                            _ => {}
                        }
                        out
                    })
                    .collect()
            })
            .collect()
    }
}

/// Through f64, which holds every f16 sum exactly; f32 partials by rounding that to f32.
fn evaluate(expression: &Expression, values: &[u16], narrow: bool, reverse: bool) -> u16 {
    let round = |v: f64| {
        if narrow {
            f16::from_f64(v).to_f64()
        } else {
            f64::from(v as f32)
        }
    };
    let input = |r: usize| f16::from_bits(values[if reverse { values.len() - 1 - r } else { r }]).to_f64();
    let sum = expression.eval(input, |a, b| round(a + b), |a| f16::from_f64(a).to_f64());
    f16::from_f64(sum.expect("a valid expression")).to_bits()
}

pub fn left_fold(ranks: impl IntoIterator<Item = usize>) -> String {
    let terms: Vec<String> = ranks.into_iter().map(|r| format!("x{r}")).collect();
    terms[1..]
        .iter()
        .fold(terms[0].clone(), |sum, x| format!("({sum}+{x})"))
}

pub static KERNEL: Kernel = Kernel {
    hash: "0123",
    symbol: "tf_test",
    protocol: Protocol::Packet,
    puts: 1,
    gets: 1,
    inputs: 0,
    images: &[],
    host: None,
    tables: 0,
};

pub const fn port() -> RankPorts {
    RankPorts {
        program: 0,
        puts: &[],
        gets: &[],
        tables: &[],
    }
}

/// Replicated, one chunk. Leaked: a registry is static.
pub fn variant(
    name: &'static str,
    partials: &'static [Partials],
    expression: String,
    classes: &'static [u64],
) -> Variant {
    let ranks = Expression::parse(&expression).expect("valid").contributions(1).len();
    let ports: Vec<RankPorts> = (0..ranks).map(|_| port()).collect();
    let protocol = Protocol::ALL
        .iter()
        .copied()
        .find(|p| name.contains(p.name()))
        .unwrap_or(Protocol::Packet);
    Variant {
        name,
        schedule: "test",
        protocol,
        memory: if name.ends_with("@host") {
            Memory::Host
        } else {
            Memory::Peer
        },
        element: Element::F16,
        partials,
        kernel: &KERNEL,
        chunks: 1,
        stages: 1,
        planes: 2,
        ranks: ports.leak(),
        expressions: vec![&*expression.leak()].leak(),
        expression_of: vec![0; ranks].leak(),
        classes,
    }
}

pub fn leak(variant: Variant) -> &'static Variant {
    Box::leak(Box::new(variant))
}

pub fn family(name: &'static str, variants: Vec<Variant>) -> &'static Family {
    let variants = variants.leak();
    Box::leak(Box::new(Family {
        name,
        aliases: &[],
        file: "test.ron",
        descriptor: "",
        hash: "abcd",
        variants,
        alltoallv: None,
    }))
}

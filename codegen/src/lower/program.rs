//! One rank's part of a schedule as a straight-line program over registers and ports.
//!
//! Operands of a sum are put into register order: addition commutes bit for bit (NaN payloads apart, which nobody
//! promises), so that ranks which differ only in the order they see get the same program and share code. Start at
//! [`Program::pushed`].

use super::{PutPort, RankPorts};
use std::collections::HashMap;
use topoforge_planner::schedule::{Rank, Schedule, Value, ValueId};

/// Chunks whose inputs a thread loads at once; 16 take 64 hardware registers.
const MAX_HELD_CHUNKS: u32 = 16;

/// A virtual register, assigned once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u32);

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// Eight elements.
    Element,
    /// Eight f32 partials.
    Wide,
}

impl Width {
    /// 16-byte vectors on the wire.
    pub const fn vectors(self) -> u32 {
        match self {
            Self::Element => 1,
            Self::Wide => 2,
        }
    }
}

/// One step of a rank's program.
#[expect(
    missing_docs,
    reason = "registers, ports, stages and chunks are what their names say"
)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Loads the rank's own input of a chunk.
    Load { to: Reg, chunk: u32 },
    /// Sends a register through a put port.
    Put { stage: u32, port: u32, from: Reg },
    /// Receives into a register from a get port.
    Get { stage: u32, port: u32, to: Reg },
    /// Reads a rank's registered input (pull only); `port` counts among inputs.
    Read { to: Reg, port: u32 },
    /// Sums two registers.
    Sum { to: Reg, a: Reg, b: Reg },
    /// Rounds to the element type.
    Round { to: Reg, from: Reg },
    /// Writes a chunk of the output.
    Store { chunk: u32, from: Reg },
}

/// A rank's program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    /// In the order of execution.
    pub ops: Vec<Op>,
    /// Width of each register.
    pub widths: Vec<Width>,
}

/// For each transfer, in schedule order, the put port at its sender and the get port at its receiver.
pub(super) struct PortTables {
    /// `[stage][transfer]`.
    put_of: Vec<Vec<u32>>,
    get_of: Vec<Vec<u32>>,
    puts: Vec<Vec<PutPort>>,
    gets: Vec<Vec<u32>>,
}

impl PortTables {
    pub(super) fn of(schedule: &Schedule) -> Self {
        let mut tables = Self {
            put_of: Vec::new(),
            get_of: Vec::new(),
            puts: vec![Vec::new(); schedule.ranks],
            gets: vec![Vec::new(); schedule.ranks],
        };
        for stage in &schedule.stages {
            // Puts keep the schedule's order, which spreads receivers; gets are numbered by sender and chunk, so that
            // equal patterns give equal programs.
            let mut by_sender: Vec<usize> = (0..stage.transfers.len()).collect();
            by_sender.sort_by_key(|i| {
                (
                    stage.transfers[*i].to,
                    stage.transfers[*i].from,
                    stage.transfers[*i].chunk,
                    *i,
                )
            });
            let mut get_of = vec![0; stage.transfers.len()];
            for i in by_sender {
                let t = &stage.transfers[i];
                get_of[i] = tables.gets[t.to].len() as u32;
                tables.gets[t.to].push(t.from as u32);
            }
            let mut put_of = vec![0; stage.transfers.len()];
            for (i, t) in stage.transfers.iter().enumerate() {
                put_of[i] = tables.puts[t.from].len() as u32;
                tables.puts[t.from].push(PutPort {
                    peer: t.to as u32,
                    region: get_of[i],
                });
            }
            tables.put_of.push(put_of);
            tables.get_of.push(get_of);
        }
        tables
    }

    pub(super) fn rank_ports(&self, rank: Rank, program: u32, pull: bool) -> RankPorts {
        if !pull {
            return RankPorts {
                program,
                puts: self.puts[rank].clone(),
                gets: self.gets[rank].clone(),
            };
        }
        // A pull's ports are signal words, one each way to every peer: thread k speaks on put k and listens on get k.
        let peers = self.gets[rank].clone();
        let puts = peers
            .iter()
            .map(|p| {
                let region = self.gets[*p as usize]
                    .iter()
                    .position(|q| *q as usize == rank)
                    .unwrap_or(0);
                PutPort {
                    peer: *p,
                    region: region as u32,
                }
            })
            .collect();
        RankPorts {
            program,
            puts,
            gets: peers,
        }
    }
}

struct Builder<'a> {
    schedule: &'a Schedule,
    rank: Rank,
    wide: bool,
    program: Program,
    held: HashMap<(u32, ValueId), Reg>,
}

impl Builder<'_> {
    fn reg(&mut self, width: Width) -> Reg {
        self.program.widths.push(width);
        Reg(self.program.widths.len() as u32 - 1)
    }

    fn width(&self, reg: Reg) -> Width {
        self.program.widths[reg.0 as usize]
    }

    /// How a value crosses an edge: sums in the type of partials, everything else as elements.
    fn wire(&self, id: ValueId) -> Width {
        if self.wide && self.schedule.is_partial(id) {
            Width::Wide
        } else {
            Width::Element
        }
    }

    /// Explicit stack: chains of 64 sums are legal and recursion is not bounded by a type.
    fn materialise(&mut self, chunk: u32, id: ValueId) -> Reg {
        let mut work = vec![id];
        while let Some(next) = work.last().copied() {
            if self.held.contains_key(&(chunk, next)) {
                work.pop();
                continue;
            }
            let missing: Vec<ValueId> = match self.schedule.value(next) {
                Value::Input(_) => Vec::new(),
                Value::Sum(a, b) => [b, a]
                    .into_iter()
                    .filter(|v| !self.held.contains_key(&(chunk, *v)))
                    .collect(),
                Value::Rounded(a) => [a]
                    .into_iter()
                    .filter(|v| !self.held.contains_key(&(chunk, *v)))
                    .collect(),
            };
            if !missing.is_empty() {
                work.extend(missing);
                continue;
            }
            let reg = match self.schedule.value(next) {
                Value::Input(rank) => {
                    debug_assert_eq!(rank, self.rank, "the verifier lets a rank use what it holds");
                    let to = self.reg(Width::Element);
                    self.program.ops.push(Op::Load { to, chunk });
                    to
                }
                Value::Sum(a, b) => {
                    let (a, b) = (self.held[&(chunk, a)], self.held[&(chunk, b)]);
                    let to = self.reg(if self.wide { Width::Wide } else { Width::Element });
                    self.program.ops.push(Op::Sum {
                        to,
                        a: a.min(b),
                        b: a.max(b),
                    });
                    to
                }
                Value::Rounded(a) => self.rounded(self.held[&(chunk, a)]),
            };
            self.held.insert((chunk, next), reg);
        }
        self.held[&(chunk, id)]
    }

    fn rounded(&mut self, from: Reg) -> Reg {
        if self.width(from) == Width::Element {
            return from;
        }
        let to = self.reg(Width::Element);
        self.program.ops.push(Op::Round { to, from });
        to
    }

    /// All loads before anything else, while registers allow: the text's accesses keep their order, and a load behind a
    /// put or a poll would add its latency to theirs.
    fn load_inputs(&mut self) {
        let Some(own) = self.schedule.values.iter().position(|v| *v == Value::Input(self.rank)) else { return };
        if self.schedule.chunks <= MAX_HELD_CHUNKS {
            for chunk in 0..self.schedule.chunks {
                self.materialise(chunk, ValueId(own as u32));
            }
        }
    }

    fn store_outputs(&mut self) {
        for (chunk, id) in self.schedule.outputs[self.rank].iter().enumerate() {
            let value = self.materialise(chunk as u32, *id);
            let from = self.rounded(value);
            self.program.ops.push(Op::Store {
                chunk: chunk as u32,
                from,
            });
        }
    }
}

impl Program {
    fn builder(schedule: &Schedule, rank: Rank, wide: bool) -> Builder<'_> {
        let program = Program {
            ops: Vec::new(),
            widths: Vec::new(),
        };
        Builder {
            schedule,
            rank,
            wide,
            program,
            held: HashMap::new(),
        }
    }

    /// The program of a rank in a pushed schedule.
    pub(super) fn pushed(schedule: &Schedule, rank: Rank, wide: bool, tables: &PortTables) -> Self {
        let mut b = Self::builder(schedule, rank, wide);
        b.load_inputs();
        for (s, stage) in schedule.stages.iter().enumerate() {
            // All values before all puts, for the same reason as in `load_inputs`.
            let sends: Vec<Op> = (stage.transfers.iter().enumerate().filter(|(_, t)| t.from == rank))
                .map(|(i, t)| {
                    let from = b.materialise(t.chunk, t.value);
                    Op::Put {
                        stage: s as u32,
                        port: tables.put_of[s][i],
                        from,
                    }
                })
                .collect();
            b.program.ops.extend(sends);
            let mut gets: Vec<usize> = (0..stage.transfers.len())
                .filter(|i| stage.transfers[*i].to == rank)
                .collect();
            gets.sort_by_key(|i| tables.get_of[s][*i]);
            for i in gets {
                let t = &stage.transfers[i];
                let to = b.reg(b.wire(t.value));
                b.program.ops.push(Op::Get {
                    stage: s as u32,
                    port: tables.get_of[s][i],
                    to,
                });
                b.held.insert((t.chunk, t.value), to);
            }
        }
        b.store_outputs();
        b.program
    }

    /// The program of a rank in a pulled schedule: reads every input, its own too, in rank order.
    pub(super) fn pulled(schedule: &Schedule, rank: Rank, wide: bool) -> Self {
        let mut b = Self::builder(schedule, rank, wide);
        for from in 0..schedule.ranks {
            if let Some(id) = schedule.values.iter().position(|v| *v == Value::Input(from)) {
                let to = b.reg(Width::Element);
                b.program.ops.push(Op::Read { to, port: from as u32 });
                b.held.insert((0, ValueId(id as u32)), to);
            }
        }
        b.store_outputs();
        b.program
    }

    /// 16-byte vectors of the widest value that crosses an edge.
    pub fn widest_transfer(&self) -> u32 {
        let width = |r: &Reg| self.widths[r.0 as usize].vectors();
        self.ops
            .iter()
            .filter_map(|op| {
                if let Op::Put { from, .. } = op {
                    Some(width(from))
                } else {
                    None
                }
            })
            .max()
            .unwrap_or(1)
    }
}

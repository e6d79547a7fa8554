//! One rank's part of a schedule as a straight-line program over registers and ports.
//!
//! Operands of a sum are put into register order: addition commutes bit for bit (NaN payloads apart, which nobody
//! promises), so that ranks which differ only in the order they see get the same program and share code. Start at
//! [`Program::pushed`].

use super::{PutPort, RankPorts};
use std::collections::HashMap;
use topoforge_planner::schedule::expression::Step;
use topoforge_planner::schedule::{Expression, Rank, Schedule, Value, ValueId};

/// Chunks whose inputs a thread loads at once; 16 take 64 hardware registers.
const MAX_HELD_CHUNKS: u32 = 16;

/// A virtual register, assigned once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u32);

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// A vector of elements, eight of 16 bits or four of 32.
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
    /// Loads the rank's own input of the chunk that it knows under a slot.
    Load { to: Reg, slot: u32 },
    /// Sends a register through a put port.
    Put { stage: u32, port: u32, from: Reg },
    /// Receives into a register from a get port.
    Get { stage: u32, port: u32, to: Reg },
    /// Reads a rank's registered input (pull only); `port` counts among inputs.
    Read { to: Reg, port: u32 },
    /// Sums two registers.
    Sum { to: Reg, a: Reg, b: Reg },
    /// Left fold over `gets` with the rank's own operand put in at the place that the rank's table names for the stage.
    Fold {
        to: Reg,
        own: Reg,
        gets: Vec<Reg>,
        stage: u32,
    },
    /// Rounds to the element type.
    Round { to: Reg, from: Reg },
    /// Writes a chunk of the output.
    Store { slot: u32, from: Reg },
}

/// A rank's program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    /// In the order of execution.
    pub ops: Vec<Op>,
    /// Width of each register.
    pub widths: Vec<Width>,
}

/// For each transfer, in schedule order, the put port at its sender and the get port at its receiver; and each rank's
/// own numbering of the chunks.
pub(super) struct PortTables {
    /// `[stage][transfer]`.
    put_of: Vec<Vec<u32>>,
    get_of: Vec<Vec<u32>>,
    puts: Vec<Vec<PutPort>>,
    gets: Vec<Vec<u32>>,
    /// `[rank][chunk]`: the slot under which the rank's program knows the chunk.
    slot_of: Vec<Vec<u32>>,
}

impl PortTables {
    /// Numbers ports and chunks by what a rank does with them, not by rank and chunk numbers, so that ranks with the
    /// same part to play get the same program.
    pub(super) fn of(schedule: &Schedule) -> Self {
        let slot_of: Vec<Vec<u32>> = (0..schedule.ranks).map(|r| slots(schedule, r)).collect();
        let mut tables = Self {
            put_of: Vec::new(),
            get_of: Vec::new(),
            puts: vec![Vec::new(); schedule.ranks],
            gets: vec![Vec::new(); schedule.ranks],
            slot_of,
        };
        let leaves: Vec<Vec<usize>> = (0..schedule.ranks).map(|r| leaf_order(schedule, r)).collect();
        for stage in &schedule.stages {
            let all = &stage.transfers;
            // Gets by chunk, then in the order in which the sum takes them.
            let mut by_receiver: Vec<usize> = (0..all.len()).collect();
            by_receiver.sort_by_key(|i| {
                let t = &all[*i];
                (
                    t.to,
                    tables.slot_of[t.to][t.chunk as usize],
                    leaves[t.to][first_input(schedule, t.value)],
                    t.from,
                    *i,
                )
            });
            let mut get_of = vec![0; all.len()];
            for i in by_receiver {
                get_of[i] = tables.gets[all[i].to].len() as u32;
                tables.gets[all[i].to].push(all[i].from as u32);
            }
            // Puts keep the schedule's order of peers, which spreads receivers; chunks to one peer by slot.
            let turn = |i: usize| {
                all.iter()
                    .position(|t| t.from == all[i].from && t.to == all[i].to)
                    .unwrap_or(i)
            };
            let mut by_sender: Vec<usize> = (0..all.len()).collect();
            by_sender.sort_by_key(|i| {
                (
                    all[*i].from,
                    turn(*i),
                    tables.slot_of[all[*i].from][all[*i].chunk as usize],
                    *i,
                )
            });
            let mut put_of = vec![0; all.len()];
            for i in by_sender {
                put_of[i] = tables.puts[all[i].from].len() as u32;
                tables.puts[all[i].from].push(PutPort {
                    peer: all[i].to as u32,
                    region: get_of[i],
                });
            }
            tables.put_of.push(put_of);
            tables.get_of.push(get_of);
        }
        tables
    }

    pub(super) fn rank_ports(&self, rank: Rank, program: u32, positions: u64, pull: bool) -> RankPorts {
        let mut tables = vec![positions];
        let mut order = vec![0u64; self.slot_of[rank].len().div_ceil(8)];
        for (chunk, slot) in self.slot_of[rank].iter().enumerate() {
            order[*slot as usize / 8] |= (chunk as u64) << (8 * (slot % 8));
        }
        tables.extend(order);
        if !pull {
            return RankPorts {
                program,
                puts: self.puts[rank].clone(),
                gets: self.gets[rank].clone(),
                tables,
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
            tables,
        }
    }
}

/// Chunks in the order in which the rank first sends them, then those that it never sends.
fn slots(schedule: &Schedule, rank: Rank) -> Vec<u32> {
    let sent = schedule.transfers().filter(|t| t.from == rank).map(|t| t.chunk);
    let mut slot_of = vec![u32::MAX; schedule.chunks as usize];
    for (next, chunk) in (0..).zip(unique(sent.chain(0..schedule.chunks))) {
        slot_of[chunk as usize] = next;
    }
    slot_of
}

fn unique(items: impl Iterator<Item = u32>) -> impl Iterator<Item = u32> {
    let mut seen = std::collections::HashSet::new();
    items.filter(move |i| seen.insert(*i))
}

/// At which place each rank's input stands in the expression of the rank's first output.
fn leaf_order(schedule: &Schedule, rank: Rank) -> Vec<usize> {
    let mut place = vec![usize::MAX; schedule.ranks];
    if let Some(id) = schedule.outputs[rank].first() {
        let inputs = Expression::of(schedule, *id)
            .steps()
            .iter()
            .filter_map(|s| if let Step::Input(r) = s { Some(*r) } else { None })
            .collect::<Vec<_>>();
        for (at, r) in inputs.into_iter().enumerate() {
            place[r] = at;
        }
    }
    place
}

fn first_input(schedule: &Schedule, mut id: ValueId) -> Rank {
    loop {
        match schedule.value(id) {
            Value::Input(rank) => return rank,
            Value::Sum(a, _) | Value::Rounded(a) => id = a,
        }
    }
}

struct Builder<'a> {
    schedule: &'a Schedule,
    rank: Rank,
    wide: bool,
    slot_of: &'a [u32],
    program: Program,
    held: HashMap<(u32, ValueId), Reg>,
    /// The stage whose get filled a register.
    received: HashMap<Reg, u32>,
    /// A byte a stage: at which place of the stage's sums the rank's own operand stands.
    positions: u64,
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

    fn held(&self, chunk: u32, id: ValueId) -> bool {
        self.held.contains_key(&(chunk, id))
    }

    /// Explicit stack: chains of 64 sums are legal and recursion is not bounded by a type.
    fn materialise(&mut self, chunk: u32, id: ValueId) -> Reg {
        let mut work = vec![id];
        while let Some(next) = work.last().copied() {
            if let Some(own) = self.own_operand(chunk, next) {
                work.push(own);
                continue;
            }
            if self.held(chunk, next) || self.fold(chunk, next) {
                work.pop();
                continue;
            }
            let missing: Vec<ValueId> = match self.schedule.value(next) {
                Value::Input(_) => Vec::new(),
                Value::Sum(a, b) => [b, a].into_iter().filter(|v| !self.held(chunk, *v)).collect(),
                Value::Rounded(a) => [a].into_iter().filter(|v| !self.held(chunk, *v)).collect(),
            };
            if !missing.is_empty() {
                work.extend(missing);
                continue;
            }
            let reg = match self.schedule.value(next) {
                Value::Input(rank) => {
                    debug_assert_eq!(rank, self.rank, "the verifier lets a rank use what it holds");
                    let to = self.reg(Width::Element);
                    self.program.ops.push(Op::Load {
                        to,
                        slot: self.slot_of[chunk as usize],
                    });
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

    /// The operands of a left fold, down to the first part that is already there.
    fn operands(&self, chunk: u32, id: ValueId) -> Vec<ValueId> {
        let mut operands = Vec::new();
        let mut spine = id;
        while let Value::Sum(a, b) = self.schedule.value(spine) {
            operands.push(b);
            spine = a;
            if self.held(chunk, spine) {
                break;
            }
        }
        operands.push(spine);
        operands.reverse();
        operands
    }

    /// Of a fold that lacks nothing but one operand, that operand: once it is there, the sum is a fold.
    fn own_operand(&self, chunk: u32, id: ValueId) -> Option<ValueId> {
        if self.held(chunk, id) {
            return None;
        }
        let operands = self.operands(chunk, id);
        let mut missing = operands.iter().filter(|o| !self.held(chunk, **o));
        let (own, none) = (missing.next()?, missing.next());
        (operands.len() >= 3 && none.is_none()).then_some(*own)
    }

    /// A left fold over what one stage brought and one operand of the rank's own. Where the own one stands
    /// is data, so that ranks which differ only in that share code.
    fn fold(&mut self, chunk: u32, id: ValueId) -> bool {
        let operands = self.operands(chunk, id);
        if operands.len() < 3 || !operands.iter().all(|o| self.held(chunk, *o)) {
            return false;
        }
        let regs: Vec<Reg> = operands.iter().map(|o| self.held[&(chunk, *o)]).collect();
        let mut own = regs.iter().enumerate().filter(|(_, r)| !self.received.contains_key(r));
        let (Some((position, own_reg)), None) = (own.next(), own.next()) else {
            return false;
        };
        let gets: Vec<Reg> = regs.iter().copied().filter(|r| r != own_reg).collect();
        let stage = self.received[&gets[0]];
        let side_by_side = gets
            .windows(2)
            .all(|w| w[1].0 == w[0].0 + 1 && self.received[&w[1]] == stage);
        let alike = gets.iter().all(|r| self.width(*r) == self.width(*own_reg));
        let byte = 8 * stage;
        let known = if byte < 64 { self.positions >> byte & 0xff } else { 0 };
        if !side_by_side || !alike || byte >= 64 || (known != 0 && known != position as u64 + 1) {
            return false;
        }
        // One more than the place, so that zero says "no fold yet"; taken off again in `finish`.
        self.positions |= (position as u64 + 1) << byte;
        let to = self.reg(if self.wide { Width::Wide } else { Width::Element });
        self.program.ops.push(Op::Fold {
            to,
            own: *own_reg,
            gets,
            stage,
        });
        self.held.insert((chunk, id), to);
        true
    }

    fn rounded(&mut self, from: Reg) -> Reg {
        if self.width(from) == Width::Element {
            return from;
        }
        let to = self.reg(Width::Element);
        self.program.ops.push(Op::Round { to, from });
        to
    }

    /// Chunks of the payload in the order of their slots.
    fn chunks_by_slot(&self) -> Vec<u32> {
        let mut chunks: Vec<u32> = (0..self.schedule.chunks).collect();
        chunks.sort_by_key(|c| self.slot_of[*c as usize]);
        chunks
    }

    /// All loads before anything else, while registers allow: the text's accesses keep their order, and a load behind a
    /// put or a poll would add its latency to theirs.
    fn load_inputs(&mut self) {
        let Some(own) = self.schedule.values.iter().position(|v| *v == Value::Input(self.rank)) else {
            return;
        };
        if self.schedule.chunks <= MAX_HELD_CHUNKS {
            for chunk in self.chunks_by_slot() {
                self.materialise(chunk, ValueId(own as u32));
            }
        }
    }

    fn store_outputs(&mut self) {
        for chunk in self.chunks_by_slot() {
            let value = self.materialise(chunk, self.schedule.outputs[self.rank][chunk as usize]);
            let from = self.rounded(value);
            self.program.ops.push(Op::Store {
                slot: self.slot_of[chunk as usize],
                from,
            });
        }
    }

    fn finish(self) -> (Program, u64) {
        let positions = (0..8).fold(0, |all, stage| {
            let place = (self.positions >> (8 * stage)) & 0xff;
            all | place.saturating_sub(1) << (8 * stage)
        });
        (self.program, positions)
    }
}

impl Program {
    fn builder<'a>(schedule: &'a Schedule, rank: Rank, wide: bool, tables: &'a PortTables) -> Builder<'a> {
        Builder {
            schedule,
            rank,
            wide,
            slot_of: &tables.slot_of[rank],
            program: Program {
                ops: Vec::new(),
                widths: Vec::new(),
            },
            held: HashMap::new(),
            received: HashMap::new(),
            positions: 0,
        }
    }

    /// The program of a rank in a pushed schedule, and its positions (a byte a stage).
    pub(super) fn pushed(schedule: &Schedule, rank: Rank, wide: bool, tables: &PortTables) -> (Self, u64) {
        let mut b = Self::builder(schedule, rank, wide, tables);
        b.load_inputs();
        for (s, stage) in schedule.stages.iter().enumerate() {
            // All values before all puts, for the same reason as in `load_inputs`.
            let mut sends: Vec<usize> = (0..stage.transfers.len())
                .filter(|i| stage.transfers[*i].from == rank)
                .collect();
            sends.sort_by_key(|i| tables.put_of[s][*i]);
            let sends: Vec<Op> = (sends.into_iter())
                .map(|i| {
                    let t = &stage.transfers[i];
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
                b.received.insert(to, s as u32);
                b.held.insert((t.chunk, t.value), to);
            }
        }
        b.store_outputs();
        b.finish()
    }

    /// The program of a rank in a pulled schedule: reads every input, its own too, in rank order.
    pub(super) fn pulled(schedule: &Schedule, rank: Rank, wide: bool, tables: &PortTables) -> (Self, u64) {
        let mut b = Self::builder(schedule, rank, wide, tables);
        for from in 0..schedule.ranks {
            if let Some(id) = schedule.values.iter().position(|v| *v == Value::Input(from)) {
                let to = b.reg(Width::Element);
                b.program.ops.push(Op::Read { to, port: from as u32 });
                b.held.insert((0, ValueId(id as u32)), to);
            }
        }
        b.store_outputs();
        b.finish()
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

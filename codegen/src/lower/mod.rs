//! Lowers a verified schedule to kernel text and port tables.
//!
//! `program` turns a schedule into one small program a rank, `emit` prints programs as CUDA text that only composes the
//! primitives of kernels/. Ranks whose programs are equal share code: which peer stands behind a port is data that the
//! host passes. Deterministic: same schedule, same text, byte for byte. A schedule that the verifier has not accepted
//! cannot come in: the argument's type says so. Start at [`lower`].

mod emit;
mod program;

pub use program::{Op, Program, Reg, Width};

use crate::toolkit::sha256;
use serde::{Deserialize, Serialize};
use std::fmt;
use topoforge_planner::schedule::{self, Delivery, Expression, Schedule, Verified, VerifyError};

/// How an edge moves bytes and says "ready". The protocols' headers in kernels/ describe them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Protocol {
    /// Data and use counter share each 64-bit word.
    Packet,
    /// A reserved NaN says "not yet"; everything else is data.
    Sentinel,
    /// 128-byte lines that carry their use counter and arrive whole: NVLink only.
    Packet128,
    /// A block copies a tile, then one word says so.
    Flag,
    /// Peers read registered inputs between two barriers.
    Pull,
}

impl Protocol {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::Sentinel => "sentinel",
            Self::Packet128 => "packet128",
            Self::Flag => "flag",
            Self::Pull => "pull",
        }
    }

    /// Whether a thread takes its columns through the schedule by itself, without barriers.
    pub const fn by_column(self) -> bool {
        matches!(self, Self::Packet | Self::Sentinel | Self::Packet128)
    }

    /// What the planner knows it as.
    pub const fn idea(self) -> schedule::Protocol {
        match self {
            Self::Packet => schedule::Protocol::Packet,
            Self::Sentinel => schedule::Protocol::Sentinel,
            Self::Packet128 => schedule::Protocol::Packet128,
            Self::Flag => schedule::Protocol::Flag,
            Self::Pull => schedule::Protocol::Pull,
        }
    }

    /// How transfers are delivered under it.
    pub const fn delivery(self) -> Delivery {
        match self {
            Self::Packet | Self::Sentinel | Self::Packet128 | Self::Flag => Delivery::Push,
            Self::Pull => Delivery::Pull,
        }
    }
}

/// The type of inputs and outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Element {
    /// IEEE binary16.
    F16,
    /// The upper half of an IEEE binary32.
    Bf16,
    /// IEEE binary32.
    F32,
}

impl Element {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = &[Self::F16, Self::Bf16, Self::F32];

    /// The name in reports, which is also that of topoforge's feature.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
        }
    }

    /// The policies that differ for it: f32 elements have f32 sums whatever is asked for.
    pub const fn policies(self) -> &'static [Partials] {
        match self {
            Self::F16 | Self::Bf16 => &[Partials::Element, Partials::F32],
            Self::F32 => &[Partials::Element],
        }
    }
}

/// The type in which sums are rounded and partial sums cross edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Partials {
    /// The element type itself.
    Element,
    /// f32; the result is rounded to the element type once.
    F32,
}

impl Partials {
    /// The name of that type.
    pub const fn name(self, element: Element) -> &'static str {
        match self {
            Self::Element => element.name(),
            Self::F32 => Element::F32.name(),
        }
    }
}

/// Where a rank's put goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutPort {
    /// The rank whose memory is written.
    pub peer: u32,
    /// The get port there.
    pub region: u32,
}

/// One rank's ports and program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPorts {
    /// Index into the kernel's programs.
    pub program: u32,
    /// In port order.
    pub puts: Vec<PutPort>,
    /// The peer behind each get port.
    pub gets: Vec<u32>,
    /// Bytes that the program reads: the own operand's place in each stage's folds, then the chunk behind each slot.
    pub tables: Vec<u64>,
}

/// What a kernel's text and parameter block look like, shared by all variants with the same text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelText {
    /// Content hash of text and headers, 16 hex digits.
    pub hash: String,
    /// Entry point.
    pub symbol: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Ports: puts, then gets, then inputs, then tables.
    pub puts: u32,
    /// See `puts`.
    pub gets: u32,
    /// See `puts`.
    pub inputs: u32,
    /// See `puts`; words, not pointers.
    pub tables: u32,
    /// The whole translation unit. Not stored in manifests.
    #[serde(skip)]
    pub text: String,
}

/// A lowered schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lowered {
    /// The kernel that runs it.
    pub kernel: KernelText,
    /// One entry a rank.
    pub ranks: Vec<RankPorts>,
    /// 16-byte planes a slot has in one buffer.
    pub planes: u32,
    /// Distinct declared expressions.
    pub expressions: Vec<String>,
    /// Index into `expressions` for `rank * chunks + chunk`.
    pub expression_of: Vec<u16>,
    /// Whether another partials policy gives the same bits, since no sum has an operand that was rounded before.
    pub serves_both_partials: bool,
}

/// Why a schedule cannot be lowered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LowerError {
    /// Pushed schedules need a push protocol, pulled ones `pull`.
    WrongProtocol {
        /// The schedule's name.
        schedule: String,
        /// The protocol asked for.
        protocol: Protocol,
    },
    /// An edge lacks what the protocol needs.
    NotAdmitted {
        /// The schedule's name.
        schedule: String,
        /// What the verifier says.
        error: VerifyError,
    },
    /// The parameter block would be larger than CUDA's 4 KiB.
    TooManyPorts {
        /// The schedule's name.
        schedule: String,
        /// How many it needs.
        ports: usize,
    },
    /// Tables name chunks in a byte.
    TooManyChunks {
        /// The schedule's name.
        schedule: String,
        /// How many it has.
        chunks: u32,
    },
    /// `pull` sums inputs only, in one stage and one chunk.
    NotPullable {
        /// The schedule's name.
        schedule: String,
    },
}

impl fmt::Display for LowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongProtocol { schedule, protocol } => {
                write!(
                    f,
                    "schedule {schedule} cannot be lowered to protocol {}: push and pull do not mix",
                    protocol.name()
                )
            }
            Self::NotAdmitted { schedule, error } => write!(f, "schedule {schedule}, {error}"),
            Self::TooManyPorts { schedule, ports } => {
                write!(
                    f,
                    "schedule {schedule} needs {ports} ports a rank, more than the {MAX_PORTS} a parameter block has room for"
                )
            }
            Self::TooManyChunks { schedule, chunks } => {
                write!(
                    f,
                    "schedule {schedule} has {chunks} chunks, more than the 256 that a table can name"
                )
            }
            Self::NotPullable { schedule } => {
                write!(
                    f,
                    "schedule {schedule} does more than sum inputs in one stage, which is all that pull can do"
                )
            }
        }
    }
}

impl std::error::Error for LowerError {}

/// CUDA takes 4 KiB of parameters; the header has 64 bytes.
pub const MAX_PORTS: usize = (4096 - 64) / 8;

/// Lowers one schedule to one protocol, element type and partials policy. `headers` is a digest of the headers of kernels/, part of
/// the content hash.
///
/// # Errors
/// See [`LowerError`].
pub fn lower(
    schedule: &Verified<Schedule>,
    protocol: Protocol,
    element: Element,
    partials: Partials,
    headers: &str,
) -> Result<Lowered, LowerError> {
    if schedule.delivery != protocol.delivery() {
        return Err(LowerError::WrongProtocol {
            schedule: schedule.name.clone(),
            protocol,
        });
    }
    schedule
        .admits(protocol.idea())
        .map_err(|error| LowerError::NotAdmitted {
            schedule: schedule.name.clone(),
            error,
        })?;
    if schedule.chunks > 256 {
        return Err(LowerError::TooManyChunks {
            schedule: schedule.name.clone(),
            chunks: schedule.chunks,
        });
    }
    let pull = protocol == Protocol::Pull;
    if pull && (schedule.chunks != 1 || schedule.stages.len() != 1) {
        return Err(LowerError::NotPullable {
            schedule: schedule.name.clone(),
        });
    }
    // f32 elements are their own partials, and take half the room of eight.
    let wide = partials == Partials::F32 && element != Element::F32;
    let mut programs: Vec<Program> = Vec::new();
    let mut ranks = Vec::with_capacity(schedule.ranks);
    let tables = program::PortTables::of(schedule);
    for rank in 0..schedule.ranks {
        let (program, positions) = if pull {
            Program::pulled(schedule, rank, wide, &tables)
        } else {
            Program::pushed(schedule, rank, wide, &tables)
        };
        let index = programs.iter().position(|p| *p == program).unwrap_or_else(|| {
            programs.push(program);
            programs.len() - 1
        });
        ranks.push(tables.rank_ports(rank, index as u32, positions, pull));
    }
    let puts = ranks.iter().map(|r| r.puts.len()).max().unwrap_or(0);
    let gets = ranks.iter().map(|r| r.gets.len()).max().unwrap_or(0);
    let inputs = if pull { schedule.ranks } else { 0 };
    let words = ranks.iter().map(|r| r.tables.len()).max().unwrap_or(0);
    let ports = puts + gets + inputs + words;
    if ports > MAX_PORTS {
        return Err(LowerError::TooManyPorts {
            schedule: schedule.name.clone(),
            ports,
        });
    }
    let vectors = programs.iter().map(Program::widest_transfer).max().unwrap_or(1);
    let planes = match protocol {
        Protocol::Packet => 2 * vectors,
        Protocol::Sentinel | Protocol::Packet128 | Protocol::Flag => vectors,
        Protocol::Pull => 0,
    };
    let shape = emit::Shape {
        protocol,
        element,
        puts,
        gets,
        inputs,
        tables: words,
        chunks: schedule.chunks,
        planes,
        stages: schedule.stages.len(),
    };
    let body = emit::emit(&shape, &programs);
    let hash = sha256::hex(format!("{headers}\n{body}").as_bytes())[..16].to_owned();
    let symbol = format!("tf_{}_{hash}", protocol.name());
    let text = body.replace(emit::SYMBOL, &symbol);
    let (expressions, expression_of) = declared(schedule);
    Ok(Lowered {
        kernel: KernelText {
            hash,
            symbol,
            protocol,
            puts: puts as u32,
            gets: gets as u32,
            inputs: inputs as u32,
            tables: words as u32,
            text,
        },
        ranks,
        planes,
        expressions,
        expression_of,
        serves_both_partials: element == Element::F32 || sums_inputs_only(schedule),
    })
}

fn declared(schedule: &Schedule) -> (Vec<String>, Vec<u16>) {
    let mut expressions: Vec<String> = Vec::new();
    let mut of = Vec::new();
    for id in schedule.outputs.iter().flatten() {
        let text = Expression::of(schedule, *id).to_string();
        let index = expressions.iter().position(|e| *e == text).unwrap_or_else(|| {
            expressions.push(text);
            expressions.len() - 1
        });
        of.push(index as u16);
    }
    (expressions, of)
}

/// With at most one sum a value, f32 partials and the elements' own round once at the same place; 24 bits are at least
/// 2 * 11 + 2 (f16) and 2 * 8 + 2 (bf16), so rounding by way of f32 changes nothing.
fn sums_inputs_only(schedule: &Schedule) -> bool {
    use topoforge_planner::schedule::Value;
    schedule.values.iter().all(|v| match v {
        Value::Sum(a, b) => [a, b].iter().all(|o| matches!(schedule.value(**o), Value::Input(_))),
        _ => true,
    })
}

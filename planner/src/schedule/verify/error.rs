//! Why a schedule is refused, with the stage, rank and chunk at fault.
//!
//! A refusal is a fault of a generator (or of whoever wrote the schedule by hand), save
//! [`VerifyError::MissingEdge`] and [`VerifyError::TooManyPeers`], which say that the schedule does not suit the
//! topology. Start at [`VerifyError`].

use crate::schedule::cost::Protocol;
use crate::schedule::ir::{Delivery, Rank, Transfer, ValueId};
use std::fmt;

/// The first fault that the verifier found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerifyError {
    /// The schedule is for another number of ranks than the topology, or for none, or for more than 64.
    Ranks {
        /// Ranks of the schedule.
        schedule: usize,
        /// Ranks of the topology.
        topology: usize,
    },
    /// The name is not `[a-z0-9][a-z0-9-]*`.
    Name(String),
    /// A schedule needs at least one chunk, and buffers at least one.
    Empty(&'static str),
    /// The value table has an entry that names a later entry, a rank out of range, or repeats an earlier one.
    Value {
        /// The entry.
        id: ValueId,
        /// What is wrong with it.
        fault: ValueFault,
    },
    /// A transfer names a rank, chunk or value that does not exist, or goes from a rank to itself.
    Transfer {
        /// The stage, from 0.
        stage: usize,
        /// The transfer.
        transfer: Transfer,
        /// What is wrong with it.
        fault: TransferFault,
    },
    /// No edge with the needed capability.
    MissingEdge {
        /// The stage, from 0.
        stage: usize,
        /// The rank that holds the value.
        from: Rank,
        /// The rank that needs it.
        to: Rank,
        /// Push needs write access from `from` to `to`, pull read access from `to` to `from`.
        delivery: Delivery,
    },
    /// A rank would need more peers enabled at once than the platform allows.
    TooManyPeers {
        /// The rank.
        rank: Rank,
        /// Peers that the schedule uses.
        peers: usize,
        /// Peers allowed.
        most: usize,
    },
    /// `outputs` has not one entry a rank and chunk.
    OutputShape,
    /// An output is not every rank's input exactly once.
    Output {
        /// The rank.
        rank: Rank,
        /// The chunk.
        chunk: u32,
        /// What is wrong with it.
        fault: OutputFault,
    },
    /// The sender may overwrite a slot before its receiver has read what is in it.
    SlotReuse {
        /// The stage, from 0.
        stage: usize,
        /// The writer.
        from: Rank,
        /// The reader.
        to: Rank,
        /// The chunk.
        chunk: u32,
        /// How many buffers were assumed.
        buffers: u32,
    },
    /// The protocol needs 128-byte lines to arrive whole, and this edge may cut them.
    CutLines {
        /// The stage, from 0.
        stage: usize,
        /// The writer.
        from: Rank,
        /// The reader.
        to: Rank,
        /// The protocol.
        protocol: Protocol,
    },
    /// A pulled input may be overwritten by the next call's input before the peer has read it.
    InputReuse {
        /// The rank whose input is read.
        holder: Rank,
        /// The rank that reads it.
        reader: Rank,
    },
}

/// What is wrong with an entry of the value table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueFault {
    /// It is the input of a rank that does not exist.
    RankOutOfRange(Rank),
    /// An operand does not come before it.
    OperandNotEarlier(ValueId),
    /// It is equal to this earlier entry.
    Repeats(ValueId),
}

/// What is wrong with a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferFault {
    /// A rank out of range.
    Rank,
    /// A chunk out of range.
    Chunk,
    /// A value id out of range.
    Value,
    /// From a rank to itself.
    ToItself,
    /// The same transfer twice in one stage.
    Twice,
    /// The sender can't know the value in this stage.
    NotHeld,
    /// Only inputs can be pulled.
    PullOfSum,
    /// Inputs can be pulled in the first stage only.
    LatePull,
}

/// What is wrong with an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFault {
    /// A value id out of range.
    Value,
    /// The rank can't know the value at the end.
    NotHeld,
    /// This rank's input is not in it.
    Lacks(Rank),
    /// This rank's input is in it more than once.
    Repeats(Rank),
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ranks { schedule, topology } => {
                write!(
                    f,
                    "a schedule for {schedule} ranks cannot serve a topology of {topology} (1 to 64)"
                )
            }
            Self::Name(name) => write!(f, "schedule name {name:?} is not [a-z0-9][a-z0-9-]*"),
            Self::Empty(what) => write!(f, "there must be at least one {what}"),
            Self::Value { id, fault } => match fault {
                ValueFault::RankOutOfRange(rank) => write!(f, "value {}: rank {rank} does not exist", id.0),
                ValueFault::OperandNotEarlier(operand) => {
                    write!(f, "value {}: operand {} does not come before it", id.0, operand.0)
                }
                ValueFault::Repeats(earlier) => write!(f, "value {} repeats value {}", id.0, earlier.0),
            },
            Self::Transfer { stage, transfer, fault } => {
                let Transfer { from, to, chunk, value } = transfer;
                write!(
                    f,
                    "stage {stage}, rank {from} to {to}, chunk {chunk}, value {}: ",
                    value.0
                )?;
                f.write_str(match fault {
                    TransferFault::Rank => "no such rank",
                    TransferFault::Chunk => "no such chunk",
                    TransferFault::Value => "no such value",
                    TransferFault::ToItself => "a rank never sends to itself",
                    TransferFault::Twice => "the same transfer twice in one stage",
                    TransferFault::NotHeld => "the sender cannot know the value yet",
                    TransferFault::PullOfSum => "only inputs can be pulled",
                    TransferFault::LatePull => "inputs are pulled in stage 0 only",
                })
            }
            Self::MissingEdge {
                stage,
                from,
                to,
                delivery,
            } => match delivery {
                Delivery::Push => write!(f, "stage {stage}: rank {from} cannot write to rank {to}"),
                Delivery::Pull => write!(f, "stage {stage}: rank {to} cannot read from rank {from}"),
            },
            Self::TooManyPeers { rank, peers, most } => {
                write!(f, "rank {rank} needs {peers} peers enabled, the platform allows {most}")
            }
            Self::OutputShape => f.write_str("outputs must have one value for each rank and chunk"),
            Self::Output { rank, chunk, fault } => {
                write!(f, "output of rank {rank}, chunk {chunk}: ")?;
                match fault {
                    OutputFault::Value => f.write_str("no such value"),
                    OutputFault::NotHeld => f.write_str("the rank cannot know the value at the end"),
                    OutputFault::Lacks(r) => write!(f, "the input of rank {r} is missing"),
                    OutputFault::Repeats(r) => write!(f, "the input of rank {r} is summed more than once"),
                }
            }
            Self::SlotReuse {
                stage,
                from,
                to,
                chunk,
                buffers,
            } => write!(
                f,
                "stage {stage}, chunk {chunk}: with {buffers} buffer(s) rank {from} may overwrite a slot that rank {to} \
                 has not read yet"
            ),
            Self::CutLines {
                stage,
                from,
                to,
                protocol,
            } => write!(
                f,
                "stage {stage}: the edge from rank {from} to rank {to} may cut 128-byte lines, which {protocol} needs whole: \
                 only NVLink keeps them"
            ),
            Self::InputReuse { holder, reader } => write!(
                f,
                "rank {holder} may overwrite its input before rank {reader} has read it: an end barrier is missing"
            ),
        }
    }
}

impl std::error::Error for VerifyError {}

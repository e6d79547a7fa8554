//! Accepts or refuses a schedule. Only what it accepted is a [`Verified`], and only that can be lowered.
//!
//! It never repairs anything and never trusts a generator: the checks use the transfers alone. `error` says why
//! something is refused, `slots` decides whether buffers may be reused across calls. Start at [`verify`].

mod error;
mod slots;

pub use error::{OutputFault, TransferFault, ValueFault, VerifyError};

use super::cost::Protocol;
use super::edges::{EdgePolicy, Edges};
use super::expression::Expression;
use super::ir::{Delivery, Rank, Schedule, Transfer, Value, ValueId};
use crate::topology::Topology;
use std::collections::HashMap;
use std::ops::Deref;

/// Something that the verifier has accepted. There is no other way to make one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified<T> {
    inner: T,
    buffers: u32,
    policy: EdgePolicy,
    /// Stage and ends of the first transfer over an edge that may cut 128-byte lines.
    cut: Option<(usize, Rank, Rank)>,
}

impl<T> Verified<T> {
    /// Whether its edges have what a protocol needs beyond reads and writes.
    ///
    /// # Errors
    /// [`VerifyError::CutLines`] names the first edge that does not.
    pub fn admits(&self, protocol: Protocol) -> Result<(), VerifyError> {
        match self.cut.filter(|_| protocol.needs_lines()) {
            None => Ok(()),
            Some((stage, from, to)) => Err(VerifyError::CutLines {
                stage,
                from,
                to,
                protocol,
            }),
        }
    }

    /// How many buffers per slot it was accepted with.
    pub fn buffers(&self) -> u32 {
        self.buffers
    }

    /// Over which edges it was accepted.
    pub fn policy(&self) -> EdgePolicy {
        self.policy
    }

    /// Gives up the proof.
    pub fn into_inner(self) -> T {
        self.inner
    }
}

impl<T> Deref for Verified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

/// Checks `schedule` for use on `topology` with `buffers` buffers a slot, any number of calls in a row.
///
/// # Errors
/// The first fault found, with stage, rank and chunk.
pub fn verify(
    schedule: Schedule,
    topology: &Topology,
    policy: EdgePolicy,
    buffers: u32,
) -> Result<Verified<Schedule>, VerifyError> {
    verify_on(schedule, &Edges::new(topology, policy), buffers)
}

/// [`verify`] for many schedules of one topology.
///
/// # Errors
/// As [`verify`].
pub fn verify_on(schedule: Schedule, edges: &Edges, buffers: u32) -> Result<Verified<Schedule>, VerifyError> {
    if schedule.ranks != edges.ranks() || !(1..=64).contains(&schedule.ranks) {
        return Err(VerifyError::Ranks {
            schedule: schedule.ranks,
            topology: edges.ranks(),
        });
    }
    if !is_name(&schedule.name) {
        return Err(VerifyError::Name(schedule.name));
    }
    if schedule.chunks == 0 {
        return Err(VerifyError::Empty("chunk"));
    }
    if buffers == 0 {
        return Err(VerifyError::Empty("buffer"));
    }
    check_values(&schedule)?;
    check_transfers(&schedule, edges)?;
    check_knowledge(&schedule)?;
    let hazard = match schedule.delivery {
        Delivery::Push => slots::first_hazard(&schedule, buffers),
        // Codegen always puts both barriers around a pulling kernel's reads.
        Delivery::Pull => slots::first_pull_hazard(&schedule, slots::Barriers { start: true, end: true }),
    };
    match hazard {
        Some(error) => Err(error),
        None => Ok(Verified {
            cut: first_cut(&schedule, edges),
            inner: schedule,
            buffers,
            policy: edges.policy(),
        }),
    }
}

fn first_cut(schedule: &Schedule, edges: &Edges) -> Option<(usize, Rank, Rank)> {
    let stages = schedule.stages.iter().enumerate();
    let mut all = stages.flat_map(|(stage, s)| s.transfers.iter().map(move |t| (stage, t.from, t.to)));
    all.find(|&(_, from, to)| !edges.keeps_lines(from, to))
}

/// The declared sum of each output, `[rank][chunk]`.
pub fn declared(schedule: &Verified<Schedule>) -> Vec<Vec<Expression>> {
    let of_rank = |outputs: &Vec<ValueId>| outputs.iter().map(|&v| Expression::of(schedule, v)).collect();
    schedule.outputs.iter().map(of_rank).collect()
}

/// Whether all ranks share each chunk's declared sum, so that all get the same bits.
pub fn replicated(schedule: &Verified<Schedule>) -> bool {
    // A trailing rounding is implied at the output, so it makes no difference.
    let bare = |mut id: ValueId| {
        while let Value::Rounded(inner) = schedule.value(id) {
            id = inner;
        }
        id
    };
    let first = &schedule.outputs[0];
    schedule
        .outputs
        .iter()
        .all(|o| o.iter().zip(first).all(|(&a, &b)| bare(a) == bare(b)))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('-')
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn check_values(schedule: &Schedule) -> Result<(), VerifyError> {
    let mut seen = HashMap::with_capacity(schedule.values.len());
    for (at, &value) in (0_u32..).zip(&schedule.values) {
        let id = ValueId(at);
        let later = |operands: &[ValueId]| operands.iter().copied().find(|o| o.0 >= at);
        let fault = match value {
            Value::Input(rank) if rank >= schedule.ranks => Some(ValueFault::RankOutOfRange(rank)),
            Value::Input(_) => None,
            Value::Sum(a, b) => later(&[a, b]).map(ValueFault::OperandNotEarlier),
            Value::Rounded(a) => later(&[a]).map(ValueFault::OperandNotEarlier),
        };
        let fault = fault.or_else(|| seen.insert(value, id).map(ValueFault::Repeats));
        if let Some(fault) = fault {
            return Err(VerifyError::Value { id, fault });
        }
    }
    Ok(())
}

fn check_transfers(schedule: &Schedule, edges: &Edges) -> Result<(), VerifyError> {
    let mut peers = vec![0_u64; schedule.ranks];
    let mut sorted = Vec::new();
    for (stage, s) in schedule.stages.iter().enumerate() {
        let fail = |transfer: Transfer, fault| Err(VerifyError::Transfer { stage, transfer, fault });
        for &t in &s.transfers {
            let Transfer { from, to, chunk, value } = t;
            if from >= schedule.ranks || to >= schedule.ranks {
                return fail(t, TransferFault::Rank);
            }
            if chunk >= schedule.chunks {
                return fail(t, TransferFault::Chunk);
            }
            if value.0 as usize >= schedule.values.len() {
                return fail(t, TransferFault::Value);
            }
            if from == to {
                return fail(t, TransferFault::ToItself);
            }
            if schedule.delivery == Delivery::Pull {
                if !matches!(schedule.value(value), Value::Input(_)) {
                    return fail(t, TransferFault::PullOfSum);
                }
                if stage > 0 {
                    return fail(t, TransferFault::LatePull);
                }
            }
            if !edges.allows(from, to, schedule.delivery) {
                return Err(VerifyError::MissingEdge {
                    stage,
                    from,
                    to,
                    delivery: schedule.delivery,
                });
            }
            // Access is enabled on the rank that issues the store or load; barriers answer, so count both ends.
            peers[from] |= 1 << to;
            peers[to] |= 1 << from;
        }
        sorted.clear();
        sorted.extend_from_slice(&s.transfers);
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return fail(pair[0], TransferFault::Twice);
        }
    }
    if let Some(most) = edges.most_peers() {
        for (rank, mask) in peers.iter().enumerate() {
            let peers = mask.count_ones() as usize;
            if peers > most {
                return Err(VerifyError::TooManyPeers { rank, peers, most });
            }
        }
    }
    Ok(())
}

/// Who can know what: for each chunk and value a mask of the ranks that hold it, stage after stage.
fn check_knowledge(schedule: &Schedule) -> Result<(), VerifyError> {
    let (n, chunks, values) = (schedule.ranks, schedule.chunks as usize, schedule.values.len());
    if schedule.outputs.len() != n || schedule.outputs.iter().any(|o| o.len() != chunks) {
        return Err(VerifyError::OutputShape);
    }
    let mut own = vec![0_u64; values];
    for (mask, value) in own.iter_mut().zip(&schedule.values) {
        if let Value::Input(rank) = *value {
            *mask = 1 << rank;
        }
    }
    derive(&schedule.values, &mut own);
    let mut held: Vec<u64> = own.repeat(chunks);
    for (stage, s) in schedule.stages.iter().enumerate() {
        for &t in &s.transfers {
            if held[t.chunk as usize * values + t.value.0 as usize] >> t.from & 1 == 0 {
                return Err(VerifyError::Transfer {
                    stage,
                    transfer: t,
                    fault: TransferFault::NotHeld,
                });
            }
        }
        // Only now, so that nothing that arrives in a stage is sent on in the same one.
        for t in &s.transfers {
            held[t.chunk as usize * values + t.value.0 as usize] |= 1 << t.to;
        }
        for of_chunk in held.chunks_exact_mut(values.max(1)) {
            derive(&schedule.values, of_chunk);
        }
    }
    let faults = output_faults(schedule);
    for (rank, outputs) in schedule.outputs.iter().enumerate() {
        for (chunk, id) in outputs.iter().enumerate() {
            let at = id.0 as usize;
            let fault = match faults.get(at) {
                None => Some(OutputFault::Value),
                Some(Some(fault)) => Some(*fault),
                Some(None) => (held[chunk * values + at] >> rank & 1 == 0).then_some(OutputFault::NotHeld),
            };
            if let Some(fault) = fault {
                let chunk = u32::try_from(chunk).unwrap_or(u32::MAX);
                return Err(VerifyError::Output { rank, chunk, fault });
            }
        }
    }
    Ok(())
}

/// Adds what ranks can work out by themselves. One pass is enough: operands come before their users.
fn derive(values: &[Value], held: &mut [u64]) {
    for (at, value) in values.iter().enumerate() {
        held[at] |= match *value {
            Value::Input(_) => 0,
            Value::Sum(a, b) => held[a.0 as usize] & held[b.0 as usize],
            Value::Rounded(a) => held[a.0 as usize],
        };
    }
}

/// For each value, why it is not every rank's input exactly once.
fn output_faults(schedule: &Schedule) -> Vec<Option<OutputFault>> {
    // Masks of the inputs that are in it, and of those that are in it more than once.
    let mut sets: Vec<(u64, u64)> = Vec::with_capacity(schedule.values.len());
    for value in &schedule.values {
        sets.push(match *value {
            Value::Input(rank) => (1 << rank, 0),
            Value::Sum(a, b) => {
                let (a, b) = (sets[a.0 as usize], sets[b.0 as usize]);
                (a.0 | b.0, a.1 | b.1 | a.0 & b.0)
            }
            Value::Rounded(a) => sets[a.0 as usize],
        });
    }
    let all = u64::MAX >> (64 - schedule.ranks);
    let fault = |(some, twice): (u64, u64)| {
        if twice != 0 {
            Some(OutputFault::Repeats(twice.trailing_zeros() as usize))
        } else if some != all {
            Some(OutputFault::Lacks((!some & all).trailing_zeros() as usize))
        } else {
            None
        }
    };
    sets.into_iter().map(fault).collect()
}

//! The schedule IR: stages of transfers over hash-consed values.
//!
//! It never says how bytes cross an edge (that is a protocol) and is not trusted until [`mod@super::verify`] has accepted
//! it. Start at [`Schedule`].

use std::fmt;

/// A rank of a group, `0..ranks`.
pub type Rank = usize;

/// Index into [`Schedule::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// What a chunk holds: a tree over the ranks' inputs. A value says nothing about which chunk it is taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// The input of a rank, in the element type.
    Input(Rank),
    /// The sum of two values, rounded to the type of partials.
    Sum(ValueId, ValueId),
    /// A value rounded to the element type. The identity where partials are of the element type.
    Rounded(ValueId),
}

/// How a transfer reaches its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// The sender stores into the receiver's memory.
    Push,
    /// The receiver loads from the sender's registered input; only inputs can be pulled.
    Pull,
}

/// One chunk's value on its way from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Transfer {
    /// The rank that holds the value.
    pub from: Rank,
    /// The rank that needs it.
    pub to: Rank,
    /// Which part of the payload, `0..chunks`.
    pub chunk: u32,
    /// What is sent. `Input` and `Rounded` cross in the element type, `Sum` in the type of partials.
    pub value: ValueId,
}

/// Transfers that may all be under way at once. A value received in a stage may be sent on in a later one only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// In the order in which a rank issues them.
    pub transfers: Vec<Transfer>,
}

/// A whole all-reduce for a fixed number of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Unique within a plan, `[a-z0-9-]`, tells the generator and its parameters.
    pub name: String,
    /// How many ranks take part.
    pub ranks: usize,
    /// Into how many equal parts the payload is cut.
    pub chunks: u32,
    /// Push or pull, the same for all transfers.
    pub delivery: Delivery,
    /// Hash-consed: no two entries are equal, operands come before their users.
    pub values: Vec<Value>,
    /// In order.
    pub stages: Vec<Stage>,
    /// `outputs[rank][chunk]`: what the rank's output holds at the end. The last rounding to the element type is implied.
    pub outputs: Vec<Vec<ValueId>>,
}

impl Schedule {
    /// The value behind an id.
    ///
    /// # Panics
    /// Never for ids of this schedule that the verifier has seen; an id out of range is a verifier error.
    pub fn value(&self, id: ValueId) -> Value {
        self.values[id.0 as usize]
    }

    /// Whether the value crosses an edge in the type of partials rather than the element type.
    pub fn is_partial(&self, id: ValueId) -> bool {
        matches!(self.value(id), Value::Sum(..))
    }

    /// Directed edges that at least one transfer uses, as `(from, to)`, sorted and unique.
    pub fn used_edges(&self) -> Vec<(Rank, Rank)> {
        let mut edges: Vec<_> = self.transfers().map(|t| (t.from, t.to)).collect();
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    /// All transfers, stage by stage.
    pub fn transfers(&self) -> impl Iterator<Item = &Transfer> {
        self.stages.iter().flat_map(|s| s.transfers.iter())
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} ranks, {} chunks, {} stages)",
            self.name,
            self.ranks,
            self.chunks,
            self.stages.len()
        )
    }
}

/// Builds hash-consed values.
#[derive(Clone, Debug, Default)]
pub struct Values {
    list: Vec<Value>,
    known: std::collections::HashMap<Value, ValueId>,
}

impl Values {
    /// The id of `value`, entered on first use.
    pub fn intern(&mut self, value: Value) -> ValueId {
        let list = &mut self.list;
        *self.known.entry(value).or_insert_with(|| {
            list.push(value);
            ValueId(u32::try_from(list.len() - 1).expect("fewer than 2^32 values"))
        })
    }

    /// The id of a rank's input.
    pub fn input(&mut self, rank: Rank) -> ValueId {
        self.intern(Value::Input(rank))
    }

    /// Left fold `((v0+v1)+v2)+...`: a sum starts from its first operand, never from +0, which would lose -0.
    ///
    /// # Panics
    /// On an empty list.
    pub fn fold(&mut self, operands: &[ValueId]) -> ValueId {
        let (first, rest) = operands.split_first().expect("a sum has at least one operand");
        rest.iter().fold(*first, |acc, v| self.intern(Value::Sum(acc, *v)))
    }

    /// The finished table.
    pub fn into_vec(self) -> Vec<Value> {
        self.list
    }
}

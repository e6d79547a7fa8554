//! A schedule under construction: values, and transfers put into numbered stages in any order.
//!
//! Generators that are not grids share it. It checks nothing: the verifier does. Start at [`Flow`].

use crate::schedule::ir::{Delivery, Rank, Schedule, Stage, Transfer, Value, ValueId, Values};

/// A pushed schedule being made.
#[derive(Debug, Default)]
pub(super) struct Flow {
    ranks: usize,
    chunks: usize,
    /// Hash-consed values.
    pub values: Values,
    stages: Vec<Stage>,
}

impl Flow {
    pub(super) fn new(ranks: usize, chunks: usize) -> Self {
        Self {
            ranks,
            chunks,
            ..Self::default()
        }
    }

    /// Adds a transfer to a stage; stages in between stay empty until they get theirs.
    pub(super) fn send(&mut self, stage: usize, (from, to): (Rank, Rank), chunk: usize, value: ValueId) {
        if self.stages.len() <= stage {
            self.stages.resize_with(stage + 1, Stage::default);
        }
        let chunk = u32::try_from(chunk).unwrap_or(u32::MAX);
        self.stages[stage].transfers.push(Transfer { from, to, chunk, value });
    }

    /// `value` rounded to the element type, which all ranks then share.
    pub(super) fn rounded(&mut self, value: ValueId) -> ValueId {
        self.values.intern(Value::Rounded(value))
    }

    /// The schedule in which every rank ends with `totals[chunk]`.
    pub(super) fn finish(mut self, name: String, totals: Vec<ValueId>) -> Option<Schedule> {
        self.stages.retain(|stage| !stage.transfers.is_empty());
        for stage in &mut self.stages {
            spread(&mut stage.transfers, self.ranks);
        }
        Some(Schedule {
            name,
            ranks: self.ranks,
            chunks: u32::try_from(self.chunks).ok()?,
            delivery: Delivery::Push,
            values: self.values.into_vec(),
            stages: self.stages,
            outputs: vec![totals; self.ranks],
        })
    }
}

/// Each sender begins with the receiver next above it, so that not all turn to one receiver at a time.
fn spread(transfers: &mut [Transfer], ranks: usize) {
    transfers.sort_by_key(|t| (t.from, (t.to + ranks - t.from) % ranks));
}

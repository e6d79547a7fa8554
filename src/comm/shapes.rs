//! Every shape a communicator was called with, counted in a table of fixed size.
//!
//! Made at set-up, so that counting allocates nothing; a shape beyond its room is counted as left out, and said so.
//! Start at [`Shapes::count`].

use crate::tune::{CallShape, CallTrace};
use std::cell::Cell;

/// More shapes than models call.
const ROOM: usize = 1024;

type Slot = Cell<Option<(CallShape, u64)>>;

/// Calls by shape.
#[derive(Debug)]
pub(super) struct Shapes {
    slots: Box<[Slot]>,
    left_out: Cell<u64>,
}

impl Shapes {
    pub fn new() -> Self {
        Self {
            slots: vec![Cell::new(None); ROOM].into(),
            left_out: Cell::new(0),
        }
    }

    /// Counts one call.
    pub fn count(&self, shape: CallShape) {
        // Multiplicative hashing; the table is walked from there on.
        let hash = (shape.bytes << 3 | (shape.element as u64) << 1 | u64::from(shape.graph))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let first = (hash >> 32) as usize % ROOM;
        for step in 0..ROOM {
            let slot = &self.slots[(first + step) % ROOM];
            match slot.get() {
                None => return slot.set(Some((shape, 1))),
                Some((known, count)) if known == shape => return slot.set(Some((shape, count + 1))),
                Some(_) => {}
            }
        }
        self.left_out.set(self.left_out.get() + 1);
    }

    /// What was counted, and calls that found no room.
    pub fn trace(&self) -> (CallTrace, u64) {
        let mut trace = CallTrace::default();
        for (shape, count) in self.slots.iter().filter_map(Cell::get) {
            trace.record(shape, count);
        }
        (trace, self.left_out.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Element;

    fn shape(bytes: u64, graph: bool) -> CallShape {
        CallShape {
            bytes,
            element: Element::F16,
            graph,
        }
    }

    #[test]
    fn equal_shapes_are_counted_together_and_others_apart() {
        let shapes = Shapes::new();
        for (bytes, graph) in [(2, false), (4, false), (2, true), (2, false)] {
            shapes.count(shape(bytes, graph));
        }
        let (trace, left_out) = shapes.trace();
        let counted: Vec<_> = trace.shapes().map(|(s, n)| (s.bytes, s.graph, n)).collect();
        assert_eq!(counted, [(2, false, 2), (2, true, 1), (4, false, 1)]);
        assert_eq!(left_out, 0);
    }

    #[test]
    fn shapes_beyond_the_room_are_counted_as_left_out() {
        let shapes = Shapes::new();
        for round in 0..2 {
            for n in 1..=ROOM as u64 + 5 {
                shapes.count(shape(2 * n, round == 1 && n == 1));
            }
        }
        let (trace, left_out) = shapes.trace();
        assert_eq!(trace.shapes().count(), ROOM);
        assert_eq!(left_out, 11);
        assert_eq!(
            trace.shapes().map(|(_, n)| n).sum::<u64>() + left_out,
            2 * (ROOM as u64 + 5)
        );
    }
}

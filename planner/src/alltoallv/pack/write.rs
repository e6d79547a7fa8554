//! Writing: rounds as activations of a plan.
//!
//! It changes no round. Start at [`Pack::write`].

use super::fans::{self, FAN, Fans, Item};
use super::{Pack, Piece, Work};
use crate::alltoallv::net::Net;
use crate::alltoallv::plan::{Chunk, Plan};
use std::ops::Range;

/// Items whose bytes are read ahead: in the order of rounds no two stand together.
pub(super) const AHEAD: usize = 32;

impl Pack {
    /// The rounds as activations; what found no round goes last, each item by itself.
    pub(super) fn write(&mut self, net: &Net, work: &Work<'_>, fans: Option<&Fans>, plan: &mut Plan) {
        let last = self.counts.len() - 1;
        let mut sum = 0;
        for count in &mut self.counts {
            sum += std::mem::replace(count, sum);
        }
        // Longest first within a round, too.
        for (&round, &item) in self.places.iter().zip(&self.items) {
            let at = &mut self.counts[usize::from(round).min(last)];
            self.sorted[*at as usize] = item;
            *at += 1;
        }
        let mut begin = 0;
        for round in 0..=last {
            let end = self.counts[round] as usize;
            for first in (begin..end).step_by(AHEAD) {
                self.write_some(net, work, fans, first..end.min(first + AHEAD), round == last, plan);
            }
            plan.end();
            begin = end;
        }
    }

    /// Writes items of one round; `late` ones are an activation each.
    fn write_some(
        &mut self,
        net: &Net,
        work: &Work<'_>,
        fans: Option<&Fans>,
        range: Range<usize>,
        late: bool,
        plan: &mut Plan,
    ) {
        // Bytes of all come into the cache at the same time.
        let mut pairs = [0; AHEAD];
        if let Some(fans) = fans {
            let mut all = 0;
            for (pair, &item) in pairs.iter_mut().zip(&self.sorted[range.clone()]) {
                if item & FAN != 0 {
                    let (from, group) = fans::ends(item);
                    *pair = from * net.ranks + usize::from(fans.groups[group].0);
                    all |= work.rem[*pair];
                }
            }
            std::hint::black_box(all);
        }
        for (at, pair) in range.zip(pairs) {
            let item = self.sorted[at];
            match fans {
                Some(fans) if item & FAN != 0 => self.spread(work, fans, item, pair),
                _ => self.emit(net, work.whole, item),
            }
            if late {
                self.flush(plan);
                plan.end();
            }
        }
        self.flush(plan);
    }

    /// Copies lanes written into the plan: one look at its room for many.
    #[inline]
    fn flush(&mut self, plan: &mut Plan) {
        plan.lanes.extend_from_slice(&self.lanes[..self.written]);
        self.written = 0;
    }

    fn emit(&mut self, net: &Net, whole: &[u64], item: Item) {
        let Piece { lane, bytes } = self.pieces[item as usize];
        let lane = lane as usize;
        let pair = net.pair[lane] as usize;
        let bytes = bytes.min(whole[pair] - self.offsets[pair]);
        if bytes > 0 {
            self.lanes[self.written] = Chunk {
                from: net.from[lane],
                to: net.to[lane],
                path: (lane - net.first[pair] as usize) as u16,
                turn: 0,
                offset: self.offsets[pair],
                bytes,
            };
            self.written += 1;
            self.offsets[pair] += bytes;
        }
    }

    /// The lanes of a fan, one after the other; `pair` is the first.
    #[inline]
    fn spread(&mut self, work: &Work<'_>, fans: &Fans, item: Item, pair: usize) {
        let (from, group) = fans::ends(item);
        let (first, width) = fans.groups[group];
        let width = usize::from(width);
        let room = &mut self.lanes[self.written..self.written + width];
        let (rem, whole) = (&work.rem[pair..pair + width], &work.whole[pair..pair + width]);
        let chunk = |at: usize, turn: usize| Chunk {
            from: from as u16,
            to: first + at as u16,
            path: 0,
            turn: turn as u16,
            offset: whole[at] - rem[at],
            bytes: rem[at],
        };
        // By far the most common: two ranks, and something for both.
        if let (&[a, b], [x, y], 2) = (rem, &mut *room, whole.len())
            && a > 0
            && b > 0
        {
            (*x, *y) = (chunk(0, 0), chunk(1, 1));
            self.written += 2;
            return;
        }
        let mut turn = 0;
        for at in (0..width).filter(|&at| rem[at] > 0) {
            room[turn] = chunk(at, turn);
            turn += 1;
        }
        self.written += turn;
    }
}

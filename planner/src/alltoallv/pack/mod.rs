//! Pack: all lanes of a demand put into rounds at once, longest first, each into the first round with room for it.
//!
//! For many ranks, where choosing lanes round by round would take longer than sending them. A lane between nodes may be a
//! *fan*: one rank's bytes for all ranks of a group, back to back over the same NICs. All memory is allocated in
//! [`Pack::new`]. Start at [`Pack::run`].

mod cut;
mod fans;
mod rounds;
mod write;

use super::net::Net;
use super::plan::{Chunk, Plan};
use fans::{End, FAN, Fans, Item, Rows};
use rounds::Rounds;

/// Bytes of a lane that stand together.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    lane: u32,
    bytes: u64,
}

/// Room for any demand on a fabric.
#[derive(Clone, Debug)]
pub(super) struct Pack {
    pieces: Vec<Piece>,
    piece_times: Vec<f32>,
    /// Time of each fan, by groups on and sender; those of a few senders while they are found.
    fan_times: Vec<f32>,
    tile: Vec<f32>,
    /// Longest first; their rounds; then round by round.
    items: Vec<Item>,
    places: Vec<u16>,
    sorted: Vec<Item>,
    rounds: Rounds,
    counts: Vec<u32>,
    /// Lanes of a few items, and how many are written.
    lanes: Vec<Chunk>,
    written: usize,
    /// Where the next chunk of a pair begins, of pairs that have pieces.
    offsets: Vec<u64>,
    rows: Rows,
    fans: Option<Fans>,
    /// Rows of one piece.
    scan: Vec<u16>,
    also: Vec<u16>,
    mark: Vec<u16>,
    cuts: usize,
}

/// What is to be packed.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    /// Bytes of each pair, and those of them that are left.
    pub whole: &'a [u64],
    pub rem: &'a [u64],
    /// What the path plan gives each lane.
    pub share: &'a [f32],
    /// In nanoseconds.
    pub quantum: f32,
}

impl Pack {
    /// Room for any demand; `groups` are the ranks of each group, first and one past the last.
    pub fn new(net: &Net, groups: &[(usize, usize)]) -> Self {
        let n = net.ranks;
        let chunks = Self::most_chunks(net);
        let (rows, fans) = Rows::new(net, groups);
        let rounds = Rounds::new(rows.count, rows.marks, 8 * n + 64);
        let some = fans.is_some();
        Self {
            pieces: Vec::with_capacity(chunks),
            piece_times: Vec::with_capacity(chunks),
            fan_times: vec![0.0; if some { n * groups.len() } else { 0 }],
            tile: vec![0.0; if some { cut::TILE * groups.len() } else { 0 }],
            items: Vec::with_capacity(chunks),
            places: Vec::with_capacity(chunks),
            sorted: vec![0; chunks],
            counts: vec![0; rounds.count() + 1],
            lanes: vec![Chunk::default(); write::AHEAD * groups.iter().map(|(b, e)| e - b).max().unwrap_or(1).max(1)],
            written: 0,
            rounds,
            offsets: vec![0; n * n],
            rows,
            fans,
            scan: Vec::with_capacity(2 * super::MAX_RESOURCES),
            also: Vec::with_capacity(2 * super::MAX_RESOURCES),
            mark: Vec::with_capacity(2 * super::MAX_RESOURCES),
            cuts: 0,
        }
    }

    /// The most chunks that a demand can be cut into.
    pub fn most_chunks(net: &Net) -> usize {
        net.len() + Self::most_cuts(net)
    }

    /// Cuts beyond this are left out: chunks are longer then.
    fn most_cuts(net: &Net) -> usize {
        net.ranks * net.ranks / 2 + 64
    }

    /// Appends a plan of what each lane has to carry: `share` from a path plan, exact bytes from `rem`.
    ///
    /// Bytes before `rem` of `whole` are in the plan already; `quantum` in nanoseconds is the path plan's.
    pub fn run(&mut self, net: &Net, work: &Work<'_>, fans: bool, plan: &mut Plan) {
        let known = self.fans.take();
        let fans = known.as_ref().filter(|_| fans);
        self.cut(net, work, fans);
        self.rounds.clear();
        self.counts.fill(0);
        match fans {
            Some(fans) if fans.single => self.place::<1>(net, Some(fans)),
            fans => self.place::<{ fans::SHARED }>(net, fans),
        }
        self.write(net, work, fans, plan);
        self.fans = known;
    }

    /// Finds the round of each item; of each end of a fan `MANY` shared rows are looked at.
    fn place<const MANY: usize>(&mut self, net: &Net, known: Option<&Fans>) {
        let mut places = std::mem::take(&mut self.places);
        places.resize(self.items.len(), 0);
        let last = self.counts.len() - 1;
        for (at, place) in places.iter_mut().enumerate() {
            let item = self.items[at];
            let round = match known {
                Some(known) if item & FAN != 0 => {
                    let (from, group) = fans::ends(item);
                    place_fan::<MANY>(&mut self.rounds, &known.out[from], &known.into[group])
                }
                _ => self.place_piece(net, item),
            };
            *place = round;
            self.counts[usize::from(round).min(last)] += 1;
        }
        self.places = places;
    }

    fn place_piece(&mut self, net: &Net, item: Item) -> u16 {
        let lane = self.pieces[item as usize].lane as usize;
        if net.is_local(usize::from(net.from[lane]), lane) {
            let (scan, also, mark) = self.rows.of_local(net, lane);
            return self.rounds.place(scan, also, mark);
        }
        let uses = net.uses(lane);
        self.rows.of_lane(uses, &mut self.scan, &mut self.also, &mut self.mark);
        self.rounds.place(&self.scan, &self.also, &self.mark)
    }
}

#[inline(always)]
fn place_fan<const MANY: usize>(rounds: &mut Rounds, out: &End, into: &End) -> u16 {
    let (also, mark) = ([out.others, into.others], [out.fans, into.fans]);
    if MANY == 1 {
        return rounds.place(&[out.shared[0], into.shared[0]], &also, &mark);
    }
    let mut scan = [0; 2 * fans::SHARED];
    scan[..MANY].copy_from_slice(&out.shared[..MANY]);
    scan[MANY..2 * MANY].copy_from_slice(&into.shared[..MANY]);
    rounds.place(&scan[..2 * MANY], &also, &mark)
}

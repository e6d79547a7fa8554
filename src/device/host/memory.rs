//! What peers may see, and when: stores under way, and what lines held before they changed.
//!
//! Works on offsets into the arena, a 16-byte line at a time, and never on real addresses, so that equal seeds give
//! equal runs. It chooses nothing itself: callers say what is delivered. Start at [`Memory::issue`].

use super::ffi::Arena;
use super::warp::OCTET;

/// Bytes of a line; no access of one thread is wider or crosses one.
pub(super) const LINE: usize = 16;
const NONE: u32 = u32::MAX;
/// Former contents that a line remembers. A reader's view is rarely older than one call, which changes a line once.
const REMEMBERED: usize = 4;

/// Who stores, and how often its block had met at a barrier by then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Issuer {
    pub rank: usize,
    /// Serial number of the grid.
    pub grid: u32,
    pub block: u32,
    pub thread: u32,
    pub generation: u32,
}

#[derive(Clone, Copy)]
struct Store {
    by: Issuer,
    offset: usize,
    bytes: u8,
    data: [u8; LINE],
    /// Younger store to the same line.
    next: u32,
    /// Index in the rank's list.
    position: u32,
    /// Number of the line that it arrives with, plus one; 0 for a store by itself.
    line: u32,
}

impl Store {
    fn overlaps(&self, other: &Self) -> bool {
        self.offset < other.offset + usize::from(other.bytes) && other.offset < self.offset + usize::from(self.bytes)
    }
}

#[derive(Clone, Copy, Default)]
struct Former {
    /// Number of the change that ended it.
    until: u64,
    data: [u8; LINE],
}

#[derive(Clone, Copy, Default)]
struct History {
    former: [Former; REMEMBERED],
    changes: u32,
}

/// Stores under way of all ranks, and histories of lines.
pub(super) struct Memory {
    slab: Vec<Store>,
    free: Vec<u32>,
    /// Stores that arrive together.
    lines: Vec<[u32; OCTET]>,
    free_lines: Vec<u32>,
    /// Numbers of the stores under way, by rank, in no order.
    under_way: Vec<Vec<u32>>,
    /// Oldest store under way to a line, plus one; 0 for none.
    oldest: Vec<u32>,
    /// Index into `histories` plus one; 0 for none. Empty where nobody reads weakly.
    history_of: Vec<u32>,
    histories: Vec<History>,
    now: u64,
    /// Lines that have changed since [`Memory::take_changed`].
    changed: Vec<u32>,
}

impl Memory {
    /// `remember`: whether readers may be shown former contents.
    pub(super) fn new(ranks: usize, bytes: usize, remember: bool) -> Self {
        let lines = bytes.div_ceil(LINE);
        Self {
            slab: Vec::new(),
            free: Vec::new(),
            lines: Vec::new(),
            free_lines: Vec::new(),
            under_way: vec![Vec::new(); ranks],
            oldest: vec![0; lines],
            history_of: vec![0; if remember { lines } else { 0 }],
            histories: Vec::new(),
            now: 1,
            changed: Vec::new(),
        }
    }

    /// Number of the latest change: what somebody who acquires now will see.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Stores of a rank that are under way.
    pub(super) fn count(&self, rank: usize) -> usize {
        self.under_way[rank].len()
    }

    /// The next changed line that has not been asked for.
    pub(super) fn take_changed(&mut self) -> Option<usize> {
        self.changed.pop().map(|line| line as usize)
    }

    /// Puts a store under way. It must lie within one line of the arena.
    pub(super) fn issue(&mut self, by: Issuer, offset: usize, data: &[u8]) {
        self.put_under_way(by, offset, data);
    }

    /// Puts the cells of a 128-byte line under way that arrive all at once.
    pub(super) fn issue_line(&mut self, cells: &[(Issuer, usize, [u8; LINE]); OCTET]) {
        let members = cells
            .each_ref()
            .map(|(by, offset, data)| self.put_under_way(*by, *offset, data));
        let number = match self.free_lines.pop() {
            Some(number) => {
                self.lines[number as usize] = members;
                number
            }
            None => {
                self.lines.push(members);
                self.lines.len() as u32 - 1
            }
        };
        for id in members {
            self.slab[id as usize].line = number + 1;
        }
    }

    fn put_under_way(&mut self, by: Issuer, offset: usize, data: &[u8]) -> u32 {
        let mut store = Store {
            by,
            offset,
            bytes: data.len() as u8,
            data: [0; LINE],
            next: NONE,
            position: self.count(by.rank) as u32,
            line: 0,
        };
        store.data[..data.len()].copy_from_slice(data);
        let id = match self.free.pop() {
            Some(id) => {
                self.slab[id as usize] = store;
                id
            }
            None => {
                self.slab.push(store);
                self.slab.len() as u32 - 1
            }
        };
        self.under_way[by.rank].push(id);
        let line = offset / LINE;
        match self.oldest[line] {
            0 => self.oldest[line] = id + 1,
            first => {
                let mut last = first - 1;
                while self.slab[last as usize].next != NONE {
                    last = self.slab[last as usize].next;
                }
                self.slab[last as usize].next = id;
            }
        }
        id
    }

    fn on_line(&self, line: usize) -> impl Iterator<Item = (u32, &Store)> {
        let mut at = self.oldest[line].checked_sub(1).unwrap_or(NONE);
        std::iter::from_fn(move || {
            let store = self.slab.get(at as usize)?;
            let id = at;
            at = store.next;
            Some((id, store))
        })
    }

    /// Lays the rank's own stores under way over what it reads.
    pub(super) fn forward(&self, rank: usize, offset: usize, to: &mut [u8]) {
        if self.oldest[offset / LINE] == 0 {
            return;
        }
        for (_, store) in self.on_line(offset / LINE).filter(|(_, s)| s.by.rank == rank) {
            for (i, byte) in store.data[..usize::from(store.bytes)].iter().enumerate() {
                if let Some(slot) = (store.offset + i).checked_sub(offset).and_then(|at| to.get_mut(at)) {
                    *slot = *byte;
                }
            }
        }
    }

    /// What a reader sees whose latest acquire was at `view`, if the line has changed since.
    pub(super) fn former(&self, view: u64, offset: usize, to: &mut [u8]) {
        let Some(index) = self.history_of.get(offset / LINE).and_then(|&i| i.checked_sub(1)) else {
            return;
        };
        let history = &self.histories[index as usize];
        let kept = history
            .former
            .iter()
            .take(history.changes as usize)
            .filter(|f| f.until > view);
        if let Some(former) = kept.min_by_key(|f| f.until) {
            let start = offset % LINE;
            to.copy_from_slice(&former.data[start..start + to.len()]);
        }
    }

    /// What the line held before its latest change, whatever the view.
    pub(super) fn previous(&self, offset: usize, to: &mut [u8]) {
        let Some(index) = self.history_of.get(offset / LINE).and_then(|&i| i.checked_sub(1)) else {
            return;
        };
        let history = &self.histories[index as usize];
        if let Some(last) = history
            .former
            .iter()
            .take(history.changes as usize)
            .max_by_key(|f| f.until)
        {
            let start = offset % LINE;
            to.copy_from_slice(&last.data[start..start + to.len()]);
        }
    }

    /// Notes that a line is about to change.
    pub(super) fn remember(&mut self, line: usize, arena: &Arena) {
        self.now += 1;
        let Some(slot) = self.history_of.get_mut(line) else {
            return;
        };
        if *slot == 0 {
            self.histories.push(History::default());
            *slot = self.histories.len() as u32;
        }
        let history = &mut self.histories[*slot as usize - 1];
        let former = &mut history.former[history.changes as usize % REMEMBERED];
        former.until = self.now;
        arena.read(line * LINE, &mut former.data);
        history.changes += 1;
        if history.changes as usize == 2 * REMEMBERED {
            history.changes = REMEMBERED as u32;
        }
    }

    /// Stores by one rank to the same bytes stay in order: the one that has to go first.
    fn due(&self, id: u32) -> u32 {
        let store = &self.slab[id as usize];
        let line = store.offset / LINE;
        self.on_line(line)
            .find(|(_, s)| s.by.rank == store.by.rank && s.overlaps(store))
            .map_or(id, |(first, _)| first)
    }

    fn apply(&mut self, id: u32, arena: &mut Arena) {
        let store = self.slab[id as usize];
        let line = store.offset / LINE;
        self.remember(line, arena);
        arena.write(store.offset, &store.data[..usize::from(store.bytes)]);
        let list = &mut self.under_way[store.by.rank];
        list.swap_remove(store.position as usize);
        if let Some(&moved) = list.get(store.position as usize) {
            self.slab[moved as usize].position = store.position;
        }
        if self.oldest[line] == id + 1 {
            self.oldest[line] = store.next.wrapping_add(1);
        } else {
            let before = self.on_line(line).find(|(_, s)| s.next == id).map(|(before, _)| before);
            if let Some(before) = before {
                self.slab[before as usize].next = store.next;
            }
        }
        self.free.push(id);
        self.changed.push(line as u32);
    }

    /// Lets a store arrive, with its line if it has one, behind whatever of that must go first. The lowest place in the
    /// rank's list that this has changed.
    fn land(&mut self, id: u32, arena: &mut Arena) -> usize {
        let Some(number) = self.slab[id as usize].line.checked_sub(1) else {
            let position = self.slab[id as usize].position as usize;
            self.apply(id, arena);
            return position;
        };
        let members = self.lines[number as usize];
        let mut lowest = usize::MAX;
        for member in members {
            // Something older below another cell of the line.
            loop {
                let due = self.due(member);
                if due == member {
                    break;
                }
                lowest = lowest.min(self.land(due, arena));
            }
        }
        for member in members {
            lowest = lowest.min(self.slab[member as usize].position as usize);
            self.apply(member, arena);
        }
        self.free_lines.push(number);
        lowest
    }

    /// Delivers the store at `index` of the rank's list, or an older one that it must not overtake.
    pub(super) fn deliver(&mut self, rank: usize, index: usize, arena: &mut Arena) {
        if let Some(&id) = self.under_way[rank].get(index) {
            let due = self.due(id);
            self.land(due, arena);
        }
    }

    /// Delivers every store of the rank that `covered` says, and older ones that they must not overtake.
    pub(super) fn deliver_where(&mut self, rank: usize, arena: &mut Arena, covered: impl Fn(&Issuer) -> bool) {
        let mut index = 0;
        while let Some(&id) = self.under_way[rank].get(index) {
            if covered(&self.slab[id as usize].by) {
                // The list shrinks and other stores take places at or before `index`: look again.
                let due = self.due(id);
                index = index.min(self.land(due, arena));
            } else {
                index += 1;
            }
        }
    }
}

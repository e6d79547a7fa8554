//! The memory model by itself: what stays in order, what a fence covers, what a reader may still see.

use crate::device::host::ffi::Arena;
use crate::device::host::memory::{Issuer, Memory};

fn by(rank: usize, thread: u32) -> Issuer {
    Issuer {
        rank,
        grid: 1,
        block: 0,
        thread,
        generation: 0,
    }
}

fn word(arena: &Arena, offset: usize) -> u32 {
    let mut word = [0; 4];
    arena.read(offset, &mut word);
    u32::from_ne_bytes(word)
}

#[test]
fn stores_of_one_rank_to_the_same_bytes_stay_in_order_and_others_do_not() {
    let mut arena = Arena::new(128).unwrap();
    let mut memory = Memory::new(1, 128, true);
    memory.issue(by(0, 0), 0, &1_u32.to_ne_bytes());
    memory.issue(by(0, 0), 4, &7_u32.to_ne_bytes());
    memory.issue(by(0, 1), 0, &2_u32.to_ne_bytes());
    // The youngest was asked for; the oldest to the same word has to go first.
    memory.deliver(0, 2, &mut arena);
    assert_eq!((word(&arena, 0), word(&arena, 4)), (1, 0));
    memory.deliver_where(0, &mut arena, |by| by.thread == 1);
    assert_eq!((word(&arena, 0), word(&arena, 4), memory.count(0)), (2, 0, 1));
    memory.deliver_where(0, &mut arena, |_| true);
    assert_eq!((word(&arena, 4), memory.count(0)), (7, 0));
}

#[test]
fn a_line_arrives_whole_and_behind_older_stores_to_any_part_of_it() {
    let mut arena = Arena::new(256).unwrap();
    let mut memory = Memory::new(1, 256, true);
    let line = |value: u8| std::array::from_fn(|cell| (by(0, cell as u32), 128 + 16 * cell, [value; 16]));
    memory.issue(by(0, 9), 0, &[9; 16]);
    memory.issue_line(&line(1));
    memory.issue(by(0, 9), 128 + 32, &5_u32.to_ne_bytes());
    memory.issue_line(&line(2));
    // Any cell of the younger line: the older one goes first, whole, and nothing else does.
    let last = memory.count(0) - 1;
    memory.deliver(0, last, &mut arena);
    assert_eq!(memory.count(0), 10);
    assert!((0..8).all(|cell| word(&arena, 128 + 16 * cell) == 0x0101_0101));
    assert_eq!(word(&arena, 0), 0);
    memory.deliver_where(0, &mut arena, |by| by.thread == 7);
    assert!((0..8).all(|cell| word(&arena, 128 + 16 * cell + 8) == 0x0202_0202));
    assert_eq!((word(&arena, 128 + 32), memory.count(0)), (0x0202_0202, 1));
}

#[test]
fn a_rank_sees_its_own_stores_at_once_and_peers_do_not() {
    let mut memory = Memory::new(2, 128, true);
    memory.issue(by(0, 0), 20, &9_u32.to_ne_bytes());
    let mut line = [0; 16];
    memory.forward(0, 16, &mut line);
    assert_eq!(line[4..8], 9_u32.to_ne_bytes());
    let mut line = [0; 16];
    memory.forward(1, 16, &mut line);
    assert_eq!(line, [0; 16]);
}

#[test]
fn a_reader_that_has_not_acquired_sees_what_was_there() {
    let mut arena = Arena::new(128).unwrap();
    let mut memory = Memory::new(1, 128, true);
    let mut views = Vec::new();
    for value in 1..20_u32 {
        views.push(memory.now());
        memory.issue(by(0, 0), 32, &value.to_ne_bytes());
        memory.deliver(0, 0, &mut arena);
    }
    let seen = |view: u64| {
        let mut word = 19_u32.to_ne_bytes();
        memory.former(view, 32, &mut word);
        u32::from_ne_bytes(word)
    };
    assert_eq!(seen(memory.now()), 19);
    assert_eq!(seen(views[18]), 18);
    assert_eq!(seen(views[16]), 16);
    // What is older than memory reaches is still never new.
    assert_eq!(seen(views[0]), 15);
}

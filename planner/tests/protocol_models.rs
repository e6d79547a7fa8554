//! Every interleaving of each protocol's primitives on two and three ranks: what each promises holds whatever the order
//! in which stores land, and a variant that leaves out a buffer, a reset, a fence or a barrier is found out.
//!
//! The model: every word travels by itself, save the words of a line, which travel together; stores to one address by one rank land in order, all others in any order;
//! a rank's stores to its own memory (resets) land at the latest when its call ends; a fence waits until all that the
//! rank has stored has landed. Each rank runs a few dependent calls of one exchange: put to all peers, receive from all,
//! end. Values are call numbers, so anything stale, torn or overwritten shows.

use std::collections::HashSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Packet,
    Sentinel,
    Packet128,
    Flag,
    Pull,
}

/// A protocol, whole or with a part left out.
#[derive(Clone, Copy, Debug)]
struct Model {
    protocol: Protocol,
    ranks: usize,
    words: usize,
    buffers: usize,
    calls: u8,
    /// The sentinel's reader puts "not yet" back.
    reset: bool,
    /// The flag's sender waits for its data before it signals.
    release: bool,
    /// The flag's reader looks at data after the flag only.
    acquire: bool,
    /// A packet's words say which call they belong to.
    tagged: bool,
    /// A line's words travel and are read together, its counter among them.
    whole_lines: bool,
    /// The barriers of a pull.
    start: bool,
    end: bool,
}

impl Model {
    fn whole(protocol: Protocol, ranks: usize) -> Self {
        Self {
            protocol,
            ranks,
            // Two words can be torn; with three ranks and two words each a pull and a flag still end in a second.
            words: if ranks == 2 { 2 } else { 1 },
            buffers: 2,
            calls: 4,
            reset: true,
            release: true,
            acquire: true,
            tagged: true,
            whole_lines: true,
            start: true,
            end: true,
        }
    }

    fn data(&self, from: usize, to: usize, buffer: usize, word: usize) -> usize {
        ((from * self.ranks + to) * self.buffers + buffer) * self.words + word
    }

    /// A line's counter, a word like its data.
    fn counter(&self, from: usize, to: usize, buffer: usize) -> usize {
        self.flag(self.ranks, 0, 0) + (from * self.ranks + to) * self.buffers + buffer
    }

    /// Whether words at these two addresses are of one line, which arrives whole.
    fn one_line(&self, a: usize, b: usize) -> bool {
        if self.protocol != Protocol::Packet128 || !self.whole_lines {
            return false;
        }
        let (data, counters) = (self.flag(0, 0, 0), self.flag(self.ranks, 0, 0));
        let line = |at: usize| {
            if at < data {
                Some(at / self.words)
            } else {
                at.checked_sub(counters)
            }
        };
        line(a).is_some() && line(a) == line(b)
    }

    fn flag(&self, from: usize, to: usize, side: usize) -> usize {
        self.ranks * self.ranks * self.buffers * self.words + (from * self.ranks + to) * 2 + side
    }

    fn addresses(&self) -> usize {
        self.counter(self.ranks, 0, 0)
    }

    fn peers(&self, rank: usize) -> impl Iterator<Item = usize> {
        (0..self.ranks).filter(move |&p| p != rank)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Begin,
    /// Data is out, the flag is not.
    Fencing,
    Receiving,
    /// All is read, the last barrier is not over.
    Closing,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rank {
    call: u8,
    phase: Phase,
    /// Mask of peers that are read in this call.
    seen: u8,
    /// What a reader without acquire looked at too early, a value a word; 0 stands for nothing.
    early: Vec<u8>,
    /// What peers pull.
    input: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    ranks: Vec<Rank>,
    memory: Vec<u8>,
    /// Stores on their way, in order for each address.
    flying: Vec<Vec<u8>>,
    /// Resets on their way.
    resets: Vec<bool>,
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Safe,
    /// A rank took something that was not this call's.
    Wrong,
    /// Nobody can go on, and not all calls are done.
    Stuck,
}

/// All states that can be reached, or the first fault.
fn check(model: Model) -> (Outcome, usize) {
    let first = State {
        ranks: vec![
            Rank {
                call: 1,
                phase: Phase::Begin,
                seen: 0,
                early: vec![0; model.ranks * model.words],
                input: 1,
            };
            model.ranks
        ],
        memory: vec![0; model.addresses()],
        flying: vec![Vec::new(); model.addresses()],
        resets: vec![false; model.addresses()],
    };
    let mut seen = HashSet::from([first.clone()]);
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        let Some(next) = successors(&model, &state) else {
            return (Outcome::Wrong, seen.len());
        };
        if next.is_empty() && state.ranks.iter().any(|r| r.call <= model.calls) {
            return (Outcome::Stuck, seen.len());
        }
        for state in next {
            if seen.insert(state.clone()) {
                open.push(state);
            }
        }
    }
    (Outcome::Safe, seen.len())
}

/// Every state one step on; `None` where a step takes what it must not.
fn successors(model: &Model, state: &State) -> Option<Vec<State>> {
    let mut next = Vec::new();
    for at in 0..state.memory.len() {
        if !state.flying[at].is_empty() {
            let mut s = state.clone();
            for with in 0..state.memory.len() {
                if with == at || model.one_line(at, with) {
                    s.memory[with] = s.flying[with].remove(0);
                }
            }
            next.push(s);
        }
        if state.resets[at] {
            let mut s = state.clone();
            (s.memory[at], s.resets[at]) = (0, false);
            next.push(s);
        }
    }
    for rank in 0..model.ranks {
        if state.ranks[rank].call <= model.calls {
            steps(model, state, rank, &mut next)?;
        }
    }
    Some(next)
}

fn steps(model: &Model, state: &State, rank: usize, next: &mut Vec<State>) -> Option<()> {
    let me = &state.ranks[rank];
    let call = me.call;
    let buffer = usize::from(call) % model.buffers;
    let everyone = (0..model.ranks).fold(0_u8, |m, p| if p == rank { m } else { m | 1 << p });
    let signal = |s: &mut State, side: usize| {
        for peer in model.peers(rank) {
            s.flying[model.flag(rank, peer, side)].push(call);
        }
    };
    match me.phase {
        Phase::Begin => {
            let mut s = state.clone();
            if model.protocol == Protocol::Pull {
                if model.start {
                    signal(&mut s, 0);
                }
            } else {
                for peer in model.peers(rank) {
                    for word in 0..model.words {
                        s.flying[model.data(rank, peer, buffer, word)].push(call);
                    }
                    if model.protocol == Protocol::Packet128 {
                        s.flying[model.counter(rank, peer, buffer)].push(call);
                    }
                }
            }
            s.ranks[rank].phase = if model.protocol == Protocol::Flag {
                Phase::Fencing
            } else {
                Phase::Receiving
            };
            next.push(s);
        }
        Phase::Fencing => {
            let mut own = model.peers(rank).flat_map(|p| (0..model.words).map(move |w| (p, w)));
            let landed = own.all(|(p, w)| state.flying[model.data(rank, p, buffer, w)].is_empty());
            if landed || !model.release {
                let mut s = state.clone();
                signal(&mut s, 0);
                s.ranks[rank].phase = Phase::Receiving;
                next.push(s);
            }
        }
        Phase::Receiving => {
            for peer in model.peers(rank).filter(|p| me.seen >> p & 1 == 0) {
                receive(model, state, rank, peer, next)?;
            }
            if me.seen == everyone {
                let mut s = state.clone();
                if model.protocol == Protocol::Pull && model.end {
                    signal(&mut s, 1);
                    s.ranks[rank].phase = Phase::Closing;
                    next.push(s);
                } else if own_resets_landed(model, state, rank) {
                    finish(&mut s, rank);
                    next.push(s);
                }
            }
        }
        Phase::Closing => {
            if model.peers(rank).all(|p| state.memory[model.flag(p, rank, 1)] >= call) {
                let mut s = state.clone();
                finish(&mut s, rank);
                next.push(s);
            }
        }
    }
    Some(())
}

fn own_resets_landed(model: &Model, state: &State, rank: usize) -> bool {
    model.peers(rank).all(|p| {
        let words = (0..model.buffers).flat_map(|b| (0..model.words).map(move |w| (b, w)));
        words.into_iter().all(|(b, w)| !state.resets[model.data(p, rank, b, w)])
    })
}

/// The next call; its input is written now that this call is over.
fn finish(s: &mut State, rank: usize) {
    let me = &mut s.ranks[rank];
    me.call += 1;
    me.input = me.call;
    (me.phase, me.seen) = (Phase::Begin, 0);
    me.early.fill(0);
}

/// What `rank` can do about the message of `peer`; `None` if it would take a wrong one.
fn receive(model: &Model, state: &State, rank: usize, peer: usize, next: &mut Vec<State>) -> Option<()> {
    let me = &state.ranks[rank];
    let call = me.call;
    let buffer = usize::from(call) % model.buffers;
    let addresses: Vec<usize> = (0..model.words).map(|w| model.data(peer, rank, buffer, w)).collect();
    let values: Vec<u8> = addresses.iter().map(|&a| state.memory[a]).collect();
    let mut taken = state.clone();
    taken.ranks[rank].seen |= 1 << peer;
    match model.protocol {
        Protocol::Packet => {
            let ready = |v: &u8| if model.tagged { *v == call } else { *v != 0 };
            if values.iter().all(ready) {
                if values.iter().any(|v| *v != call) {
                    return None;
                }
                next.push(taken);
            }
        }
        Protocol::Sentinel => {
            if values.iter().all(|v| *v != 0) {
                if values.iter().any(|v| *v != call) {
                    return None;
                }
                if model.reset {
                    addresses.iter().for_each(|&a| taken.resets[a] = true);
                }
                next.push(taken);
            }
        }
        Protocol::Packet128 => {
            if state.memory[model.counter(peer, rank, buffer)] == call {
                if values.iter().any(|v| *v != call) {
                    return None;
                }
                next.push(taken);
            }
        }
        Protocol::Flag => {
            let up = state.memory[model.flag(peer, rank, 0)] >= call;
            let early = peer * model.words..(peer + 1) * model.words;
            if !model.acquire && me.early[early.clone()].iter().all(|v| *v == 0) {
                // 255 is what an untouched slot holds, so that 0 can say "not looked yet".
                let mut s = state.clone();
                for (at, v) in early.clone().zip(&values) {
                    s.ranks[rank].early[at] = if *v == 0 { 255 } else { *v };
                }
                next.push(s);
            }
            if up {
                let looked = &me.early[early];
                let used = if looked.iter().any(|v| *v != 0) {
                    looked
                } else {
                    &values[..]
                };
                if used.iter().any(|v| *v != call) {
                    return None;
                }
                next.push(taken);
            }
        }
        Protocol::Pull => {
            if !model.start || state.memory[model.flag(peer, rank, 0)] >= call {
                if state.ranks[peer].input != call {
                    return None;
                }
                next.push(taken);
            }
        }
    }
    Some(())
}

#[test]
fn every_protocol_is_safe_in_every_interleaving() {
    for protocol in [
        Protocol::Packet,
        Protocol::Sentinel,
        Protocol::Packet128,
        Protocol::Flag,
        Protocol::Pull,
    ] {
        for ranks in [2, 3] {
            let (outcome, states) = check(Model::whole(protocol, ranks));
            println!("{protocol:?}, {ranks} ranks: {states} states");
            assert_eq!(outcome, Outcome::Safe, "{protocol:?}, {ranks} ranks");
            assert!(states > 100, "{protocol:?}, {ranks} ranks: only {states} states");
        }
    }
}

/// A variant must be found out on two ranks and on three.
fn found_out(protocol: Protocol, change: impl Fn(&mut Model)) {
    for ranks in [2, 3] {
        let mut model = Model::whole(protocol, ranks);
        change(&mut model);
        let (outcome, _) = check(model);
        assert_ne!(outcome, Outcome::Safe, "{model:?}");
    }
}

#[test]
fn one_buffer_is_found_unsafe() {
    for protocol in [
        Protocol::Packet,
        Protocol::Sentinel,
        Protocol::Packet128,
        Protocol::Flag,
    ] {
        found_out(protocol, |m| m.buffers = 1);
    }
}

#[test]
fn a_skipped_reset_is_found_unsafe() {
    found_out(Protocol::Sentinel, |m| m.reset = false);
    // A packet needs no reset because its words say which call they belong to; without that it would.
    found_out(Protocol::Packet, |m| m.tagged = false);
}

#[test]
fn a_line_that_does_not_arrive_whole_is_found_unsafe() {
    found_out(Protocol::Packet128, |m| m.whole_lines = false);
    // One word beside the counter is enough.
    found_out(Protocol::Packet128, |m| (m.whole_lines, m.words) = (false, 1));
    // Whole lines are safe with as many words as a state space of this size has room for.
    let mut wide = Model::whole(Protocol::Packet128, 2);
    wide.words = 4;
    assert_eq!(check(wide).0, Outcome::Safe);
}

#[test]
fn a_flag_without_release_or_acquire_is_found_unsafe() {
    found_out(Protocol::Flag, |m| m.release = false);
    found_out(Protocol::Flag, |m| m.acquire = false);
}

#[test]
fn a_pull_without_either_barrier_is_found_unsafe() {
    found_out(Protocol::Pull, |m| m.start = false);
    found_out(Protocol::Pull, |m| m.end = false);
}

#[test]
fn three_buffers_are_safe_too_and_need_not_be() {
    for protocol in [
        Protocol::Packet,
        Protocol::Sentinel,
        Protocol::Packet128,
        Protocol::Flag,
    ] {
        let mut model = Model::whole(protocol, 2);
        model.buffers = 3;
        assert_eq!(check(model).0, Outcome::Safe, "{protocol:?}");
    }
}

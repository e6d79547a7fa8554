//! Recorded sequences as bytes of a catalogue: steps of lanes, and for each profile what it is for.
//!
//! As all of a catalogue, they are read without trusting a figure. Whether steps fit the machine is for
//! [`super::Catalogue::verify`]. Start at [`write`] and [`read`].
//!
//! ```text
//! each step of the sequence for equal pairs: lanes u8, each lane: from u8, to u8, class u8, share - 1 u16
//! each profile: name length u8, name, bytes of each pair row by row, steps u16, its steps
//! bytes of a pair: seven bits a byte, lowest first, the eighth says that more follow (LEB128)
//! ```

use super::super::base::{Recorded, Sequences};
use super::super::demand::{Demand, MAX_PAIR};
use super::super::profile::{MAX_PROFILES, Profile};
use super::super::sequence::{Share, Step};
use super::super::spec::MAX_NODE_RANKS;
use super::blob::{BlobError, Bytes};

/// Appends all sequences; how many there are stands elsewhere.
pub(super) fn write(out: &mut Vec<u8>, sequences: &Sequences) {
    write_steps(out, &sequences.uniform);
    for Recorded { profile, steps } in &sequences.profiles {
        out.push(profile.name().len() as u8);
        out.extend(profile.name().as_bytes());
        for &bytes in profile.demand().bytes() {
            let mut left = bytes;
            while left > 0x7f {
                out.push(left as u8 | 0x80);
                left >>= 7;
            }
            out.push(left as u8);
        }
        out.extend((steps.len() as u16).to_le_bytes());
        write_steps(out, steps);
    }
}

fn write_steps(out: &mut Vec<u8>, steps: &[Step]) {
    for step in steps {
        out.push(step.lanes.len() as u8);
        for lane in &step.lanes {
            out.extend([lane.from, lane.to, lane.class]);
            out.extend(lane.share.wrapping_sub(1).to_le_bytes()[..2].iter());
        }
    }
}

/// Reads the sequences of a node of so many ranks.
pub(super) fn read(read: &mut Bytes<'_>, ranks: usize, steps: u16, profiles: u8) -> Result<Sequences, BlobError> {
    let uniform = read_steps(read, ranks, steps)?;
    if usize::from(profiles) > MAX_PROFILES || (profiles > 0 && ranks > MAX_NODE_RANKS) {
        return Err(BlobError::Field(read.at, "more profiles than a catalogue has"));
    }
    let mut all: Vec<Recorded> = Vec::new();
    for _ in 0..profiles {
        let profile = read_profile(read, ranks)?;
        if all.iter().any(|other| other.profile.name() == profile.name()) {
            return Err(BlobError::Field(read.at, "two profiles of one name"));
        }
        let steps = read.u16()?;
        let steps = read_steps(read, ranks, steps)?;
        all.push(Recorded { profile, steps });
    }
    Ok(Sequences { uniform, profiles: all })
}

fn read_steps(read: &mut Bytes<'_>, ranks: usize, steps: u16) -> Result<Vec<Step>, BlobError> {
    let mut all = Vec::new();
    for _ in 0..steps {
        let lanes = read.u8()?;
        let mut step = Step::default();
        for _ in 0..lanes {
            let [from, to, class] = [read.u8()?, read.u8()?, read.u8()?];
            if from == to || usize::from(from.max(to)) >= ranks {
                return Err(BlobError::Field(read.at - 3, "a lane of ranks that are not there"));
            }
            let share = u32::from(read.u16()?) + 1;
            step.lanes.push(Share { from, to, class, share });
        }
        all.push(step);
    }
    Ok(all)
}

fn read_profile(read: &mut Bytes<'_>, ranks: usize) -> Result<Profile, BlobError> {
    let start = read.at;
    let length = usize::from(read.u8()?);
    let name = String::from_utf8_lossy(read.take(length)?).into_owned();
    let mut bytes = Vec::with_capacity(ranks * ranks);
    for pair in 0..ranks * ranks {
        let at = read.at;
        let found = number(read)?;
        if found > MAX_PAIR || (pair / ranks == pair % ranks && found > 0) {
            return Err(BlobError::Field(at, "bytes that no pair has"));
        }
        bytes.push(found);
    }
    let wrong = || BlobError::Field(start, "a profile that is none");
    let demand = Demand::new(ranks, bytes).map_err(|_| wrong())?;
    let profile = Profile::new(&name, &demand).map_err(|_| wrong())?;
    // Equal profiles have equal bytes.
    if profile.demand() != &demand {
        return Err(wrong());
    }
    Ok(profile)
}

/// Seven bits a byte, in the fewest bytes.
fn number(read: &mut Bytes<'_>) -> Result<u64, BlobError> {
    let mut found = 0;
    for place in 0..7 {
        let byte = read.u8()?;
        found |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            if byte == 0 && place > 0 {
                break;
            }
            return Ok(found);
        }
    }
    Err(BlobError::Field(read.at, "a figure that is none"))
}

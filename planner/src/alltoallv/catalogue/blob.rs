//! A catalogue as bytes: little endian, versioned, with a checksum at the end.
//!
//! Only orbits are written; reading expands them by the node's symmetry. Reading never trusts a length and never panics: bytes
//! that are no catalogue are refused in words. What was read is well formed; whether it is *right* is for
//! [`super::Catalogue::verify`]. Start reading at [`super::Catalogue::to_bytes`].
//!
//! ```text
//! magic "A2AV", version u16, length u32 of all, flags u16 (1 alone, 2 member), layout u64, rates u64, steps u16, profiles u8
//! each part: scope u8, groups u8, ports u8, shared u8, types u8, symmetries u16, orbits u32, families u32, shapes u32
//!   sizes u8[groups], capacity u8[shared] (0: any number)
//!   each type: from u8, to u8, kind u8, copies u8, mids u8, inv_fs u32, mids u8[..] (numbered behind the ports)
//!   each symmetry but the first: groups u8[groups], types u8[types]
//!   each orbit: lanes u8, types u8[lanes]
//! recorded sequences: see `recorded.rs`
//! crc32 u32
//! ```

use std::fmt;

use super::super::paths::PathKind;
use super::recorded;
use super::symmetry::{MAX_SYMMETRIES, Symmetry};
use super::template::{LaneType, MAX_BITS, OUTSIDE, Scope, Template};
use super::{Catalogue, NodeCatalogue, enumerate, shapes};

/// How a catalogue begins.
pub const MAGIC: [u8; 4] = *b"A2AV";
/// The format that is written and read.
pub const VERSION: u16 = 2;

/// Where the length of all stands, behind magic and version.
const LENGTH_AT: usize = 6;
const ALONE: u16 = 1;
const MEMBER: u16 = 2;

/// Why bytes are no catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlobError {
    /// They do not begin as one does.
    Magic,
    /// Another version wrote them.
    Version(u16),
    /// There are fewer than were written: how many there are.
    Cut(usize),
    /// The checksum is of other bytes.
    Checksum {
        /// What the bytes give.
        found: u32,
        /// What is written.
        written: u32,
    },
    /// A field holds what no catalogue holds: its first byte and what is wrong.
    Field(usize, &'static str),
}

impl fmt::Display for BlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("no AlltoAllv catalogue: expected bytes that begin with A2AV"),
            Self::Version(v) => write!(
                f,
                "the catalogue has format {v}, this version reads {VERSION}: build it again"
            ),
            Self::Cut(at) => write!(f, "the catalogue is cut after {at} bytes: build it again"),
            Self::Checksum { found, written } => write!(
                f,
                "the catalogue is damaged: its checksum is {found:08x}, {written:08x} was written, build it again"
            ),
            Self::Field(at, what) => write!(f, "the catalogue is damaged at byte {at}: {what}, build it again"),
        }
    }
}

impl std::error::Error for BlobError {}

impl Catalogue {
    /// The bytes of a catalogue; equal catalogues give equal bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend([0; 4]);
        let flag = |part: &Option<NodeCatalogue>, flag: u16| if part.is_some() { flag } else { 0 };
        out.extend((flag(&self.alone, ALONE) | flag(&self.member, MEMBER)).to_le_bytes());
        out.extend(self.layout.to_le_bytes());
        out.extend(self.rates.to_le_bytes());
        out.extend((self.sequences.uniform.len() as u16).to_le_bytes());
        out.push(self.sequences.profiles.len() as u8);
        for part in self.alone.iter().chain(&self.member) {
            write_part(&mut out, part);
        }
        recorded::write(&mut out, &self.sequences);
        let length = out.len() as u32 + 4;
        out[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&length.to_le_bytes());
        let sum = crc32(&out);
        out.extend(sum.to_le_bytes());
        out
    }

    /// Reads a catalogue.
    ///
    /// # Errors
    /// See [`BlobError`]; any bytes give a catalogue or one of them.
    pub fn parse(bytes: &[u8]) -> Result<Self, BlobError> {
        if bytes.is_empty() || !bytes.starts_with(&MAGIC[..bytes.len().min(4)]) {
            return Err(BlobError::Magic);
        }
        let mut read = Bytes { bytes, at: MAGIC.len() };
        let version = read.u16()?;
        if version != VERSION {
            return Err(BlobError::Version(version));
        }
        let length = read.u32()? as usize;
        if bytes.len() < length {
            return Err(BlobError::Cut(bytes.len()));
        }
        let start = read.at;
        let Some((body, written)) = bytes.split_last_chunk::<4>().filter(|(body, _)| body.len() >= start) else {
            return Err(BlobError::Cut(bytes.len()));
        };
        // Before anything else is believed.
        let (found, written) = (crc32(body), u32::from_le_bytes(*written));
        if found != written || bytes.len() != length {
            return Err(BlobError::Checksum { found, written });
        }
        parse_body(&mut Bytes { bytes: body, at: start })
    }
}

fn parse_body(read: &mut Bytes<'_>) -> Result<Catalogue, BlobError> {
    let flags = read.u16()?;
    if flags == 0 || flags & !(ALONE | MEMBER) != 0 {
        return Err(BlobError::Field(read.at - 2, "unknown flags"));
    }
    let (layout, rates) = (read.u64()?, read.u64()?);
    let (steps, profiles) = (read.u16()?, read.u8()?);
    let alone = (flags & ALONE != 0).then(|| read_part(read)).transpose()?;
    let member = (flags & MEMBER != 0).then(|| read_part(read)).transpose()?;
    let ranks = alone
        .as_ref()
        .or(member.as_ref())
        .map_or(0, |part| part.template.sizes.iter().map(|&n| usize::from(n)).sum());
    let sequences = recorded::read(read, ranks, steps, profiles)?;
    if read.at != read.bytes.len() {
        return Err(BlobError::Field(read.at, "more bytes than a catalogue has"));
    }
    Ok(Catalogue {
        layout,
        rates,
        alone,
        member,
        sequences,
    })
}

fn write_part(out: &mut Vec<u8>, part: &NodeCatalogue) {
    let template = &part.template;
    let ports = 2 * template.sizes.iter().map(|&n| u16::from(n)).sum::<u16>();
    let shared = &template.capacity[usize::from(ports)..];
    out.push(u8::from(template.scope.nic_lanes) | u8::from(template.scope.outside) << 1);
    out.extend([
        template.sizes.len() as u8,
        ports as u8,
        shared.len() as u8,
        template.types.len() as u8,
    ]);
    out.extend((part.symmetry.groups.len() as u16).to_le_bytes());
    for n in [part.orbits.len(), part.families.len(), part.shapes] {
        out.extend((n as u32).to_le_bytes());
    }
    out.extend(&template.sizes);
    out.extend(shared.iter().map(|slots| slots.map_or(0, |n| n.min(255) as u8)));
    for t in &template.types {
        out.extend([t.from, t.to, t.kind as u8, t.copies, t.mids.len() as u8]);
        out.extend(t.inv_fs.to_le_bytes());
        out.extend(t.mids.iter().map(|&id| (id - ports) as u8));
    }
    for (groups, types) in part.symmetry.groups.iter().zip(&part.symmetry.types).skip(1) {
        out.extend(groups);
        out.extend(types);
    }
    for &family in &part.orbits {
        let lanes: Vec<u8> = (0..template.types.len())
            .flat_map(|t| (0..template.count(family, t)).map(move |_| t as u8))
            .collect();
        out.push(lanes.len() as u8);
        out.extend(lanes);
    }
}

fn read_part(read: &mut Bytes<'_>) -> Result<NodeCatalogue, BlobError> {
    let scope = read.u8()?;
    if scope > 3 {
        return Err(BlobError::Field(read.at - 1, "an unknown scope"));
    }
    let start = read.at;
    let [groups, ports, shared, types] = [read.u8()?, read.u8()?, read.u8()?, read.u8()?].map(usize::from);
    let (symmetries, orbits) = (usize::from(read.u16()?), read.u32()? as usize);
    let (families, shape_count) = (read.u32()? as usize, read.u32()? as usize);
    if shared > 128
        || types > MAX_BITS
        || !(1..=MAX_SYMMETRIES).contains(&symmetries)
        || families > enumerate::MAX_FAMILIES
    {
        return Err(BlobError::Field(start, "counts that no catalogue has"));
    }
    let sizes = read.take(groups)?.to_vec();
    if groups == 0 || sizes.iter().map(|&n| 2 * usize::from(n)).sum::<usize>() != ports {
        return Err(BlobError::Field(start, "groups that do not make up the node"));
    }
    let mut capacity = vec![Some(1); ports];
    capacity.extend(read.take(shared)?.iter().map(|&n| (n > 0).then_some(u32::from(n))));
    let mut template = Template {
        scope: Scope {
            nic_lanes: scope & 1 != 0,
            outside: scope & 2 != 0,
        },
        sizes,
        types: Vec::new(),
        capacity,
        bits: vec![0],
    };
    for _ in 0..types {
        let lane = read_type(read, groups, ports, shared)?;
        let end = usize::from(template.bits[template.bits.len() - 1]) + usize::from(lane.copies);
        if end > MAX_BITS {
            return Err(BlobError::Field(read.at, "more lanes than a family has"));
        }
        template.bits.push(end as u8);
        template.types.push(lane);
    }
    let symmetry = read_symmetry(read, &template, symmetries)?;
    let mut kept = Vec::new();
    for _ in 0..orbits {
        let lanes = usize::from(read.u8()?);
        let mut counts = vec![0_u8; types];
        for &t in read.take(lanes)? {
            let full = |t: usize| counts[t] >= template.types[t].copies;
            if usize::from(t) >= types || full(usize::from(t)) {
                return Err(BlobError::Field(
                    read.at - lanes,
                    "a family with a lane that does not fit",
                ));
            }
            counts[usize::from(t)] += 1;
        }
        kept.push(template.family(&counts));
    }
    if !kept.is_sorted_by(|a, b| a < b) {
        return Err(BlobError::Field(read.at, "orbits out of order"));
    }
    let all = symmetry.expand(&template, &kept, families).unwrap_or_default();
    if all.len() != families || shapes(&template, &all) != shape_count {
        return Err(BlobError::Field(
            start,
            "orbits that do not make up the stated families",
        ));
    }
    Ok(NodeCatalogue {
        template,
        symmetry,
        orbits: kept,
        families: all,
        shapes: shape_count,
        searched: 0,
    })
}

fn read_type(read: &mut Bytes<'_>, groups: usize, ports: usize, shared: usize) -> Result<LaneType, BlobError> {
    let start = read.at;
    let [from, to, kind, copies, mids] = [read.u8()?, read.u8()?, read.u8()?, read.u8()?, read.u8()?];
    let inv_fs = read.u32()?;
    let kind = match kind {
        0 => PathKind::Direct,
        1 => PathKind::Nic,
        2 => PathKind::NicForwardSource,
        3 => PathKind::NicForwardDestination,
        4 => PathKind::NicForwardBoth,
        _ => return Err(BlobError::Field(start, "an unknown kind of path")),
    };
    let known = |g: u8| usize::from(g) < groups || g == OUTSIDE;
    let mids = read.take(usize::from(mids))?;
    if copies == 0 || !known(from) || !known(to) || mids.iter().any(|&id| usize::from(id) >= shared) {
        return Err(BlobError::Field(
            start,
            "a lane of groups or resources that are not there",
        ));
    }
    Ok(LaneType {
        from,
        to,
        kind,
        inv_fs,
        mids: mids.iter().map(|&id| ports as u16 + u16::from(id)).collect(),
        copies,
    })
}

fn read_symmetry(read: &mut Bytes<'_>, template: &Template, count: usize) -> Result<Symmetry, BlobError> {
    let (groups, types) = (template.sizes.len() as u8, template.types.len() as u8);
    let mut symmetry = Symmetry {
        groups: vec![(0..groups).collect()],
        types: vec![(0..types).collect()],
    };
    for _ in 1..count {
        let start = read.at;
        let group_map = read.take(usize::from(groups))?.to_vec();
        let type_map = read.take(usize::from(types))?.to_vec();
        let permutes = |map: &[u8]| {
            let mut sorted = map.to_vec();
            sorted.sort_unstable();
            sorted.iter().enumerate().all(|(i, &x)| usize::from(x) == i)
        };
        let same_room = |(t, &to): (usize, &u8)| template.types[t].copies == template.types[usize::from(to)].copies;
        if !permutes(&group_map) || !permutes(&type_map) || !type_map.iter().enumerate().all(same_room) {
            return Err(BlobError::Field(start, "an exchange that is none"));
        }
        symmetry.groups.push(group_map);
        symmetry.types.push(type_map);
    }
    Ok(symmetry)
}

/// A cursor that says where bytes end.
pub(super) struct Bytes<'a> {
    bytes: &'a [u8],
    pub at: usize,
}

impl<'a> Bytes<'a> {
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], BlobError> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..n));
        let taken = taken.ok_or(BlobError::Cut(self.bytes.len()))?;
        self.at += n;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BlobError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    pub fn u8(&mut self) -> Result<u8, BlobError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, BlobError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, BlobError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, BlobError> {
        self.array().map(u64::from_le_bytes)
    }
}

/// CRC-32 as in IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
        })
    })
}

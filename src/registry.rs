//! What was compiled, as typed static data: families, their variants, and the kernels they share.
//!
//! `families!` expands to values of these types; nothing here is built at run time and nothing runs before `main`.
//! This module knows neither CUDA nor descriptors' meaning. Start at [`Registry`].

use std::ffi::c_void;
use std::fmt;

/// How an edge moves bytes and says "ready". See docs/architecture.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// Data and use counter share each 64-bit word.
    Packet,
    /// A reserved NaN says "not yet"; everything else is data.
    Sentinel,
    /// 128-byte lines that carry their use counter and arrive whole: NVLink only.
    Packet128,
    /// A block copies a tile, then one word says so.
    Flag,
    /// Peers read registered inputs between two barriers.
    Pull,
}

/// Where slots lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Memory {
    /// In the receiver's device memory, written through peer access.
    Peer,
    /// In mapped pinned host memory, for machines without peer access.
    Host,
}

/// The type of inputs and outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// IEEE binary16.
    F16,
    /// The upper half of an IEEE binary32: 8 bits of exponent, 7 of fraction.
    Bf16,
    /// IEEE binary32.
    F32,
}

impl Element {
    /// Size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
        }
    }
}

/// The type in which sums are rounded and partial sums cross edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Partials {
    /// The element type itself.
    Element,
    /// IEEE binary32; the result is rounded to the element type once. For f32 elements the same as `Element`.
    F32,
}

impl Partials {
    /// [`Partials::Element`] by the name that it has for f16 elements.
    pub const F16: Self = Self::Element;

    /// The type that the policy means for an element type.
    pub const fn sums(self, element: Element) -> Element {
        match self {
            Self::Element => element,
            Self::F32 => Element::F32,
        }
    }

    /// The policy that kernels of an element type are compiled with: [`Partials::Element`] where both mean the same.
    #[must_use]
    pub fn as_compiled(self, element: Element) -> Self {
        if self.sums(element) == element {
            Self::Element
        } else {
            self
        }
    }

    /// The policy that rounds sums of `element` to a type of this name, e.g. `f16` or `f32` for f16; `element` is the
    /// element type whatever it is.
    pub fn for_element(element: Element, name: &str) -> Option<Self> {
        match Element::from_name(name) {
            Some(sums) if sums == element => Some(Self::Element),
            Some(Element::F32) => Some(Self::F32),
            Some(_) => None,
            None => Self::from_name(name),
        }
    }
}

macro_rules! names {
    ($($type:ident { $($variant:ident = $name:literal),* })*) => {$(
        impl $type {
            /// Every value, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name in reports, files and on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The value of a name, if there is one.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.name() == name)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    )*};
}

names! {
    Protocol { Packet = "packet", Sentinel = "sentinel", Packet128 = "packet128", Flag = "flag", Pull = "pull" }
    Memory { Peer = "peer", Host = "host" }
    Element { F16 = "f16", Bf16 = "bf16", F32 = "f32" }
    Partials { Element = "element", F32 = "f32" }
}

/// A compiled kernel for the host executor: one thread of a block, entered on a fiber.
pub type HostKernel = unsafe extern "C" fn(thread: *mut c_void, params: *const c_void);

/// A kernel group's compiled form, shared by every variant whose text is the same.
#[derive(Debug)]
pub struct Kernel {
    /// Content hash of the generated text and the headers it includes.
    pub hash: &'static str,
    /// Entry point in every image and on the host.
    pub symbol: &'static str,
    /// The protocol whose parameter layout it takes.
    pub protocol: Protocol,
    /// Ports of its parameter block: `puts`, then `gets`, then `inputs` pointers, then `tables` words.
    pub puts: u32,
    /// See [`Kernel::puts`].
    pub gets: u32,
    /// See [`Kernel::puts`]; only `pull` has them, in the order of ranks.
    pub inputs: u32,
    /// Words (not pointers) behind the ports: [`RankPorts::tables`].
    pub tables: u32,
    /// Fatbins, one a toolkit that took part; empty in a build without `nvcc`. Each is 16-byte aligned.
    pub images: &'static [&'static [u8]],
    /// The same text compiled for the host executor, if that feature is on.
    pub host: Option<HostKernel>,
}

impl Kernel {
    /// Pointers in the parameter block.
    pub const fn ports(&self) -> usize {
        (self.puts + self.gets + self.inputs + self.tables) as usize
    }
}

/// Where a rank's put goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutPort {
    /// The rank whose memory is written.
    pub peer: u32,
    /// Which slot region there: the index of the peer's own get port.
    pub region: u32,
}

/// One rank's part in a variant. Get port `i` polls slot region `i` of the rank's own scratch.
#[derive(Debug)]
pub struct RankPorts {
    /// Which of the kernel's rank programs it runs.
    pub program: u32,
    /// In port order.
    pub puts: &'static [PutPort],
    /// The peer behind each get port.
    pub gets: &'static [u32],
    /// Rank data for programs that ranks share: the own operand's place in each stage's folds, then the chunk behind
    /// each slot, a byte each.
    pub tables: &'static [u64],
}

/// A schedule in a protocol with a partials policy: what a route can be served by.
#[derive(Debug)]
pub struct Variant {
    /// `schedule/protocol/partials`; the last part begins with the element where that is not f16, as in `bf16-f32`, and
    /// `@host` ends it where slots are staged through host memory. Unique in its family.
    pub name: &'static str,
    /// Name of the schedule.
    pub schedule: &'static str,
    /// How edges move bytes.
    pub protocol: Protocol,
    /// Where slots lie.
    pub memory: Memory,
    /// Type of inputs and outputs.
    pub element: Element,
    /// The policies whose declared expression it computes bit for bit.
    pub partials: &'static [Partials],
    /// The compiled text.
    pub kernel: &'static Kernel,
    /// Parts of the payload.
    pub chunks: u32,
    /// Stages of the schedule.
    pub stages: u32,
    /// 16-byte planes of a slot in one buffer.
    pub planes: u32,
    /// One entry a rank.
    pub ranks: &'static [RankPorts],
    /// Declared expressions, e.g. `((x0+x1)+(x2+x3))`.
    pub expressions: &'static [&'static str],
    /// Index into `expressions` for `rank * chunks + chunk`.
    pub expression_of: &'static [u16],
    /// Size classes (upper payload bounds in bytes) whose shortlist it is on; empty for a baseline only.
    pub classes: &'static [u64],
}

impl Variant {
    /// Whether all ranks declare the same expression for each chunk, hence get the same bits.
    pub fn replicated(&self) -> bool {
        let chunks = self.chunks as usize;
        self.expression_of
            .chunks(chunks)
            .all(|rank| Some(rank) == self.expression_of.get(..chunks))
    }

    /// Whether output may be the input buffer.
    pub const fn in_place(&self) -> bool {
        !matches!(self.protocol, Protocol::Pull)
    }

    /// Threads that have something to do for a payload when each does all it can at once: one a column, for
    /// [`Protocol::Packet128`] one a cell.
    pub const fn threads(&self, bytes: u64) -> u64 {
        match self.protocol {
            Protocol::Packet128 => crate::device::abi::cells(self.columns(bytes)),
            _ => self.columns(bytes),
        }
    }

    /// 16-byte vectors a chunk of a payload, rounded up.
    pub const fn columns(&self, bytes: u64) -> u64 {
        bytes.div_ceil(16).div_ceil(self.chunks as u64)
    }
}

/// Everything compiled for one descriptor.
#[derive(Debug)]
pub struct Family {
    /// The descriptor's name.
    pub name: &'static str,
    /// Other names that it goes by.
    pub aliases: &'static [&'static str],
    /// Its file name, for messages.
    pub file: &'static str,
    /// Its text; the matcher parses it.
    pub descriptor: &'static str,
    /// Content hash over descriptor and variants.
    pub hash: &'static str,
    /// In shortlist order, baselines last. Empty if the descriptor is there for AlltoAllv only.
    pub variants: &'static [Variant],
    /// The AlltoAllv catalogue, for `planner::alltoallv::Catalogue::parse`; none if the descriptor states no machine for it.
    pub alltoallv: Option<&'static [u8]>,
}

impl Family {
    /// Whether it goes by this name.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

/// What the build had at hand.
#[derive(Debug)]
pub struct BuildInfo {
    /// `topoforge` version that planned and lowered.
    pub version: &'static str,
    /// Element types whose kernels are inside.
    pub elements: &'static [Element],
    /// Sets of families that were asked for, e.g. `nvlink`.
    pub sets: &'static [&'static str],
    /// Compute capabilities with machine code inside, e.g. 70.
    pub archs: &'static [u32],
    /// Compute capability of the PTX, a last resort.
    pub ptx: Option<u32>,
    /// Wanted architectures that no toolkit could build, with the reason.
    pub left_out: &'static [(u32, &'static str)],
    /// `nvcc` versions that took part.
    pub toolkits: &'static [&'static str],
    /// Hash over all kernels.
    pub kernel_set: &'static str,
}

/// One `families!` expansion.
#[derive(Debug)]
pub struct FamilySet {
    /// What the build had at hand.
    pub build: &'static BuildInfo,
    /// Sorted by name.
    pub families: &'static [Family],
}

/// Several family sets seen as one.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    sets: Vec<&'static FamilySet>,
}

impl Registry {
    /// No families at all.
    pub const fn empty() -> Self {
        Self { sets: Vec::new() }
    }

    /// Adds a set; on equal names the one added last wins.
    #[must_use]
    pub fn with(mut self, set: &'static FamilySet) -> Self {
        self.sets.push(set);
        self
    }

    /// Every family, sorted by name.
    pub fn families(&self) -> Vec<&'static Family> {
        let mut by_name = std::collections::BTreeMap::new();
        for family in self.sets.iter().flat_map(|s| s.families) {
            by_name.insert(family.name, family);
        }
        by_name.into_values().collect()
    }

    /// The family of a name; of an alias only where no family has it as its name.
    pub fn family(&self, name: &str) -> Option<&'static Family> {
        let families = || self.sets.iter().rev().flat_map(|s| s.families);
        (families().find(|f| f.name == name)).or_else(|| families().find(|f| f.is_named(name)))
    }

    /// The builds behind the sets, in the order they were added.
    pub fn builds(&self) -> impl Iterator<Item = &'static BuildInfo> {
        self.sets.iter().map(|s| s.build)
    }

    /// Hash over the kernel sets, part of what ranks agree on and of a route table's identity.
    pub fn kernel_set(&self) -> String {
        self.builds().map(|b| b.kernel_set).collect::<Vec<_>>().join("+")
    }

    /// Whether any kernel has machine code or PTX inside.
    pub fn has_gpu_code(&self) -> bool {
        self.sets
            .iter()
            .flat_map(|s| s.families)
            .flat_map(|f| f.variants)
            .any(|v| !v.kernel.images.is_empty())
    }
}

/// The family of a name that `family!` has checked.
///
/// # Panics
/// If the set does not hold it, which `family!` rules out.
#[doc(hidden)]
pub fn named(set: &'static FamilySet, name: &str) -> &'static Family {
    let found = set.families.iter().find(|f| f.is_named(name));
    found.unwrap_or_else(|| panic!("family! checked that `{name}` was compiled, but the set it names does not hold it"))
}

/// Includes a file as a `&'static [u8]` on a 16-byte boundary: the driver wants fatbins aligned, `include_bytes!` does
/// not promise it.
#[doc(hidden)]
#[macro_export]
macro_rules! image {
    ($path:expr) => {{
        #[repr(C, align(16))]
        struct Aligned<T: ?Sized>(T);
        static IMAGE: &Aligned<[u8]> = &Aligned(*include_bytes!($path));
        &IMAGE.0
    }};
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::nccl::NcclType;

    #[test]
    fn a_policy_is_read_by_the_type_that_it_means() {
        let read = Partials::for_element;
        assert_eq!(read(Element::F16, "f16"), Some(Partials::Element));
        assert_eq!(read(Element::Bf16, "bf16"), Some(Partials::Element));
        assert_eq!(read(Element::Bf16, "f32"), Some(Partials::F32));
        assert_eq!(read(Element::F32, "f32"), Some(Partials::Element));
        for element in Element::ALL {
            assert_eq!(read(*element, "element"), Some(Partials::Element));
        }
        for (element, name) in [
            (Element::F32, "f16"),
            (Element::Bf16, "f16"),
            (Element::F16, "bf16"),
            (Element::F16, "f8"),
        ] {
            assert_eq!(read(element, name), None, "{element} {name}");
        }
    }

    #[test]
    fn f32_elements_know_one_policy() {
        assert_eq!(Partials::F32.as_compiled(Element::F32), Partials::Element);
        assert_eq!(Partials::F32.as_compiled(Element::Bf16), Partials::F32);
        assert_eq!(Partials::Element.as_compiled(Element::F16), Partials::Element);
    }

    #[test]
    fn elements_have_sizes_names_and_nccl_types_of_their_own() {
        let all: Vec<_> = Element::ALL
            .iter()
            .map(|e| (e.name(), e.bytes(), NcclType::from(*e) as i32))
            .collect();
        assert_eq!(all, [("f16", 2, 6), ("bf16", 2, 9), ("f32", 4, 7)]);
        assert!(Element::ALL.iter().all(|e| Element::from_name(e.name()) == Some(*e)));
    }
}

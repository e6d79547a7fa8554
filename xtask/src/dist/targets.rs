//! The machines that a distribution is for. Pure data.

use super::elf;

/// One kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The processor's usual name.
    pub arch: &'static str,
    /// Rust's name.
    pub triple: &'static str,
    /// The oldest glibc that it must start on.
    pub glibc: (u32, u32),
    /// ELF's number of the processor.
    pub machine: u16,
    /// Where the loader lies.
    pub loader: &'static str,
}

/// 2.17 is that of RHEL 7 and everything since; Arm servers with GPUs start at RHEL 8, which has 2.28.
pub const TARGETS: &[Target] = &[
    Target {
        arch: "x86_64",
        triple: "x86_64-unknown-linux-gnu",
        glibc: (2, 17),
        machine: elf::X86_64,
        loader: "/lib64/ld-linux-x86-64.so.2",
    },
    Target {
        arch: "aarch64",
        triple: "aarch64-unknown-linux-gnu",
        glibc: (2, 28),
        machine: elf::AARCH64,
        loader: "/lib/ld-linux-aarch64.so.1",
    },
];

impl Target {
    /// The triple with the floor, as cargo-zigbuild takes it.
    pub fn with_floor(&self) -> String {
        format!("{}.{}.{}", self.triple, self.glibc.0, self.glibc.1)
    }

    /// The file's name in the distribution.
    pub fn file(&self, version: &str) -> String {
        format!("topoforge-{version}-{}-linux", self.arch)
    }
}

//! Reports of generated text: the kernels of a family, and whether the binary holds what would be generated now.
//!
//! Start at [`CudaReport`] and [`CheckReport`].

use super::Report;
use serde::Serialize;
use std::fmt::Write;

/// `topoforge plan --show-cuda`
#[derive(Debug, Serialize)]
pub struct CudaReport {
    /// The topology's name.
    pub topology: String,
    /// In the order of the variants that use them.
    pub kernels: Vec<KernelLine>,
}

/// One translation unit.
#[derive(Debug, Serialize)]
pub struct KernelLine {
    /// Over the text and the headers that it includes.
    pub hash: String,
    /// The entry point.
    pub symbol: String,
    /// How edges move bytes.
    pub protocol: String,
    /// Who uses it.
    pub variants: Vec<String>,
    /// The text as compiled.
    pub text: String,
}

impl Report for CudaReport {
    fn text(&self) -> String {
        let mut out = String::new();
        for kernel in &self.kernels {
            let _ = writeln!(
                out,
                "// {} of {}: {}\n{}",
                kernel.symbol,
                self.topology,
                kernel.variants.join(", "),
                kernel.text.trim_end()
            );
        }
        out
    }
}

/// `topoforge plan --check`
#[derive(Debug, Serialize)]
pub struct CheckReport {
    /// One for each family that was asked about.
    pub families: Vec<FamilyCheck>,
}

/// A family as lowered now and as compiled in.
#[derive(Debug, Serialize)]
pub struct FamilyCheck {
    /// Its name.
    pub family: String,
    /// Whether both are the same, hash by hash.
    pub equal: bool,
    /// Variants that lowering gives.
    pub variants: usize,
    /// Kernels that lowering gives.
    pub kernels: usize,
    /// What is not the same.
    pub differences: Vec<Difference>,
}

/// A variant, the descriptor or the ports.
#[derive(Debug, Serialize)]
pub struct Difference {
    /// The variant's name, `descriptor` or `ports`.
    pub name: String,
    /// The hash that lowering gives, if it gives one.
    pub lowered: Option<String>,
    /// The hash in this binary, if it holds one.
    pub compiled: Option<String>,
}

impl Report for CheckReport {
    fn text(&self) -> String {
        let mut out = String::new();
        for f in &self.families {
            let verdict = if f.equal {
                "as compiled in"
            } else {
                "NOT as compiled in"
            };
            let _ = writeln!(
                out,
                "{}: {} variants, {} kernels, {verdict}",
                f.family, f.variants, f.kernels
            );
            for d in &f.differences {
                for (sign, hash) in [('-', &d.compiled), ('+', &d.lowered)] {
                    if let Some(hash) = hash {
                        let _ = writeln!(out, "  {sign} {} {hash}", d.name);
                    }
                }
            }
        }
        out
    }
}

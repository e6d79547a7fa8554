//! The C++ compiler that nvcc preprocesses with. nvcc needs one even when only device code is made.
//!
//! Cargo's own choice of C++ compiler is not asked: in a cross build that is a wrapper for another target, and nvcc
//! refuses the ones it does not know.

use std::path::PathBuf;

use super::CompileError;
use crate::env::{self, Env};

/// In the order of preference: nvcc knows the first best.
const NAMES: &[&str] = &["g++", "c++", "clang++"];

/// `NVCC_CCBIN` as it stands, else the first known compiler in PATH.
pub(super) fn host_compiler(env: &Env) -> Result<PathBuf, CompileError> {
    if let Some(named) = env.path(env::NVCC_CCBIN) {
        return Ok(named);
    }
    let folders = env.search_path();
    NAMES
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
        .ok_or_else(|| CompileError::NoHostCompiler {
            looked_for: NAMES.iter().map(|name| (*name).to_owned()).collect(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_compiler_is_taken_as_it_stands() {
        let env = Env::default().with(env::NVCC_CCBIN, "/opt/gcc-11/bin/g++");
        assert_eq!(host_compiler(&env).unwrap(), PathBuf::from("/opt/gcc-11/bin/g++"));
    }

    #[test]
    fn none_at_all_says_what_to_install() {
        let message = host_compiler(&Env::default()).unwrap_err().to_string();
        assert!(
            message.contains("install g++") && message.contains("NVCC_CCBIN"),
            "{message}"
        );
    }
}

//! Every environment variable topoforge reads while it builds, in one place.
//!
//! Nothing else in the build path calls `std::env::var`: a build script takes one [`Env`] snapshot and hands it on, so
//! that tests can describe an environment without touching the process's own, and so that no variable can be read
//! without also being announced to cargo by [`print_rerun`]. This module never decides what a value means; the readers
//! do. Start at [`ALL`], the table that the documentation prints.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// One variable: its name, what it does, and whether a change of it runs the build again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Var {
    /// The name in the environment.
    pub name: &'static str,
    /// One line for the documentation: what it sets, and what holds without it.
    pub meaning: &'static str,
    /// Whether cargo is told to run the build script again when it changes.
    pub reruns: bool,
}

const fn var(name: &'static str, meaning: &'static str) -> Var {
    Var {
        name,
        meaning,
        reruns: true,
    }
}

/// Which compilers to use, as a list.
pub const TOPOFORGE_NVCC: Var = var(
    "TOPOFORGE_NVCC",
    "nvcc files or toolkit folders, separated like PATH, all of them used; `none` builds without kernels",
);
/// One compiler.
pub const NVCC: Var = var(
    "NVCC",
    "one nvcc, a path or a name looked up in PATH; read when TOPOFORGE_NVCC is unset",
);
/// A toolkit folder.
pub const CUDA_HOME: Var = var(
    "CUDA_HOME",
    "a toolkit folder holding bin/nvcc; read when neither of the above is set",
);
/// A toolkit folder, the other usual name.
pub const CUDA_PATH: Var = var("CUDA_PATH", "as CUDA_HOME, read after it");
/// The search path.
///
/// Not announced to cargo: every terminal and editor has another PATH, and each switch would build everything again.
/// An nvcc that newly appears in it is picked up when something else runs the build script, or after `touch build.rs`.
pub const PATH: Var = Var {
    name: "PATH",
    meaning: "where nvcc is looked for last, and g++ always; a change alone does not run the build again",
    reruns: false,
};
/// The folder that set-up fills.
pub const TOPOFORGE_TOOLKIT_DIR: Var = var(
    "TOPOFORGE_TOOLKIT_DIR",
    "where `cargo xtask setup` puts toolkits and where they are found again; default `.toolkit` of the checkout",
);
/// Which architectures to build.
pub const TOPOFORGE_ARCHS: Var = var(
    "TOPOFORGE_ARCHS",
    "architectures to build, as `70,80,90+ptx`; default: all known ones the toolkits have, PTX for the newest",
);
/// The host compiler for nvcc.
pub const NVCC_CCBIN: Var = var(
    "NVCC_CCBIN",
    "the host compiler nvcc preprocesses with; default: g++, then c++, then clang++ from PATH",
);
/// Flags before ours, read by nvcc itself.
pub const NVCC_PREPEND_FLAGS: Var = var(
    "NVCC_PREPEND_FLAGS",
    "read by nvcc itself: flags put before ours; part of every cache key",
);
/// Flags after ours, read by nvcc itself.
pub const NVCC_APPEND_FLAGS: Var = var(
    "NVCC_APPEND_FLAGS",
    "read by nvcc itself: flags put after ours; part of every cache key",
);
/// Where compiled kernels are kept between builds.
pub const TOPOFORGE_CACHE: Var = var(
    "TOPOFORGE_CACHE",
    "a folder of compiled kernels that several checkouts and profiles may share; default: inside the build's own folder",
);
/// More descriptors.
pub const TOPOFORGE_TOPOLOGIES: Var = var(
    "TOPOFORGE_TOPOLOGIES",
    "folders of further topology descriptors to build into the binary, separated like PATH",
);
/// How many compilers run at once.
pub const TOPOFORGE_JOBS: Var = Var {
    name: "TOPOFORGE_JOBS",
    meaning: "how many compilers run at once at most; default: as many jobs as cargo itself was given",
    reruns: false,
};
/// Cargo's own number of jobs.
pub const NUM_JOBS: Var = Var {
    name: "NUM_JOBS",
    meaning: "set by cargo: how many jobs it runs at once",
    reruns: false,
};
/// Cargo's jobserver.
pub const CARGO_MAKEFLAGS: Var = Var {
    name: "CARGO_MAKEFLAGS",
    meaning: "set by cargo: its jobserver; every compiler but the first takes a token of it",
    reruns: false,
};
/// The jobserver of a make that runs a build script without cargo.
pub const MAKEFLAGS: Var = Var {
    name: "MAKEFLAGS",
    meaning: "set by make: its jobserver; read when CARGO_MAKEFLAGS names none",
    reruns: false,
};
/// Set where documentation is built without a toolkit.
pub const DOCS_RS: Var = var("DOCS_RS", "when set, no toolkit is looked for and no kernel is built");

/// All variables, in the order the documentation lists them.
pub const ALL: &[Var] = &[
    TOPOFORGE_NVCC,
    NVCC,
    CUDA_HOME,
    CUDA_PATH,
    PATH,
    TOPOFORGE_TOOLKIT_DIR,
    TOPOFORGE_ARCHS,
    NVCC_CCBIN,
    NVCC_PREPEND_FLAGS,
    NVCC_APPEND_FLAGS,
    TOPOFORGE_CACHE,
    TOPOFORGE_TOPOLOGIES,
    TOPOFORGE_JOBS,
    NUM_JOBS,
    CARGO_MAKEFLAGS,
    MAKEFLAGS,
    DOCS_RS,
];

/// The lines that make cargo run a build script again when one of the variables changes.
pub fn rerun_lines() -> Vec<String> {
    ALL.iter()
        .filter(|var| var.reruns)
        .map(|var| format!("cargo::rerun-if-env-changed={}", var.name))
        .collect()
}

/// Prints [`rerun_lines`] on standard output; for build scripts.
pub fn print_rerun() {
    for line in rerun_lines() {
        println!("{line}");
    }
}

/// The variables as a Markdown table, for the documentation.
pub fn markdown_table() -> String {
    let mut out = String::from("| variable | meaning |\n|---|---|\n");
    for var in ALL {
        out.push_str(&format!("| `{}` | {} |\n", var.name, var.meaning));
    }
    out
}

/// A snapshot of the variables of [`ALL`]. Empty values count as unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Env {
    values: BTreeMap<&'static str, OsString>,
}

impl Env {
    /// Reads the process's environment.
    pub fn from_process() -> Self {
        let mut env = Env::default();
        for var in ALL {
            if let Some(value) = std::env::var_os(var.name) {
                env.set(*var, value);
            }
        }
        env
    }

    /// Sets one variable of the snapshot; an empty value unsets it.
    pub fn set(&mut self, var: Var, value: impl Into<OsString>) {
        let value = value.into();
        if value.is_empty() {
            self.values.remove(var.name);
        } else {
            self.values.insert(var.name, value);
        }
    }

    /// As [`set`](Env::set), for building a snapshot in one expression.
    pub fn with(mut self, var: Var, value: impl Into<OsString>) -> Self {
        self.set(var, value);
        self
    }

    /// The value, or `None` when unset or empty.
    pub fn get(&self, var: Var) -> Option<&OsStr> {
        self.values.get(var.name).map(OsString::as_os_str)
    }

    /// The value as a path.
    pub fn path(&self, var: Var) -> Option<PathBuf> {
        self.get(var).map(PathBuf::from)
    }

    /// The value as text; bytes that are no UTF-8 are replaced.
    pub fn text(&self, var: Var) -> Option<String> {
        self.get(var).map(|value| value.to_string_lossy().into_owned())
    }

    /// The folders of PATH.
    pub fn search_path(&self) -> Vec<PathBuf> {
        self.get(PATH)
            .map(|value| std::env::split_paths(value).collect())
            .unwrap_or_default()
    }

    /// How many compilers to run at once: `TOPOFORGE_JOBS`, else cargo's `NUM_JOBS`, else one for each processor.
    pub fn jobs(&self) -> usize {
        [TOPOFORGE_JOBS, NUM_JOBS]
            .into_iter()
            .filter_map(|var| self.text(var)?.trim().parse::<usize>().ok())
            .find(|jobs| *jobs > 0)
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_listed_once() {
        let mut names: Vec<_> = ALL.iter().map(|var| var.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        assert!(markdown_table().contains("`TOPOFORGE_CACHE`"));
    }

    #[test]
    fn the_documentation_lists_every_variable_as_it_is() {
        let page = include_str!("../../docs/environment.md");
        for var in ALL {
            let row = format!("| `{}` | {} |", var.name, var.meaning);
            assert!(page.contains(&row), "docs/environment.md lacks: {row}");
        }
    }

    #[test]
    fn cargo_hears_of_all_but_the_volatile_ones() {
        let lines = rerun_lines();
        assert!(lines.contains(&"cargo::rerun-if-env-changed=NVCC_APPEND_FLAGS".to_owned()));
        assert!(lines.contains(&"cargo::rerun-if-env-changed=TOPOFORGE_NVCC".to_owned()));
        assert!(!lines.iter().any(|line| line.ends_with("=PATH")));
    }

    #[test]
    fn an_empty_value_is_unset() {
        let env = Env::default().with(NVCC, "");
        assert_eq!(env.get(NVCC), None);
    }

    #[test]
    fn our_job_count_wins_over_cargos_and_nonsense_is_skipped() {
        let env = Env::default().with(NUM_JOBS, "3");
        assert_eq!(env.jobs(), 3);
        assert_eq!(env.clone().with(TOPOFORGE_JOBS, "5").jobs(), 5);
        assert_eq!(env.with(TOPOFORGE_JOBS, "many").jobs(), 3);
    }
}

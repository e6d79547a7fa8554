//! Finds nvcc: the variables in their order, then PATH, then the folders the caller adds.
//!
//! The first source that has something wins as a whole, so that what the user said is never mixed with what happened to
//! be installed. A compiler that the user named and that is not there, or one that does not answer, is an error and
//! never silently passed over. Start at [`Discover`].

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Toolkit, ToolkitError};
use crate::env::{self, Env, Var};

/// An nvcc file, and what led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The file.
    pub nvcc: PathBuf,
    /// The variable or folder that named it, for messages.
    pub named_by: String,
}

/// The search for toolkits.
#[derive(Clone, Debug)]
pub struct Discover {
    env: Env,
    fallbacks: Vec<PathBuf>,
}

impl Discover {
    /// Searches in the process's environment.
    pub fn from_env() -> Self {
        Self::new(Env::from_process())
    }

    /// Searches in a given environment.
    pub fn new(env: Env) -> Self {
        Discover {
            env,
            fallbacks: Vec::new(),
        }
    }

    /// Looks into `folder/*/bin/nvcc` too when nothing else has an nvcc; `TOPOFORGE_TOOLKIT_DIR` stands in for the
    /// first such folder. A folder that does not exist is no error.
    pub fn with_fallback(mut self, folder: impl Into<PathBuf>) -> Self {
        let folder = match self.env.path(env::TOPOFORGE_TOOLKIT_DIR) {
            Some(instead) if self.fallbacks.is_empty() => instead,
            _ => folder.into(),
        };
        self.fallbacks.push(folder);
        self
    }

    /// All toolkits of the first source that has any, in the order named. None found is an empty list.
    pub fn find(&self) -> Result<Vec<Toolkit>, ToolkitError> {
        self.candidates()?
            .iter()
            .map(|candidate| Toolkit::probe(&candidate.nvcc, &candidate.named_by))
            .collect()
    }

    /// The files that [`find`](Discover::find) would ask.
    pub fn candidates(&self) -> Result<Vec<Candidate>, ToolkitError> {
        if self.env.get(env::TOPOFORGE_NVCC) == Some(OsStr::new("none")) {
            return Ok(Vec::new());
        }
        for source in [Self::in_list, Self::in_nvcc] {
            let found = source(self)?;
            if !found.is_empty() {
                return Ok(distinct(found));
            }
        }
        for source in [Self::in_homes, Self::in_path, Self::in_fallbacks] {
            let found = source(self);
            if !found.is_empty() {
                return Ok(distinct(found));
            }
        }
        Ok(Vec::new())
    }

    fn in_list(&self) -> Result<Vec<Candidate>, ToolkitError> {
        let Some(list) = self.env.get(env::TOPOFORGE_NVCC) else {
            return Ok(Vec::new());
        };
        std::env::split_paths(list)
            .filter(|entry| !entry.as_os_str().is_empty())
            .map(|entry| self.named(env::TOPOFORGE_NVCC, entry))
            .collect()
    }

    fn in_nvcc(&self) -> Result<Vec<Candidate>, ToolkitError> {
        match self.env.path(env::NVCC) {
            Some(path) => Ok(vec![self.named(env::NVCC, path)?]),
            None => Ok(Vec::new()),
        }
    }

    /// A file, a toolkit folder, or a bare name to be found in PATH.
    fn named(&self, var: Var, path: PathBuf) -> Result<Candidate, ToolkitError> {
        let bare = path.components().count() == 1 && !path.is_dir();
        let tries = if bare {
            let folders = self.env.search_path();
            folders.iter().map(|folder| folder.join(&path)).collect()
        } else {
            vec![path.clone(), path.join("bin/nvcc")]
        };
        match tries.into_iter().find(|file| file.is_file()) {
            Some(nvcc) => Ok(candidate(nvcc, var.name)),
            None => Err(ToolkitError::Missing {
                named_by: var.name.to_owned(),
                path,
            }),
        }
    }

    /// These two are often left over from an old installation, so a folder without nvcc is passed over.
    fn in_homes(&self) -> Vec<Candidate> {
        [env::CUDA_HOME, env::CUDA_PATH]
            .into_iter()
            .filter_map(|var| Some((self.env.path(var)?.join("bin/nvcc"), var)))
            .filter(|(nvcc, _)| nvcc.is_file())
            .map(|(nvcc, var)| candidate(nvcc, var.name))
            .take(1)
            .collect()
    }

    fn in_path(&self) -> Vec<Candidate> {
        self.env
            .search_path()
            .iter()
            .map(|folder| folder.join("nvcc"))
            .find(|nvcc| nvcc.is_file())
            .map(|nvcc| candidate(nvcc, env::PATH.name))
            .into_iter()
            .collect()
    }

    fn in_fallbacks(&self) -> Vec<Candidate> {
        self.fallbacks
            .iter()
            .flat_map(|folder| toolkits_below(folder))
            .collect()
    }
}

/// `folder/*/bin/nvcc`, sorted by name. Names that begin with a dot are fetches under way.
fn toolkits_below(folder: &Path) -> Vec<Candidate> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .filter(|name| !name.as_encoded_bytes().starts_with(b"."))
        .collect();
    names.sort();
    names
        .into_iter()
        .map(|name| folder.join(name).join("bin/nvcc"))
        .filter(|nvcc| nvcc.is_file())
        .map(|nvcc| candidate(nvcc, &folder.display().to_string()))
        .collect()
}

fn candidate(nvcc: PathBuf, named_by: &str) -> Candidate {
    Candidate {
        nvcc,
        named_by: named_by.to_owned(),
    }
}

/// One file named twice, or through a link, is one toolkit.
fn distinct(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let mut seen = Vec::new();
    candidates
        .into_iter()
        .filter(|candidate| {
            let real = fs::canonicalize(&candidate.nvcc).unwrap_or_else(|_| candidate.nvcc.clone());
            let new = !seen.contains(&real);
            seen.push(real);
            new
        })
        .collect()
}

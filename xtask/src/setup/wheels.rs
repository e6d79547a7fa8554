//! Downloads and unpacks packages of the Python index with the machine's own pip. Nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{apt, pins};
use crate::failure::{Done, Failure, io};
use crate::steps::capture;

/// A pip that runs: `python3 -m pip`, or a `pip` of its own.
pub struct Pip {
    start: Vec<String>,
    python_path: Option<PathBuf>,
}

impl Pip {
    /// Looks for pip; where there is none and `temporary` is given, unpacks the distribution's package of it there.
    pub fn find(temporary: Option<&Path>) -> Done<Pip> {
        capture(Command::new("python3").arg("--version"), false).map_err(|_| {
            Failure::new("python3 is not installed, and it unpacks the packages").todo("install python3")
        })?;
        for start in [&["python3", "-m", "pip"][..], &["pip3"], &["pip"]] {
            let pip = Pip {
                start: start.iter().map(|word| (*word).to_owned()).collect(),
                python_path: None,
            };
            if capture(pip.command().arg("--version"), false).is_ok() {
                return Ok(pip);
            }
        }
        let missing = || Failure::new("pip is not installed").todo("install python3-pip");
        let folder = temporary.ok_or_else(missing)?;
        let fault = |failure: Failure| missing().tried(failure.to_string());
        let package = apt::Apt::prepare(&folder.join("apt-free"), apt::Part::Free)
            .and_then(|apt| apt.download("python3-pip"))
            .map_err(fault)?;
        let root = folder.join("pip");
        apt::unpack(&package, &root)?;
        let pip = Pip {
            start: ["python3", "-m", "pip"].map(str::to_owned).to_vec(),
            python_path: Some(root.join("usr/lib/python3/dist-packages")),
        };
        capture(pip.command().arg("--version"), false).map_err(fault)?;
        Ok(pip)
    }

    /// Downloads `requirements` as wheels into `folder`, checks them, and unpacks all into `root`. Returns
    /// (file name, digest) of each.
    pub fn fetch(&self, requirements: &[String], folder: &Path, root: &Path) -> Done<Vec<(String, String)>> {
        fs::create_dir_all(folder).map_err(io("making", folder))?;
        let mut command = self.command();
        command
            .args(["download", "--quiet", "--no-deps", "--only-binary=:all:", "--retries=2"])
            .args(["--disable-pip-version-check", "--no-input", "--dest"])
            .arg(folder)
            .args(requirements);
        capture(&mut command, false)?;
        let mut files: Vec<PathBuf> = fs::read_dir(folder)
            .map_err(io("reading", folder))?
            .flatten()
            .map(|entry| entry.path())
            .collect();
        files.sort();
        let mut fetched = Vec::new();
        for file in files {
            let digest = pins::check(&file)?;
            let mut unzip = Command::new("python3");
            unzip.args(["-m", "zipfile", "-e"]).arg(&file).arg(root);
            capture(&mut unzip, false)?;
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            fetched.push((name, digest));
        }
        Ok(fetched)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.start[0]);
        command.args(&self.start[1..]);
        if let Some(path) = &self.python_path {
            command.env("PYTHONPATH", path);
        }
        command
    }
}

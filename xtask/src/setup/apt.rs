//! Downloads single packages with apt, through folders of our own.
//!
//! The machine's package lists, caches and configuration stay untouched, and no root is needed: lists and state are
//! private, the sources are the machine's own with one more component, and the hooks of the machine's configuration are
//! switched off. Signatures are checked as ever. Start at [`Apt::prepare`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::sources;
use crate::failure::{Done, Failure, io};
use crate::steps::capture;

/// A private view of the distribution's archive.
pub struct Apt {
    folder: PathBuf,
    /// What went wrong while the indexes were read; it may have been one that does not matter.
    unread: Option<String>,
}

/// A part of the archive, by the licences in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Free software.
    Free,
    /// Software with a licence of its own.
    Licensed,
}

impl Apt {
    /// Reads the package index of one part of the archive.
    pub fn prepare(folder: &Path, part: Part) -> Done<Apt> {
        for program in ["apt-get", "dpkg-deb"] {
            if !in_path(program) {
                return Err(Failure::new(format!("this machine has no {program}")));
            }
        }
        let component = component(part, &os_release("ID"), &os_release("ID_LIKE"))
            .ok_or_else(|| Failure::new("this is neither Debian nor Ubuntu, whose archives have the compiler"))?;
        let sources = sources::for_component(&source_files(), &os_release("VERSION_CODENAME"), component);
        if sources.is_empty() {
            return Err(Failure::new(
                "apt's sources name no archive of this distribution's release",
            ));
        }
        let mut apt = Apt {
            folder: folder.to_owned(),
            unread: None,
        };
        for name in ["lists/partial", "state", "cache/archives/partial", "parts", "out"] {
            let path = folder.join(name);
            fs::create_dir_all(&path).map_err(io("making", &path))?;
        }
        let path = folder.join("private.sources");
        fs::write(&path, sources).map_err(io("writing", &path))?;
        let path = folder.join("apt.conf");
        fs::write(&path, configuration(folder)).map_err(io("writing", &path))?;
        // One archive of several may be out of reach; whether it mattered shows when the package is asked for.
        let update = capture(apt.get().arg("update"), false);
        apt.unread = update.err().map(|failure| failure.to_string());
        Ok(apt)
    }

    /// Downloads one package; apt has checked it against the signed index.
    pub fn download(&self, package: &str) -> Done<PathBuf> {
        let out = self.folder.join("out");
        capture(self.get().args(["download", package]).current_dir(&out), false)?;
        let prefix = format!("{package}_");
        fs::read_dir(&out)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .find(|path| {
                path.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
            })
            .ok_or_else(|| Failure::new(format!("apt downloaded no {package}")))
    }

    /// The version that [`download`](Apt::download) would get.
    pub fn candidate(&self, package: &str) -> Done<String> {
        let mut command = Command::new("apt-cache");
        command
            .arg("-c")
            .arg(self.folder.join("apt.conf"))
            .args(["policy", package]);
        let text = capture(command.env("LC_ALL", "C"), false)?;
        text.lines()
            .find_map(|line| line.trim().strip_prefix("Candidate: "))
            .filter(|version| *version != "(none)")
            .map(str::to_owned)
            .ok_or_else(|| {
                let none = Failure::new(format!("apt knows no {package}"));
                match &self.unread {
                    Some(why) => none.tried(why),
                    None => none,
                }
            })
    }

    fn get(&self) -> Command {
        let mut command = Command::new("apt-get");
        command
            .arg("-qq")
            .arg("-c")
            .arg(self.folder.join("apt.conf"))
            .env("LC_ALL", "C");
        command
    }
}

/// Unpacks a package without installing it.
pub fn unpack(package: &Path, into: &Path) -> Done {
    capture(Command::new("dpkg-deb").arg("-x").arg(package).arg(into), false).map(|_| ())
}

fn configuration(folder: &Path) -> String {
    let at = |name: &str| folder.join(name).display().to_string();
    let hooks = ["Pre-Invoke", "Post-Invoke", "Post-Invoke-Success"];
    let mut text: String = hooks
        .iter()
        .map(|hook| format!("#clear APT::Update::{hook};\n"))
        .collect();
    for (key, value) in [
        ("Dir::State", at("state")),
        ("Dir::State::lists", at("lists")),
        ("Dir::State::status", "/var/lib/dpkg/status".to_owned()),
        ("Dir::Cache", at("cache")),
        ("Dir::Etc::sourcelist", at("private.sources")),
        ("Dir::Etc::sourceparts", at("parts")),
        ("APT::Sandbox::User", "root".to_owned()),
        ("APT::Get::AllowUnauthenticated", "false".to_owned()),
        ("Acquire::AllowInsecureRepositories", "false".to_owned()),
        // Else an index that could not be read is a warning, and the exit status says nothing.
        ("APT::Update::Error-Mode", "any".to_owned()),
        ("Acquire::Languages", "none".to_owned()),
        ("Acquire::Retries", "2".to_owned()),
        ("Acquire::http::Timeout", "30".to_owned()),
        ("Acquire::https::Timeout", "30".to_owned()),
    ] {
        text.push_str(&format!("{key} \"{value}\";\n"));
    }
    text
}

/// What each distribution calls the parts.
fn component(part: Part, id: &str, like: &str) -> Option<&'static str> {
    let distribution = std::iter::once(id)
        .chain(like.split_whitespace())
        .find(|word| ["ubuntu", "debian"].contains(word))?;
    Some(match (distribution, part) {
        ("ubuntu", Part::Licensed) => "multiverse",
        ("ubuntu", Part::Free) => "main universe",
        (_, Part::Licensed) => "non-free",
        (_, Part::Free) => "main",
    })
}

fn os_release(key: &str) -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    value.unwrap_or_default().trim_matches('"').to_owned()
}

fn source_files() -> Vec<(String, String)> {
    let mut paths = vec![PathBuf::from("/etc/apt/sources.list")];
    let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    let mut parts: Vec<PathBuf> = parts.map(|entry| entry.path()).collect();
    parts.sort();
    paths.extend(parts);
    paths
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "list" || end == "sources"))
        .filter_map(|path| Some((path.display().to_string(), fs::read_to_string(path).ok()?)))
        .collect()
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_distribution_has_its_component() {
        let licensed = |id, like| component(Part::Licensed, id, like);
        assert_eq!(licensed("debian", ""), Some("non-free"));
        assert_eq!(licensed("ubuntu", "debian"), Some("multiverse"));
        assert_eq!(licensed("linuxmint", "ubuntu debian"), Some("multiverse"));
        assert_eq!(licensed("fedora", ""), None);
        assert_eq!(component(Part::Free, "debian", ""), Some("main"));
    }

    #[test]
    fn the_machines_hooks_are_off_and_its_lists_out_of_reach() {
        let text = configuration(Path::new("/private"));
        assert!(text.contains("#clear APT::Update::Post-Invoke;"));
        assert!(text.contains("Dir::State::lists \"/private/lists\";"));
        assert!(text.contains("Dir::Etc::sourcelist \"/private/private.sources\";"));
        assert!(text.contains("AllowUnauthenticated \"false\""));
    }
}

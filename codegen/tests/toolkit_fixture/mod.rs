//! A folder that cleans up after itself, and shell scripts that answer as nvcc does.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A folder of one test, removed when the test ends.
pub struct Folder {
    pub path: PathBuf,
}

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("toolkit-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the target folder is writable");
        Folder { path }
    }

    /// An executable shell script.
    pub fn script(&self, name: &str, body: &str) -> PathBuf {
        script(&self.path.join(name), body)
    }

    /// The number of lines in a file that fakes append to; 0 when they never ran.
    pub fn lines(&self, name: &str) -> usize {
        fs::read_to_string(self.path.join(name)).map_or(0, |text| text.lines().count())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn script(path: &Path, body: &str) -> PathBuf {
    let folder = path.parent().expect("a file has a folder");
    fs::create_dir_all(folder).expect("the target folder is writable");
    fs::write(path, format!("#!/bin/sh\n{body}\n")).expect("the target folder is writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("our own file");
    path.to_owned()
}

fn answers(release: &str, archs: &[u32]) -> String {
    let codes: Vec<String> = archs.iter().map(|arch| format!("sm_{arch}")).collect();
    format!(
        "case \"$1\" in\n--version) echo 'Cuda compilation tools, release {release}, V{release}.1'; exit 0;;\n\
         --list-gpu-code) printf '%s\\n' {}; exit 0;;\nesac",
        codes.join(" ")
    )
}

/// A script that only says what it is.
pub fn fake_nvcc(path: &Path, release: &str, archs: &[u32]) -> PathBuf {
    script(path, &answers(release, archs))
}

/// A script that also "compiles": it runs `then`, with the output's name in `$out`.
pub fn compiling_nvcc(path: &Path, release: &str, archs: &[u32], then: &str) -> PathBuf {
    script(
        path,
        &format!(
            "{}\nout=\nwhile [ $# -gt 0 ]; do if [ \"$1\" = -o ]; then out=\"$2\"; fi; shift; done\n{then}",
            answers(release, archs)
        ),
    )
}

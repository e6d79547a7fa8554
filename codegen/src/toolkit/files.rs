//! Writes files so that nobody ever sees half of one, and hashes folders of headers.
//!
//! Two builds may share a cache and run at once: every file is written beside its place under a name of its own and
//! renamed, which is atomic. A file whose content would not change is left alone, so that its time stands still and
//! nothing that depends on it is built again.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::sha256::Sha256;

/// A name that no other writer uses: this process, and a count within it.
pub(crate) fn unique(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    // Two containers that share a folder may have equal process ids.
    let salt = RandomState::new().build_hasher().finish();
    format!("{prefix}{}-{count}-{salt:016x}", std::process::id())
}

/// Writes `data` to `path` in one step, unless it already holds just that. Says whether it wrote.
pub fn write_if_changed(path: &Path, data: &[u8]) -> io::Result<bool> {
    if fs::read(path).is_ok_and(|old| old == data) {
        return Ok(false);
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let temporary = folder.join(unique(".write-"));
    let written = fs::write(&temporary, data).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written.map(|()| true)
}

/// The digest of all files below `folders`: names relative to their folder, and contents, in sorted order.
///
/// Hand it to [`Job`](super::Job) as the state of the headers a text may include.
pub fn digest_folders(folders: &[PathBuf]) -> io::Result<String> {
    let mut hash = Sha256::new();
    for folder in folders {
        let mut files = Vec::new();
        collect(folder, &mut files)?;
        files.sort();
        hash.field((files.len() as u64).to_le_bytes());
        for file in files {
            let name = file.strip_prefix(folder).unwrap_or(&file);
            hash.field(name.to_string_lossy().as_bytes());
            hash.field(fs::read(&file)?);
        }
    }
    Ok(hash.finish())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

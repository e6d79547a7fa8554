//! The CUDA 11 or 12 of Debian or Ubuntu, which builds sm_70: its compiler package, unpacked and not installed, and the
//! headers of the same release from the Python index.
//!
//! Installing the package would pull in 1.6 GB; its own 84 MB have all of the compiler but the headers.

use std::fs;
use std::path::Path;

use super::apt::{self, Apt, Part};
use super::wheels::Pip;
use super::{Fetched, layout, pins};
use crate::failure::{Done, Failure};

const PACKAGE: &str = "nvidia-cuda-toolkit";

/// Fetches and lays out.
pub(super) fn fetch(temporary: &Path) -> Done<Fetched> {
    let apt = Apt::prepare(&temporary.join("apt"), Part::Licensed)?;
    let version = apt.candidate(PACKAGE)?;
    let release = release(&version)
        .ok_or_else(|| Failure::new(format!("{PACKAGE} has a version that cannot be read: {version}")))?;
    let headers = headers(release).ok_or_else(|| {
        Failure::new(format!(
            "this distribution's CUDA is {}.{}; 11.5 to 12.9 can be used",
            release.0, release.1
        ))
    })?;
    eprintln!(
        "    fetching CUDA {}.{} ({PACKAGE} {version} and its headers, about 105 MB;",
        release.0, release.1
    );
    eprintln!("    NVIDIA's licence applies); nothing is installed");
    let package = apt.download(PACKAGE)?;
    let digest = pins::check(&package)?;
    let root = temporary.join("package");
    apt::unpack(&package, &root)?;
    let pip = Pip::find(Some(temporary))?;
    let wheels = temporary.join("wheels");
    let mut fetched = pip.fetch(&headers, &temporary.join("download"), &wheels)?;
    let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
    fetched.insert(0, (name, digest));
    let tree = temporary.join("tree");
    layout::side_by_side(&root, &wheels, &tree)?;
    layout::licences(&wheels, &tree)?;
    layout::note(&tree, &fetched)?;
    let _ = fs::remove_dir_all(&root);
    Ok(Fetched {
        tree,
        name: format!("cuda-{}.{}", release.0, release.1),
    })
}

/// (11, 8) of `11.8.89~11.8.0-5~deb12u1`.
fn release(version: &str) -> Option<(u32, u32)> {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The packages with the headers for a release, or `None` for a release that is of no use here: before 11.5 the index
/// has no headers that fit, and 13 has no sm_70.
fn headers(release: (u32, u32)) -> Option<Vec<String>> {
    let packages: Vec<String> = match release {
        (11, 8) => vec![
            "nvidia-cuda-nvcc-cu11==11.8.89".into(),
            "nvidia-cuda-runtime-cu11==11.8.89".into(),
        ],
        // The oldest headers of the index; the small changes since 11.5 do not touch what kernels use.
        (11, 5..=7) => vec![
            "nvidia-cuda-nvcc-cu11==11.7.99".into(),
            "nvidia-cuda-runtime-cu11==11.7.99".into(),
        ],
        (12, minor @ 0..=9) => ["nvcc", "runtime", "cccl"]
            .iter()
            .map(|part| format!("nvidia-cuda-{part}-cu12==12.{minor}.*"))
            .collect(),
        _ => return None,
    };
    Some(packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_from_package_versions() {
        assert_eq!(release("11.8.89~11.8.0-5~deb12u1"), Some((11, 8)));
        assert_eq!(release("12.0.140~12.0.1-4build4"), Some((12, 0)));
        assert_eq!(release("1:11.5.1-1ubuntu1"), Some((11, 5)));
        assert_eq!(release("unknown"), None);
    }

    #[test]
    fn headers_fit_the_compiler_and_useless_releases_have_none() {
        assert_eq!(headers((11, 8)).unwrap()[1], "nvidia-cuda-runtime-cu11==11.8.89");
        assert_eq!(headers((12, 4)).unwrap()[0], "nvidia-cuda-nvcc-cu12==12.4.*");
        assert_eq!(headers((10, 1)), None);
        assert_eq!(headers((11, 2)), None);
        assert_eq!(headers((13, 0)), None);
    }
}

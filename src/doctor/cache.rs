//! Verdicts kept between runs, for as long as driver, boot, devices and kernels are the same.
//!
//! A file that cannot be read whole is no file. Positive verdicts do not survive a reboot: settings that decide may have
//! changed with it. Start at [`Key::here`] and [`load`].

use super::verdict::{PairReport, Verdict};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use topoforge_planner::topology::{LinkClass, Topology};

/// What verdicts hold for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The driver's version.
    pub driver: String,
    /// The kernel's id of this boot.
    pub boot: String,
    /// PCI addresses in the order of CUDA's ordinals.
    pub pci: Vec<String>,
    /// Hash over all kernels.
    pub kernel_set: String,
}

impl Key {
    /// Of this boot; `None` where the boot has no id, so nothing may be kept.
    pub fn here(driver: &str, pci: Vec<String>, kernel_set: String) -> Option<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .ok()?
            .trim()
            .to_owned();
        Some(Self {
            driver: driver.to_owned(),
            boot,
            pci,
            kernel_set,
        })
    }

    /// The name of its file.
    fn file(&self) -> String {
        // FNV-1a; the key itself is in the file and compared.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in format!("{self:?}").bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        format!("peers-{hash:016x}.ron")
    }
}

/// 2 since lines have a verdict of their own.
const FORMAT: u32 = 2;

#[derive(Serialize, Deserialize)]
struct Kept {
    format: u32,
    key: Key,
    pairs: Vec<KeptPair>,
}

#[derive(Serialize, Deserialize)]
struct KeptPair {
    from: usize,
    to: usize,
    write: String,
    read: String,
    lines: String,
    detail: Vec<String>,
}

/// Where verdicts are kept: `topoforge` in the user's cache folder.
pub fn folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("topoforge"))
}

/// The verdicts kept for this very key.
pub fn load(folder: &Path, key: &Key) -> Option<Vec<PairReport>> {
    let text = std::fs::read_to_string(folder.join(key.file())).ok()?;
    let kept: Kept = ron::from_str(&text).ok()?;
    if kept.format != FORMAT || kept.key != *key {
        return None;
    }
    let report = |p: KeptPair| {
        Some(PairReport {
            from: p.from,
            to: p.to,
            write: Verdict::from_name(&p.write)?,
            read: Verdict::from_name(&p.read)?,
            lines: Verdict::from_name(&p.lines)?,
            detail: p.detail,
        })
    };
    kept.pairs.into_iter().map(report).collect()
}

/// Keeps verdicts; another process sees the old file or the new one, never half of one.
///
/// # Errors
/// The folder cannot be written.
pub fn store(folder: &Path, key: &Key, reports: &[PairReport]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let pair = |r: &PairReport| KeptPair {
        from: r.from,
        to: r.to,
        write: r.write.name().to_owned(),
        read: r.read.name().to_owned(),
        lines: r.lines.name().to_owned(),
        detail: r.detail.clone(),
    };
    let kept = Kept {
        format: FORMAT,
        key: key.clone(),
        pairs: reports.iter().map(pair).collect(),
    };
    let text = ron::ser::to_string_pretty(&kept, ron::ser::PrettyConfig::default()).map_err(std::io::Error::other)?;
    let path = folder.join(key.file());
    let beside = path.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, &path)
}

/// Takes the edges that failed out of a topology; says which.
pub fn veto(topology: &mut Topology, reports: &[PairReport]) -> Vec<String> {
    let mut words = Vec::new();
    for report in reports {
        let bad = [&report.write, &report.read].map(Verdict::is_bad);
        let at = topology
            .links
            .iter()
            .position(|l| (l.from, l.to) == (report.from, report.to));
        let Some(link) = at.map(|at| &mut topology.links[at]).filter(|l| l.class.is_peer()) else {
            continue;
        };
        let (from, to) = (report.from, report.to);
        if bad[0] {
            // Whoever cannot write safely is not trusted to read.
            (link.class, link.read, link.write) = (LinkClass::Host, true, true);
            words.push(format!(
                "GPU {from} to GPU {to}: vetoed by doctor, writes are {}",
                report.write.name()
            ));
        } else if bad[1] {
            link.read = false;
            words.push(format!(
                "GPU {from} to GPU {to}: reads vetoed by doctor, they are {}",
                report.read.name()
            ));
        }
        // Where no link of the class keeps lines, that is no news.
        if report.lines.is_bad() && link.keeps_lines() {
            link.lines = false;
            words.push(format!(
                "GPU {from} to GPU {to}: packet128 vetoed by doctor, its lines are {}",
                report.lines.name()
            ));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use topoforge_planner::topology::PcieClass;

    fn report(from: usize, to: usize, write: Verdict, read: Verdict) -> PairReport {
        PairReport {
            from,
            to,
            write,
            read,
            lines: Verdict::Right,
            detail: vec!["packet: ok".into()],
        }
    }

    fn key(boot: &str) -> Key {
        Key {
            driver: "550".into(),
            boot: boot.into(),
            pci: vec!["0000:01:00.0".into()],
            kernel_set: "k".into(),
        }
    }

    #[test]
    fn verdicts_come_back_for_their_own_key_only() {
        let folder = std::env::temp_dir().join(format!("topoforge-verdicts-{}", std::process::id()));
        let kept = vec![
            report(0, 1, Verdict::Right, Verdict::NotRun),
            report(1, 0, Verdict::Torn, Verdict::Right),
        ];
        assert_eq!(load(&folder, &key("a")), None);
        assert!(store(&folder, &key("a"), &kept).is_ok());
        assert_eq!(load(&folder, &key("a")), Some(kept));
        assert_eq!(load(&folder, &key("b")), None, "another boot");
        // A file under the right name that is of another key, cut, or of a later format is no file.
        let path = folder.join(key("a").file());
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for bad in [
            text.replace("\"550\"", "\"560\""),
            text[..text.len() / 2].to_owned(),
            text.replace("format: 2", "format: 1"),
            text.replace("format: 2", "format: 3"),
        ] {
            assert!(std::fs::write(&path, bad).is_ok());
            assert_eq!(load(&folder, &key("a")), None);
        }
        let _ = std::fs::remove_dir_all(folder);
    }

    #[test]
    fn torn_lines_take_packet128_from_the_edge_and_nothing_else() {
        let nvlink = LinkClass::NvLink { lanes: 4, r#gen: 3 };
        let mut topology =
            Topology::new("t", 3)
                .with_pair(0, 1, nvlink)
                .with_pair(0, 2, LinkClass::Pcie(PcieClass::Pix));
        let torn = |from, to| PairReport {
            lines: Verdict::Torn,
            ..report(from, to, Verdict::Right, Verdict::Right)
        };
        let words = veto(&mut topology, &[torn(0, 1), torn(0, 2)]);
        assert_eq!(
            words,
            ["GPU 0 to GPU 1: packet128 vetoed by doctor, its lines are torn"]
        );
        let link = |from, to| {
            topology
                .link(from, to)
                .map(|l| (l.class, l.read, l.write, l.keeps_lines()))
        };
        assert_eq!(link(0, 1), Some((nvlink, true, true, false)));
        assert_eq!(link(1, 0), Some((nvlink, true, true, true)));
    }

    #[test]
    fn an_edge_that_failed_is_taken_away_and_only_that_one() {
        let mut topology = Topology::new("t", 3).with_all_pairs(&[0, 1, 2], LinkClass::Pcie(PcieClass::Pix));
        let words = veto(
            &mut topology,
            &[
                report(0, 1, Verdict::Zeros, Verdict::NotRun),
                report(1, 0, Verdict::Right, Verdict::Hang),
                report(1, 2, Verdict::Right, Verdict::Right),
            ],
        );
        assert_eq!(words.len(), 2);
        assert_eq!(topology.link(0, 1).map(|l| l.class), Some(LinkClass::Host));
        assert_eq!(topology.link(1, 0).map(|l| (l.read, l.write)), Some((false, true)));
        assert_eq!(topology.link(1, 2).map(|l| (l.read, l.write)), Some((true, true)));
    }
}

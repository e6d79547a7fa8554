//! The probe's sources: a copied `/sys` folder answers as the machine did, and what is hidden is not known.

use std::path::{Path, PathBuf};
use topoforge::driver::nvml::{Ancestor, PciAddress};
use topoforge::probe::sysfs::Sysfs;

/// A `/sys` of two sockets: a switch with two GPUs, a switch of switches with two more, one GPU on its own root port, and
/// one on the other socket.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("topoforge-sysfs-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(root.join("bus/pci/devices")).expect("a folder");
        Self(root)
    }

    fn device(&self, path: &str, files: &[(&str, &str)]) {
        let folder = self.0.join("devices").join(path);
        std::fs::create_dir_all(&folder).expect("a folder");
        for (file, text) in files {
            std::fs::write(folder.join(file), text).expect("a file");
        }
        let name = Path::new(path).file_name().expect("a name");
        let target = Path::new("../../../devices").join(path);
        std::os::unix::fs::symlink(target, self.0.join("bus/pci/devices").join(name)).expect("a link");
    }

    fn gpu(&self, path: &str, numa: &str) {
        let files = [
            ("class", "0x030200\n"),
            ("vendor", "0x10de\n"),
            ("numa_node", numa),
            ("max_link_speed", "32.0 GT/s PCIe\n"),
            ("max_link_width", "16\n"),
        ];
        self.device(path, &files);
    }

    fn machine(name: &str) -> Self {
        let folder = Self::new(name);
        folder.device(
            "pci0000:00/0000:00:01.0",
            &[("max_link_speed", "16.0 GT/s PCIe\n"), ("max_link_width", "8\n")],
        );
        folder.gpu("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:03:00.0", "0\n");
        folder.gpu("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:04:00.0", "0\n");
        folder.gpu(
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:03.0/0000:05:00.0/0000:06:01.0/0000:07:00.0",
            "0\n",
        );
        folder.gpu("pci0000:00/0000:00:02.0/0000:08:00.0", "0\n");
        folder.gpu("pci0000:40/0000:40:01.0/0000:41:00.0", "0\n");
        folder.gpu("pci0000:80/0000:80:01.0/0000:81:00.0", "1\n");
        folder.gpu("pci0000:c0/0000:c0:01.0/0000:c1:00.0", "-1\n");
        folder.device(
            "pci0000:00/0000:00:1f.0",
            &[("class", "0x060100\n"), ("vendor", "0x8086\n")],
        );
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn at(bus: u32) -> PciAddress {
    PciAddress {
        domain: 0,
        bus,
        device: 0,
    }
}

#[test]
fn the_tree_gives_every_class() {
    let folder = Folder::machine("classes");
    let sysfs = Sysfs::at(&folder.0);
    let pairs = [
        (0x03, 0x03, Ancestor::Internal),
        (0x03, 0x04, Ancestor::Single),
        (0x03, 0x07, Ancestor::Multiple),
        (0x03, 0x08, Ancestor::HostBridge),
        (0x03, 0x41, Ancestor::Node),
        (0x03, 0x81, Ancestor::System),
    ];
    for (a, b, class) in pairs {
        assert_eq!(sysfs.ancestor(at(a), at(b)), Some(class), "{a:x} {b:x}");
        assert_eq!(sysfs.ancestor(at(b), at(a)), Some(class), "{b:x} {a:x}");
    }
}

#[test]
fn an_unknown_node_is_the_far_class_and_no_node() {
    let folder = Folder::machine("unknown");
    let sysfs = Sysfs::at(&folder.0);
    assert_eq!(sysfs.numa(at(0xc1)), None);
    assert_eq!(sysfs.ancestor(at(0x03), at(0xc1)), Some(Ancestor::System));
}

#[test]
fn only_gpus_are_gpus_and_slots_limit_them() {
    let folder = Folder::machine("gpus");
    let sysfs = Sysfs::at(&folder.0);
    assert_eq!(
        sysfs.gpus().iter().map(|a| a.bus).collect::<Vec<_>>(),
        [3, 4, 7, 8, 0x41, 0x81, 0xc1]
    );
    // A root port without figures says nothing; the device's own count.
    assert_eq!(sysfs.max_pcie(at(0x08)), Some((5, 16)));
    let narrow = Folder::new("narrow");
    narrow.device(
        "pci0000:00/0000:00:01.0",
        &[("max_link_speed", "16.0 GT/s PCIe\n"), ("max_link_width", "8\n")],
    );
    narrow.gpu("pci0000:00/0000:00:01.0/0000:01:00.0", "0\n");
    assert_eq!(Sysfs::at(&narrow.0).max_pcie(at(1)), Some((4, 8)));
}

#[test]
fn nics_are_named_as_people_know_them() {
    let folder = Folder::machine("nics");
    let nic = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:04.0/0000:09:00.0";
    folder.device(nic, &[("class", "0x020700\n"), ("vendor", "0x15b3\n")]);
    for (kind, name) in [("infiniband", "mlx5_0"), ("net", "ib0")] {
        std::fs::create_dir_all(folder.0.join("devices").join(nic).join(kind).join(name)).expect("a folder");
    }
    let sysfs = Sysfs::at(&folder.0);
    assert_eq!(sysfs.nics(), [(at(9), "mlx5_0".to_owned())]);
    assert_eq!(sysfs.ancestor(at(3), at(9)), Some(Ancestor::Single));
}

#[test]
fn a_hidden_tree_is_not_known_rather_than_an_error() {
    let folder = Folder::new("hidden");
    let sysfs = Sysfs::at(&folder.0);
    assert!(!sysfs.shows_pci() && sysfs.gpus().is_empty());
    assert_eq!(
        (sysfs.ancestor(at(1), at(2)), sysfs.numa(at(1)), sysfs.max_pcie(at(1))),
        (None, None, None)
    );
    assert_eq!(sysfs.redirected(at(1)), None);
    assert!(!Sysfs::at("/nowhere/at/all").shows_pci());
}

//! A small binding of NVML: what the probe asks about GPUs and the links between them.
//!
//! Devices are found by PCI address, never by NVML's index, which ignores `CUDA_VISIBLE_DEVICES`. Figures are the
//! maximum ones, since current ones drop when idle. Start at [`Nvml::open`].

use super::context::text_of;
use super::handles::{open, table};
use super::{DriverError, call};
use libloading::Library;
use once_cell::sync::OnceCell;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};

type Handle = *mut c_void;

/// Mirrors `nvmlPciInfo_t`.
#[repr(C)]
pub(crate) struct PciInfo {
    legacy: [u8; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    id: c_uint,
    subsystem: c_uint,
    text: [u8; 32],
}

table! {
    /// The functions of libnvidia-ml that topoforge uses.
    Nvml {
        init = "nvmlInit_v2"();
        driver_version = "nvmlSystemGetDriverVersion"(*mut c_char, c_uint);
        by_pci = "nvmlDeviceGetHandleByPciBusId_v2"(*const c_char, *mut Handle);
        name = "nvmlDeviceGetName"(Handle, *mut c_char, c_uint);
        uuid = "nvmlDeviceGetUUID"(Handle, *mut c_char, c_uint);
        link_state = "nvmlDeviceGetNvLinkState"(Handle, c_uint, *mut c_int);
        link_remote = "nvmlDeviceGetNvLinkRemotePciInfo_v2"(Handle, c_uint, *mut PciInfo);
        ancestor = "nvmlDeviceGetTopologyCommonAncestor"(Handle, Handle, *mut c_int);
        p2p_status = "nvmlDeviceGetP2PStatus"(Handle, Handle, c_int, *mut c_int);
        max_pcie_gen = "nvmlDeviceGetMaxPcieLinkGeneration"(Handle, *mut c_uint);
        max_pcie_width = "nvmlDeviceGetMaxPcieLinkWidth"(Handle, *mut c_uint);
    } optional {
        link_version = "nvmlDeviceGetNvLinkVersion"(Handle, c_uint, *mut c_uint);
    }
}

/// A PCI address without its function, the same for NVML, CUDA and sysfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    /// Domain (segment).
    pub domain: u32,
    /// Bus.
    pub bus: u32,
    /// Device.
    pub device: u32,
}

impl PciAddress {
    /// Reads `DDDD:BB:DD.F`, any number of digits and any case; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = |text: &str| u32::from_str_radix(text, 16).ok();
        let (rest, _function) = text.trim().rsplit_once('.')?;
        let mut parts = rest.rsplitn(3, ':');
        let (device, bus) = (hex(parts.next()?)?, hex(parts.next()?)?);
        Some(Self {
            domain: hex(parts.next()?)?,
            bus,
            device,
        })
    }
}

/// What pairs can be asked for in [`NvmlDevice::p2p`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum P2p {
    /// Loads.
    Read = 0,
    /// Stores.
    Write = 1,
    /// An NVLink path, direct or through a switch.
    NvLink = 2,
}

/// The nearest thing above two GPUs on the PCIe tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ancestor {
    /// One board.
    Internal,
    /// One bridge.
    Single,
    /// Several bridges.
    Multiple,
    /// A host bridge.
    HostBridge,
    /// A NUMA node.
    Node,
    /// The whole machine.
    System,
}

impl Ancestor {
    const fn from_code(code: c_int) -> Option<Self> {
        Some(match code {
            0 => Self::Internal,
            10 => Self::Single,
            20 => Self::Multiple,
            30 => Self::HostBridge,
            40 => Self::Node,
            50 => Self::System,
            _ => return None,
        })
    }
}

/// NVML's most links a device.
const MAX_LINKS: u32 = 18;

impl Nvml {
    /// The initialised library, opened on the first call and never shut down.
    ///
    /// # Errors
    /// In words: absent, too old, or what its initialisation said.
    pub fn open() -> Result<&'static Self, String> {
        static NVML: OnceCell<Nvml> = OnceCell::new();
        NVML.get_or_try_init(|| {
            if cfg!(not(feature = "nvml")) {
                return Err("this build does not ask NVML: feature `nvml` of topoforge does".to_owned());
            }
            let library: Library = open(&["libnvidia-ml.so.1", "libnvidia-ml.so"])?;
            let nvml = Self::resolve(library).map_err(|symbol| format!("NVML has no {symbol}"))?;
            nvml.start().map_err(|e| e.to_string())?;
            Ok(nvml)
        })
    }

    fn start(&self) -> Result<(), DriverError> {
        call!(self.init())
    }

    /// E.g. `550.54.15`.
    ///
    /// # Errors
    /// NVML refuses.
    pub fn driver_version(&self) -> Result<String, DriverError> {
        let mut text = [0_u8; 96];
        call!(self.driver_version(text.as_mut_ptr().cast::<c_char>(), text.len() as c_uint - 1))?;
        Ok(text_of(&text))
    }

    /// The device at a PCI address as CUDA spells it.
    ///
    /// # Errors
    /// NVML does not see it.
    pub fn device(&'static self, pci: &str) -> Result<NvmlDevice, DriverError> {
        let text = CString::new(pci).unwrap_or_default();
        let mut handle = std::ptr::null_mut();
        call!(self.by_pci(text.as_ptr(), &mut handle))?;
        Ok(NvmlDevice { nvml: self, handle })
    }
}

/// A device as NVML knows it.
#[derive(Clone, Copy)]
pub struct NvmlDevice {
    nvml: &'static Nvml,
    handle: Handle,
}

impl NvmlDevice {
    /// E.g. `NVIDIA H200`.
    ///
    /// # Errors
    /// NVML refuses.
    pub fn name(self) -> Result<String, DriverError> {
        let (nvml, mut text) = (self.nvml, [0_u8; 128]);
        call!(nvml.name(
            self.handle,
            text.as_mut_ptr().cast::<c_char>(),
            text.len() as c_uint - 1
        ))?;
        Ok(text_of(&text))
    }

    /// E.g. `GPU-1b…`.
    ///
    /// # Errors
    /// NVML refuses.
    pub fn uuid(self) -> Result<String, DriverError> {
        let (nvml, mut text) = (self.nvml, [0_u8; 128]);
        call!(nvml.uuid(
            self.handle,
            text.as_mut_ptr().cast::<c_char>(),
            text.len() as c_uint - 1
        ))?;
        Ok(text_of(&text))
    }

    /// The far ends of the NVLinks that are up; `None` where the far end does not say.
    pub fn active_links(self) -> Vec<Option<PciAddress>> {
        let nvml = self.nvml;
        let mut ends = Vec::new();
        for link in 0..MAX_LINKS {
            let mut active = 0;
            if call!(nvml.link_state(self.handle, link, &mut active)).is_err() || active != 1 {
                continue;
            }
            let mut remote = PciInfo {
                legacy: [0; 16],
                domain: 0,
                bus: 0,
                device: 0,
                id: 0,
                subsystem: 0,
                text: [0; 32],
            };
            let end = call!(nvml.link_remote(self.handle, link, &mut remote));
            let PciInfo {
                domain, bus, device, ..
            } = remote;
            ends.push(end.ok().map(|()| PciAddress { domain, bus, device }));
        }
        ends
    }

    /// NVML's version code of a link, which is no NVLink generation (an A100 says 5); for display only.
    pub fn link_version(self, link: u32) -> Option<u32> {
        let function = self.nvml.link_version.as_ref()?.function;
        let mut version = 0;
        // SAFETY: the table holds nvmlDeviceGetNvLinkVersion, and the handle came from NVML.
        (unsafe { function(self.handle, link, &mut version) } == 0).then_some(version)
    }

    /// The nearest common ancestor on the PCIe tree; `None` for a code NVML has added since.
    ///
    /// # Errors
    /// NVML refuses, as in some containers.
    pub fn common_ancestor(self, peer: Self) -> Result<Option<Ancestor>, DriverError> {
        let (nvml, mut level) = (self.nvml, -1);
        call!(nvml.ancestor(self.handle, peer.handle, &mut level))?;
        Ok(Ancestor::from_code(level))
    }

    /// Whether the system allows something between two devices.
    ///
    /// # Errors
    /// NVML refuses.
    pub fn p2p(self, peer: Self, what: P2p) -> Result<bool, DriverError> {
        let (nvml, mut status) = (self.nvml, -1);
        call!(nvml.p2p_status(self.handle, peer.handle, what as c_int, &mut status))?;
        Ok(status == 0)
    }

    /// Highest PCIe generation and width that device and slot have together.
    ///
    /// # Errors
    /// NVML refuses.
    pub fn max_pcie(self) -> Result<(u32, u32), DriverError> {
        let (nvml, mut generation, mut width) = (self.nvml, 0, 0);
        call!(nvml.max_pcie_gen(self.handle, &mut generation))?;
        call!(nvml.max_pcie_width(self.handle, &mut width))?;
        Ok((generation, width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_join_across_spellings() {
        let a = PciAddress::parse("0000:1B:00.0");
        assert_eq!(
            a,
            Some(PciAddress {
                domain: 0,
                bus: 0x1b,
                device: 0
            })
        );
        assert_eq!(a, PciAddress::parse("00000000:1b:00.0"));
        assert_ne!(a, PciAddress::parse("0001:1b:00.0"));
        for bad in ["", "1b:00.0", "0000:1b:00", "0000:zz:00.0"] {
            assert_eq!(PciAddress::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn pci_info_has_the_size_that_nvml_writes() {
        assert_eq!(size_of::<PciInfo>(), 68);
    }

    #[test]
    fn no_nvml_is_words() {
        if let Err(e) = Nvml::open() {
            assert!(!e.is_empty());
        }
    }
}

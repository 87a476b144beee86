//! Configuration: what a profile, a `--config` file and `--set KEY=VALUE` may say, and how they are laid over each other.
//!
//! Layers, later ones win: the profile (with everything it inherits), the file, the `--set` options in their order. All
//! three use the same keys, listed with type, range and meaning in [`keys`]; capability fields (`caps.TYPE.FIELD`) are
//! named and checked by the PRM layouts. An unknown key or a value out of range is an error that names the place and the
//! nearest known key.

pub mod fault;
pub mod keys;
pub mod layers;
pub mod order;

use serde::{Deserialize, Serialize};

pub use fault::FaultRule;
pub use layers::{ConfigError, Sources, load};
pub use order::OrderConfig;

/// When the ordering policy judges a key. See the PRM capability `mkc_order_write_after_write_ro_only`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strict {
    /// Never: keys with strong write ordering are granted.
    Off,
    /// At creation: any CREATE_MKEY whose context does not ask for relaxed writes is refused. Where the capabilities let
    /// a UMR change that, a free key is judged when it is enabled.
    Create,
    /// When a key becomes usable: a free key passes CREATE_MKEY and is judged when it is enabled.
    Enable,
}

/// How doorbells reach the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doorbells {
    /// Each is a message of the VMM; waiting for one costs nothing.
    #[default]
    Trap,
    /// The VMM maps the pages, and the device looks at them while a VMM is attached.
    Poll,
}

impl Doorbells {
    /// Value of the key `doorbells`.
    pub fn name(self) -> &'static str {
        match self {
            Doorbells::Trap => "trap",
            Doorbells::Poll => "poll",
        }
    }
}

/// What to do with encoding 2 of `order_read_after_write`, which was "relaxed" once and is reserved now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RawEncoding2 {
    /// Refuse the key.
    Reject,
    /// Treat it as encoding 1.
    Accept,
    /// Treat it as encoding 1 and report it.
    Report,
}

/// Kind of a memory key, as far as the ordering policy tells kinds apart. A key is of the first kind that applies, in the
/// order of [`KeyKind::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyKind {
    /// A key without memory behind it (`null`): an MTT key that covers everything and has no translations.
    Null,
    /// A memory window: a free KLM key with remote rights left to the bind.
    Window,
    /// A key on device memory (access mode MEMIC).
    Memic,
    /// A key on steering memory (access mode SW_ICM).
    SwIcm,
    /// A key that points into another function (access mode CROSSING).
    Crossing,
    /// A free key: not usable until a UMR enables it.
    Free,
    /// A key that refers to other keys (access modes KLM and KSM).
    Indirect,
    /// A key with a page list (access mode MTT).
    Mtt,
    /// A key on guest-physical addresses (access mode PA).
    Pa,
}

impl KeyKind {
    /// All kinds, in the order in which they are recognised.
    pub const ALL: [KeyKind; 9] = [
        KeyKind::Null,
        KeyKind::Window,
        KeyKind::Memic,
        KeyKind::SwIcm,
        KeyKind::Crossing,
        KeyKind::Free,
        KeyKind::Indirect,
        KeyKind::Mtt,
        KeyKind::Pa,
    ];

    /// Name in `mkey.exempt`, in the trace and in the report.
    pub fn name(self) -> &'static str {
        match self {
            KeyKind::Null => "null",
            KeyKind::Window => "window",
            KeyKind::Memic => "memic",
            KeyKind::SwIcm => "sw-icm",
            KeyKind::Crossing => "crossing",
            KeyKind::Free => "free",
            KeyKind::Indirect => "indirect",
            KeyKind::Mtt => "mtt",
            KeyKind::Pa => "pa",
        }
    }
}

/// Section `[mkey]`: the ordering policy for memory keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MkeyConfig {
    /// When keys are judged.
    pub strict: Strict,
    /// Kinds that are not judged.
    pub exempt: Vec<KeyKind>,
    /// Relaxed reads are required too.
    pub require_read: bool,
    /// Encoding 2 of `order_read_after_write`.
    pub raw_encoding_2: RawEncoding2,
}

impl MkeyConfig {
    /// True if keys of this kind are not judged.
    pub fn is_exempt(&self, kind: KeyKind) -> bool {
        self.exempt.contains(&kind)
    }
}

/// Section `[pci]`: the PCI function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PciConfig {
    /// Vendor id.
    pub vendor_id: u16,
    /// Device id.
    pub device_id: u16,
    /// Revision id.
    pub revision: u8,
    /// Subsystem vendor id.
    pub subsystem_vendor_id: u16,
    /// Subsystem id.
    pub subsystem_id: u16,
    /// Link speed per lane.
    pub link_speed: LinkSpeed,
    /// Link width in lanes.
    pub link_width: u8,
    /// MSI-X table size.
    pub msix_vectors: u16,
    /// Device serial number (EUI-64), as eight bytes from the most significant.
    pub serial_number: Eui64,
    /// Value of the relaxed-ordering enable bit in Device Control after reset.
    pub relaxed_ordering: bool,
    /// VPD: product name.
    pub vpd_product: String,
    /// VPD: part number (PN).
    pub vpd_part_number: String,
    /// VPD: serial number (SN).
    pub vpd_serial: String,
    /// VPD: engineering change level (EC).
    pub vpd_revision: String,
}

/// PCIe link speed, by generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkSpeed {
    /// Generation 1.
    #[serde(rename = "2.5GT/s")]
    Gen1,
    /// Generation 2.
    #[serde(rename = "5GT/s")]
    Gen2,
    /// Generation 3.
    #[serde(rename = "8GT/s")]
    Gen3,
    /// Generation 4.
    #[serde(rename = "16GT/s")]
    Gen4,
    /// Generation 5.
    #[serde(rename = "32GT/s")]
    Gen5,
    /// Generation 6.
    #[serde(rename = "64GT/s")]
    Gen6,
}

impl LinkSpeed {
    /// Encoding in the Link Capabilities and Link Status registers (PCIe Base 7.5.3.6).
    pub fn encoding(self) -> u8 {
        match self {
            LinkSpeed::Gen1 => 1,
            LinkSpeed::Gen2 => 2,
            LinkSpeed::Gen3 => 3,
            LinkSpeed::Gen4 => 4,
            LinkSpeed::Gen5 => 5,
            LinkSpeed::Gen6 => 6,
        }
    }
}

/// Section `[firmware]`: what the function says about its firmware.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirmwareConfig {
    /// Version `major.minor.subminor`.
    pub version: FirmwareVersion,
    /// Board id (PSID), at most 16 characters.
    pub psid: String,
    /// Whether there is a firmware tracer.
    pub tracer: bool,
}

/// Section `[net]`: the port and its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetConfig {
    /// Permanent MAC address. GUIDs are derived from it.
    pub mac: MacAddr,
    /// Largest port MTU (frame bytes, as in PMTU).
    pub max_mtu: u16,
    /// Speed of the port.
    pub link_speed: PortSpeed,
    /// Text of the node description register.
    pub node_description: String,
}

impl NetConfig {
    /// Node GUID: the EUI-64 of the MAC with `ff:fe` in the middle and the universal/local bit flipped.
    pub fn node_guid(&self) -> u64 {
        let m = self.mac.0;
        u64::from_be_bytes([m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]])
    }

    /// System image GUID: the same as the node GUID, as on a card with one function.
    pub fn system_image_guid(&self) -> u64 {
        self.node_guid()
    }
}

/// Speed of the Ethernet port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PortSpeed {
    /// 10 Gb/s.
    #[serde(rename = "10G")]
    G10,
    /// 25 Gb/s.
    #[serde(rename = "25G")]
    G25,
    /// 40 Gb/s.
    #[serde(rename = "40G")]
    G40,
    /// 50 Gb/s.
    #[serde(rename = "50G")]
    G50,
    /// 100 Gb/s.
    #[serde(rename = "100G")]
    G100,
    /// 200 Gb/s.
    #[serde(rename = "200G")]
    G200,
    /// 400 Gb/s.
    #[serde(rename = "400G")]
    G400,
    /// 800 Gb/s.
    #[serde(rename = "800G")]
    G800,
}

impl PortSpeed {
    /// Speed in Mb/s.
    pub fn mbps(self) -> u32 {
        match self {
            PortSpeed::G10 => 10_000,
            PortSpeed::G25 => 25_000,
            PortSpeed::G40 => 40_000,
            PortSpeed::G50 => 50_000,
            PortSpeed::G100 => 100_000,
            PortSpeed::G200 => 200_000,
            PortSpeed::G400 => 400_000,
            PortSpeed::G800 => 800_000,
        }
    }
}

/// Section `[wire]`: what happens to packets on their way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireConfig {
    /// Faults, in the order in which they are asked.
    pub fault: Vec<FaultRule>,
}

/// Section `[pages]`: firmware pages that the function asks of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PagesConfig {
    /// Pages asked for at boot (QUERY_PAGES op_mod 1).
    pub boot: u32,
    /// Pages asked for before INIT_HCA (QUERY_PAGES op_mod 2).
    pub init: u32,
}

/// An Ethernet address, written `02:00:00:00:00:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddr(pub [u8; 6]);

/// An EUI-64, written as eight hex bytes with colons or dashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Eui64(pub [u8; 8]);

/// A firmware version `major.minor.subminor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FirmwareVersion {
    /// Major, at most 65535.
    pub major: u16,
    /// Minor.
    pub minor: u16,
    /// Sub-minor.
    pub subminor: u16,
}

fn hex_bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let mut parts = text.split([':', '-']);
    for byte in &mut bytes {
        let part = parts.next()?;
        if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

fn hex_text(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
}

impl TryFrom<String> for MacAddr {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes = hex_bytes::<6>(&text).ok_or("expected six hex bytes like 02:00:00:00:00:01")?;
        if bytes[0] & 1 != 0 {
            return Err("a multicast address cannot be a permanent address".into());
        }
        if bytes == [0; 6] {
            return Err("the driver takes the zero address for none".into());
        }
        Ok(MacAddr(bytes))
    }
}

impl From<MacAddr> for String {
    fn from(mac: MacAddr) -> String {
        hex_text(&mac.0)
    }
}

impl TryFrom<String> for Eui64 {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Ok(Eui64(hex_bytes(&text).ok_or("expected eight hex bytes like 02:00:00:ff:fe:00:00:01")?))
    }
}

impl From<Eui64> for String {
    fn from(eui: Eui64) -> String {
        hex_text(&eui.0)
    }
}

impl TryFrom<String> for FirmwareVersion {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let error = "expected major.minor.subminor, each at most 65535, like 48.99.1000";
        let mut parts = text.split('.').map(str::parse::<u16>);
        let mut next = || parts.next().and_then(Result::ok).ok_or(error);
        let version = FirmwareVersion { major: next()?, minor: next()?, subminor: next()? };
        if parts.next().is_some() {
            return Err(error.into());
        }
        Ok(version)
    }
}

impl std::fmt::Display for FirmwareVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{:04}", self.major, self.minor, self.subminor)
    }
}

impl From<FirmwareVersion> for String {
    fn from(v: FirmwareVersion) -> String {
        v.to_string()
    }
}

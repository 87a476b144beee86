//! The Ethernet port: administrative state, link, MTU, flow control, counters (PRM "Port Access Registers"; kernel
//! `port.c`).
//!
//! The port has a link when it is administratively up and the wire has a carrier. Everything here survives a driver
//! reload and is lost by a reset of the function.

use std::collections::BTreeMap;

use super::link_modes::{self, EXTENDED, LEGACY, LinkMode};
use super::port_counters::PortCounters;
use crate::profile::Profile;

/// The only port, as registers and events number it.
pub const PORT_NUMBER: u32 = 1;
/// Port MTU before a driver sets one: 1500 bytes of payload, MAC header, VLAN tag and FCS.
const DEFAULT_MTU: u16 = 1522;

/// `paos_reg.admin_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminStatus {
    /// The link may come up.
    Up = 1,
    /// The link is kept down.
    Down = 2,
    /// The link may come up, and stays down once it was lost.
    UpOnce = 3,
}

impl AdminStatus {
    /// The status with this number, if a driver may set it.
    pub fn from_number(number: u32) -> Option<AdminStatus> {
        [AdminStatus::Up, AdminStatus::Down, AdminStatus::UpOnce].into_iter().find(|s| *s as u32 == number)
    }
}

/// Link modes that the driver allows, by the two sets of bits that PTYS has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// Legacy modes.
    pub legacy: u32,
    /// Extended modes.
    pub extended: u32,
}

/// Pause and priority flow control (PFCC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowControl {
    /// Send pause frames.
    pub pause_tx: bool,
    /// Obey pause frames.
    pub pause_rx: bool,
    /// Priorities for which PFC frames are sent.
    pub pfc_tx: u8,
    /// Priorities for which PFC frames are obeyed.
    pub pfc_rx: u8,
}

/// Where the counters of a PPCNT group start.
#[derive(Clone, Copy, Debug, Default)]
struct Baseline {
    counters: PortCounters,
    at_ns: u64,
}

/// The port.
#[derive(Debug)]
pub struct Port {
    max_mtu: u16,
    mtu: u16,
    admin: AdminStatus,
    carrier: bool,
    link: Option<LinkMode>,
    extended: bool,
    capability: Protocols,
    allowed: Protocols,
    /// Autonegotiation is switched off (`ptys_reg.an_disable_admin`).
    pub autoneg_disabled: bool,
    /// Event generation mode of `paos_reg.e`.
    pub event_mode: u32,
    /// Pause and priority flow control.
    pub flow_control: FlowControl,
    /// Forward error correction that the driver asks for, by field of PPLM; absent means automatic.
    pub fec: BTreeMap<&'static str, u16>,
    /// What the port counts.
    pub counters: PortCounters,
    baselines: BTreeMap<u32, Baseline>,
}

impl Port {
    /// The port as `profile` describes it, with a carrier and administratively up.
    pub fn new(profile: &Profile) -> Port {
        let mbps = profile.net.link_speed.mbps();
        let extended = profile.cap(super::capabilities::GENERAL, "pcam_reg") != 0;
        let capability = Protocols {
            legacy: link_modes::up_to(LEGACY, mbps),
            extended: if extended { link_modes::up_to(EXTENDED, mbps) } else { 0 },
        };
        let mut port = Port {
            max_mtu: profile.net.max_mtu,
            mtu: DEFAULT_MTU.min(profile.net.max_mtu),
            admin: AdminStatus::Up,
            carrier: true,
            link: None,
            extended,
            capability,
            allowed: capability,
            autoneg_disabled: false,
            event_mode: 1,
            flow_control: FlowControl::default(),
            fec: BTreeMap::new(),
            counters: PortCounters::default(),
            baselines: BTreeMap::new(),
        };
        port.settle();
        port
    }

    /// Largest MTU, in bytes of a frame.
    pub fn max_mtu(&self) -> u16 {
        self.max_mtu
    }

    /// MTU in force, in bytes of a frame.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Sets the MTU; `false` if the port cannot.
    pub fn set_mtu(&mut self, mtu: u16) -> bool {
        let possible = (1..=self.max_mtu).contains(&mtu);
        if possible {
            self.mtu = mtu;
        }
        possible
    }

    /// Administrative status.
    pub fn admin(&self) -> AdminStatus {
        self.admin
    }

    /// Sets the administrative status.
    pub fn set_admin(&mut self, admin: AdminStatus) {
        self.admin = admin;
        self.settle();
    }

    /// The wire gained or lost its carrier.
    pub fn set_carrier(&mut self, carrier: bool) {
        self.carrier = carrier;
        self.settle();
    }

    /// Whether there is a link.
    pub fn is_up(&self) -> bool {
        self.link.is_some()
    }

    /// The mode of the present link.
    pub fn link(&self) -> Option<LinkMode> {
        self.link
    }

    /// Whether extended link modes exist.
    pub fn extended(&self) -> bool {
        self.extended
    }

    /// Link modes that the port can do.
    pub fn capability(&self) -> Protocols {
        self.capability
    }

    /// Link modes that the driver allows.
    pub fn allowed(&self) -> Protocols {
        self.allowed
    }

    /// Allows link modes of one of the two sets, from the next time that the link comes up; `false` if the port
    /// can do none of them or lacks one.
    pub fn allow(&mut self, extended: bool, modes: u32) -> bool {
        let capability = if extended { self.capability.extended } else { self.capability.legacy };
        if modes == 0 || modes & !capability != 0 {
            return false;
        }
        self.allowed = if extended {
            Protocols { legacy: link_modes::translate(EXTENDED, modes, LEGACY), extended: modes }
        } else {
            Protocols { legacy: modes, extended: 0 }
        };
        true
    }

    /// The link mode in force as bits of the legacy and the extended set.
    pub fn operational(&self) -> Protocols {
        match self.link {
            None => Protocols { legacy: 0, extended: 0 },
            Some(mode) if self.in_extended_set() => {
                let legacy = link_modes::translate(EXTENDED, 1 << mode.bit, LEGACY);
                let legacy = link_modes::best(LEGACY, legacy).map_or(0, |mode| 1 << mode.bit);
                Protocols { legacy, extended: 1 << mode.bit }
            }
            Some(mode) => {
                let extended = if self.extended { link_modes::translate(LEGACY, 1 << mode.bit, EXTENDED) } else { 0 };
                let extended = link_modes::best(EXTENDED, extended).map_or(0, |mode| 1 << mode.bit);
                Protocols { legacy: 1 << mode.bit, extended }
            }
        }
    }

    fn in_extended_set(&self) -> bool {
        self.allowed.extended != 0
    }

    /// Lanes of the port.
    pub fn lanes(&self) -> u32 {
        let set = if self.extended { EXTENDED } else { LEGACY };
        let mask = if self.extended { self.capability.extended } else { self.capability.legacy };
        set.iter().filter(|mode| mask >> mode.bit & 1 != 0).map(|mode| mode.lanes).max().unwrap_or(1)
    }

    /// What is counted in a PPCNT group, and for how many milliseconds.
    pub fn group(&self, group: u32, now_ns: u64) -> (PortCounters, u64) {
        let base = self.baselines.get(&group).copied().unwrap_or_default();
        (self.counters.since(&base.counters), now_ns.saturating_sub(base.at_ns) / 1_000_000)
    }

    /// Restarts the counters of a PPCNT group from 0.
    pub fn clear_group(&mut self, group: u32, now_ns: u64) {
        self.baselines.insert(group, Baseline { counters: self.counters, at_ns: now_ns });
    }

    /// Brings the link up or down as its conditions demand.
    fn settle(&mut self) {
        let wanted = self.carrier && self.admin != AdminStatus::Down;
        match (self.link.is_some(), wanted) {
            (false, true) => {
                self.link = if self.in_extended_set() {
                    link_modes::best(EXTENDED, self.allowed.extended)
                } else {
                    link_modes::best(LEGACY, self.allowed.legacy)
                };
            }
            (true, false) => {
                self.link = None;
                self.counters.link_down_events += 1;
                if self.admin == AdminStatus::UpOnce {
                    self.admin = AdminStatus::Down;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(sets: &[&str]) -> Port {
        Port::new(&Profile::with("connectx10-c2c", sets).expect("a legal profile"))
    }

    #[test]
    fn the_link_needs_carrier_and_administrative_permission() {
        let mut port = port(&[]);
        let mut up = Vec::new();
        for (admin, carrier) in [
            (AdminStatus::Up, true),
            (AdminStatus::Down, true),
            (AdminStatus::Down, false),
            (AdminStatus::Up, false),
            (AdminStatus::Up, true),
        ] {
            port.set_admin(admin);
            port.set_carrier(carrier);
            up.push(port.is_up());
        }
        assert_eq!(up, [true, false, false, false, true]);
        assert_eq!(port.counters.link_down_events, 1);
    }

    #[test]
    fn up_once_does_not_come_up_twice() {
        let mut port = port(&[]);
        port.set_admin(AdminStatus::UpOnce);
        assert!(port.is_up());
        port.set_carrier(false);
        port.set_carrier(true);
        assert_eq!((port.is_up(), port.admin()), (false, AdminStatus::Down));
    }

    #[test]
    fn link_modes_take_effect_when_the_link_comes_up_again() {
        let mut port = port(&["net.link_speed=100G", "caps.general.pcam_reg=0"]);
        assert_eq!(port.operational(), Protocols { legacy: 1 << 20, extended: 0 });
        assert!(port.allow(false, 1 << 28));
        assert_eq!(port.link().map(|m| m.mbps), Some(100_000));
        port.set_admin(AdminStatus::Down);
        port.set_admin(AdminStatus::Up);
        assert_eq!(port.operational(), Protocols { legacy: 1 << 28, extended: 0 });
        assert!(!port.allow(false, 0));
        assert!(!port.allow(false, 1 << 21), "an optical mode");
        assert!(!port.allow(true, 1 << 9), "extended modes do not exist without PCAM");
    }

    #[test]
    fn extended_and_legacy_modes_describe_the_same_link() {
        let mut port = port(&["net.link_speed=400G", "caps.general.pcam_reg=1"]);
        assert_eq!(port.operational(), Protocols { legacy: 0, extended: 1 << 16 });
        assert!(port.allow(true, 1 << 9 | 1 << 6));
        assert_eq!(
            port.allowed(),
            Protocols { legacy: 1 << 20 | 1 << 22 | 1 << 27 | 1 << 28, extended: 1 << 9 | 1 << 6 }
        );
        port.set_admin(AdminStatus::Down);
        assert_eq!(port.operational(), Protocols { legacy: 0, extended: 0 });
        port.set_admin(AdminStatus::Up);
        assert_eq!(port.operational(), Protocols { legacy: 1 << 20, extended: 1 << 9 });
        assert!(port.allow(false, 1 << 4));
        assert_eq!(port.allowed().extended, 0);
    }

    #[test]
    fn the_mtu_stays_within_the_port() {
        let mut port = port(&["net.max_mtu=9000"]);
        assert_eq!((port.mtu(), port.max_mtu()), (1522, 9000));
        assert!(port.set_mtu(9000));
        assert!(!port.set_mtu(9001));
        assert!(!port.set_mtu(0));
        assert_eq!(port.mtu(), 9000);
    }

    #[test]
    fn clearing_one_group_leaves_the_others() {
        let mut port = port(&[]);
        port.counters.transmitted(&[0; 60]);
        port.clear_group(0, 5_000_000);
        port.counters.transmitted(&[0; 60]);
        assert_eq!(port.group(0, 8_000_000).0.tx.unicast, 1);
        assert_eq!(port.group(0, 8_000_000).1, 3);
        assert_eq!(port.group(1, 8_000_000).0.tx.unicast, 2);
    }
}

//! The NIC vport: addresses, MTU, promiscuity, identity and counters of the function's one network interface (PRM
//! "NIC Vport Context"; kernel `vport.c`, `eswitch.c`).
//!
//! Everything here begins anew with INIT_HCA.

use super::capabilities::{Capabilities, ETHERNET};
use super::port_counters::Cast;
use crate::config::NetConfig;
use crate::prm::status::Status;
use crate::prm::vport::NicVportContext;

/// `nic_vport_context.mtu` before a driver sets it: what the port starts with.
const DEFAULT_MTU: u16 = 1522;
/// `wqe_inline_mode`: the vport context says how much of a frame must be inline.
pub const INLINE_MODE_VPORT: u64 = 1;
/// `min_wqe_inline_mode`: the MAC header.
const INLINE_L2: u32 = 1;

/// Administrative state of a vport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminState {
    /// Down whatever the port does.
    Down = 0,
    /// Up whatever the port does.
    Up = 1,
    /// As the port.
    Auto = 2,
}

impl AdminState {
    /// The state with this number.
    pub fn from_number(number: u32) -> Option<AdminState> {
        [AdminState::Down, AdminState::Up, AdminState::Auto].into_iter().find(|s| *s as u32 == number)
    }
}

/// Packets and octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Octets, without frame check sequences.
    pub octets: u64,
}

impl Traffic {
    /// Counts one packet.
    pub fn add(&mut self, octets: usize) {
        self.packets += 1;
        self.octets += octets as u64;
    }
}

/// What the vport counts, by the names of QUERY_VPORT_COUNTER.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the PRM's")]
pub struct VportCounters {
    pub received_errors: Traffic,
    pub transmit_errors: Traffic,
    pub received_ib_unicast: Traffic,
    pub transmitted_ib_unicast: Traffic,
    pub received_ib_multicast: Traffic,
    pub transmitted_ib_multicast: Traffic,
    pub received_eth_broadcast: Traffic,
    pub transmitted_eth_broadcast: Traffic,
    pub received_eth_unicast: Traffic,
    pub transmitted_eth_unicast: Traffic,
    pub received_eth_multicast: Traffic,
    pub transmitted_eth_multicast: Traffic,
}

impl VportCounters {
    /// Counts an Ethernet frame that an Ethernet queue sent.
    pub fn transmitted(&mut self, frame: &[u8]) {
        match Cast::of(frame) {
            Cast::Unicast => self.transmitted_eth_unicast.add(frame.len()),
            Cast::Multicast => self.transmitted_eth_multicast.add(frame.len()),
            Cast::Broadcast => self.transmitted_eth_broadcast.add(frame.len()),
        }
    }

    /// Counts an Ethernet frame that came in for Ethernet queues.
    pub fn received(&mut self, frame: &[u8]) {
        match Cast::of(frame) {
            Cast::Unicast => self.received_eth_unicast.add(frame.len()),
            Cast::Multicast => self.received_eth_multicast.add(frame.len()),
            Cast::Broadcast => self.received_eth_broadcast.add(frame.len()),
        }
    }
}

/// Diagnostic counters of the vport, by the names of QUERY_VNIC_ENV. Those that the device does not count are not
/// advertised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnicEnv {
    /// Commands that were refused.
    pub invalid_command: u32,
    /// Commands that were refused because a limit was reached.
    pub quota_exceeded_command: u32,
    /// Completion queues that overran.
    pub cq_overrun: u32,
    /// Received packets that steering took nowhere.
    pub nic_receive_steering_discard: u64,
    /// Received packets that were dropped because the vport was down.
    pub receive_discard_vport_down: u64,
    /// Packets that were dropped because the vport was down.
    pub transmit_discard_vport_down: u64,
}

impl VnicEnv {
    /// Counts a command that was refused with `status`.
    pub fn refused(&mut self, status: Status) {
        let counter = match status {
            Status::LIM_ERR | Status::NO_RES_ERR => &mut self.quota_exceeded_command,
            _ => &mut self.invalid_command,
        };
        *counter = counter.wrapping_add(1);
    }
}

/// The NIC vport.
#[derive(Debug)]
pub struct NicVport {
    /// The context without its address list.
    pub context: NicVportContext<Vec<u8>>,
    /// Unicast addresses that the driver asked for.
    pub unicast: Vec<[u8; 6]>,
    /// Multicast addresses that the driver asked for.
    pub multicast: Vec<[u8; 6]>,
    /// VLANs that the driver asked for.
    pub vlans: Vec<u16>,
    /// Administrative state.
    pub admin: AdminState,
    /// What the vport counts.
    pub counters: VportCounters,
    /// What it counts for diagnosis.
    pub env: VnicEnv,
}

impl NicVport {
    /// The vport as a driver finds it.
    pub fn new(net: &NetConfig, caps: &Capabilities) -> NicVport {
        let mut context = NicVportContext::zeroed();
        context.set_mtu(DEFAULT_MTU.min(net.max_mtu).into());
        context.set_system_image_guid(net.system_image_guid());
        context.set_node_guid(net.node_guid());
        context.set_port_guid(net.node_guid());
        if caps.get(ETHERNET, "wqe_inline_mode") == INLINE_MODE_VPORT {
            context.set_min_wqe_inline_mode(INLINE_L2);
        }
        let mut address = context.permanent_address_mut();
        let mac = net.mac.0;
        address.set_mac_addr_47_32(u32::from(u16::from_be_bytes([mac[0], mac[1]])));
        address.set_mac_addr_31_0(u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]));
        NicVport {
            context,
            unicast: Vec::new(),
            multicast: Vec::new(),
            vlans: Vec::new(),
            admin: AdminState::Auto,
            counters: VportCounters::default(),
            env: VnicEnv::default(),
        }
    }

    /// The permanent MAC address.
    pub fn mac(&self) -> [u8; 6] {
        let address = self.context.permanent_address();
        let (high, low) = ((address.mac_addr_47_32() as u16).to_be_bytes(), address.mac_addr_31_0().to_be_bytes());
        [high[0], high[1], low[0], low[1], low[2], low[3]]
    }

    /// Whether a frame is for one of the vport's addresses: the permanent one or one that the driver asked for.
    pub fn owns(&self, frame: &[u8]) -> bool {
        frame.first_chunk().is_some_and(|to| *to == self.mac() || self.unicast.contains(to))
    }

    /// Whether the vport has a link when the port has one or not.
    pub fn is_up(&self, port_up: bool) -> bool {
        match self.admin {
            AdminState::Down => false,
            AdminState::Up => true,
            AdminState::Auto => port_up,
        }
    }
}

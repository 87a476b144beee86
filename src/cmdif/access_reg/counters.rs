//! PPCNT: the port's counters by group (PRM "Ports Performance Counters"; kernel `en_stats.c`,
//! `infiniband/hw/mlx5/mad.c`).
//!
//! Every group that the device has shows the same events through its own layout, less what a clear of that group
//! set aside. Groups of features that PCAM and MCAM do not name do not exist.

use super::port::own_port;
use super::{Image, Register, refuse, syn};
use crate::cmdif::Ctx;
use crate::device::port::PORT_NUMBER;
use crate::device::port_counters::PortCounters;
use crate::prm::commands::RegisterId;
use crate::prm::macros::paste;
use crate::prm::reg::PpcntReg;
use crate::prm::reg_counters::EthCntrsGrpDataLayoutAuto;

pub(super) const REGISTERS: &[Register] = &[Register { id: RegisterId::PPCNT, read: read_ppcnt, write: None }];

/// Counter groups (kernel `include/linux/mlx5/device.h`).
mod group {
    pub const IEEE_802_3: u32 = 0x0;
    pub const RFC_2863: u32 = 0x1;
    pub const RFC_2819: u32 = 0x2;
    pub const RFC_3635: u32 = 0x3;
    pub const ETHERNET_EXTENDED: u32 = 0x5;
    pub const PER_PRIORITY: u32 = 0x10;
    pub const PER_TRAFFIC_CLASS: u32 = 0x11;
    pub const PHYSICAL_LAYER: u32 = 0x12;
    pub const PHYSICAL_LAYER_STATISTICAL: u32 = 0x16;
    pub const INFINIBAND_PORT: u32 = 0x20;
    pub const INFINIBAND_PORT_EXTENDED: u32 = 0x21;
}

/// Priorities and traffic classes of the port.
const PRIORITIES: u32 = 8;

/// Sets the two halves of 64-bit counters.
macro_rules! set64 {
    ($layout:expr; $($field:ident = $value:expr;)*) => {{
        let mut layout = $layout;
        $({
            let value: u64 = $value;
            paste! {
                layout.[<set_ $field _high>]((value >> 32) as u32);
                layout.[<set_ $field _low>](value as u32);
            }
        })*
    }};
}

fn read_ppcnt(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    let ppcnt = PpcntReg::new(data)?;
    own_port(ppcnt.local_port())?;
    if ppcnt.plane_ind() != 0 {
        return Err(refuse(syn::NO_SUCH_PLANE));
    }
    if ppcnt.pnat() != 0 {
        return Err(refuse(syn::NO_SUCH_PORT));
    }
    let (group, priority) = (ppcnt.grp(), ppcnt.prio_tc());
    let by_priority = matches!(group, group::PER_PRIORITY | group::PER_TRAFFIC_CLASS);
    if by_priority && priority >= PRIORITIES {
        return Err(refuse(syn::PRIORITY));
    }
    let (counters, millis) = ctx.hca.port.group(group, ctx.now);
    let mut out = PpcntReg::zeroed();
    out.set_swid(ppcnt.swid());
    out.set_local_port(PORT_NUMBER);
    out.set_grp(group);
    out.set_prio_tc(priority);
    if !fill(&mut out.counter_set_mut(), group, priority as usize, &counters, millis) {
        return Err(refuse(syn::COUNTER_GROUP));
    }
    // The values returned are those before the clear.
    if ppcnt.clr() != 0 {
        ctx.hca.port.clear_group(group, ctx.now);
    }
    Ok(out.into_inner())
}

/// Fills a group's layout; `false` if there is no such group.
fn fill(
    set: &mut EthCntrsGrpDataLayoutAuto<&mut [u8]>,
    group: u32,
    priority: usize,
    counters: &PortCounters,
    millis: u64,
) -> bool {
    let (tx, rx) = (&counters.tx, &counters.rx);
    match group {
        group::IEEE_802_3 => set64! { set.eth_802_3_cntrs_grp_data_layout_mut();
            a_frames_transmitted_ok = tx.frames();
            a_frames_received_ok = rx.frames();
            a_octets_transmitted_ok = tx.octets;
            a_octets_received_ok = rx.octets;
            a_multicast_frames_xmitted_ok = tx.multicast;
            a_broadcast_frames_xmitted_ok = tx.broadcast;
            a_multicast_frames_received_ok = rx.multicast;
            a_broadcast_frames_received_ok = rx.broadcast;
            a_mac_control_frames_transmitted = tx.pause;
            a_mac_control_frames_received = rx.pause;
            a_pause_mac_ctrl_frames_transmitted = tx.pause;
            a_pause_mac_ctrl_frames_received = rx.pause;
        },
        group::RFC_2863 => set64! { set.eth_2863_cntrs_grp_data_layout_mut();
            if_in_octets = rx.octets;
            if_in_ucast_pkts = rx.unicast;
            if_in_discards = rx.discards;
            if_in_errors = rx.errors;
            if_out_octets = tx.octets;
            if_out_ucast_pkts = tx.unicast;
            if_out_discards = tx.discards;
            if_out_errors = tx.errors;
            if_in_multicast_pkts = rx.multicast;
            if_in_broadcast_pkts = rx.broadcast;
            if_out_multicast_pkts = tx.multicast;
            if_out_broadcast_pkts = tx.broadcast;
        },
        group::RFC_2819 => set64! { set.eth_2819_cntrs_grp_data_layout_mut();
            ether_stats_drop_events = rx.discards;
            ether_stats_octets = rx.octets;
            ether_stats_pkts = rx.frames();
            ether_stats_broadcast_pkts = rx.broadcast;
            ether_stats_multicast_pkts = rx.multicast;
            ether_stats_pkts64octets = counters.rx_sizes[0];
            ether_stats_pkts65to127octets = counters.rx_sizes[1];
            ether_stats_pkts128to255octets = counters.rx_sizes[2];
            ether_stats_pkts256to511octets = counters.rx_sizes[3];
            ether_stats_pkts512to1023octets = counters.rx_sizes[4];
            ether_stats_pkts1024to1518octets = counters.rx_sizes[5];
            ether_stats_pkts1519to2047octets = counters.rx_sizes[6];
            ether_stats_pkts2048to4095octets = counters.rx_sizes[7];
            ether_stats_pkts4096to8191octets = counters.rx_sizes[8];
            ether_stats_pkts8192to10239octets = counters.rx_sizes[9];
        },
        group::RFC_3635 => set64! { set.eth_3635_cntrs_grp_data_layout_mut();
            dot3in_pause_frames = rx.pause;
            dot3out_pause_frames = tx.pause;
        },
        group::ETHERNET_EXTENDED => set64! { set.eth_extended_cntrs_grp_data_layout_mut();
            rx_buffer_full = rx.discards;
        },
        group::PER_PRIORITY => {
            let slot = counters.priorities.get(priority).copied().unwrap_or_default();
            set64! { set.eth_per_prio_grp_data_layout_mut();
                rx_octets = slot.rx_octets;
                rx_frames = slot.rx_frames;
                tx_octets = slot.tx_octets;
                tx_frames = slot.tx_frames;
            }
        }
        // Frames leave as they come, so no class ever has a queue, and no receive buffer overflows by class.
        group::PER_TRAFFIC_CLASS => {}
        group::PHYSICAL_LAYER => {
            let mut layout = set.phys_layer_cntrs_mut();
            layout.set_time_since_last_clear_high((millis >> 32) as u32);
            layout.set_time_since_last_clear_low(millis as u32);
            layout.set_link_down_events(counters.link_down_events as u32);
        }
        group::PHYSICAL_LAYER_STATISTICAL => set64! { set.phys_layer_statistical_cntrs_mut();
            time_since_last_clear = millis;
            phy_received_bits = rx.octets.saturating_mul(8);
        },
        // The classic counters are narrow and stay at their maximum.
        group::INFINIBAND_PORT => {
            let narrow = |value: u64, max: u64| value.min(max) as u32;
            let mut layout = set.ib_port_cntrs_grp_data_layout_mut();
            layout.set_link_downed_counter(narrow(counters.link_down_events, 0xff));
            layout.set_port_rcv_errors(narrow(rx.errors, 0xffff));
            layout.set_port_xmit_discards(narrow(tx.discards, 0xffff));
        }
        // Data counters are in dwords.
        group::INFINIBAND_PORT_EXTENDED => set64! { set.ib_ext_port_cntrs_grp_data_layout_mut();
            port_xmit_data = tx.octets / 4;
            port_rcv_data = rx.octets / 4;
            port_xmit_pkts = tx.frames();
            port_rcv_pkts = rx.frames();
            port_unicast_xmit_pkts = tx.unicast;
            port_multicast_xmit_pkts = tx.multicast;
            port_unicast_rcv_pkts = rx.unicast;
            port_multicast_rcv_pkts = rx.multicast;
        },
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prm::status::Status;
    use crate::profile::Profile;
    use crate::testing::Rig;

    fn rig() -> Rig {
        let mut rig = Rig::new(Profile::default());
        rig.bring_up();
        rig
    }

    fn request(group: u32, priority: u32, clear: bool) -> PpcntReg<Vec<u8>> {
        let mut ppcnt = PpcntReg::zeroed();
        ppcnt.set_local_port(1);
        ppcnt.set_grp(group);
        ppcnt.set_prio_tc(priority);
        ppcnt.set_clr(clear.into());
        ppcnt
    }

    fn read(rig: &mut Rig, request: &PpcntReg<Vec<u8>>) -> PpcntReg<Vec<u8>> {
        PpcntReg::new(rig.register_ok(RegisterId::PPCNT.0, true, request.as_bytes())).unwrap()
    }

    #[test]
    fn every_group_that_ethtool_reads_exists() {
        let mut rig = rig();
        for group in [0, 1, 2, 3, 5, 0x10, 0x11, 0x12, 0x16, 0x20, 0x21] {
            assert_eq!(read(&mut rig, &request(group, 0, false)).grp(), group);
        }
        for group in [4, 6, 0x13, 0x1a, 0x23, 0x3f] {
            let answer =
                rig.exec(&Rig::register(RegisterId::PPCNT.0, true, request(group, 0, false).as_bytes()), 16 + 256);
            assert_eq!((answer.status(), answer.syndrome()), (Status::BAD_PARAM_ERR.0, syn::COUNTER_GROUP.0));
        }
    }

    #[test]
    fn the_groups_show_the_same_frames() {
        let mut rig = rig();
        let mut frame = vec![0; 60];
        frame[12..15].copy_from_slice(&[0x81, 0, 0x60]);
        rig.function.hca_mut().port.counters.transmitted(&frame);
        rig.function.hca_mut().port.counters.received(&[0xff; 600]);
        let out = read(&mut rig, &request(group::IEEE_802_3, 0, false));
        let set = out.counter_set();
        let ieee = set.eth_802_3_cntrs_grp_data_layout();
        assert_eq!((ieee.a_frames_transmitted_ok_low(), ieee.a_octets_transmitted_ok_low()), (1, 64));
        assert_eq!(ieee.a_broadcast_frames_received_ok_low(), 1);
        let out = read(&mut rig, &request(group::RFC_2863, 0, false));
        let set = out.counter_set();
        assert_eq!(set.eth_2863_cntrs_grp_data_layout().if_out_ucast_pkts_low(), 1);
        assert_eq!(set.eth_2863_cntrs_grp_data_layout().if_in_octets_low(), 604);
        let out = read(&mut rig, &request(group::RFC_2819, 0, false));
        assert_eq!(out.counter_set().eth_2819_cntrs_grp_data_layout().ether_stats_pkts512to1023octets_low(), 1);
        let out = read(&mut rig, &request(group::PER_PRIORITY, 3, false));
        assert_eq!(out.counter_set().eth_per_prio_grp_data_layout().tx_frames_low(), 1);
        let out = read(&mut rig, &request(group::PER_PRIORITY, 0, false));
        assert_eq!(out.counter_set().eth_per_prio_grp_data_layout().tx_frames_low(), 0);
    }

    #[test]
    fn counters_are_64_bits_wide() {
        let mut rig = rig();
        rig.function.hca_mut().port.counters.tx.octets = 0x1_0000_0002;
        let out = read(&mut rig, &request(group::RFC_2863, 0, false));
        let set = out.counter_set();
        let rfc = set.eth_2863_cntrs_grp_data_layout();
        assert_eq!((rfc.if_out_octets_high(), rfc.if_out_octets_low()), (1, 2));
    }

    #[test]
    fn a_clear_returns_the_old_values_and_restarts_only_its_group() {
        let mut rig = rig();
        rig.function.hca_mut().port.counters.transmitted(&[0; 60]);
        let frames =
            |out: PpcntReg<Vec<u8>>| out.counter_set().eth_802_3_cntrs_grp_data_layout().a_frames_transmitted_ok_low();
        assert_eq!(frames(read(&mut rig, &request(group::IEEE_802_3, 0, true))), 1);
        assert_eq!(frames(read(&mut rig, &request(group::IEEE_802_3, 0, false))), 0);
        let out = read(&mut rig, &request(group::RFC_2863, 0, false));
        assert_eq!(out.counter_set().eth_2863_cntrs_grp_data_layout().if_out_ucast_pkts_low(), 1);
    }

    #[test]
    fn selectors_are_checked() {
        let mut rig = rig();
        let mut wrong = request(0, 0, false);
        wrong.set_local_port(0);
        let mut plane = request(0, 0, false);
        plane.set_plane_ind(1);
        let mut nat = request(0, 0, false);
        nat.set_pnat(1);
        for (request, syndrome) in [
            (wrong, syn::NO_SUCH_PORT),
            (plane, syn::NO_SUCH_PLANE),
            (nat, syn::NO_SUCH_PORT),
            (request(group::PER_PRIORITY, 8, false), syn::PRIORITY),
            (request(group::PER_TRAFFIC_CLASS, 31, false), syn::PRIORITY),
        ] {
            let answer = rig.exec(&Rig::register(RegisterId::PPCNT.0, true, request.as_bytes()), 16 + 256);
            assert_eq!((answer.status(), answer.syndrome()), (Status::BAD_PARAM_ERR.0, syndrome.0));
        }
    }
}

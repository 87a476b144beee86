//! Datagrams: addresses, queue keys, the header area in front of the data, multicast, and general services on QP1
//! (IBTA 9.8.3, 10.2.5; RoCE v2 annex A17; kernel `infiniband/hw/mlx5/gsi.c`, `ah.c`).

use super::complete::{GSI_QPN, is_v4, vendor};
use super::entry::SendEntry;
use super::memory::{Keys, Memory, MemoryError, MoveError, Reach};
use super::packet::{Address, Head, Packet, Payload, SHORT};
use super::receive::NoEntry;
use super::state::{Failure, Settings};
use super::{BYTES_PER_PORTION, PART_COST, Portion};
use crate::device::hca::Hca;
use crate::device::qp::{Service, State};
use crate::dma::StoreClass;
use crate::mkey::translate::Access;
use crate::prm::values::CqeSyndrome;
use crate::wire::roce::{header_v4, header_v6};

/// The destination queue pair of multicasts.
const MULTICAST_QPN: u32 = 0xff_ffff;
/// A queue key with this bit set stands for the queue pair's own.
const PRIVILEGED: u32 = 1 << 31;
/// Bytes in front of the data of a received datagram.
pub const GRH: u32 = SHORT as u32;
/// Bytes of the headers between the network header and the data: UDP, BTH, DETH; and of the check sum behind it.
const UDP: u32 = 8;
const BTH: u32 = 12;
const DETH: u32 = 8;
const ICRC: u32 = 4;
const IMMEDIATE: u32 = 4;

/// The header area of a datagram: an IPv6 header, or 20 bytes of nothing and an IPv4 header.
fn header_area(head: &Head, len: u32) -> [u8; SHORT] {
    let Address { source, dest, traffic_class, hop_limit, flow_label, .. } = head.address;
    let immediate = if head.operation.has_immediate() { IMMEDIATE } else { 0 };
    let inner = UDP + BTH + DETH + immediate + len.next_multiple_of(4) + ICRC;
    let mut area = [0; SHORT];
    if is_v4(&dest) {
        let ([.., a, b, c, d], [.., e, f, g, h]) = (source, dest);
        area[20..].copy_from_slice(&header_v4([a, b, c, d], [e, f, g, h], traffic_class, hop_limit, inner as u16));
    } else {
        area = header_v6(source, dest, traffic_class, flow_label, hop_limit, inner as u16);
    }
    area
}

impl Hca {
    /// Fills in the source address with this GID index; `false` if there is none.
    fn source_address(&self, index: u32, address: &mut Address) -> bool {
        let Some(entry) = self.roce.get(index) else { return false };
        address.source = *entry.source_l3_address();
        address.source_mac[..2].copy_from_slice(&(entry.source_mac_47_32() as u16).to_be_bytes());
        address.source_mac[2..].copy_from_slice(&entry.source_mac_31_0().to_be_bytes());
        address.vlan = (entry.vlan_valid() != 0).then_some(entry.vlan_id() as u16);
        true
    }

    /// Whether a GID is one of the function's own.
    fn owns_gid(&self, gid: &[u8; 16]) -> bool {
        self.roce.iter().any(|(_, entry)| entry.source_l3_address() == gid)
    }
}

/// What a look at a member of a multicast group counts for, in bytes.
const MEMBER_COST: usize = 512;

impl Portion<'_> {
    /// Fills in the addresses of a packet between connected queue pairs; `false` if it cannot be sent.
    pub(super) fn address_connected(&self, settings: &Settings, head: &mut Head) -> bool {
        head.address = settings.path;
        self.hca.source_address(settings.gid_index, &mut head.address)
    }

    /// Whether a packet comes from the peer and is for this queue pair.
    pub(super) fn addresses_match(&self, settings: &Settings, head: &Head) -> bool {
        let own = self.hca.roce.get(settings.gid_index).map(|entry| entry.source_l3_address());
        own == Some(&head.address.dest) && settings.path.dest == head.address.source
    }

    /// Fills in what a datagram's address vector says; `false` if it cannot be sent.
    pub(super) fn address_datagram(
        &self,
        service: Service,
        settings: &Settings,
        entry: &SendEntry,
        head: &mut Head,
    ) -> bool {
        let Some(av) = entry.address_vector() else { return false };
        head.dest = av.dqp_dct();
        head.q_key = if av.qkey() & PRIVILEGED != 0 { settings.q_key } else { av.qkey() };
        head.source_qp = match (service, settings.deth_source) {
            (Service::Qp1, _) => GSI_QPN,
            (_, 0) => head.source,
            (_, source) => source,
        };
        head.address = Address {
            dest: *av.rgid(),
            dest_mac: *av.rmac(),
            traffic_class: av.tclass() as u8,
            hop_limit: av.hop_limit() as u8,
            flow_label: av.flow_label(),
            udp_source: av.udp_sport() as u16,
            ..Address::default()
        };
        self.hca.source_address(av.sgid_index(), &mut head.address)
    }

    /// A datagram came.
    pub(super) fn receive_datagram(&mut self, packet: &Packet) {
        let head = &packet.head;
        match head.dest {
            MULTICAST_QPN => self.spread(packet, 0),
            _ if !self.hca.owns_gid(&head.address.dest) => {}
            GSI_QPN => {
                if let Some(qpn) = self.hca.rdma.general {
                    self.put_datagram(qpn, packet);
                }
            }
            qpn => self.put_datagram(qpn, packet),
        }
    }

    /// Gives a datagram to the members of its group from number `from` on, as many as the portion of work has room for:
    /// for the others it is kept.
    fn spread(&mut self, packet: &Packet, mut from: u32) {
        let head = &packet.head;
        // One member after the other: what a member does cannot change the list that is walked.
        while let Some(qpn) = self.hca.multicast.next_member(&head.address.dest, from) {
            if self.spent >= BYTES_PER_PORTION || !self.hca.rdma.spreading.is_empty() {
                // What cannot be read now reaches nobody else.
                if let Some(packet) = self.hold(packet) {
                    self.hca.rdma.spreading.push_back((packet, from));
                }
                return;
            }
            from = qpn + 1;
            // Whether it takes the datagram or not: the look at a member takes time.
            self.spent += MEMBER_COST;
            let own = qpn == head.source && self.qp(qpn).is_some_and(|qp| qp.flow.settings.block_multicast_loopback);
            if !own {
                self.put_datagram(qpn, packet);
            }
        }
    }

    /// Goes on with the datagrams that have not reached all members of their groups yet.
    pub(super) fn go_on_spreading(&mut self) {
        while self.spent < BYTES_PER_PORTION {
            let Some((packet, from)) = self.hca.rdma.spreading.pop_front() else { return };
            let behind = std::mem::take(&mut self.hca.rdma.spreading);
            self.spread(&packet, from);
            self.hca.rdma.spreading.extend(behind);
        }
    }

    /// Gives a datagram to a queue pair, if it takes it.
    fn put_datagram(&mut self, qpn: u32, packet: &Packet) {
        let Some(qp) = self.qp(qpn) else { return };
        let receives = matches!(qp.state(), State::Rtr | State::Rts | State::SqErr | State::Sqd);
        let settings = qp.flow.settings;
        let datagrams = matches!(qp.service(), Service::Ud | Service::Qp1);
        let stalled = qp.flow.responder.stall.is_some();
        if qp.flow.dead || !receives || !datagrams || stalled || packet.len > settings.mtu {
            return;
        }
        if settings.q_key != packet.head.q_key {
            let context = &mut self.hca.vport.context;
            let violations = context.qkey_violation_counter();
            context.set_qkey_violation_counter((violations + 1) & 0xffff);
            return;
        }
        match self.take_receive(qpn, 0) {
            Ok(()) => {}
            Err(NoEntry::Broken) => return self.catastrophe(qpn, "the receive ring cannot be read"),
            Err(_) => return,
        }
        let area = Payload::Short { bytes: header_area(&packet.head, packet.len) };
        let front = Packet { head: packet.head, len: GRH, payload: area };
        let header = self.put_part(qpn, &front, 0).map_err(|error| (error, 0, GRH));
        let put = header.and_then(|()| self.put_part(qpn, packet, GRH).map_err(|error| (error, GRH, packet.len)));
        match put {
            Ok(()) => {
                self.post_receive(qpn, &packet.head, GRH + packet.len);
            }
            // The payload is gone; the entry serves the next one.
            Err((MoveError::Source(_), ..)) => {}
            Err((MoveError::Target(error), offset, len)) if self.receive_fault(qpn, offset, len, error) => {}
            Err((MoveError::Target(error), ..)) => {
                let syndrome = match error {
                    MemoryError::Short => CqeSyndrome::LOCAL_LENGTH_ERR,
                    _ => CqeSyndrome::LOCAL_PROT_ERR,
                };
                self.post_receive_error(qpn, Failure { syndrome, vendor: vendor(error) });
                self.enter_error(qpn);
            }
        }
    }

    fn put_part(&mut self, qpn: u32, packet: &Packet, offset: u32) -> Result<(), MoveError> {
        if packet.len == 0 {
            return Ok(());
        }
        let keys = Keys { objects: &self.hca.objects, space: &self.hca.key_space };
        let entry = keys.objects.qps.get(qpn).and_then(|entry| entry.object.flow.responder.entry.as_deref());
        let entry = entry.ok_or(MoveError::Target(MemoryError::Gone))?;
        let (bytes, at) = entry.data();
        let (offset, len) = (u64::from(offset), u64::from(packet.len));
        let mut target = Reach::list(keys, entry.who(qpn), Access::LocalWrite, bytes, at, offset, len);
        let mut memory = Memory { keys, device: &mut self.hca.memic, bus: self.bus };
        let put = memory.put(packet, &mut target, StoreClass::Payload, packet.len)?;
        self.spent += packet.len as usize + put.parts * PART_COST;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::rdma::packet::{Operation, Transport};

    fn datagram(gid: [u8; 16], operation: Operation) -> Head {
        Head {
            transport: Transport::Ud,
            operation,
            address: Address {
                source: gid,
                dest: gid,
                traffic_class: 2,
                hop_limit: 64,
                flow_label: 0xabcde,
                ..Address::default()
            },
            ..Head::default()
        }
    }

    #[test]
    fn the_header_area_of_ipv4_has_a_whole_header_with_its_check_sum() {
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, 192, 168, 1, 1]);
        let area = header_area(&datagram(gid, Operation::SendOnly), 5);
        assert_eq!(area[..20], [0; 20]);
        let expected = [0x45, 2, 0, 60, 0, 0, 0x40, 0, 64, 17];
        assert_eq!(area[20..30], expected);
        let sum: u32 = area[20..].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }

    #[test]
    fn the_header_area_of_ipv6_is_its_header() {
        let gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let area = header_area(&datagram(gid, Operation::SendOnlyImm), 8);
        assert_eq!(area[..8], [0x60, 0x2a, 0xbc, 0xde, 0, 44, 17, 64]);
        assert_eq!((&area[8..24], &area[24..]), (&gid[..], &gid[..]));
    }
}

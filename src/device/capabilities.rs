//! Capabilities in force: the profile's, with what the driver set.

use std::collections::BTreeMap;

use super::objects::Kind;
use crate::cmdif::error::{CmdError, Syndrome};
use crate::log_limit::limited;
use crate::prm::layout::{Kind as FieldKind, Layout};
use crate::prm::status::Status;
use crate::profile::caps::layout as cap_layout;
use crate::profile::{CapMode, Profile};

/// Bytes of a capability area.
pub const AREA: usize = 4096;

/// Capability type GENERAL.
pub const GENERAL: u16 = 0x0;
/// Capability type ETHERNET OFFLOADS.
pub const ETHERNET: u16 = 0x1;
/// Capability type ODP, on-demand paging.
pub const ODP: u16 = 0x2;
/// Capability type ATOMIC.
pub const ATOMIC: u16 = 0x3;
/// Capability type ROCE.
pub const ROCE: u16 = 0x4;
/// Capability type FLOW TABLE.
pub const FLOW_TABLE: u16 = 0x7;
/// Capability type DEBUG.
pub const DEBUG: u16 = 0xd;
/// Capability type device memory.
pub const DEVICE_MEMORY: u16 = 0xf;
/// Capability type GENERAL 2.
pub const GENERAL_2: u16 = 0x20;

/// Capability areas by type.
#[derive(Debug)]
pub struct Capabilities {
    current: BTreeMap<u16, Box<[u8; AREA]>>,
    max: BTreeMap<u16, Box<[u8; AREA]>>,
}

impl Capabilities {
    /// The capabilities of `profile` before a driver set any.
    pub fn new(profile: &Profile) -> Capabilities {
        let areas =
            |mode| profile.cap_types().filter_map(|t| profile.caps(t, mode).map(|area| (t, Box::new(*area)))).collect();
        Capabilities { current: areas(CapMode::Cur), max: areas(CapMode::Max) }
    }

    /// The area of a type, current or maximal; `None` if the type is not advertised.
    pub fn area(&self, cap_type: u16, mode: CapMode) -> Option<&[u8; AREA]> {
        let areas = match mode {
            CapMode::Cur => &self.current,
            CapMode::Max => &self.max,
        };
        areas.get(&cap_type).map(Box::as_ref)
    }

    /// The current value of a field by its PRM name; 0 where the type is not advertised.
    pub fn get(&self, cap_type: u16, field: &str) -> u64 {
        let layout = cap_layout(cap_type);
        debug_assert!(layout.is_some_and(|l| l.find(field).is_some()), "no capability {cap_type:#x} {field}");
        match (layout, self.current.get(&cap_type)) {
            (Some(layout), Some(area)) => layout.read(&area[..], field).unwrap_or(0),
            _ => 0,
        }
    }

    /// The current value of a GENERAL field by its PRM name.
    pub fn general(&self, field: &str) -> u64 {
        self.get(GENERAL, field)
    }

    /// Sets a type's current values to `wanted`, as SET_HCA_CAP does. No field may exceed its maximum.
    pub fn set(&mut self, cap_type: u16, wanted: &[u8; AREA], exceeds: Syndrome) -> Result<(), CmdError> {
        let bad = CmdError::new(Status::BAD_PARAM_ERR, exceeds);
        let layout = cap_layout(cap_type).ok_or(bad)?;
        let max = self.max.get(&cap_type).ok_or(bad)?;
        check(layout, 0, wanted, &max[..]).map_err(|field| {
            limited!(warn, target: "cx10::cmd", "SET_HCA_CAP type {cap_type:#x}: {field} is beyond its maximum");
            bad
        })?;
        let mut area = Box::new(*wanted);
        if cap_type == ATOMIC {
            // The driver sends zeroes but for the one field that can be set (kernel `main.c:handle_hca_cap_atomic`).
            const SETTABLE: &str = "atomic_req_8B_endianness_mode";
            let present = self.current.get(&cap_type).ok_or(bad)?;
            let mode = layout.read(&wanted[..], SETTABLE).unwrap_or(0);
            area.copy_from_slice(&present[..]);
            if let Some((offset, width)) = layout.find(SETTABLE) {
                crate::prm::bits::set(&mut area[..], offset, width, mode);
            }
        }
        self.current.insert(cap_type, area);
        Ok(())
    }

    /// How many objects of a kind the capabilities allow.
    pub fn max_objects(&self, kind: Kind) -> u32 {
        let log = |field| 1u32.checked_shl(self.general(field) as u32).unwrap_or(u32::MAX);
        match kind {
            Kind::Eq => match self.general("max_num_eqs") as u32 {
                0 => log("log_max_eq"),
                count => count,
            },
            Kind::Cq => log("log_max_cq"),
            Kind::Umem => log("log_max_umem"),
            Kind::Uctx => log("log_max_uctx"),
            Kind::Pd => log("log_max_pd"),
            Kind::TransportDomain => log("log_max_transport_domain"),
            Kind::Qp => log("log_max_qp"),
            Kind::Rmp => log("log_max_rmp"),
            Kind::XrcSrq | Kind::Srq => log("log_max_srq"),
            Kind::Xrcd => log("log_max_xrcd"),
            Kind::Mkey => log("log_max_mkey"),
            Kind::QCounter => self.general("max_qp_cnt") as u32,
            Kind::FlowCounter => {
                (self.general("max_flow_counter_31_16") << 16 | self.general("max_flow_counter_15_0")) as u32
            }
            Kind::Tis => log("log_max_tis"),
            Kind::Tir => log("log_max_tir"),
            Kind::RqTable => log("log_max_rqt"),
            Kind::Rq => log("log_max_rq"),
            Kind::Sq => log("log_max_sq"),
            // Tables are counted by type where they are made. A group needs an index of its own, an entry too.
            Kind::FlowTable => u32::MAX,
            Kind::FlowGroup | Kind::FlowEntry => {
                let field = "flow_table_properties_nic_receive.log_max_flow";
                1u32.checked_shl(self.get(FLOW_TABLE, field) as u32).unwrap_or(u32::MAX)
            }
            // Bounded by the numbers of the table, and by the memory.
            Kind::Uar | Kind::Memic => u32::MAX,
        }
    }
}

/// Names the first number of `wanted` that is greater than in `max`.
fn check(layout: &'static Layout, base: u32, wanted: &[u8], max: &[u8]) -> Result<(), &'static str> {
    for field in layout.fields {
        let at = base + field.offset;
        match field.kind {
            FieldKind::Scalar { width } => {
                let value = |bytes| crate::prm::bits::get(bytes, at, width);
                if value(wanted) > value(max) {
                    return Err(field.name);
                }
            }
            FieldKind::Nested(inner) => check(inner, at, wanted, max)?,
            FieldKind::Array { element, count } => {
                for i in 0..count {
                    check(element, at + i * element.bits, wanted, max)?;
                }
            }
            FieldKind::Scalars { width, count } => {
                for i in 0..count {
                    let value = |bytes| crate::prm::bits::get(bytes, at + i * width, width);
                    if value(wanted) > value(max) {
                        return Err(field.name);
                    }
                }
            }
            FieldKind::Bytes { .. } | FieldKind::Tail => {}
        }
    }
    Ok(())
}

//! The PCI function: configuration space, BAR 0, interrupts, events, object tables, reset.
//!
//! [`Function`] is what a VMM attaches. It owns everything and is deterministic: time comes from a
//! [`clock::Clock`], work is done in [`Function::work`] in bounded portions.

pub mod capabilities;
pub mod clock;
pub mod config_space;
pub mod counters;
pub mod cq;
pub mod devx;
pub mod eq;
pub mod flush;
pub mod function;
pub mod hca;
pub mod init_segment;
pub mod key_access;
pub mod link_modes;
pub mod memic;
pub mod multicast;
pub mod objects;
pub mod page_list;
pub mod pages;
pub mod pd;
pub mod poll;
pub mod port;
pub mod port_counters;
pub mod qp;
pub mod rdma;
pub mod receive;
pub mod roce;
pub mod rq;
pub mod send;
pub mod sq;
pub mod srq;
pub mod steering;
pub mod switch;
pub mod tracer;
pub mod uar;
pub mod vport;
pub mod wq;

pub use function::Function;

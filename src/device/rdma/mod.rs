//! RDMA traffic: what queue pairs do with their work (PRM "Work Queue Entries", IBTA "Transport Layer").
//!
//! [`umr`] executes work requests that change memory keys.

pub mod umr;

//! Protection domains, transport domains and XRC domains: numbers that other contexts refer to (PRM "Protection
//! Domain", "Transport Domain", "XRC Domain"; kernel `pd.c`, `transobj.c`, `mlx5_ib main.c`).

use super::objects::Charged;

/// A protection domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProtectionDomain;

impl Charged for ProtectionDomain {}

/// A transport domain: the scope of Ethernet loopback prevention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportDomain;

impl Charged for TransportDomain {}

/// An XRC domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XrcDomain;

impl Charged for XrcDomain {}

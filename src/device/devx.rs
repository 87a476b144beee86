//! DEVX objects: user contexts and user memory (PRM "User Context", "UMEM"; kernel `devx.c`).

use super::objects::Charged;

/// A user context: the owner of the objects that one user process creates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserContext {
    /// `uctx.cap`: what the context may do.
    pub cap: u32,
}

impl Charged for UserContext {}

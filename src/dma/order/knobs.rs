//! The knobs of the contract and the profiles that name sets of them.
//!
//! Public documents leave some questions open (what exactly a strong read waits for, what an acknowledgement tells, how
//! an atomic behaves on the fabric). Each of these is a knob; a profile fixes all of them. A test report names the
//! profile. What fails in `cx10-worst` only is a question to the contract, not a bug of the driver.
//!
//! Sources: see `docs/ordering.md`, "Knobs".

use super::rules::Omit;

macro_rules! names {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// All values, the default first.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The name in configuration and reports.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }

            /// The value of a name.
            pub fn parse(text: &str) -> Result<$name, UnknownName> {
                let found = $name::ALL.iter().find(|value| value.name() == text);
                found.copied().ok_or_else(|| UnknownName::new(text, $name::ALL.iter().map(|value| value.name())))
            }
        }
    };
}

pub(super) use names;

/// A name that nothing has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnknownName {
    /// What was given.
    pub name: String,
    /// What there is.
    pub known: Vec<&'static str>,
    /// What may have been meant.
    pub nearest: Option<&'static str>,
}

impl UnknownName {
    /// A name that is not among those known.
    pub fn new(name: &str, known: impl Iterator<Item = &'static str>) -> UnknownName {
        let known: Vec<_> = known.collect();
        let score = |other: &str| (strsim::normalized_damerau_levenshtein(name, other) * 1000.0) as u32;
        let nearest = known.iter().copied().max_by_key(|other| score(other)).filter(|other| score(other) >= 400);
        UnknownName { name: name.to_owned(), known, nearest }
    }
}

impl std::fmt::Display for UnknownName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unknown name {:?}", self.name)?;
        match self.nearest {
            Some(nearest) => write!(f, "; did you mean {nearest:?}?"),
            None => write!(f, "; known: {}", self.known.join(", ")),
        }
    }
}

names! {
    /// What keeps order between the function and memory.
    Fabric {
        /// Nothing does: any two accesses may swap, the device waits for acknowledgements where it owes order.
        None = "none",
        /// PCI Express: posted writes and reads behind them keep order, function-wide (Base 2.4.1).
        Pcie = "pcie",
    }
}

names! {
    /// What becomes of a key that asks for ordered writes on a device that keeps none (`ro_only`).
    Strict {
        /// It is refused where it is made (section `[mkey]`); one that was let through is treated as relaxed.
        Reject = "reject",
        /// Its writes wait for earlier writes of the queue pair.
        Honour = "honour-per-qp",
        /// It is granted and treated as relaxed: what old firmware may do.
        Downgrade = "downgrade-silently",
    }
}

names! {
    /// How far the attributes of keys are heeded.
    Keys {
        /// As the key says.
        AsGiven = "as-given",
        /// Relaxed writes as the key says, every read strong.
        StrongReads = "strong-reads",
        /// Every key is treated as strong.
        Strong = "strong",
    }
}

names! {
    /// What a strong read waits for.
    RawScope {
        /// Every earlier write of the queue pair.
        Qp = "qp",
        /// Earlier writes of the queue pair to the same bytes (the letter of the manual page).
        Bytes = "bytes",
        /// Every earlier write of the function.
        Function = "function",
    }
}

names! {
    /// What an acknowledgement tells.
    Ack {
        /// The data is visible at the responder.
        Visible = "visible",
        /// The responder has received the data.
        Receive = "receive",
    }
}

names! {
    /// How atomics are done.
    AtomicMode {
        /// As the manual pages have it: ordered with earlier and later operations of the queue pair.
        Man = "man",
        /// As PCIe AtomicOps: through a relaxed key they may pass earlier writes.
        PcieRo = "pcie_ro",
        /// By a read and a write of the device: atomic among the device's own, a processor's store between is lost.
        Rmw = "rmw",
    }
}

names! {
    /// What fence 2 covers.
    Fence2 {
        /// READs and atomics (IBTA volume 1, 10.8.3.3).
        Ibta = "ibta",
        /// All earlier requests (rdma-core pull request 1780).
        Pr1780 = "pr1780",
    }
}

names! {
    /// Where payload may be cut beside the granule.
    Split {
        /// Anywhere in a packet.
        Mtu = "mtu",
        /// At read completion boundaries, 64 bytes.
        Rcb = "rcb",
        /// At pages, 4096 bytes.
        Page = "page",
        /// At places that the seed chooses between those.
        Random = "random",
    }
}

/// The contract in force: what may pass what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What keeps order.
    pub fabric: Fabric,
    /// The device keeps no order between writes, whatever their keys ask for.
    pub ro_only: bool,
    /// Under `ro_only`: strict keys.
    pub strict: Strict,
    /// How far keys are heeded.
    pub keys: Keys,
    /// What a strong read waits for.
    pub raw_scope: RawScope,
    /// What an acknowledgement tells.
    pub ack: Ack,
    /// How atomics are done.
    pub atomic: AtomicMode,
    /// What fence 2 covers.
    pub fence2: Fence2,
    /// The smallest piece that becomes visible at once: 1, 4, 8 or 64 bytes.
    pub granule: u32,
    /// Where payload may be cut.
    pub split: Split,
    /// Addresses from here on are a memory domain of their own, as memory of a GPU beside that of the host: nothing there
    /// is ordered with anything here, completions included.
    pub split_path: Option<u64>,
    /// Rules that are left out: never by configuration, only by illegal modes and by tests of tests.
    pub omit: Omit,
}

names! {
    /// A named set of all knobs.
    Profile {
        /// Unordered fabric, keys decide about reads; what the device is.
        Cx10Unordered = "cx10-unordered",
        /// Unordered fabric, every read strong.
        Cx10Ro = "cx10-ro",
        /// Unordered fabric and every open question answered for the worst.
        Cx10Worst = "cx10-worst",
        /// PCIe, every key strong.
        PcieStrong = "pcie-strong",
        /// PCIe, relaxed writes as the keys say, every read strong.
        PcieRelaxed = "pcie-relaxed",
        /// PCIe, keys decide about writes and reads.
        PcieUnordered = "pcie-unordered",
    }
}

impl Profile {
    /// The knobs of a profile.
    pub fn rules(self) -> Rules {
        let base = Rules {
            fabric: Fabric::None,
            ro_only: true,
            strict: Strict::Reject,
            keys: Keys::AsGiven,
            raw_scope: RawScope::Qp,
            ack: Ack::Visible,
            atomic: AtomicMode::Man,
            fence2: Fence2::Ibta,
            granule: 4,
            split: Split::Mtu,
            split_path: None,
            omit: Omit::NOTHING,
        };
        let pcie = |keys| Rules { fabric: Fabric::Pcie, ro_only: false, keys, ..base.clone() };
        match self {
            Profile::Cx10Unordered => base,
            Profile::Cx10Ro => Rules { keys: Keys::StrongReads, ..base },
            Profile::Cx10Worst => {
                Rules { ack: Ack::Receive, raw_scope: RawScope::Bytes, atomic: AtomicMode::PcieRo, granule: 1, ..base }
            }
            Profile::PcieStrong => pcie(Keys::Strong),
            Profile::PcieRelaxed => pcie(Keys::StrongReads),
            Profile::PcieUnordered => pcie(Keys::AsGiven),
        }
    }
}

impl Default for Rules {
    fn default() -> Rules {
        Profile::Cx10Unordered.rules()
    }
}

impl Rules {
    /// Whether a write through a key with or without the relaxed attribute may pass earlier writes.
    pub fn relaxes_write(&self, relaxed_write: bool) -> bool {
        match self.keys {
            Keys::Strong => false,
            _ if self.ro_only && self.strict != Strict::Honour => true,
            Keys::AsGiven | Keys::StrongReads => relaxed_write,
        }
    }

    /// Whether a read through a key with or without the attribute may pass earlier writes.
    pub fn relaxes_read(&self, relaxed_read_after_write: bool) -> bool {
        self.keys == Keys::AsGiven && relaxed_read_after_write
    }
}

/// Bounds of the pool and of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest delay of a part, in ticks from when everything that it waits for is done.
    pub max_delay: u32,
    /// How long a policy holds the parts that it holds on purpose, in ticks; not above `max_delay`.
    pub hold: u32,
    /// Most bytes pending; beyond it, what is due first is applied at once.
    pub max_bytes: u32,
    /// Most transactions pending, at most [`super::MAX_TRANSACTIONS`].
    pub max_transactions: u32,
    /// Share of the transactions that a policy may delay, in percent.
    pub rate: u32,
}

impl Limits {
    /// No delay can be longer, in ticks.
    pub const HARD_MAX_DELAY: u32 = 20_000;
}

impl Default for Limits {
    fn default() -> Limits {
        let max_transactions = super::MAX_TRANSACTIONS as u32;
        Limits { max_delay: 200, hold: 200, max_bytes: 1 << 20, max_transactions, rate: 100 }
    }
}

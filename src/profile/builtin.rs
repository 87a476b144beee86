//! The profiles compiled into the program.

/// The profile used when none is named.
pub const DEFAULT: &str = "connectx10-c2c";

static PROFILES: &[(&str, &str)] = &[
    ("connectx10-c2c", include_str!("connectx10-c2c.toml")),
    ("connectx10", include_str!("connectx10.toml")),
    ("connectx7", include_str!("connectx7.toml")),
];

/// Names, the default first.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    PROFILES.iter().map(|(name, _)| *name)
}

/// TOML text of a profile.
pub fn text(name: &str) -> Option<&'static str> {
    PROFILES.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

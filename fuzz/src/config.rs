//! Profiles, configuration files and `--set` options: any text is refused with a message or makes a device, and every
//! device that a configuration makes works.

use std::cell::RefCell;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use cx10::config::{self, Sources};
use cx10::profile::{CapMode, Profile, builtin};
use cx10::trace::Trace;
use cx10::{prm, sys};

use crate::input::Input;
use crate::machine::Machine;

thread_local! {
    static FILE: RefCell<Option<File>> = const { RefCell::new(None) };
}

/// Puts a text where a path leads to it.
fn with_file<R>(text: &[u8], then: impl FnOnce(PathBuf) -> R) -> R {
    FILE.with_borrow_mut(|file| {
        let file = file.get_or_insert_with(|| sys::memfd("cx10-fuzz-config.toml", 0, false).expect("a memfd").into());
        file.set_len(0).expect("an unsealed memfd");
        file.rewind().expect("a file");
        file.write_all(text).expect("a file");
        then(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())))
    })
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let input = &mut Input::new(data);
    let how = input.u8();
    let sets: Vec<String> = (0..how & 3).map(|_| set(input)).collect();
    let names: Vec<&str> = builtin::names().collect();
    let name = match how >> 2 & 3 {
        0 => None,
        1 => Some(input.pick(&names).to_string()),
        2 => Some(String::from_utf8_lossy(input.bytes(16)).replace('/', "")),
        _ => Some("file".into()),
    };
    let text = input.rest();
    // What a text names is read; keep it to the text itself.
    let foreign = text.windows(2).any(|w| w == b"./" || w == b"\"/" || w == b"'/") || text.contains(&b'\\');
    if foreign && text.windows(8).any(|w| w == b"inherits" || w == b"profile ") {
        return;
    }
    let loaded = with_file(text, |path| {
        let sources = match name.as_deref() {
            Some("file") => Sources { profile: Some(path.display().to_string()), file: None, sets },
            _ => Sources { profile: name, file: (!text.is_empty()).then_some(path), sets },
        };
        config::load(&sources)
    });
    match loaded {
        Ok(profile) => accepted(profile),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A `--set` option: a known key with any value, or any text.
fn set(input: &mut Input<'_>) -> String {
    let key = match input.u8() % 4 {
        0 => {
            let keys = config::keys::KEYS;
            keys[input.below(keys.len())].path.to_string()
        }
        1 | 2 => {
            let types = cx10::profile::caps::TYPES;
            let (_, name, layout) = types[input.below(types.len())];
            let fields = cx10::profile::caps::field_paths(layout);
            let root = if input.one_in(2) { "caps_max" } else { "caps" };
            format!("{root}.{name}.{}", fields[input.below(fields.len())])
        }
        _ => String::from_utf8_lossy(input.bytes(24)).into_owned(),
    };
    let value = match input.u8() % 4 {
        0 => input.number(64).to_string(),
        1 => format!("{:#x}", input.number(64)),
        2 => u64::from(input.u8() % 33).to_string(),
        _ => String::from_utf8_lossy(input.bytes(24)).into_owned(),
    };
    format!("{key}={value}")
}

/// What holds for a configuration that was accepted.
fn accepted(profile: Profile) {
    let _ = profile.warnings();
    // Read back, it is the same device.
    let text = profile.to_toml();
    let again =
        with_file(text.as_bytes(), |path| config::load(&Sources { profile: None, file: Some(path), sets: Vec::new() }));
    // A profile that came from a file is named after it, and that name leads nowhere.
    if builtin::names().any(|name| name == profile.name) {
        let again = again.unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(again.to_json(true), profile.to_json(true));
        for (number, ..) in cx10::profile::caps::TYPES {
            for mode in [CapMode::Cur, CapMode::Max] {
                assert_eq!(again.caps(*number, mode), profile.caps(*number, mode), "capability type {number:#x}");
            }
        }
    }
    // A device of so many pages comes up slowly, not differently.
    if u64::from(profile.pages.boot) + u64::from(profile.pages.init) > 4000 {
        return;
    }
    let mut machine = Machine::with(profile, Trace::off());
    machine.rig.bring_up();
    crate::mailbox::furnish(&mut machine);
    for cap_type in 0..0x30u16 {
        let query =
            [&prm::Opcode::QUERY_HCA_CAP.0.to_be_bytes()[..], &[0; 4], &(cap_type << 1 | 1).to_be_bytes(), &[0; 8]];
        machine.command(&query.concat(), 0x1010);
    }
    machine.finish(true);
}

//! What fuzzing found, one test each: the smallest form of an input that went wrong.

use std::fs;

use cx10::config::{self, Sources};
use cx10::profile::{Profile, builtin};
use vmm_sys_util::tempdir::TempDir;

/// Loads a configuration file with this text.
fn reload(text: &str) -> Result<Profile, String> {
    let dir = TempDir::new_with_prefix("/tmp/cx10-regression").expect("a directory");
    let path = dir.as_path().join("effective.toml");
    fs::write(&path, text).expect("a file");
    let sources = Sources { profile: None, file: Some(path), sets: Vec::new() };
    config::load(&sources).map_err(|error| error.to_string())
}

#[test]
fn an_option_with_a_control_character_does_not_spoil_the_effective_configuration() {
    // The character is trimmed from the value, but the comment that names the option had it.
    for end in ["\u{b}", "\u{c}", "\n", "\r"] {
        let set = format!("net.node_description=bench{end}");
        let profile = Profile::with(builtin::DEFAULT, &[&set]).expect("white space around a value is ignored");
        let again = reload(&profile.to_toml()).unwrap_or_else(|error| panic!("{end:?}: {error}"));
        assert_eq!(again.net.node_description, "bench");
        assert_eq!(again.to_json(true), profile.to_json(true));
    }
}

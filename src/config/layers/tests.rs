//! Tests of layering and of the messages for wrong input.

use super::*;
use crate::config::{KeyKind, LinkSpeed, Strict};

/// A directory that goes away with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("cx10-layers-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn with_file(name: &str, text: &str, sets: &[&str]) -> Result<Profile, String> {
    let dir = Dir::new(name);
    let file = Some(dir.file("c.toml", text));
    load(&Sources { profile: None, file, sets: sets.iter().map(|s| s.to_string()).collect() })
        .map_err(|e| e.to_string().replace(&dir.0.display().to_string(), "DIR"))
}

fn with_sets(sets: &[&str]) -> Result<Profile, String> {
    load(&Sources { sets: sets.iter().map(|s| s.to_string()).collect(), ..Sources::default() })
        .map_err(|e| e.to_string())
}

#[test]
fn later_layers_win() {
    let text =
        "profile = \"connectx7\"\n[mkey]\nstrict = \"enable\"\nexempt = [\"memic\"]\n[caps.general]\nimaicl = false\n";
    let p = with_file("win", text, &["mkey.strict=create", "mkey.strict=off"]).unwrap();
    assert_eq!(p.name, "connectx7");
    assert_eq!(p.mkey.strict, Strict::Off, "the last --set");
    assert_eq!(p.mkey.exempt, [KeyKind::Memic], "the file");
    assert_eq!(p.pci.link_speed, LinkSpeed::Gen5, "the profile");
    assert_eq!(p.pci.link_width, 16, "what the profile inherits");
    assert_eq!(p.cap(0, "imaicl"), 0);
}

#[test]
fn an_option_for_the_profile_wins_over_the_file() {
    let dir = Dir::new("option");
    let file = dir.file("c.toml", "profile = \"connectx7\"\n");
    let sources = Sources { profile: Some("connectx10".into()), file: Some(file), sets: vec![] };
    assert_eq!(load(&sources).unwrap().pci.device_id, 0x1027);
}

#[test]
fn a_wrong_key_in_a_file_is_named_with_its_line() {
    let error = with_file("line", "# comment\n[mkey]\nstrikt = \"off\"\n", &[]).unwrap_err();
    assert_eq!(error, "DIR/c.toml:3: unknown key `mkey.strikt`; did you mean `mkey.strict`?");
    let error = with_file("line2", "\n\n[mkeys]\nstrict = \"off\"\n", &[]).unwrap_err();
    assert!(error.starts_with("DIR/c.toml:3: unknown key `mkeys`; did you mean `mkey"), "{error}");
    let error = with_file("line3", "[caps.general]\nroce = 1\nlog_max_q = 3\n", &[]).unwrap_err();
    assert!(
        error.starts_with("DIR/c.toml:3: no field `log_max_q` in capability type `general`; did you mean"),
        "{error}"
    );
    let error = with_file("line4", "[pci]\nmsix_vectors = 1\n", &[]).unwrap_err();
    assert_eq!(error, "DIR/c.toml:2: `pci.msix_vectors`: 1 is not valid, expected 2..2048");
}

#[test]
fn wrong_types_are_refused() {
    for (text, expected) in [
        ("mkey = 1\n", "is a section"),
        ("[mkey]\nstrict = true\n", "expected off, create or enable"),
        ("[mkey]\nexempt = \"memic\"\n", "expected list of"),
        ("[mkey]\nexempt = [1]\n", "expected list of"),
        ("[pages]\nboot = 1.5\n", "a float cannot be a value here"),
        ("[pages]\nboot = 1979-05-27\n", "a datetime cannot be a value here"),
        ("[pages]\nboot = 99999999999999999999\n", "does not fit"),
        ("[net]\nmac = \"01:00:00:00:00:01\"\n", "multicast"),
        ("[net]\nmac = \"00:00:00:00:00:00\"\n", "zero address"),
        ("[net]\nmac = \"2:0:0:0:0:1\"\n", "six hex bytes"),
        ("[firmware]\nversion = \"1.2\"\n", "major.minor.subminor"),
        ("[firmware]\nversion = \"1.2.70000\"\n", "65535"),
        ("[pci.link_speed]\nx = 1\n", "unknown key `pci.link_speed`"),
        ("profile = 3\n", "`profile` takes a text"),
        ("inherits = \"connectx7\"\n", "`inherits` belongs into a profile"),
        ("profile = \"connectx8\"\n", "did you mean `connectx7`?"),
    ] {
        let error = with_file("types", text, &[]).unwrap_err();
        assert!(error.contains(expected), "{text:?} gave {error}");
    }
}

#[test]
fn a_file_that_is_not_toml_is_refused_with_the_place() {
    let error = with_file("syntax", "[mkey\nstrict=\n", &[]).unwrap_err();
    assert!(error.starts_with("DIR/c.toml: TOML parse error at line 1, column 6"), "{error}");
    assert!(with_file("twice", "[mkey]\nstrict=\"off\"\nstrict=\"off\"\n", &[]).unwrap_err().contains("duplicate key"));
}

#[test]
fn a_missing_or_huge_file_is_refused() {
    let missing = Sources { file: Some("/nonexistent/c.toml".into()), ..Sources::default() };
    assert_eq!(load(&missing).unwrap_err().to_string(), "/nonexistent/c.toml: No such file or directory (os error 2)");
    assert!(with_file("huge", &"#".repeat((1 << 20) + 1), &[]).unwrap_err().contains("larger than 1 MiB"));
    let endless = Sources { file: Some("/dev/zero".into()), ..Sources::default() };
    assert!(load(&endless).unwrap_err().to_string().contains("larger than 1 MiB"));
}

#[test]
fn wrong_options_are_refused() {
    assert_eq!(with_sets(&["mkey.strict"]).unwrap_err(), "--set mkey.strict: expected KEY=VALUE");
    assert!(with_sets(&["=1"]).unwrap_err().contains("unknown key ``"));
    assert!(with_sets(&["profile=connectx7"]).unwrap_err().contains("use --profile"));
    assert!(with_sets(&["strict=off"]).unwrap_err().ends_with("did you mean `mkey.strict`?"));
    assert!(with_sets(&["..=1"]).is_err() && with_sets(&["caps..=1"]).is_err() && with_sets(&["caps.=1"]).is_err());
    assert!(with_sets(&["pages.boot=12x"]).unwrap_err().contains("expected 0..65536"));
}

#[test]
fn options_take_the_spellings_of_a_command_line() {
    let p = with_sets(&["mkey.require_read = on", "pages.boot=0x10", "pci.vpd_product=a = b", "caps.general.bf=true"]);
    let p = p.unwrap();
    assert!(p.mkey.require_read);
    assert_eq!((p.pages.boot, p.cap(0, "bf")), (16, 1));
    assert_eq!(p.pci.vpd_product, "a = b");
}

#[test]
fn a_profile_file_inherits_by_name_and_by_path() {
    let dir = Dir::new("inherit");
    dir.file("base.toml", "inherits = \"connectx7\"\ndescription = \"base\"\n[pages]\nboot = 7\ninit = 7\n");
    let path = dir.file("mine.toml", "inherits = \"./base.toml\"\n[pages]\ninit = 8\n");
    let p = load(&Sources { profile: Some(path.display().to_string()), ..Sources::default() }).unwrap();
    assert_eq!((p.pages.boot, p.pages.init, p.pci.device_id), (7, 8, 0x1021));
    assert_eq!(p.description, "base");
}

#[test]
fn a_profile_that_inherits_itself_is_refused() {
    let dir = Dir::new("circle");
    let path = dir.file("a.toml", "inherits = \"./a.toml\"\n");
    let error = load(&Sources { profile: Some(path.display().to_string()), ..Sources::default() }).unwrap_err();
    assert!(matches!(error, ConfigError::Circle(_)));
}

#[test]
fn a_profile_without_everything_is_refused() {
    let dir = Dir::new("incomplete");
    let path = dir.file("p.toml", "[mkey]\nstrict = \"off\"\n");
    let error = load(&Sources { profile: Some(path.display().to_string()), ..Sources::default() }).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("does not set `doorbells`, `mkey.exempt`, `mkey.require_read` and "), "{error}");
    assert!(error.contains("inherits = \"connectx10-c2c\""));
}

#[test]
fn every_key_is_set_by_the_default_profile_and_has_a_help_text() {
    let p = Profile::default();
    for key in keys::KEYS {
        assert!(p.entries().contains_key(key.path), "{}", key.path);
        assert!(!key.help.is_empty() && !key.rule.describe().is_empty());
    }
    let known = p.entries().keys().filter(|k| !caps::is_cap_path(k)).count();
    assert_eq!(known, keys::KEYS.len());
}

#[test]
fn a_rule_is_never_weaker_than_the_type_behind_it() {
    // The extremes of every rule have to survive deserialisation.
    for key in keys::KEYS {
        let values: Vec<String> = match key.rule {
            Rule::Bool => vec!["true".into(), "false".into()],
            Rule::Int { min, max, .. } => vec![min.to_string(), max.to_string()],
            Rule::IntOf(list) => list.iter().map(i64::to_string).collect(),
            Rule::OneOf(words) => words.iter().map(|w| w.to_string()).collect(),
            Rule::Kinds => vec![String::new(), KeyKind::ALL.map(|k| k.name()).join(",")],
            Rule::Text(max) => vec![String::new(), "x".repeat(max)],
            Rule::Faults => vec![String::new(), "drop delay:us=60000000,qpn=0xffffff,nth=9223372036854775807".into()],
            // A description that is no value is that of a number.
            Rule::Order(knob) => {
                let values = crate::dma::order::settings::values(knob).into_iter().map(str::to_owned);
                values.map(|value| value.replace("DEPTH", "64").replace("an address", "0xffffffffffffffff")).collect()
            }
            Rule::Typed(..) => continue,
        };
        for value in values {
            let set = format!("{}={value}", key.path);
            match with_sets(&[&set]) {
                Ok(_) => {}
                Err(e) => assert!(e.contains("pcam_reg"), "{set}: {e}"),
            }
        }
    }
}

#[test]
fn no_text_makes_the_reader_panic() {
    let whole = builtin::text(builtin::DEFAULT).unwrap();
    let place = |line| Place::Builtin { name: "x".into(), line };
    let parse = |text: &str| Layer::parse(text, "x", PathBuf::new(), &place).map(|l| l.entries.len());
    assert!(parse(whole).unwrap() > 100);
    // Cut anywhere, and with a character replaced; the step keeps the test short.
    let mut state = 1u32;
    for at in (0..whole.len()).step_by(499).filter(|at| whole.is_char_boundary(*at)) {
        let _ = parse(&whole[..at]);
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let odd = ["\0", "[", "]", "=", "\"", ".", "{", "\n", "é", "-", "#", "1e9"][(state >> 24) as usize % 12];
        let next = (at + 1..).find(|i| whole.is_char_boundary(*i)).unwrap_or(whole.len());
        let _ = parse(&format!("{}{odd}{}", &whole[..at], whole.get(next..).unwrap_or("")));
        let _ = with_sets(&[&whole[at..(at + 40).min(whole.len())].replace('\u{b7}', "")]);
    }
    for set in
        ["a.b.c.d.e=1", "caps.general[0]=1", "caps.general.[0]=1", "caps.flow_table.x[99999999999]=1", "é=é", "=", "=="]
    {
        assert!(with_sets(&[set]).is_err(), "{set}");
    }
}

#[test]
fn wire_faults_come_from_tables_texts_and_options_and_are_shown_as_texts() {
    let place = |line| Place::Builtin { name: "x".into(), line };
    let file = |text: &str| Layer::parse(text, "x", PathBuf::new(), &place).map(|l| l.entries);
    let tables = "[[wire.fault]]\naction = \"drop\"\nnth = 3\n[[wire.fault]]\naction = \"delay\"\nus = 5\nqpn = 0x41\n";
    let entries = file(tables).unwrap();
    assert_eq!(
        entries["wire.fault"].value.to_string(),
        r#"["drop:nth=3,times=1", "delay:us=5,qpn=0x41,nth=1,every=1"]"#
    );
    let again = file(&format!("[wire]\nfault = {}\n", entries["wire.fault"].value)).unwrap();
    assert_eq!(again["wire.fault"].value, entries["wire.fault"].value);
    let error = file("[[wire.fault]]\naction = \"drop\"\n\n[[wire.fault]]\naction = \"drop\"\nnht = 3\n").unwrap_err();
    let error = error.to_string();
    assert!(error.contains("rule 2: unknown key `nht`") && error.contains("did you mean `nth`?"), "{error}");
    assert!(
        file("[[wire.faults]]\naction = \"drop\"\n").unwrap_err().to_string().contains("did you mean `wire.fault`?")
    );

    let p = with_sets(&["wire.fault=drop:nth=3 duplicate:every=2,kind=ack"]).unwrap();
    assert_eq!(p.wire.fault.len(), 2);
    assert!(p.to_toml().contains("fault = [\"drop:nth=3,times=1\", \"duplicate:kind=ack,nth=2,every=2\"]  # --set"));
    assert!(with_sets(&["wire.fault=dorp"]).unwrap_err().contains("did you mean `drop`?"));
}

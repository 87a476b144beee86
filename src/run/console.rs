//! What a guest's kernel says of its own faults, on its console and in its log.

/// Messages of a kernel that a fault leaves broken.
pub const BROKEN: [&str; 5] = ["BUG:", "Oops", "kernel BUG at", "general protection", "Kernel panic"];
/// Messages of a kernel that has found a fault in itself and goes on.
pub const WARNS: [&str; 2] = ["WARNING:", "Call Trace"];

/// Lines of a console that are worth showing when a guest is gone.
const LINES: usize = 12;
/// A fault with its registers and calls is as long as this.
const FAULT_LINES: usize = 100;

/// Whether the kernel complains of itself in a line.
pub fn is_trouble(line: &str) -> bool {
    is_broken(line) || starts_with(line, &WARNS)
}

/// Whether a line tells of a fault that leaves the kernel broken.
pub fn is_broken(line: &str) -> bool {
    starts_with(line, &BROKEN)
}

/// Such a message starts with its word; the console has times before it. Others speak of the words: of programs' faults
/// (`traps:`), of mitigations, of a slow emulation's lockups.
fn starts_with(line: &str, words: &[&str]) -> bool {
    let mut text = line.trim_start();
    while let Some((_, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        text = rest.trim_start();
    }
    words.iter().any(|word| text.starts_with(word))
}

/// The end of a console, from the beginning of the fault on if there is one.
pub fn end(console: &str) -> Vec<&str> {
    let lines: Vec<&str> = console.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(FAULT_LINES)..];
    let fault = last.iter().position(|line| is_trouble(line)).unwrap_or(last.len());
    last[fault.min(last.len().saturating_sub(LINES))..].to_vec()
}

/// The line that says most of why a guest is gone: of a panic or an oops, else of a warning, else the first.
pub fn headline(text: &str) -> &str {
    let with = |is: fn(&str) -> bool| text.lines().map(str::trim).find(|line| is(line));
    let panic = with(|line| line.contains("Kernel panic"));
    panic.or_else(|| with(is_broken)).or_else(|| with(is_trouble)).or_else(|| text.lines().next()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_console_begins_with_the_fault() {
        let boot: String = (0..200).map(|n| format!("line {n}\n")).collect();
        assert_eq!(end(&boot), (188..200).map(|n| format!("line {n}")).collect::<Vec<_>>());
        let fault: String = (0..40).map(|n| format!("register {n}\n\n")).collect();
        let panicked = format!("{boot}[ 5.0] BUG: unable to handle page fault\n{fault}");
        assert_eq!((end(&panicked).len(), end(&panicked)[0]), (41, "[ 5.0] BUG: unable to handle page fault"));
        assert_eq!(end(""), [""; 0]);
    }

    #[test]
    fn a_fault_of_a_program_is_none_of_the_kernel() {
        assert!(!is_trouble("traps: python3[202] general protection fault ip:7f8daa18ed92 error:0 in libmlx5.so"));
        assert!(is_trouble("Oops: general protection fault, probably for non-canonical address"));
        assert!(is_trouble("[   18.499911] WARNING: CPU: 0 PID: 1") && is_broken("[   1.0][    T9] BUG: kernel NULL"));
        assert!(!is_trouble("Spectre V2 : WARNING: Unprivileged eBPF is enabled"));
        assert!(!is_trouble("watchdog: BUG: soft lockup - CPU#0 stuck for 22s!"));
    }

    #[test]
    fn the_headline_is_the_fault_if_there_is_one() {
        let text =
            "QEMU ended (exit status: 0)\nlast lines:\n  [1] WARNING: CPU: 0\n  [2] Kernel panic - not syncing: x";
        assert_eq!(headline(text), "[2] Kernel panic - not syncing: x");
        assert_eq!(headline("no answer\n  [1] WARNING: CPU: 0"), "[1] WARNING: CPU: 0");
        assert_eq!(headline("no answer\nlogin:"), "no answer");
        assert_eq!(headline(""), "");
    }
}

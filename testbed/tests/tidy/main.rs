//! Rules of this repository that a machine can keep: how long a function may be, where a type's methods stand, which file belongs to
//! which program, what imports what, and which words are used. An exception is listed with its reason, and fails the test once it is none
//! any more.

mod concepts;
mod cycles;
mod exceptions;
mod functions;
mod import_graph;
mod macros;
mod modules;
mod tree;
mod types;
mod words;

/// Something that breaks a rule.
struct Finding {
    /// Where and what, such as `fabric/src/switch/mod.rs Switch`: the same as long as it is there.
    place: String,
    /// What is wrong with it, as a clause.
    what: String,
}

/// Something that may break a rule.
struct Exception {
    /// As in [`Finding::place`].
    place: &'static str,
    /// Why it may.
    reason: &'static str,
}

const fn exception(place: &'static str, reason: &'static str) -> Exception {
    Exception { place, reason }
}

/// Fails for every finding without an exception, and for every exception without a finding or a reason.
#[track_caller]
fn judge(rule: &str, findings: &[Finding], exceptions: &[Exception]) {
    let is_excepted = |finding: &&Finding| exceptions.iter().any(|exception| exception.place == finding.place);
    let broken = findings.iter().filter(|finding| !is_excepted(finding));
    let broken: Vec<_> = broken
        .map(|finding| format!("{} {}", finding.place, finding.what))
        .collect();
    let is_found = |exception: &&Exception| findings.iter().any(|finding| finding.place == exception.place);
    let idle = exceptions
        .iter()
        .filter(|exception| !is_found(exception) || exception.reason.is_empty());
    let idle: Vec<_> = idle.map(|exception| exception.place).collect();
    assert!(
        broken.is_empty() && idle.is_empty(),
        "{rule}\n{} break the rule:\n  {}\n{} exceptions are none, or without a reason:\n  {}",
        broken.len(),
        broken.join("\n  "),
        idle.len(),
        idle.join("\n  ")
    );
}

#[test]
fn a_rule_is_broken_by_what_is_no_exception_and_by_exceptions_that_are_none() {
    let finding = |place: &str| Finding {
        place: place.to_owned(),
        what: "is wrong".to_owned(),
    };
    let passes = |findings: &[Finding], exceptions: &[Exception]| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| judge("a rule", findings, exceptions))).is_ok()
    };
    assert!(passes(&[], &[]));
    assert!(passes(&[finding("a")], &[exception("a", "because")]));
    assert!(!passes(&[finding("a")], &[]));
    assert!(!passes(&[finding("a")], &[exception("a", "")]));
    assert!(!passes(&[], &[exception("a", "because")]));
}

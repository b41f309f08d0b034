//! What the library costs programs that have no use for it.

use std::process::{Command, Stdio};

use crate::hosts::{Running, library};

const COST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/cost.py");
/// The limit in microseconds.
const LIMIT_US: i64 = 1_000;

#[test]
fn m_hr2_a_program_that_calls_no_socket_loses_less_than_a_millisecond_to_the_library() {
    let mut command = Command::new("python3");
    command.arg(COST).arg(library()).arg("/bin/true").stdout(Stdio::piped());
    let lost_us: i64 = Running::start(&mut command).text().trim().parse().unwrap();
    println!("a program loses {lost_us} µs");
    assert!(lost_us < LIMIT_US, "{lost_us} µs");
}

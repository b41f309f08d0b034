//! The programs that images are made with, such as apt and pip: each is run to its end, and its complaint becomes one line.

use std::io;
use std::process::{Command, Stdio};

/// Runs a program to its end; returns its output, or its complaint in one line.
pub(super) fn run(mut command: Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null()).output();
    let output = output.map_err(|error: io::Error| format!("{name} cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    // apt marks what matters with E:, pip with ERROR:, dpkg-deb prints one or two lines.
    let lines = || errors.lines().map(str::trim).filter(|line| !line.is_empty());
    let mark = |line| ["E: ", "ERROR: "].iter().find_map(|mark| str::strip_prefix(line, mark));
    let marked: Vec<&str> = lines().filter_map(mark).collect();
    let said = if marked.is_empty() {
        lines().collect::<Vec<_>>()
    } else {
        marked
    };
    Err(format!("{name} says: {}", said.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_quoted_in_one_line() {
        let mut sh = Command::new("sh");
        sh.args(["-c", "echo 'W: warned' >&2; echo 'E: broken' >&2; exit 1"]);
        assert_eq!(run(sh).unwrap_err(), "sh says: broken");
        assert!(
            run(Command::new("/no/such"))
                .unwrap_err()
                .starts_with("/no/such cannot be started")
        );
    }
}

//! Tools that measure inside guests: running them to their end, starting servers, parsing their output. This module
//! knows no lab and no setting; the caller decides what is measured.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::guest_channel::{Event, Exec, GuestChannel, Running};

/// Time that one tool may take before the measurement is given up.
pub const TOOL_PATIENCE: Duration = Duration::from_secs(60);

/// Parses the time in a line such as `64 bytes from 10.77.1.2: seq=0 ttl=64 time=1.234 ms`.
pub fn ping_ms(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once("time=")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Runs a tool to its end and returns its output.
pub fn output(channel: &GuestChannel, argv: &[&str]) -> Result<String> {
    let command = argv.join(" ");
    let output = channel
        .output(argv, TOOL_PATIENCE)
        .with_context(|| format!("`{command}` in a guest"))?;
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if !output.status.success() {
        bail!(
            "`{command}` in a guest: {}: {}",
            output.status,
            format!("{complained} {said}").trim()
        );
    }
    Ok(said.into_owned())
}

/// Starts a server in a guest and waits until it prints `word`.
pub fn start_server(channel: &GuestChannel, argv: &[&str], word: &str) -> Result<Running> {
    let command = argv.join(" ");
    let argv = argv.iter().map(|&word| word.to_owned()).collect();
    let mut running = channel.exec(&Exec {
        argv,
        ..Exec::default()
    })?;
    let deadline = Instant::now() + TOOL_PATIENCE;
    let mut said = String::new();
    while !said.contains(word) {
        let left = deadline.saturating_duration_since(Instant::now());
        match running
            .next(Some(left))
            .with_context(|| format!("`{command}` in a guest"))?
        {
            Event::Started { .. } => {}
            Event::Stdout(bytes) | Event::Stderr(bytes) => said += &String::from_utf8_lossy(&bytes),
            Event::Exited(status) => bail!("`{command}` in a guest: {status}: {}", said.trim()),
        }
    }
    Ok(running)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_lines_of_busybox_are_understood() {
        assert_eq!(
            ping_ms("64 bytes from 10.77.1.2: seq=0 ttl=64 time=1.234 ms"),
            Some(1.234)
        );
        assert_eq!(
            ping_ms("10 packets transmitted, 10 packets received, 0% packet loss"),
            None
        );
    }
}

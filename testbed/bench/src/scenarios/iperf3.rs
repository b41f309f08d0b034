//! The results of `iperf3`, for the comparisons that run it in guests.

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::Value;

/// Bytes of a datagram that, with its headers, makes the smallest Ethernet frame.
pub const DATAGRAM_LEN: u64 = 18;

/// The part of a stream that arrived.
#[derive(Clone, Debug, Serialize)]
pub struct Received {
    /// Duration of the stream in seconds, by the guest's clock.
    pub seconds: f64,
    /// Bytes that arrived, without headers.
    pub bytes: u64,
    /// Retransmitted segments; TCP only.
    pub retransmits: Option<u64>,
    /// Datagrams that arrived; UDP only.
    pub received: Option<u64>,
    /// Datagrams that were lost; UDP only.
    pub lost: Option<u64>,
}

/// Parses the JSON output of iperf3.
pub fn received(text: &str) -> Result<Received> {
    let report: Value = serde_json::from_str(text).context("iperf3 printed no JSON")?;
    if let Some(error) = report["error"].as_str() {
        bail!("iperf3: {error}");
    }
    let end = &report["end"];
    let received = &end["sum_received"];
    let figure = |value: &Value| {
        value
            .as_f64()
            .with_context(|| format!("iperf3 printed no result: {end}"))
    };
    let lost = received["lost_packets"].as_u64();
    let sent = received["packets"].as_u64();
    let arrived = sent.zip(lost).map(|(sent, lost)| sent.saturating_sub(lost));
    let bytes = match arrived {
        // Some versions of iperf3 report here what was sent over UDP.
        Some(arrived) => arrived * DATAGRAM_LEN,
        None => received["bytes"]
            .as_u64()
            .with_context(|| format!("iperf3 printed no result: {end}"))?,
    };
    ensure!(bytes > 0, "nothing arrived: {end}");
    Ok(Received {
        seconds: figure(&received["seconds"])?,
        bytes,
        retransmits: end["sum_sent"]["retransmits"].as_u64(),
        received: arrived,
        lost,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrived_counts_not_what_was_sent() {
        let text = r#"{"end":{"sum_sent":{"packets":10},"sum_received":{"seconds":2.5,"bytes":180,"packets":10,"lost_packets":3}}}"#;
        let udp = received(text).unwrap();
        assert_eq!(
            (udp.received, udp.lost, udp.bytes),
            (Some(7), Some(3), 7 * DATAGRAM_LEN)
        );
        let text = r#"{"end":{"sum_sent":{"retransmits":4},"sum_received":{"seconds":2.5,"bytes":9000}}}"#;
        let tcp = received(text).unwrap();
        assert_eq!((tcp.bytes, tcp.retransmits, tcp.received), (9000, Some(4), None));
    }

    #[test]
    fn a_test_that_failed_is_an_error() {
        assert!(received(r#"{"error":"control socket has closed unexpectedly"}"#).is_err());
        assert!(received("iperf3: error").is_err());
    }
}

//! What `esp_ping` says, in the words of `ping`.

use std::{fmt, net::IpAddr, time::Duration};

use ether::MacAddr;
use serde_json::{Value, json};
use weft_authority::esp::EspPong;

use super::Target;

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pong {
    number: u64,
    mac: MacAddr,
    mtu: u32,
    addresses: Vec<IpAddr>,
    round_trip_ms: f64,
}

impl Pong {
    pub(super) fn new(number: u64, pong: &EspPong) -> Self {
        Self {
            number,
            mac: MacAddr(pong.mac),
            mtu: pong.mtu,
            addresses: pong.addresses.clone(),
            round_trip_ms: pong.round_trip_ns as f64 / 1e6,
        }
    }
}

impl fmt::Display for Pong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pong from {}", self.mac)?;
        if let Some(first) = self.addresses.first() {
            write!(f, " ({first})")?;
        }
        write!(f, ": edp_seq={} mtu={} time=", self.number, self.mtu)?;
        // Three digits that count, as ping has them.
        match self.round_trip_ms {
            ms if ms < 1.0 => write!(f, "{ms:.3} ms"),
            ms if ms < 10.0 => write!(f, "{ms:.2} ms"),
            ms if ms < 100.0 => write!(f, "{ms:.1} ms"),
            ms => write!(f, "{ms:.0} ms"),
        }
    }
}

/// Sums over round trips, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    count: u64,
    min: f64,
    max: f64,
    sum: f64,
    squares: f64,
}

impl Sums {
    fn add(&mut self, ms: f64) {
        self.min = if self.count == 0 { ms } else { self.min.min(ms) };
        self.max = self.max.max(ms);
        self.count += 1;
        self.sum += ms;
        self.squares += ms * ms;
    }

    fn average(&self) -> f64 {
        self.sum / self.count as f64
    }

    /// The standard deviation, which ping calls `mdev`.
    fn deviation(&self) -> f64 {
        (self.squares / self.count as f64 - self.average().powi(2))
            .max(0.0)
            .sqrt()
    }
}

/// The summary.
#[derive(Clone, Debug)]
pub(super) struct Report {
    host: String,
    address: String,
    interface: String,
    pub(super) transmitted: u64,
    pub(super) time: Duration,
    sums: Sums,
    last: Option<Pong>,
}

impl Report {
    pub(super) fn new(host: &str, target: &Target) -> Self {
        Self {
            host: host.to_owned(),
            address: target.address(),
            interface: target.interface.name.clone(),
            transmitted: 0,
            time: Duration::ZERO,
            sums: Sums::default(),
            last: None,
        }
    }

    pub(super) fn received(&mut self, pong: Pong) {
        self.sums.add(pong.round_trip_ms);
        self.last = Some(pong);
    }

    pub(super) const fn has_answers(&self) -> bool {
        self.sums.count > 0
    }

    fn loss_percent(&self) -> f64 {
        let lost = self.transmitted.saturating_sub(self.sums.count);
        100.0 * lost as f64 / self.transmitted.max(1) as f64
    }

    pub(super) fn to_json(&self) -> String {
        let round_trip = self.has_answers().then(|| {
            json!({
                "min": self.sums.min,
                "avg": self.sums.average(),
                "max": self.sums.max,
                "mdev": self.sums.deviation(),
            })
        });
        let last = self.last.as_ref().map_or(
            Value::Null,
            |pong| json!({ "mac": pong.mac.to_string(), "mtu": pong.mtu, "addresses": pong.addresses }),
        );
        json!({
            "host": self.host,
            "address": self.address,
            "interface": self.interface,
            "transmitted": self.transmitted,
            "received": self.sums.count,
            "loss_percent": self.loss_percent(),
            "time_ms": self.time.as_millis() as u64,
            "round_trip_ms": round_trip,
            "peer": last,
        })
        .to_string()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let loss = format!("{:.4}", self.loss_percent());
        let loss = loss.trim_end_matches('0').trim_end_matches('.');
        write!(
            f,
            "\n--- {} ping statistics ---\n{} packets transmitted, {} received, {loss}% packet loss, time {}ms",
            self.host,
            self.transmitted,
            self.sums.count,
            self.time.as_millis()
        )?;
        if self.has_answers() {
            write!(
                f,
                "\nrtt min/avg/max/mdev = {:.3}/{:.3}/{:.3}/{:.3} ms",
                self.sums.min,
                self.sums.average(),
                self.sums.max,
                self.sums.deviation()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pong(number: u64, round_trip_ns: u64) -> Pong {
        let pong = EspPong {
            mac: [2, 0, 0, 0, 0, 9],
            round_trip_ns,
            mtu: 1500,
            addresses: vec![[10, 7, 0, 2].into()],
        };
        Pong::new(number, &pong)
    }

    #[test]
    fn answers_and_the_summary_read_as_pings() {
        let mut report = Report {
            host: "n2".to_owned(),
            address: "10.7.0.2".to_owned(),
            interface: "eth0".to_owned(),
            transmitted: 3,
            time: Duration::from_millis(2003),
            sums: Sums::default(),
            last: None,
        };
        assert!(
            report
                .to_string()
                .ends_with("3 packets transmitted, 0 received, 100% packet loss, time 2003ms")
        );
        for (ns, shown) in [
            (45_000, "0.045 ms"),
            (1_500_000, "1.50 ms"),
            (45_000_000, "45.0 ms"),
            (451_000_000, "451 ms"),
        ] {
            let text = pong(1, ns).to_string();
            assert_eq!(
                text,
                format!("pong from 02:00:00:00:00:09 (10.7.0.2): edp_seq=1 mtu=1500 time={shown}")
            );
        }
        report.received(pong(1, 1_000_000));
        report.received(pong(2, 3_000_000));
        let expected = "\n--- n2 ping statistics ---\n3 packets transmitted, 2 received, 33.3333% packet loss, time 2003ms\n\
                        rtt min/avg/max/mdev = 1.000/2.000/3.000/1.000 ms";
        assert_eq!(report.to_string(), expected);
        let json: Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(
            (json["received"].as_u64(), json["round_trip_ms"]["avg"].as_f64()),
            (Some(2), Some(2.0))
        );
        assert_eq!(json["peer"]["mac"], "02:00:00:00:00:09");
    }
}

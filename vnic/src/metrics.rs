//! Every port's counters in the text format of OpenMetrics, which Prometheus reads, over HTTP on a Unix socket or a TCP port.
//! Nothing is counted here: each request reads the counters that the control socket shows.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io, iter};

use crate::dataplane::Fabric;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use socket2::Socket;
use vnicd_protocol::{AdaptiveStats, Counts, PortInfo, PortStats, QueueStats};

use crate::control::server::{self, Next, Talk};
use crate::events::{EventThread, Subscription};
use crate::session::socket::{ClaimError, ClaimedSocket};

/// Permissions of the Unix socket.
const MODE: u32 = 0o600;

/// Serves metrics on a Unix socket.
///
/// # Errors
/// [`ClaimError`].
pub fn serve_unix(events: &EventThread, path: &Path, fabric: Fabric) -> Result<Subscription, ClaimError> {
    serve(events, ClaimedSocket::bind(path, Some(MODE))?, fabric)
}

/// Serves metrics on a TCP port; all who reach it may read them.
///
/// # Errors
/// [`ClaimError`].
pub fn serve_tcp(events: &EventThread, address: SocketAddr, fabric: Fabric) -> Result<Subscription, ClaimError> {
    let socket = ClaimedSocket::bind_tcp(address)?;
    tracing::info!("metrics on http://{}/metrics", socket.path().display());
    serve(events, socket, fabric)
}

fn serve(events: &EventThread, socket: ClaimedSocket, fabric: Fabric) -> Result<Subscription, ClaimError> {
    let mut registry = Registry::with_prefix("weft");
    registry.register_collector(Box::new(Ports(fabric)));
    let registry = Arc::new(registry);
    let welcome = move || Request {
        registry: Arc::clone(&registry),
        first_line: Vec::new(),
        len: 0,
    };
    server::start(events, socket, welcome)
}

/// What has come of a request, which ends with an empty line.
struct Request {
    registry: Arc<Registry>,
    first_line: Vec<u8>,
    len: usize,
}

impl Talk for Request {
    const NAME: &'static str = "metrics";
    /// A scraper or two, and a person.
    const CLIENTS_MAX: usize = 8;
    /// Of a whole request, too: what common scrapers send has a few hundred bytes.
    const LINE_LEN_MAX: usize = 8 << 10;
    const PATIENCE: Duration = Duration::from_secs(5);
    const IS_ASKED_AT_ONCE: bool = true;

    fn refusal(is_full: bool, sentence: &str) -> String {
        let status = if is_full {
            "503 Service Unavailable"
        } else {
            "400 Bad Request"
        };
        response(b"", status, "text/plain", &format!("{sentence}\n"))
    }

    fn line(&mut self, _: &Socket, line: &[u8], out: &mut Vec<u8>) -> io::Result<Next> {
        self.len += line.len() + b"\r\n".len();
        let answer = if self.len > Self::LINE_LEN_MAX {
            Self::refusal(false, "the request is longer than 8 KiB")
        } else if line.is_empty() {
            self.answer()?
        } else {
            if self.first_line.is_empty() {
                self.first_line.extend(line);
            }
            return Ok(Next::Line);
        };
        out.extend(answer.as_bytes());
        Ok(Next::End)
    }
}

impl Request {
    fn answer(&self) -> io::Result<String> {
        let mut words = self.first_line.split(|byte| *byte == b' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        // A query in the target selects nothing, and does no harm.
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        Ok(match (method, path) {
            (b"", _) => Self::refusal(false, "no HTTP request came"),
            (b"GET" | b"HEAD", b"/metrics" | b"/") => {
                let mut text = String::new();
                prometheus_client::encoding::text::encode(&mut text, &self.registry).map_err(io::Error::other)?;
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                response(method, "200 OK", kind, &text)
            }
            (b"GET" | b"HEAD", _) => response(method, "404 Not Found", "text/plain", "the metrics are at /metrics\n"),
            _ => {
                let kind = "text/plain\r\nAllow: GET, HEAD";
                response(method, "405 Method Not Allowed", kind, "only GET and HEAD are served\n")
            }
        })
    }
}

/// The answer to a request with `method`: HEAD is told all but the body (RFC 9110, 9.3.2).
fn response(method: &[u8], status: &str, kind: &str, body: &str) -> String {
    let len = body.len();
    let body = if method == b"HEAD" { "" } else { body };
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}")
}

/// Reads all ports whenever it is asked.
struct Ports(Fabric);

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ports")
    }
}

/// A table of metrics: name, help, label if there is one, and value.
macro_rules! rows {
    ($of:ident => $($name:literal $help:literal $(by $label:literal)?: $value:expr;)*) => {
        [$(($name, $help, $($label,)? |$of| $value)),*]
    };
}

/// Name, help and value of a metric that a port has once.
type Plain<T, V> = (&'static str, &'static str, fn(&T) -> V);

const COUNTERS: [Plain<PortStats, u64>; 30] = rows! { port =>
    "port_rx_frames" "Frames delivered to the guest": port.rx.frames;
    "port_rx_bytes" "Bytes delivered to the guest": port.rx.bytes;
    "port_tx_frames" "Frames taken from the guest": port.tx.frames;
    "port_tx_bytes" "Bytes taken from the guest": port.tx.bytes;
    "port_interrupts_decided" "Receive interrupts decided": port.interrupts.decided;
    "port_interrupts_suppressed" "Of these, unwanted by the guest": port.interrupts.suppressed;
    "port_interrupts_signalled" "Of these, signalled": port.interrupts.signalled;
    "port_interrupts_deferred" "Decisions put off by Stream coalescing": port.interrupts.deferred;
    "port_marked_packets" "Received packets that carried a mark": port.marked;
    "port_tx_interrupts_decided" "Transmit completions to tell": port.tx_interrupts.decided;
    "port_tx_interrupts_suppressed" "Of these, unwanted by the guest": port.tx_interrupts.suppressed;
    "port_tx_interrupts_signalled" "Of these, signalled": port.tx_interrupts.signalled;
    "port_kicks" "Notifications received from the guest": port.kicks;
    "port_copied_bytes" "Bytes of frames copied towards the guest": port.copied_bytes;
    "port_delivered_bytes" "Bytes of frames delivered to the guest": port.delivered_bytes;
    "port_polled_packets" "Packets that the guest had processed before any interrupt announced them": port.interrupts.polled;
    "port_watchdog_started" "Timers of the polling watchdog started by an arrival": port.watchdog.started;
    "port_watchdog_cancelled" "Expiries of the watchdog at which the guest had processed every packet": port.watchdog.cancelled;
    "port_watchdog_restarted_disabled" "Expiries of the watchdog with interrupts disabled": port.watchdog.restarted_disabled;
    "port_watchdog_restarted_progress" "Expiries of the watchdog after which the guest had made progress": port.watchdog.restarted_progress;
    "port_watchdog_restarted_pending" "Expiries of the watchdog with only unfinished DMAs left": port.watchdog.restarted_pending;
    "port_watchdog_fired" "Expiries of the watchdog that interrupted the guest": port.watchdog.fired;
    "port_timers_armed" "Timers that the guest armed on its card": port.timers.counters.armed;
    "port_timers_disarmed" "Timers that the guest disarmed on its card": port.timers.counters.disarmed;
    "port_timers_rung_once" "One-shot timers that rang": port.timers.counters.rung_once;
    "port_timers_clock_idle" "Ticks of clocks without a running timer": port.timers.counters.clocks.idle;
    "port_timers_clock_polled" "Ticks of clocks spared by a guest that polled": port.timers.counters.clocks.polled;
    "port_timers_clock_rung" "Ticks of clocks that rang": port.timers.counters.clocks.rung;
    "port_timers_clock_missed" "Ticks of clocks that the card missed": port.timers.counters.clocks.missed;
    "port_timers_lost" "Timers that rang without a receive buffer": port.timers.counters.lost;
};

const QUEUE_COUNTERS: [Plain<QueueStats, u64>; 3] = rows! { queue =>
    "queue_rx_frames" "Frames put into the receive queue": queue.frames;
    "queue_interrupts_decided" "Interrupts decided for the receive queue": queue.decided;
    "queue_interrupts_signalled" "Interrupts signalled for the receive queue": queue.signalled;
};

const STATES: [Plain<PortInfo, bool>; 3] = rows! { port =>
    "port_connected" "1 while a frontend is connected": port.connected;
    "port_link_up" "1 while both directions of the link are up": port.link_up;
    "port_failed" "1 while the port does not work": port.failed.is_some();
};

/// What a receive queue has while adaptive moderation is on.
const ADAPTIVE: [Plain<AdaptiveStats, u64>; 4] = rows! { queue =>
    "port_adaptive_delay_ns" "Coalescing delay in force": queue.state.delay_ns;
    "port_adaptive_packets_per_s" "Packets per second in the last whole sample": queue.state.packets_per_s;
    "port_adaptive_longer" "Times that the delay was made longer since adaptive moderation was selected": queue.state.longer;
    "port_adaptive_shorter" "Times that the delay was made shorter since adaptive moderation was selected": queue.state.shorter;
};

/// Name, help and label of a metric that a port has once per label value, and the counters by that value.
type Labelled = (&'static str, &'static str, &'static str, fn(&PortStats) -> &Counts);

const LABELLED: [Labelled; 14] = rows! { port =>
    "port_rx_drops" "Frames for the guest that were dropped" by "reason": &port.rx.dropped;
    "port_tx_drops" "Frames from the guest that were dropped" by "reason": &port.tx.dropped;
    "port_interrupts" "Receive interrupts decided" by "reason": &port.interrupts.by_reason;
    "port_rule_violations" "Rules of the ring that the guest broke" by "rule": &port.rule_violations;
    "port_session_violations" "Sessions that ended because a message broke a rule" by "rule": &port.session_violations;
    "port_steered" "Frames steered to receive queues" by "by": &port.steering;
    "port_misordered" "Marks of medium messages" by "kind": &port.misorder;
    "port_control_frames" "In-band control frames" by "kind": &port.control;
    "port_host_state" "How the guest's state was known when a watchdog or clock asked" by "by": &port.host_record;
    "port_multicast" "Multicast packets in the card" by "event": &port.multicast;
    "port_multicast_refused" "Frames between cards that were refused" by "reason": &port.multicast_refused;
    "port_link_to_guest" "The link towards the guest" by "event": &port.link.to_guest;
    "port_link_from_guest" "The link from the guest" by "event": &port.link.from_guest;
    "port_switch" "The port in its switch" by "event": &port.switch;
};

/// One value of one port, with the label that tells it from others of its metric.
type Sample<'a> = (&'a str, Option<(&'static str, Cow<'a, str>)>, u64);

impl Collector for Ports {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let names = self.0.port_names();
        let stats: Vec<PortStats> = names.iter().filter_map(|name| self.0.port_stats(name)).collect();
        let infos: Vec<PortInfo> = names.iter().filter_map(|name| self.0.port_info(name)).collect();
        let mut counters =
            |name, help, samples: Vec<Sample<'_>>| family(&mut encoder, MetricType::Counter, name, help, samples);
        let each = |value: &dyn Fn(&PortStats) -> u64| -> Vec<Sample<'_>> {
            stats
                .iter()
                .map(|port| (port.name.as_str(), None, value(port)))
                .collect()
        };
        for (name, help, value) in COUNTERS {
            counters(name, help, each(&value))?;
        }
        for (name, help, label, counts) in LABELLED {
            counters(name, help, counted(&stats, label, |port| Some(counts(port))))?;
        }
        for (name, help, value) in QUEUE_COUNTERS {
            let queues = |port: &'_ PortStats| port.queues.iter().map(|queue| (queue.queue, value(queue))).collect();
            counters(name, help, by_queue(&stats, queues))?;
        }
        let copies = counted(&stats, "event", |port| port.copy_engine.as_ref());
        counters("port_copy_engine", "The copy engine of a self-connected card", copies)?;
        let help = "Translations of a guest that may be behind an IOMMU of its own";
        let translations = counted(&stats, "event", |port| port.translation.as_ref());
        counters("port_translation", help, translations)?;
        let mut gauges =
            |name, help, samples: Vec<Sample<'_>>| family(&mut encoder, MetricType::Gauge, name, help, samples);
        let waiting = each(&|port| port.interrupts.unannounced);
        gauges(
            "port_unannounced_packets",
            "Packets that wait for their interrupt",
            waiting,
        )?;
        for (name, help, value) in ADAPTIVE {
            let queues = |port: &PortStats| port.adaptive.iter().map(|queue| (queue.queue, value(queue))).collect();
            gauges(name, help, by_queue(&stats, queues))?;
        }
        for (name, help, value) in STATES {
            let states = infos
                .iter()
                .map(|port| (port.name.as_str(), None, u64::from(value(port))));
            gauges(name, help, states.collect())?;
        }
        Ok(())
    }
}

/// Counts by name, with that as the label.
fn counted<'a>(
    stats: &'a [PortStats],
    label: &'static str,
    counts: impl Fn(&'a PortStats) -> Option<&'a Counts>,
) -> Vec<Sample<'a>> {
    let of_port = |port: &'a PortStats| {
        let counts = counts(port).into_iter().flatten();
        counts.map(move |(key, value)| (port.name.as_str(), Some((label, key.as_str().into())), *value))
    };
    stats.iter().flat_map(of_port).collect()
}

/// Values of queues, with the number of the queue as the label.
fn by_queue(stats: &[PortStats], values: impl Fn(&PortStats) -> Vec<(u16, u64)>) -> Vec<Sample<'_>> {
    let of_port = |port| {
        let values = values(port).into_iter();
        values.map(move |(queue, value)| (port.name.as_str(), Some(("queue", queue.to_string().into())), value))
    };
    stats.iter().flat_map(of_port).collect()
}

fn family(
    encoder: &mut DescriptorEncoder<'_>,
    kind: MetricType,
    name: &str,
    help: &str,
    samples: Vec<Sample<'_>>,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (port, label, value) in &samples {
        let label = label.iter().map(|(name, value)| (*name, &**value));
        let labels: Vec<_> = iter::once(("port", *port)).chain(label).collect();
        let mut metric = family.encode_family(&labels)?;
        match kind {
            MetricType::Gauge => metric.encode_gauge(value)?,
            _ => metric.encode_counter::<NoLabelSet, u64, u64>(value, None)?,
        }
    }
    Ok(())
}

//! Every port's counters in the text format of OpenMetrics, which Prometheus reads, over HTTP on a Unix socket or a TCP port.
//! Nothing is counted here: each request reads the counters that the control socket shows.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::dataplane::Fabric;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use socket2::Socket;
use vnicd_protocol::{AdaptiveStats, Counts, PortInfo, PortStats, QueueStats};

use crate::control::server::{Place, Server, Service};
use crate::session::socket::{ClaimError, ClaimedSocket};

/// Longest request: what common scrapers send has a few hundred bytes.
const REQUEST_LEN_MAX: usize = 8 << 10;

/// Clients that may be connected together: a scraper or two, and a person.
const CLIENTS_MAX: usize = 8;

/// How long a client may take for its request, and for reading the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Permissions of the Unix socket.
const MODE: u32 = 0o600;

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The path cannot be claimed.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The address cannot be had.
    #[error("cannot listen on {address}: {reason}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        reason: io::Error,
    },
    /// The system gives no thread.
    #[error("cannot serve metrics")]
    System(#[from] io::Error),
}

/// Serves metrics on a Unix socket.
///
/// # Errors
/// [`MetricsError`].
pub fn serve_unix(path: &Path, fabric: Fabric) -> Result<Server, MetricsError> {
    serve(Place::Unix(ClaimedSocket::bind(path, Some(MODE))?), fabric)
}

/// Serves metrics on a TCP port; all who reach it may read them.
///
/// # Errors
/// [`MetricsError`].
pub fn serve_tcp(address: SocketAddr, fabric: Fabric) -> Result<Server, MetricsError> {
    let listener = TcpListener::bind(address).map_err(|reason| MetricsError::Address { address, reason })?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!("metrics on http://{address}/metrics");
    }
    serve(Place::Tcp(listener), fabric)
}

fn serve(place: Place, fabric: Fabric) -> Result<Server, MetricsError> {
    let mut registry = Registry::with_prefix("weft");
    registry.register_collector(Box::new(Ports(fabric)));
    let registry = Arc::new(registry);
    let service = Service {
        name: "metrics",
        clients_max: CLIENTS_MAX,
        full: b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        serve: move |socket: &Socket| {
            // A client that goes away in the middle is its own affair.
            if let Err(error) = serve_client(socket, &registry) {
                tracing::debug!("a metrics client went away: {error}");
            }
        },
    };
    Ok(Server::start(place, service)?)
}

fn serve_client(mut socket: &Socket, registry: &Registry) -> io::Result<()> {
    socket.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    socket.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        let len = socket.read(&mut piece)?;
        if len == 0 || request.len() + len > REQUEST_LEN_MAX {
            return respond(
                socket,
                b"",
                "400 Bad Request",
                "text/plain",
                "no HTTP request of up to 8 KiB came\n",
            );
        }
        request.extend_from_slice(&piece[..len]);
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    // A query in the target selects nothing, and does no harm.
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let respond = |status, kind, body: &str| respond(socket, method, status, kind, body);
    match (method, path) {
        (b"GET" | b"HEAD", b"/metrics" | b"/") => {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, registry).map_err(io::Error::other)?;
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            respond("200 OK", kind, &text)
        }
        (b"GET" | b"HEAD", _) => respond("404 Not Found", "text/plain", "the metrics are at /metrics\n"),
        _ => respond("405 Method Not Allowed", "text/plain", "only GET and HEAD are served\n"),
    }
}

/// The answer to a request with `method`: HEAD is told all but the body (RFC 9110, 9.3.2).
fn respond(mut socket: &Socket, method: &[u8], status: &str, kind: &str, body: &str) -> io::Result<()> {
    let allow = if status.starts_with("405") {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{allow}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes())?;
    if method == b"HEAD" {
        return Ok(());
    }
    socket.write_all(body.as_bytes())
}

/// Reads all ports whenever it is asked.
struct Ports(Fabric);

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ports")
    }
}

/// Name, help and value of a metric that a port has once.
type Plain<T, V> = (&'static str, &'static str, fn(&T) -> V);

const COUNTERS: [Plain<PortStats, u64>; 30] = [
    ("port_rx_frames", "Frames delivered to the guest", |port| port.rx.frames),
    ("port_rx_bytes", "Bytes delivered to the guest", |port| port.rx.bytes),
    ("port_tx_frames", "Frames taken from the guest", |port| port.tx.frames),
    ("port_tx_bytes", "Bytes taken from the guest", |port| port.tx.bytes),
    ("port_interrupts_decided", "Receive interrupts decided", |port| {
        port.interrupts.decided
    }),
    (
        "port_interrupts_suppressed",
        "Of these, unwanted by the guest",
        |port| port.interrupts.suppressed,
    ),
    ("port_interrupts_signalled", "Of these, signalled", |port| {
        port.interrupts.signalled
    }),
    (
        "port_interrupts_deferred",
        "Decisions put off by Stream coalescing",
        |port| port.interrupts.deferred,
    ),
    ("port_marked_packets", "Received packets that carried a mark", |port| {
        port.marked
    }),
    ("port_tx_interrupts_decided", "Transmit completions to tell", |port| {
        port.tx_interrupts.decided
    }),
    (
        "port_tx_interrupts_suppressed",
        "Of these, unwanted by the guest",
        |port| port.tx_interrupts.suppressed,
    ),
    ("port_tx_interrupts_signalled", "Of these, signalled", |port| {
        port.tx_interrupts.signalled
    }),
    ("port_kicks", "Notifications received from the guest", |port| port.kicks),
    (
        "port_copied_bytes",
        "Bytes of frames copied towards the guest",
        |port| port.copied_bytes,
    ),
    (
        "port_delivered_bytes",
        "Bytes of frames delivered to the guest",
        |port| port.delivered_bytes,
    ),
    (
        "port_polled_packets",
        "Packets that the guest had processed before any interrupt announced them",
        |port| port.interrupts.polled,
    ),
    (
        "port_watchdog_started",
        "Timers of the polling watchdog started by an arrival",
        |port| port.watchdog.started,
    ),
    (
        "port_watchdog_cancelled",
        "Expiries of the watchdog at which the guest had processed every packet",
        |port| port.watchdog.cancelled,
    ),
    (
        "port_watchdog_restarted_disabled",
        "Expiries of the watchdog with interrupts disabled",
        |port| port.watchdog.restarted_disabled,
    ),
    (
        "port_watchdog_restarted_progress",
        "Expiries of the watchdog after which the guest had made progress",
        |port| port.watchdog.restarted_progress,
    ),
    (
        "port_watchdog_restarted_pending",
        "Expiries of the watchdog with only unfinished DMAs left",
        |port| port.watchdog.restarted_pending,
    ),
    (
        "port_watchdog_fired",
        "Expiries of the watchdog that interrupted the guest",
        |port| port.watchdog.fired,
    ),
    ("port_timers_armed", "Timers that the guest armed on its card", |port| {
        port.timers.counters.armed
    }),
    (
        "port_timers_disarmed",
        "Timers that the guest disarmed on its card",
        |port| port.timers.counters.disarmed,
    ),
    ("port_timers_rung_once", "One-shot timers that rang", |port| {
        port.timers.counters.rung_once
    }),
    (
        "port_timers_clock_idle",
        "Ticks of clocks without a running timer",
        |port| port.timers.counters.clocks.idle,
    ),
    (
        "port_timers_clock_polled",
        "Ticks of clocks spared by a guest that polled",
        |port| port.timers.counters.clocks.polled,
    ),
    ("port_timers_clock_rung", "Ticks of clocks that rang", |port| {
        port.timers.counters.clocks.rung
    }),
    (
        "port_timers_clock_missed",
        "Ticks of clocks that the card missed",
        |port| port.timers.counters.clocks.missed,
    ),
    (
        "port_timers_lost",
        "Timers that rang without a receive buffer",
        |port| port.timers.counters.lost,
    ),
];

const QUEUE_COUNTERS: [Plain<QueueStats, u64>; 3] = [
    ("queue_rx_frames", "Frames put into the receive queue", |queue| {
        queue.frames
    }),
    (
        "queue_interrupts_decided",
        "Interrupts decided for the receive queue",
        |queue| queue.decided,
    ),
    (
        "queue_interrupts_signalled",
        "Interrupts signalled for the receive queue",
        |queue| queue.signalled,
    ),
];

const STATES: [Plain<PortInfo, bool>; 3] = [
    ("port_connected", "1 while a frontend is connected", |port| {
        port.connected
    }),
    ("port_link_up", "1 while both directions of the link are up", |port| {
        port.link_up
    }),
    ("port_failed", "1 while the port does not work", |port| {
        port.failed.is_some()
    }),
];

/// What a receive queue has while adaptive moderation is on.
const ADAPTIVE: [Plain<AdaptiveStats, u64>; 4] = [
    ("port_adaptive_delay_ns", "Coalescing delay in force", |queue| {
        queue.state.delay_ns
    }),
    (
        "port_adaptive_packets_per_s",
        "Packets per second in the last whole sample",
        |queue| queue.state.packets_per_s,
    ),
    (
        "port_adaptive_longer",
        "Times that the delay was made longer since adaptive moderation was selected",
        |queue| queue.state.longer,
    ),
    (
        "port_adaptive_shorter",
        "Times that the delay was made shorter since adaptive moderation was selected",
        |queue| queue.state.shorter,
    ),
];

/// Name, help and label of a metric that a port has once per label value, and the counters by that value.
type Labelled = (&'static str, &'static str, &'static str, fn(&PortStats) -> &Counts);

const LABELLED: [Labelled; 14] = [
    (
        "port_rx_drops",
        "Frames for the guest that were dropped",
        "reason",
        |port| &port.rx.dropped,
    ),
    (
        "port_tx_drops",
        "Frames from the guest that were dropped",
        "reason",
        |port| &port.tx.dropped,
    ),
    ("port_interrupts", "Receive interrupts decided", "reason", |port| {
        &port.interrupts.by_reason
    }),
    (
        "port_rule_violations",
        "Rules of the ring that the guest broke",
        "rule",
        |port| &port.rule_violations,
    ),
    (
        "port_session_violations",
        "Sessions that ended because a message broke a rule",
        "rule",
        |port| &port.session_violations,
    ),
    ("port_steered", "Frames steered to receive queues", "by", |port| {
        &port.steering
    }),
    ("port_misordered", "Marks of medium messages", "kind", |port| {
        &port.misorder
    }),
    ("port_control_frames", "In-band control frames", "kind", |port| {
        &port.control
    }),
    (
        "port_host_state",
        "How the guest's state was known when a watchdog or clock asked",
        "by",
        |port| &port.host_record,
    ),
    ("port_multicast", "Multicast packets in the card", "event", |port| {
        &port.multicast
    }),
    (
        "port_multicast_refused",
        "Frames between cards that were refused",
        "reason",
        |port| &port.multicast_refused,
    ),
    ("port_link_to_guest", "The link towards the guest", "event", |port| {
        &port.link.to_guest
    }),
    ("port_link_from_guest", "The link from the guest", "event", |port| {
        &port.link.from_guest
    }),
    ("port_switch", "The port in its switch", "event", |port| &port.switch),
];

/// One value of one port, with the label that tells it from others of its metric.
type Sample<'a> = (&'a str, Option<(&'static str, &'a str)>, u64);

impl Collector for Ports {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let names = self.0.port_names();
        let stats: Vec<PortStats> = names.iter().filter_map(|name| self.0.port_stats(name)).collect();
        let infos: Vec<PortInfo> = names.iter().filter_map(|name| self.0.port_info(name)).collect();
        for (name, help, value) in COUNTERS {
            let samples = stats.iter().map(|port| (port.name.as_str(), None, value(port)));
            counters(&mut encoder, name, help, samples)?;
        }
        for (name, help, label, counts) in LABELLED {
            let samples = stats.iter().flat_map(|port| {
                let counts = counts(port).iter();
                counts.map(move |(key, value)| (port.name.as_str(), Some((label, key.as_str())), *value))
            });
            counters(&mut encoder, name, help, samples)?;
        }
        for (name, help, value) in QUEUE_COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (port, queue) in stats
                .iter()
                .flat_map(|port| port.queues.iter().map(move |queue| (port, queue)))
            {
                let number = queue.queue.to_string();
                family
                    .encode_family(&[("port", port.name.as_str()), ("queue", number.as_str())])?
                    .encode_counter::<NoLabelSet, u64, u64>(&value(queue), None)?;
            }
        }
        let copies = stats.iter().flat_map(|port| {
            let counts = port.copy_engine.iter().flatten();
            counts.map(move |(key, value)| (port.name.as_str(), Some(("event", key.as_str())), *value))
        });
        counters(
            &mut encoder,
            "port_copy_engine",
            "The copy engine of a self-connected card",
            copies,
        )?;
        let translations = stats.iter().flat_map(|port| {
            let counts = port.translation.iter().flatten();
            counts.map(move |(key, value)| (port.name.as_str(), Some(("event", key.as_str())), *value))
        });
        counters(
            &mut encoder,
            "port_translation",
            "Translations of a guest that may be behind an IOMMU of its own",
            translations,
        )?;
        let waiting = "Packets that wait for their interrupt";
        let samples = stats
            .iter()
            .map(|port| (port.name.as_str(), port.interrupts.unannounced));
        gauges(&mut encoder, "port_unannounced_packets", waiting, samples)?;
        for (name, help, value) in ADAPTIVE {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (port, queue) in stats
                .iter()
                .flat_map(|port| port.adaptive.iter().map(move |queue| (port, queue)))
            {
                let number = queue.queue.to_string();
                let labels = [("port", port.name.as_str()), ("queue", number.as_str())];
                family.encode_family(&labels)?.encode_gauge(&value(queue))?;
            }
        }
        for (name, help, value) in STATES {
            let samples = infos.iter().map(|port| (port.name.as_str(), u64::from(value(port))));
            gauges(&mut encoder, name, help, samples)?;
        }
        Ok(())
    }
}

fn gauges<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl Iterator<Item = (&'a str, u64)>,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (port, value) in samples {
        family.encode_family(&[("port", port)])?.encode_gauge(&value)?;
    }
    Ok(())
}

fn counters<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl Iterator<Item = Sample<'a>>,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (port, label, value) in samples {
        match label {
            None => {
                family
                    .encode_family(&[("port", port)])?
                    .encode_counter::<NoLabelSet, u64, u64>(&value, None)?;
            }
            Some(label) => {
                family
                    .encode_family(&[("port", port), label])?
                    .encode_counter::<NoLabelSet, u64, u64>(&value, None)?;
            }
        }
    }
    Ok(())
}

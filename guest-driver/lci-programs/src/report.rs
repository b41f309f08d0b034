//! What a run has shown, for people and for programs.

use std::fmt;

use serde::Serialize;

/// The figures of a program, in nanoseconds and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "program", rename_all = "kebab-case")]
pub enum Figures {
    /// Packets between two nodes.
    PingPong {
        /// Bytes of a packet.
        bytes: usize,
        /// Median of half the round trips.
        half_round_trip_ns: u64,
    },
    /// Broadcasts.
    Broadcast {
        /// Bytes of a message.
        bytes: usize,
        /// Messages of each part.
        rounds: u64,
        /// Median of the time until all had answered a message.
        answered_ns: u64,
        /// Time of all messages one after the other, until all had answered.
        stream_ns: u64,
    },
    /// A node that computes while another broadcasts.
    Absent {
        /// Packets.
        packets: u64,
        /// Time for which the node computed.
        compute_ns: u64,
        /// Packets that some node did not get as they were sent.
        lost: u64,
        /// Packets that each of the other nodes got meanwhile, at least.
        received_meanwhile: u64,
        /// The longest time that the sender waited.
        waited_ns: u64,
    },
    /// All shortest paths; the result is right.
    Asp {
        /// Vertices.
        vertices: usize,
        /// Time of the computation.
        took_ns: u64,
    },
    /// QR factorization; the result is right.
    Qr {
        /// Columns.
        columns: usize,
        /// Time of the computation.
        took_ns: u64,
    },
    /// Bodies; the result is right.
    BarnesHut {
        /// Bodies.
        bodies: usize,
        /// Steps.
        steps: u64,
        /// Time of the computation.
        took_ns: u64,
    },
    /// Fourier transform; the result is right.
    Fft {
        /// Points.
        points: usize,
        /// Time of the computation.
        took_ns: u64,
    },
    /// Radix sort; the result is right.
    Radix {
        /// Keys.
        keys: usize,
        /// Time of the computation.
        took_ns: u64,
    },
}

impl fmt::Display for Figures {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns as f64 / 1e6;
        let us = |ns: u64| ns as f64 / 1e3;
        match *self {
            Self::PingPong {
                bytes,
                half_round_trip_ns,
            } => write!(
                out,
                "ping-pong of {bytes} bytes: half a round trip takes {:.2} µs (median)",
                us(half_round_trip_ns)
            ),
            Self::Broadcast {
                bytes,
                rounds,
                answered_ns,
                stream_ns,
            } => write!(
                out,
                "broadcast of {bytes} bytes: answered by all after {:.1} µs (median), {:.1} MB/s",
                us(answered_ns),
                bytes as f64 * rounds as f64 * 1e3 / stream_ns.max(1) as f64
            ),
            Self::Absent {
                packets,
                compute_ns,
                lost,
                received_meanwhile,
                waited_ns,
            } => write!(
                out,
                "{packets} broadcasts while node 1 computes for {:.0} ms: {lost} lost, the others received {received_meanwhile} meanwhile, \
                 and the sender waited for {:.0} ms",
                ms(compute_ns),
                ms(waited_ns)
            ),
            Self::Asp { vertices, took_ns } => {
                write!(
                    out,
                    "shortest paths of {vertices} vertices: right, {:.1} ms",
                    ms(took_ns)
                )
            }
            Self::Qr { columns, took_ns } => write!(out, "QR of {columns} columns: right, {:.1} ms", ms(took_ns)),
            Self::BarnesHut { bodies, steps, took_ns } => {
                write!(out, "{steps} steps of {bodies} bodies: right, {:.1} ms", ms(took_ns))
            }
            Self::Fft { points, took_ns } => {
                write!(
                    out,
                    "Fourier transform of {points} points: right, {:.1} ms",
                    ms(took_ns)
                )
            }
            Self::Radix { keys, took_ns } => write!(out, "radix sort of {keys} keys: right, {:.1} ms", ms(took_ns)),
        }
    }
}

/// A node's part in a run, as JSON has it: one object, in one line, of each node. Figures are those of node 0.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The node.
    pub node: usize,
    /// Nodes of the program.
    pub nodes: usize,
    /// `host`, `mixed` or `ni`.
    pub implementation: &'static str,
    /// `packets`, `binary` or `binomial`.
    pub forwarding: &'static str,
    /// What was measured.
    #[serde(flatten)]
    pub figures: Figures,
    /// Time of LCI's work on frames that came.
    pub busy_ns: u64,
    /// Copies of others' packets that this node passed on.
    pub forwarded: u64,
    /// Frames that this node sent again.
    pub retransmitted: u64,
    /// Frames that the network has lost though it is to lose none.
    pub missed: u64,
    /// Interrupts of this node, by its card or by the thread that stands in for it.
    pub interrupts: u64,
    /// The card has interrupted, which knows the node's exact state.
    pub by_card: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_json_names_the_program_and_its_figures() {
        let figures = Figures::Absent {
            packets: 1000,
            compute_ns: 2_000_000_000,
            lost: 0,
            received_meanwhile: 340,
            waited_ns: 1_900_000_000,
        };
        let report = Report {
            node: 0,
            nodes: 4,
            implementation: "ni",
            forwarding: "packets",
            figures,
            busy_ns: 5,
            forwarded: 0,
            retransmitted: 0,
            missed: 0,
            interrupts: 0,
            by_card: false,
        };
        let line = serde_json::to_string(&report).unwrap();
        for part in [
            r#""program":"absent""#,
            r#""implementation":"ni""#,
            r#""received_meanwhile":340"#,
            r#""forwarded":0"#,
        ] {
            assert!(line.contains(part), "{line}");
        }
        let said = figures.to_string();
        assert!(said.contains("0 lost") && said.contains("for 1900 ms"), "{said}");
    }
}

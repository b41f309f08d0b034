//! The table that `esp_ss` prints, in the words of `ss`.

use super::{
    holders::Holder,
    socket::{Connection, Listener},
};

const COLUMNS: usize = 5;
const NAMES: [&str; COLUMNS] = ["State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port"];

/// A line of the table, and the one below it.
struct Row {
    cells: [String; COLUMNS],
    users: String,
    details: String,
}

fn users(holders: Option<&[Holder]>) -> String {
    let Some(holders @ [_, ..]) = holders else {
        return String::new();
    };
    let one = |holder: &Holder| {
        let fd = holder.fd.map_or_else(String::new, |fd| format!(",fd={fd}"));
        format!("({:?},pid={}{fd})", holder.name, holder.pid)
    };
    format!("users:({})", holders.iter().map(one).collect::<Vec<_>>().join(","))
}

/// The figures of a connection, those left out that say nothing.
fn details(connection: &Connection) -> String {
    let Connection {
        round_trip,
        windows,
        traffic,
        ..
    } = connection;
    let mut text = format!("esp rto:{}", round_trip.rto_ms);
    if round_trip.rtt_ms > 0.0 {
        text += &format!(" rtt:{}/{}", round_trip.rtt_ms, round_trip.rtt_var_ms);
    }
    text += &format!(
        " mss:{} cwnd:{} peer_wnd:{}",
        windows.mss, windows.cwnd, windows.peer_wnd
    );
    for (name, count) in [
        ("bytes_sent", traffic.bytes_sent),
        ("bytes_acked", traffic.bytes_acked),
        ("bytes_received", traffic.bytes_received),
        ("segs_out", traffic.segs_out),
        ("segs_in", traffic.segs_in),
    ] {
        text += &format!(" {name}:{count}");
    }
    for (name, ms) in [("lastsnd", traffic.last_sent_ms), ("lastrcv", traffic.last_received_ms)] {
        text += &ms.map_or_else(String::new, |ms| format!(" {name}:{ms}"));
    }
    text += &format!(" retrans:{}/{}", traffic.retrans_now, traffic.retrans);
    if traffic.out_of_order > 0 {
        text += &format!(" ooo:{}", traffic.out_of_order);
    }
    if round_trip.min_rtt_ms > 0.0 {
        text += &format!(" minrtt:{}", round_trip.min_rtt_ms);
    }
    for (is_so, word) in [(connection.frozen, " frozen"), (connection.moving, " moving")] {
        text += if is_so { word } else { "" };
    }
    text
}

impl From<&Connection> for Row {
    fn from(connection: &Connection) -> Self {
        Self {
            cells: [
                connection.state.to_owned(),
                connection.recv_q.to_string(),
                connection.send_q.to_string(),
                connection.ends.local.clone(),
                connection.ends.peer.clone(),
            ],
            users: users(connection.users.as_deref()),
            details: details(connection),
        }
    }
}

impl From<&Listener> for Row {
    fn from(listener: &Listener) -> Self {
        let any = if listener.local.starts_with('[') {
            "[::]:*"
        } else {
            "0.0.0.0:*"
        };
        Self {
            cells: [
                "LISTEN".to_owned(),
                listener.unclaimed.to_string(),
                "0".to_owned(),
                listener.local.clone(),
                any.to_owned(),
            ],
            users: users(listener.users.as_deref()),
            details: format!("esp dev:{} half_open:{}", listener.interface, listener.half_open),
        }
    }
}

/// Formats the table, its columns as wide as what is in them.
pub(super) fn text(listeners: &[Listener], connections: &[Connection], omitted: u64, has_header: bool) -> String {
    let rows: Vec<Row> = listeners
        .iter()
        .map(Row::from)
        .chain(connections.iter().map(Row::from))
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row.cells[column].len());
        cells.chain([NAMES[column].len()]).max().unwrap_or(0)
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let line = |cells: [&str; COLUMNS], last: &str| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$} "));
        (padded.collect::<String>() + last).trim_end().to_owned()
    };
    let mut lines = Vec::new();
    if has_header {
        lines.push(line(NAMES, "Process"));
    }
    for row in &rows {
        lines.push(line(row.cells.each_ref().map(String::as_str), &row.users));
        lines.push(format!("\t {}", row.details));
    }
    if omitted > 0 {
        lines.push(format!(
            "{omitted} more connections did not fit into the reports of their programs"
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use esp::{Address, Info, State};
    use ether::{MacAddr, Time};
    use serde_json::Value;
    use weft_authority::esp::{EspConnection, EspListening};

    use super::*;
    use crate::esp_ss::holders::Holders;

    fn reported() -> EspConnection {
        EspConnection {
            info: Info {
                state: State::Established,
                reason: None,
                peer: Address {
                    mac: MacAddr([2, 0, 0, 0, 0, 9]),
                    port: 4097,
                },
                local_port: 4100,
                listened_port: 5201,
                is_frozen: false,
                is_moving: false,
                unread: 17,
                unsent: 1000,
                unacknowledged: 2000,
                payload_max: 1487,
                round_trip_ns: 85_250,
                round_trip_variation_ns: 12_000,
                round_trip_min_ns: 60_100,
                timeout_ns: 1_200_000,
                backoff: 1,
                congestion_window: 64,
                peer_window: 256,
                out_of_order: 0,
                bytes_sent: 5000,
                bytes_received: 13,
                packets_sent: 14,
                packets_received: 15,
                retransmitted: 3,
                sent_at: Time::from_nanos(7_000_000),
                heard_at: Time::from_nanos(8_000_000),
            },
            local: Some("10.77.1.1:35855".parse().unwrap()),
            peer: Some("10.77.1.2:5201".parse().unwrap()),
            socket: 0,
        }
    }

    fn shown(reported: &EspConnection) -> Connection {
        Connection::new("eth0", reported, 10_000_000, &Holders::default())
    }

    #[test]
    fn connections_are_shown_as_ss_shows_them() {
        let mut connection = shown(&reported());
        connection.users = Some(vec![Holder {
            name: "iperf3".to_owned(),
            pid: 84,
            fd: Some(5),
        }]);
        let listener = EspListening {
            id: 1,
            address: "[::]:5201".parse().unwrap(),
            only_v6: false,
            pid: 1,
            user: 0,
            half_open: 2,
            unclaimed: 1,
        };
        let listener = Listener::new("eth0", &listener, &Holders::default());
        assert_eq!(
            text(&[listener], &[connection], 0, true),
            "\
State  Recv-Q Send-Q Local Address:Port Peer Address:Port Process
LISTEN 1      0      [::]:5201          [::]:*
\t esp dev:eth0 half_open:2
ESTAB  17     3000   10.77.1.1:35855    10.77.1.2:5201    users:((\"iperf3\",pid=84,fd=5))
\t esp rto:1.2 rtt:0.085/0.012 mss:1487 cwnd:64 peer_wnd:256 bytes_sent:5000 bytes_acked:3000 bytes_received:13 segs_out:14 \
segs_in:15 lastsnd:3 lastrcv:2 retrans:1/3 minrtt:0.06"
        );
    }

    #[test]
    fn what_is_not_known_is_left_out_and_what_did_not_fit_is_said() {
        let mut half_open = reported();
        (half_open.local, half_open.peer) = (None, None);
        let info = &mut half_open.info;
        (info.state, info.round_trip_ns, info.round_trip_min_ns) = (State::SynReceived, 0, 0);
        (info.heard_at, info.is_frozen, info.out_of_order) = (Time::ZERO, true, 4);
        assert_eq!(
            text(&[], &[shown(&half_open)], 2, false),
            "\
SYN-RECV 17     3000   *:4100             [02:00:00:00:00:09]:4097
\t esp rto:1.2 mss:1487 cwnd:64 peer_wnd:256 bytes_sent:5000 bytes_acked:3000 bytes_received:13 segs_out:14 segs_in:15 \
lastsnd:3 retrans:1/3 ooo:4 frozen
2 more connections did not fit into the reports of their programs"
        );
        assert_eq!(text(&[], &[], 0, false), "");
    }

    #[test]
    fn programs_that_read_the_table_get_numbers() {
        let json: Value = serde_json::to_value(shown(&reported())).unwrap();
        assert_eq!((&json["state"], &json["send_q"]), (&"ESTAB".into(), &3000.into()));
        assert_eq!((&json["rtt_ms"], &json["last_sent_ms"]), (&0.085.into(), &3.into()));
        assert_eq!(json["users"], Value::Null);
    }
}

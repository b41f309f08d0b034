//! What a program reports about its connections, in memory that the authority gave it: written by the program's library, read by tools.
//!
//! The program is not trusted: a reader checks all that it reads, and a program that writes nonsense is shown with nonsense.
//!
//! The memory begins with a header of [`HEADER_LEN`] bytes: a number that is odd while a report is written and another one after each
//! report, how many connections follow, and how many did not fit. Each connection has [`RECORD_LEN`] bytes. All numbers are
//! little-endian.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    os::fd::AsFd,
};

use esp::{Address, Info, State};
use ether::{MacAddr, Time};
use rustix::io::{pread, pwrite};

use super::REPORT_LEN;

/// Bytes of the header.
pub const HEADER_LEN: usize = 16;
/// Bytes of a connection.
pub const RECORD_LEN: usize = 173;
/// Connections that fit into a program's memory.
pub const RECORDS_MAX: usize = (REPORT_LEN - HEADER_LEN) / RECORD_LEN;
/// A report that is written again and again while it is read is taken as it is after so many attempts.
const ATTEMPTS: usize = 100;

/// The states, by their number in a report.
const STATES: [State; 10] = [
    State::SynSent,
    State::SynReceived,
    State::Established,
    State::FinWait1,
    State::FinWait2,
    State::CloseWait,
    State::Closing,
    State::LastAck,
    State::TimeWait,
    State::Closed,
];

/// A connection, as a program or the authority reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EspConnection {
    /// What the engine knows of it. Times are those of the clock `CLOCK_MONOTONIC`; the reason of its end is not reported.
    pub info: Info,
    /// The program's own address, if it has one.
    pub local: Option<SocketAddr>,
    /// The peer's address, if it is known.
    pub peer: Option<SocketAddr>,
    /// The number of the local socket that programs have for it, by which the kernel's lists of their descriptors name it; 0 for none.
    pub socket: u64,
}

/// The connections of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EspReport {
    /// Those that the report has.
    pub connections: Vec<EspConnection>,
    /// Connections for which there was no room.
    pub omitted: u32,
}

/// Puts fields one behind the other.
struct Put<'a>(&'a mut Vec<u8>);

impl Put<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn short(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    fn count(&mut self, value: usize) {
        self.bytes(&u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes());
    }

    fn long(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// An address that is not known is the unspecified one with port 0.
    fn address(&mut self, address: Option<SocketAddr>) {
        let ip = match address.map(|address| address.ip()) {
            Some(IpAddr::V4(ip)) => ip.to_ipv6_mapped(),
            Some(IpAddr::V6(ip)) => ip,
            None => Ipv6Addr::UNSPECIFIED,
        };
        self.bytes(&ip.octets());
        self.short(address.map_or(0, |address| address.port()));
    }
}

/// Takes fields one after the other.
struct Take<'a>(&'a [u8]);

impl Take<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes().map(|[byte]| byte)
    }

    fn short(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    fn count(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn address(&mut self) -> Option<Option<SocketAddr>> {
        let ip = Ipv6Addr::from(self.bytes::<16>()?);
        let port = self.short()?;
        Some((!ip.is_unspecified() || port != 0).then(|| SocketAddr::new(ip.to_canonical(), port)))
    }
}

impl EspConnection {
    /// Appends the connection to a report.
    pub fn put(&self, report: &mut Vec<u8>) {
        let info = &self.info;
        let mut put = Put(report);
        let state = STATES.iter().position(|state| *state == info.state).unwrap_or(0);
        let flags = u8::from(info.is_frozen) | u8::from(info.is_moving) << 1;
        put.bytes(&[state as u8, flags, info.backoff]);
        put.bytes(&info.peer.mac.0);
        for port in [info.peer.port, info.local_port, info.listened_port, info.payload_max] {
            put.short(port);
        }
        put.address(self.local);
        put.address(self.peer);
        for count in [
            info.unread,
            info.unsent,
            info.unacknowledged,
            info.out_of_order,
            info.congestion_window as usize,
            info.peer_window as usize,
        ] {
            put.count(count);
        }
        for value in [
            self.socket,
            info.round_trip_ns,
            info.round_trip_variation_ns,
            info.round_trip_min_ns,
            info.timeout_ns,
            info.bytes_sent,
            info.bytes_received,
            info.packets_sent,
            info.packets_received,
            info.retransmitted,
            info.sent_at.as_nanos(),
            info.heard_at.as_nanos(),
        ] {
            put.long(value);
        }
    }

    /// Reads a connection of a report; `None` for what none can be.
    fn take(record: &[u8]) -> Option<Self> {
        let mut take = Take(record);
        let state = *STATES.get(usize::from(take.byte()?))?;
        let (flags, backoff) = (take.byte()?, take.byte()?);
        let mac = MacAddr(take.bytes()?);
        let [port, local_port, listened_port, payload_max] =
            [take.short()?, take.short()?, take.short()?, take.short()?];
        let (local, peer) = (take.address()?, take.address()?);
        let [unread, unsent, unacknowledged, out_of_order] =
            [take.count()?, take.count()?, take.count()?, take.count()?].map(|count| count as usize);
        let (congestion_window, peer_window) = (take.count()?, take.count()?);
        let socket = take.long()?;
        let info = Info {
            state,
            reason: None,
            peer: Address { mac, port },
            local_port,
            listened_port,
            is_frozen: flags & 1 != 0,
            is_moving: flags & 2 != 0,
            unread,
            unsent,
            unacknowledged,
            payload_max,
            round_trip_ns: take.long()?,
            round_trip_variation_ns: take.long()?,
            round_trip_min_ns: take.long()?,
            timeout_ns: take.long()?,
            backoff,
            congestion_window,
            peer_window,
            out_of_order,
            bytes_sent: take.long()?,
            bytes_received: take.long()?,
            packets_sent: take.long()?,
            packets_received: take.long()?,
            retransmitted: take.long()?,
            sent_at: Time::from_nanos(take.long()?),
            heard_at: Time::from_nanos(take.long()?),
        };
        Some(Self {
            info,
            local,
            peer,
            socket,
        })
    }
}

fn header(number: u64, count: usize, omitted: usize) -> [u8; HEADER_LEN] {
    let mut bytes = Vec::with_capacity(HEADER_LEN);
    let mut put = Put(&mut bytes);
    put.long(number);
    put.count(count);
    put.count(omitted);
    let mut header = [0; HEADER_LEN];
    header.copy_from_slice(&bytes);
    header
}

fn write_at(memory: impl AsFd, bytes: &[u8], at: usize) -> io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        match pwrite(&memory, &bytes[written..], (at + written) as u64)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            len => written += len,
        }
    }
    Ok(())
}

/// Writes a report. `number` is a multiple of 2, and another one than the last report's; `records` has whole connections
/// ([`EspConnection::put`]), at most [`RECORDS_MAX`].
///
/// # Errors
/// The system's.
pub fn write_report(memory: impl AsFd, number: u64, records: &[u8], omitted: usize) -> io::Result<()> {
    let count = records.len() / RECORD_LEN;
    write_at(&memory, &header(number | 1, count, omitted), 0)?;
    write_at(&memory, records, HEADER_LEN)?;
    write_at(&memory, &header(number, count, omitted), 0)
}

fn read_at(memory: impl AsFd, room: &mut [u8], at: usize) -> io::Result<usize> {
    let mut got = 0;
    while got < room.len() {
        match pread(&memory, &mut room[got..], (at + got) as u64)? {
            0 => break,
            len => got += len,
        }
    }
    Ok(got)
}

/// Reads a report: as many connections as a program can have written, whatever the memory says.
///
/// # Errors
/// The system's.
pub fn read_report(memory: impl AsFd) -> io::Result<EspReport> {
    let (mut records, mut omitted) = (Vec::new(), 0);
    for _ in 0..ATTEMPTS {
        let mut head = [0; HEADER_LEN];
        read_at(&memory, &mut head, 0)?;
        let mut take = Take(&head);
        let number = take.long().unwrap_or(0);
        let count = (take.count().unwrap_or(0) as usize).min(RECORDS_MAX);
        omitted = take.count().unwrap_or(0);
        records.resize(count * RECORD_LEN, 0);
        let got = read_at(&memory, &mut records, HEADER_LEN)?;
        records.truncate(got);
        let mut again = [0; HEADER_LEN];
        read_at(&memory, &mut again, 0)?;
        if number % 2 == 0 && again == head {
            break;
        }
        std::thread::yield_now();
    }
    let connections = records.chunks_exact(RECORD_LEN).filter_map(EspConnection::take);
    Ok(EspReport {
        connections: connections.collect(),
        omitted,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    fn connection(number: u64) -> EspConnection {
        EspConnection {
            info: Info {
                state: STATES[number as usize % STATES.len()],
                reason: None,
                peer: Address {
                    mac: MacAddr([2, 0, 0, 0, 0, 9]),
                    port: 4097,
                },
                local_port: 5000,
                listened_port: 80,
                is_frozen: number.is_multiple_of(2),
                is_moving: number.is_multiple_of(3),
                unread: 1,
                unsent: 2,
                unacknowledged: 3,
                payload_max: 1487,
                round_trip_ns: 4 + number,
                round_trip_variation_ns: 5,
                round_trip_min_ns: 6,
                timeout_ns: 7,
                backoff: 8,
                congestion_window: 9,
                peer_window: 10,
                out_of_order: 11,
                bytes_sent: 1 << 40,
                bytes_received: 13,
                packets_sent: 14,
                packets_received: 15,
                retransmitted: 16,
                sent_at: Time::from_nanos(17),
                heard_at: Time::from_nanos(18),
            },
            local: Some("10.0.0.1:5000".parse().unwrap()),
            peer: (number != 3).then(|| "[fd00::2]:80".parse().unwrap()),
            socket: 4711,
        }
    }

    fn memory() -> File {
        let file = File::from(memfd_create("report", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(REPORT_LEN as u64).unwrap();
        file
    }

    fn records(count: u64) -> Vec<u8> {
        let mut records = Vec::new();
        (0..count).for_each(|number| connection(number).put(&mut records));
        records
    }

    #[test]
    fn a_report_is_read_as_it_was_written_also_a_shorter_one_behind_a_longer_one() {
        let memory = memory();
        assert_eq!(read_report(&memory).unwrap(), EspReport::default());
        assert_eq!(records(1).len(), RECORD_LEN);
        for (number, count) in [(2, 20), (4, 3), (6, RECORDS_MAX as u64), (8, 0)] {
            write_report(&memory, number, &records(count), 7).unwrap();
            let report = read_report(&memory).unwrap();
            assert_eq!(report.connections, (0..count).map(connection).collect::<Vec<_>>());
            assert_eq!(report.omitted, 7);
        }
    }

    #[test]
    fn a_lying_report_is_bounded_and_shows_what_can_be_a_connection_alone() {
        let memory = memory();
        // More connections than there is room for, and never finished.
        write_at(&memory, &header(1, usize::MAX, 0), 0).unwrap();
        let report = read_report(&memory).unwrap();
        assert_eq!(report.connections.len(), RECORDS_MAX);
        // No state has this number.
        let mut lies = records(3);
        lies[RECORD_LEN] = 200;
        write_report(&memory, 2, &lies, 0).unwrap();
        assert_eq!(
            read_report(&memory).unwrap().connections,
            [connection(0), connection(2)]
        );
        // Shorter memory than a program has.
        memory.set_len(HEADER_LEN as u64 + 5).unwrap();
        write_at(&memory, &header(2, 2, 1), 0).unwrap();
        assert_eq!(read_report(&memory).unwrap().connections, []);
        // Any bytes at all.
        let mut byte = 1_u32;
        let noise: Vec<u8> = (0..REPORT_LEN)
            .map(|_| {
                byte = byte.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (byte >> 24) as u8
            })
            .collect();
        write_at(&memory, &noise, 0).unwrap();
        assert!(read_report(&memory).unwrap().connections.len() <= RECORDS_MAX);
    }
}

//! The functions of `mx_raw.h`: whole frames, for mapping daemons. Needs the capability for packet sockets; the peer table is
//! the authority's, and so is the word who has the one raw endpoint of a board.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::c_void,
    io::IoSlice,
    os::fd::{AsFd, AsRawFd},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use ether::{ETHERNET_HEADER_LEN, EtherType};
use mxoe::wire::PacketType;
use netif::{AfPacket, AfPacketOptions, Instruction, Interest, Netif, NetifError, PreparedSocket, Wake};
use omx::Board;
use omxd::{OmxdError, Session};

use crate::{
    boundary::{both_interfaces, c_functions},
    calls::{board, initialized, mac_of},
    codes,
    fault::{Fault, Outcome},
    types::{CParam, Flavor, List, Out, Text},
};

const NO_EVENT: i32 = 0;
const SEND_COMPLETE: i32 = 1;
const RECV_COMPLETE: i32 = 2;
/// Sends whose completion was not taken, at most.
const COMPLETIONS_MAX: usize = 1024;
/// A thread that waits lets others use the endpoint this often.
const WAIT_SLICE: Duration = Duration::from_millis(10);
/// `MX_SPEED_10G`.
const SPEED_10G: u32 = 1;

/// Offset of a frame's type, whose highest bit is a mark (mxoe-wire 2).
const TYPE_AT: u32 = 16;
const TYPE_BITS: u32 = 0x7f;
/// Longest raw frame that is received, in bytes (mxoe-wire 9.1).
const RAW_LEN_MAX: u32 = 1024;

/// Passes raw frames and no others: those of messages are nobody's business here.
fn raw_frames() -> [Instruction; 7] {
    [
        Instruction::load_len(),
        Instruction::if_at_least(RAW_LEN_MAX + 1, 4, 0),
        Instruction::load_byte(TYPE_AT),
        Instruction::and(TYPE_BITS),
        Instruction::if_equal(PacketType::Raw.code() as u32, 0, 1),
        Instruction::pass(),
        Instruction::drop(),
    ]
}

struct Raw {
    board: Board,
    port: AfPacket,
    completed: VecDeque<u64>,
    /// It stands for the raw endpoint; `None` while the authority is away.
    session: Option<Session>,
}

impl Raw {
    /// Has the raw endpoint again when the authority was away. Frames come and go meanwhile.
    fn keep(&mut self) {
        if self.session.as_ref().is_some_and(|session| !session.is_gone()) {
            return;
        }
        let back = Session::connect_to_running(self.board.interface()).ok().flatten();
        self.session = back.filter(|session| session.open_raw().is_ok());
    }
}

/// Open ones by their names, which are never 0.
static OPEN: Mutex<BTreeMap<usize, Raw>> = Mutex::new(BTreeMap::new());

fn table() -> MutexGuard<'static, BTreeMap<usize, Raw>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(number: u32, out: Out<usize>) -> Outcome {
    initialized()?;
    let board = board(number)?;
    let unusable = |error: OmxdError| Fault::of_board(&board, error.into());
    let session = Session::connect(board.interface()).map_err(unusable)?;
    session.open_raw().map_err(unusable)?;
    let refused = |error| {
        Fault::new(match error {
            NetifError::NoPrivilege { .. } => codes::ACCESS_DENIED,
            NetifError::NoSuchInterface { .. } => codes::BOARD_NOT_FOUND,
            _ => codes::NO_SYSTEM_RESOURCES,
        })
    };
    let options = AfPacketOptions::default();
    let socket = PreparedSocket::new(&board.interface().name, EtherType::MXOE, &options, &raw_frames());
    let port = AfPacket::from_prepared(socket.map_err(refused)?).map_err(refused)?;
    let raw = Raw {
        board,
        port,
        completed: VecDeque::new(),
        session: Some(session),
    };
    let mut table = table();
    let name = table.keys().next_back().map_or(1, |last| last + 1);
    table.insert(name, raw);
    out.put(name);
    Ok(())
}

fn close(name: usize) -> u32 {
    match table().remove(&name) {
        Some(_) => codes::SUCCESS,
        None => codes::BAD_ENDPOINT,
    }
}

/// A call on a raw endpoint; nothing goes through the error handler.
fn with(name: usize, body: impl FnOnce(&mut Raw) -> Outcome) -> u32 {
    let mut table = table();
    let outcome = table
        .get_mut(&name)
        .ok_or_else(|| Fault::new(codes::BAD_ENDPOINT))
        .and_then(|raw| {
            raw.keep();
            body(raw)
        });
    code(outcome)
}

fn code(outcome: Outcome) -> u32 {
    match outcome {
        Ok(()) => codes::SUCCESS,
        Err(fault) => codes::return_code(Flavor::Mx, fault.code),
    }
}

fn add_peer(name: usize, id: u64) -> u32 {
    with(name, |raw| {
        let mac = mac_of(id).ok_or_else(|| Fault::new(codes::NIC_ID_NOT_FOUND))?;
        raw.board.add_peer(mac)?;
        Ok(())
    })
}

fn set_name(name: usize, peer: Option<u64>, text: Text) -> u32 {
    with(name, |raw| {
        let text = text.to_string().ok_or_else(|| Fault::new(codes::BAD_INFO_ADDRESS))?;
        let peer = match peer {
            None => None,
            Some(id) => Some(mac_of(id).ok_or_else(|| Fault::new(codes::NIC_ID_NOT_FOUND))?),
        };
        Ok(raw.board.set_name(peer, &text)?)
    })
}

/// Where an event goes.
#[derive(Clone, Copy)]
struct Event {
    port: Out<u32>,
    context: Out<u64>,
    buffer: Out<u8>,
    /// Room before, bytes of the frame after.
    bytes: Out<u32>,
    status: Out<i32>,
}

/// The next event, if there is one now.
fn next(raw: &mut Raw, event: Event) -> Outcome<bool> {
    if let Some(context) = raw.completed.pop_front() {
        event.context.put(context);
        event.status.put(SEND_COMPLETE);
        return Ok(true);
    }
    let frame = raw.port.poll_receive();
    let Some(frame) = frame.map_err(|_| Fault::new(codes::NO_SYSTEM_RESOURCES))? else {
        return Ok(false);
    };
    let room = event.bytes.get().unwrap_or(0) as usize;
    let len = frame.len().min(room);
    event.buffer.put_all(&frame[..len]);
    event.bytes.put(len as u32);
    event.port.put(0);
    event.status.put(RECV_COMPLETE);
    Ok(true)
}

fn wait(name: usize, event: Event, timeout: Duration) -> u32 {
    let deadline = Instant::now() + timeout;
    event.status.put(NO_EVENT);
    loop {
        let mut over = true;
        let code = with(name, |raw| {
            if next(raw, event)? {
                return Ok(());
            }
            let until = deadline.min(Instant::now() + WAIT_SLICE);
            let woken = raw.port.wait(Interest::Receive, until, None);
            over = !matches!(woken, Ok(Wake::Ready)) && Instant::now() >= deadline;
            Ok(())
        });
        if code != codes::SUCCESS || over || event.status.get() != Some(NO_EVENT) {
            return code;
        }
    }
}

fn send(name: usize, buffer: Out<u8>, len: u32, context: u64) -> u32 {
    with(name, |raw| {
        let len = len as usize;
        if buffer.is_null() || len < ETHERNET_HEADER_LEN || raw.completed.len() >= COMPLETIONS_MAX {
            return Err(Fault::new(codes::NO_RESOURCES));
        }
        let frame: Vec<u8> = (0..len).filter_map(|at| buffer.at(at).get()).collect();
        match raw.port.send(&[IoSlice::new(&frame)]) {
            Ok(true) => {
                raw.completed.push_back(context);
                Ok(())
            }
            Ok(false) => Err(Fault::new(codes::NO_RESOURCES)),
            Err(_) => Err(Fault::new(codes::BAD_ERROR)),
        }
    })
}

// The four that programs of both interfaces link; Open-MX's names are in no header.
both_interfaces! {
    fn (mx_raw_open_endpoint, omx_raw_open_endpoint)(
        board: u32,
        _params: List<CParam>,
        _count: u32,
        endpoint: Out<usize>,
    ) |_flavor, _name| {
        code(open(board, endpoint))
    }

    fn (mx_raw_close_endpoint, omx_raw_close_endpoint)(endpoint: usize) |_flavor, _name| {
        close(endpoint)
    }

    fn (mx_raw_send, omx__raw_send)(
        endpoint: usize,
        _port: u32,
        _route: Out<c_void>,
        _route_len: u32,
        buffer: Out<c_void>,
        len: u32,
        context: Out<c_void>,
    ) |_flavor, _name| {
        send(endpoint, buffer.bytes(), len, context.bits())
    }

    fn (mx_raw_next_event, omx__raw_next_event)(
        endpoint: usize,
        port: Out<u32>,
        context: Out<u64>,
        buffer: Out<c_void>,
        bytes: Out<u32>,
        timeout_ms: u32,
        status: Out<i32>,
    ) |_flavor, _name| {
        let event = Event { port, context, buffer: buffer.bytes(), bytes, status };
        wait(endpoint, event, Duration::from_millis(timeout_ms.into()))
    }
}

c_functions! {
    fn mx_raw_handle(endpoint: usize) -> i32 {
        table().get(&endpoint).map_or(-1, |raw| raw.port.as_fd().as_raw_fd())
    }

    fn mx_raw_set_route_begin(endpoint: usize) -> u32 {
        with(endpoint, |_| Ok(()))
    }

    fn mx_raw_set_route_end(endpoint: usize) -> u32 {
        with(endpoint, |_| Ok(()))
    }

    fn mx_raw_set_route_mag(
        endpoint: usize,
        id: u64,
        _route: Out<c_void>,
        _len: u32,
        _in_port: u32,
        _out_port: u32,
        _host_type: u32,
        _mag: u32,
    ) -> u32 {
        add_peer(endpoint, id)
    }

    fn mx_raw_set_route(
        endpoint: usize,
        id: u64,
        _route: Out<c_void>,
        _len: u32,
        _in_port: u32,
        _out_port: u32,
        _host_type: u32,
    ) -> u32 {
        add_peer(endpoint, id)
    }

    fn mx_raw_clear_routes(endpoint: usize, _id: u64, _port: u32) -> u32 {
        with(endpoint, |_| Ok(()))
    }

    /// Peers stay in the table: others may have their numbers.
    fn mx_raw_remove_peer(endpoint: usize, _id: u64) -> u32 {
        with(endpoint, |_| Ok(()))
    }

    /// The table has no versions: it grows while it is used.
    fn mx_raw_set_map_version(
        endpoint: usize,
        _port: u32,
        _mapper: u64,
        _version: u32,
        _nodes: u32,
        _complete: u32,
    ) -> u32 {
        with(endpoint, |_| Ok(()))
    }

    fn mx_raw_num_ports(endpoint: usize, ports: Out<u32>) -> u32 {
        with(endpoint, |_| {
            ports.put(1);
            Ok(())
        })
    }

    fn mx_raw_line_speed(endpoint: usize, speed: Out<u32>) -> u32 {
        with(endpoint, |_| {
            speed.put(SPEED_10G);
            Ok(())
        })
    }

    fn mx_raw_set_hostname(endpoint: usize, name: Text) -> u32 {
        set_name(endpoint, None, name)
    }

    fn mx_raw_set_peer_name(endpoint: usize, id: u64, name: Text) -> u32 {
        set_name(endpoint, Some(id), name)
    }

    /// Queries are answered by the authority.
    fn mx_raw_set_nic_reply_info(endpoint: usize, _info: Out<c_void>, _len: u32) -> u32 {
        with(endpoint, |_| Ok(()))
    }
}

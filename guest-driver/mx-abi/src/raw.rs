//! The functions of `mx_raw.h`: whole frames, for mapping daemons. They need the capability for packet sockets. The
//! peer table belongs to the authority, which also decides which program has the only raw endpoint of a board.

use std::{ffi::c_void, time::Duration};

use ether::ETHERNET_HEADER_LEN;

use crate::{
    boundary::{both_interfaces, c_functions},
    calls::{board, initialized, mac_of},
    codes,
    fault::{Fault, Outcome},
    maps::{self, Map},
    raw_endpoint::{self, RawEndpoint, RawEvent},
    types::{CParam, Flavor, List, Out, Text},
};

const NO_EVENT: i32 = 0;
const SEND_COMPLETE: i32 = 1;
const RECV_COMPLETE: i32 = 2;
/// `MX_SPEED_10G`.
const SPEED_10G: u32 = 1;

fn open(number: u32, out: Out<usize>) -> Outcome {
    initialized()?;
    let endpoint = RawEndpoint::open(board(number)?)?;
    out.put(raw_endpoint::name(endpoint));
    Ok(())
}

/// Runs a call on a raw endpoint; nothing goes through the error handler.
fn with(name: usize, body: impl FnOnce(&RawEndpoint) -> Outcome) -> u32 {
    code(raw_endpoint::named(name).and_then(|endpoint| {
        endpoint.keep()?;
        body(&endpoint)
    }))
}

fn code(outcome: Outcome) -> u32 {
    match outcome {
        Ok(()) => codes::SUCCESS,
        Err(fault) => codes::return_code(Flavor::Mx, fault.code),
    }
}

fn add_peer(name: usize, id: u64) -> u32 {
    with(name, |endpoint| {
        let mac = mac_of(id).ok_or_else(|| Fault::new(codes::NIC_ID_NOT_FOUND))?;
        endpoint.board().add_peer(mac)?;
        Ok(())
    })
}

fn set_name(name: usize, peer: Option<u64>, text: Text) -> u32 {
    with(name, |endpoint| {
        let text = text.to_string().ok_or_else(|| Fault::new(codes::BAD_INFO_ADDRESS))?;
        let peer = match peer {
            None => None,
            Some(id) => Some(mac_of(id).ok_or_else(|| Fault::new(codes::NIC_ID_NOT_FOUND))?),
        };
        Ok(endpoint.board().set_name(peer, &text)?)
    })
}

/// The places where the parts of an event go.
#[derive(Clone, Copy)]
struct Event {
    port: Out<u32>,
    context: Out<u64>,
    buffer: Out<u8>,
    /// The room for the frame before the call, and its length after it.
    bytes: Out<u32>,
    status: Out<i32>,
}

impl Event {
    fn put(self, event: RawEvent<'_>) {
        match event {
            RawEvent::Sent(context) => {
                self.context.put(context);
                self.status.put(SEND_COMPLETE);
            }
            RawEvent::Received(frame) => {
                let room = self.bytes.get().unwrap_or(0) as usize;
                let len = frame.len().min(room);
                self.buffer.put_all(&frame[..len]);
                self.bytes.put(len as u32);
                self.port.put(0);
                self.status.put(RECV_COMPLETE);
            }
        }
    }
}

fn wait(name: usize, event: Event, timeout: Duration) -> u32 {
    event.status.put(NO_EVENT);
    code(raw_endpoint::named(name).and_then(|endpoint| endpoint.wait(timeout, |found| event.put(found))))
}

fn send(name: usize, buffer: Out<u8>, len: u32, context: u64) -> u32 {
    code(raw_endpoint::named(name).and_then(|endpoint| {
        let len = len as usize;
        if buffer.is_null() || len < ETHERNET_HEADER_LEN {
            return Err(Fault::new(codes::NO_RESOURCES));
        }
        let frame: Vec<u8> = (0..len).filter_map(|at| buffer.at(at).get()).collect();
        endpoint.send(&frame, context)
    }))
}

// These four are linked by programs of both interfaces; Open-MX's names are in no header.
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
        code(raw_endpoint::forget(endpoint).map(|endpoint| endpoint.close()))
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
        raw_endpoint::named(endpoint).map_or(-1, |endpoint| endpoint.handle())
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

    /// Peers stay in the table, because other programs may have their numbers.
    fn mx_raw_remove_peer(endpoint: usize, _id: u64) -> u32 {
        with(endpoint, |_| Ok(()))
    }

    fn mx_raw_set_map_version(
        endpoint: usize,
        _port: u32,
        mapper: u64,
        version: u32,
        nodes: u32,
        complete: u32,
    ) -> u32 {
        with(endpoint, |endpoint| {
            let mapper = mac_of(mapper).ok_or_else(|| Fault::new(codes::NIC_ID_NOT_FOUND))?;
            let complete = complete != 0;
            maps::set(endpoint.board(), Map { mapper, version, hosts: nodes, complete });
            Ok(())
        })
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

    /// The authority answers queries.
    fn mx_raw_set_nic_reply_info(endpoint: usize, _info: Out<c_void>, _len: u32) -> u32 {
        with(endpoint, |_| Ok(()))
    }
}

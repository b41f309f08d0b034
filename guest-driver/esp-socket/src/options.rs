//! Options of connections. The TCP socket that the program made keeps them and checks them; what ESP knows better is put over it.

use std::{
    ffi::{c_int, c_void},
    os::fd::AsRawFd,
    sync::atomic::Ordering,
};

use libc::{socklen_t, timeval};

use crate::{errno::Errno, stream::Stream};

/// Reads an option.
///
/// # Safety
/// `value` has the room that `len` says.
///
/// # Errors
/// As `getsockopt(2)` over TCP.
pub unsafe fn get(
    stream: &Stream,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Result<(), Errno> {
    let plain = stream.plain.as_raw_fd();
    // SAFETY: the caller's promise.
    if unsafe { libc::syscall(libc::SYS_getsockopt, plain, level, option, value, len) } < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the kernel wrote as many bytes.
    let written = unsafe { *len } as usize;
    if (level, option) == (libc::SOL_SOCKET, libc::SO_ERROR) && written == size_of::<c_int>() {
        let error = stream.host.run(|state, _| {
            let error = state.connection(stream.id).error.take();
            state.show(stream.id, false);
            error
        });
        // SAFETY: the length was checked.
        unsafe { value.cast::<c_int>().write_unaligned(error.map_or(0, |error| error.0)) };
    }
    if (level, option) == (libc::IPPROTO_TCP, libc::TCP_INFO) {
        // SAFETY: the kernel filled `written` bytes, which are now changed.
        overlay(stream, unsafe { std::slice::from_raw_parts_mut(value.cast(), written) });
    }
    if (level, option) == (libc::IPPROTO_TCP, libc::TCP_MAXSEG)
        && written == size_of::<c_int>()
        && let Ok(info) = stream.host.lock().engine.info(stream.id)
    {
        // SAFETY: the length was checked.
        unsafe { value.cast::<c_int>().write_unaligned(c_int::from(info.payload_max)) };
    }
    Ok(())
}

/// Sets an option.
///
/// # Safety
/// `value` points to `len` bytes.
///
/// # Errors
/// As `setsockopt(2)` over TCP.
pub unsafe fn set(
    stream: &Stream,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: socklen_t,
) -> Result<(), Errno> {
    let plain = stream.plain.as_raw_fd();
    // SAFETY: the caller's promise.
    if unsafe { libc::syscall(libc::SYS_setsockopt, plain, level, option, value, len) } < 0 {
        return Err(Errno::last());
    }
    let limit = match (level, option) {
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => &stream.receive_limit_ns,
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => &stream.send_limit_ns,
        (libc::IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_CORK) => {
            // What waits for more goes now.
            stream.host.run(|state, now| state.engine.push(stream.id, now).ok());
            return Ok(());
        }
        _ => return Ok(()),
    };
    // SAFETY: the kernel found a time there.
    let time = unsafe { value.cast::<timeval>().read_unaligned() };
    limit.store(ns_of(time), Ordering::Relaxed);
    Ok(())
}

/// Returns a limit in nanoseconds.
pub(crate) fn ns_of(time: timeval) -> u64 {
    let seconds = time.tv_sec.max(0).cast_unsigned();
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(time.tv_usec.max(0).cast_unsigned() * 1000)
}

/// Puts what the engine knows into a `struct tcp_info`, as far as it is long.
fn overlay(stream: &Stream, bytes: &mut [u8]) {
    let state = stream.host.lock();
    let Ok(info) = state.engine.info(stream.id) else {
        return;
    };
    let connection = state.connections.get(&stream.id);
    let is = |what: fn(&crate::connection::Connection) -> bool| connection.is_some_and(what);
    // The kernel's numbers: established, closing on either side, close.
    let tcp_state = match (is(|c| c.is_ended), is(|c| c.is_over()), is(|c| c.is_shut)) {
        (true, _, _) => 7,
        (_, true, true) => 9,
        (_, true, false) => 8,
        (_, false, true) => 5,
        (_, false, false) => 1,
    };
    let us = |ns: u64| u32::try_from(ns / 1000).unwrap_or(u32::MAX).to_ne_bytes();
    if let Some(place) = bytes.first_mut() {
        *place = tcp_state;
    }
    let mut put = |at: usize, value: &[u8]| {
        if let Some(place) = bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    };
    let payload = u32::from(info.payload_max).to_ne_bytes();
    put(8, &us(info.timeout_ns));
    put(16, &payload);
    put(20, &payload);
    put(24, &(info.unacknowledged as u32).to_ne_bytes());
    put(68, &us(info.round_trip_ns));
    put(72, &us(info.round_trip_variation_ns));
    put(80, &info.congestion_window.to_ne_bytes());
    put(84, &payload);
    put(100, &(info.retransmitted as u32).to_ne_bytes());
    put(120, &info.bytes_sent.to_ne_bytes());
    put(128, &info.bytes_received.to_ne_bytes());
    put(136, &(info.packets_sent as u32).to_ne_bytes());
    put(140, &(info.packets_received as u32).to_ne_bytes());
    put(144, &(info.unsent as u32).to_ne_bytes());
    put(148, &us(info.round_trip_min_ns));
}

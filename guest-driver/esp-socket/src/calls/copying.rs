//! Calls that copy between connections and files or pipes.

use std::os::fd::RawFd;

use libc::{c_int, c_uint, iovec, off_t};

use super::{receive, send};
use crate::{errno::Errno, stream::Stream, system};

/// Bytes that `sendfile` and `splice` copy at a time.
const COPY_LEN: usize = 128 << 10;

/// Sends bytes of a file.
///
/// # Safety
/// `offset` points to an offset or is null.
///
/// # Errors
/// As `sendfile(2)`.
pub unsafe fn send_file(stream: &Stream, from: RawFd, offset: *mut off_t, count: usize) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    let mut offset = unsafe { offset.as_mut() };
    let mut buffer = vec![0; COPY_LEN.min(count)];
    let mut done = 0;
    while done < count {
        let want = buffer.len().min(count - done);
        let want = match room(stream, want, 0) {
            Ok(room) => room,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        let at = match &offset {
            Some(offset) => **offset,
            None => {
                // SAFETY: a plain call.
                let at = unsafe { libc::syscall(libc::SYS_lseek, from, 0, libc::SEEK_CUR) };
                if at < 0 { return Err(Errno::last()) } else { at }
            }
        };
        let len = match system::read_at(from, &mut buffer[..want], at) {
            Ok(0) => break,
            Ok(len) => len,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        let more = if done + len < count { libc::MSG_MORE } else { 0 };
        let part = iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: len,
        };
        // SAFETY: the part is this function's buffer.
        let sent = match unsafe { send(stream, &[part], more) } {
            Ok(sent) => sent as usize,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        match &mut offset {
            Some(offset) => **offset += sent as off_t,
            None => {
                // SAFETY: a plain call.
                unsafe { libc::syscall(libc::SYS_lseek, from, at + sent as i64, libc::SEEK_SET) };
            }
        }
        done += sent;
        if sent < len {
            break;
        }
    }
    stream.host.run(|state, now| state.engine.push(stream.id, now).ok());
    Ok(done as isize)
}

/// Returns how many of `want` bytes a call can send without waiting; waits for the first where the call waits.
fn room(stream: &Stream, want: usize, flags: c_int) -> Result<usize, Errno> {
    if stream.waits(flags) {
        return Ok(want);
    }
    stream.until(false, 0, |state, _| {
        let connection = state.connection(stream.id);
        if connection.is_ended || connection.is_shut || connection.error.is_some() {
            return Some(Ok(want));
        }
        let space = state.engine.space(stream.id).unwrap_or(0);
        if space == 0 {
            let _ = state.engine.want_room(stream.id);
            state.show(stream.id, false);
        }
        (space > 0).then_some(Ok(space.min(want)))
    })
}

/// Moves bytes of a pipe to a connection.
///
/// # Errors
/// As `splice(2)`.
pub fn splice_to(stream: &Stream, from: RawFd, len: usize, flags: c_uint, has_offsets: bool) -> Result<isize, Errno> {
    if has_offsets {
        return Err(Errno(libc::ESPIPE));
    }
    let waits_not = if flags & libc::SPLICE_F_NONBLOCK != 0 {
        libc::MSG_DONTWAIT
    } else {
        0
    };
    let want = room(stream, len.min(COPY_LEN), waits_not)?;
    let mut buffer = vec![0; want];
    if waits_not != 0 {
        let mut fds = [libc::pollfd {
            fd: from,
            events: libc::POLLIN,
            revents: 0,
        }];
        if system::poll(&mut fds, Some(0), std::ptr::null())? == 0 {
            return Err(Errno(libc::EAGAIN));
        }
    }
    let got = system::read(from, &mut buffer)?;
    if got == 0 {
        return Ok(0);
    }
    let more = if flags & libc::SPLICE_F_MORE != 0 {
        libc::MSG_MORE
    } else {
        0
    };
    let part = iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: got,
    };
    // SAFETY: the part is this function's buffer.
    unsafe { send(stream, &[part], more) }
}

/// Moves bytes of a connection to a pipe.
///
/// # Errors
/// As `splice(2)`.
pub fn splice_from(stream: &Stream, to: RawFd, len: usize, flags: c_uint, has_offsets: bool) -> Result<isize, Errno> {
    if has_offsets {
        return Err(Errno(libc::ESPIPE));
    }
    let waits_not = if flags & libc::SPLICE_F_NONBLOCK != 0 {
        libc::MSG_DONTWAIT
    } else {
        0
    };
    let mut buffer = vec![0; len.min(COPY_LEN)];
    let part = iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: the part is this function's buffer.
    let got = unsafe { receive(stream, &[part], libc::MSG_PEEK | waits_not) }? as usize;
    if got == 0 {
        return Ok(0);
    }
    if waits_not != 0 {
        let mut fds = [libc::pollfd {
            fd: to,
            events: libc::POLLOUT,
            revents: 0,
        }];
        if system::poll(&mut fds, Some(0), std::ptr::null())? == 0 {
            return Err(Errno(libc::EAGAIN));
        }
    }
    // A pipe that has room takes a page at least.
    let put = system::write(to, &buffer[..if waits_not != 0 { got.min(4096) } else { got }])?;
    stream.host.run(|state, now| {
        let _ = state.engine.discard(stream.id, put, now);
        state.show(stream.id, false);
    });
    Ok(put as isize)
}

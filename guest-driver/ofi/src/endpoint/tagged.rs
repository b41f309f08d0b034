//! The functions by which programs send and receive tagged messages.

use std::ffi::c_void;

use super::{
    state,
    state::{Message, Receive},
};
use crate::{abi::*, object::list};

/// The table of the functions.
pub(super) static OPS: TaggedOps = TaggedOps {
    size: size_of::<TaggedOps>(),
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};

/// Describes one piece of the program's memory.
pub(super) const fn piece(start: *const c_void, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: start.cast_mut(),
        iov_len: len,
    }
}

unsafe extern "C" fn recv(
    ep: *mut FidEp,
    start: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: FiAddr,
    tag: u64,
    ignored: u64,
    context: *mut c_void,
) -> isize {
    let receive = Receive {
        pieces: &[piece(start, len)],
        from,
        tag: Some((tag, ignored)),
        context,
        flags: None,
    };
    // SAFETY: libfabric's promise for this call: the memory is the endpoint's until the completion.
    unsafe { state(ep).receive(receive) }
}

unsafe extern "C" fn recvv(
    ep: *mut FidEp,
    pieces: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: FiAddr,
    tag: u64,
    ignored: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        state(ep).receive(Receive {
            pieces: list(pieces, count),
            from,
            tag: Some((tag, ignored)),
            context,
            flags: None,
        })
    }
}

unsafe extern "C" fn recvmsg(ep: *mut FidEp, message: *const FiMsgTagged, flags: u64) -> isize {
    // SAFETY: as in `recv`; the description is valid during this call.
    unsafe {
        let message = &*message;
        state(ep).receive(Receive {
            pieces: list(message.msg_iov, message.iov_count),
            from: message.addr,
            tag: Some((message.tag, message.ignore)),
            context: message.context,
            flags: Some(flags),
        })
    }
}

unsafe extern "C" fn send(
    ep: *mut FidEp,
    start: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: FiAddr,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let pieces = [piece(start, len)];
    let message = Message {
        tag: Some(tag),
        ..Message::new(&pieces, to, context)
    };
    // SAFETY: libfabric's promise for this call: the memory stays until the completion.
    unsafe { state(ep).transmit(message) }
}

unsafe extern "C" fn sendv(
    ep: *mut FidEp,
    pieces: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: FiAddr,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `send`.
    unsafe {
        state(ep).transmit(Message {
            tag: Some(tag),
            ..Message::new(list(pieces, count), to, context)
        })
    }
}

unsafe extern "C" fn sendmsg(ep: *mut FidEp, message: *const FiMsgTagged, flags: u64) -> isize {
    // SAFETY: as in `send`; the description is valid during this call.
    unsafe {
        let message = &*message;
        state(ep).transmit(Message {
            tag: Some(message.tag),
            data: (flags & FI_REMOTE_CQ_DATA != 0).then_some(message.data),
            flags: Some(flags),
            ..Message::new(list(message.msg_iov, message.iov_count), message.addr, message.context)
        })
    }
}

unsafe extern "C" fn inject(ep: *mut FidEp, start: *const c_void, len: usize, to: FiAddr, tag: u64) -> isize {
    let pieces = [piece(start, len)];
    let message = Message {
        tag: Some(tag),
        ..Message::injected(&pieces, to)
    };
    // SAFETY: libfabric's promise for this call: the memory is valid during it.
    unsafe { state(ep).transmit(message) }
}

unsafe extern "C" fn senddata(
    ep: *mut FidEp,
    start: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: FiAddr,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let pieces = [piece(start, len)];
    let message = Message {
        tag: Some(tag),
        data: Some(data),
        ..Message::new(&pieces, to, context)
    };
    // SAFETY: as in `send`.
    unsafe { state(ep).transmit(message) }
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    start: *const c_void,
    len: usize,
    data: u64,
    to: FiAddr,
    tag: u64,
) -> isize {
    let pieces = [piece(start, len)];
    let message = Message {
        tag: Some(tag),
        data: Some(data),
        ..Message::injected(&pieces, to)
    };
    // SAFETY: as in `inject`.
    unsafe { state(ep).transmit(message) }
}

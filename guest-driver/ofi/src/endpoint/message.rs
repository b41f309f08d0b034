//! The functions by which programs send and receive messages without a tag.

use std::ffi::c_void;

use super::{
    state,
    state::{Message, Receive},
    tagged::piece,
};
use crate::{abi::*, object::list};

/// The table of the functions.
pub(super) static OPS: MsgOps = MsgOps {
    size: size_of::<MsgOps>(),
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

unsafe extern "C" fn recv(
    ep: *mut FidEp,
    start: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: FiAddr,
    context: *mut c_void,
) -> isize {
    let receive = Receive {
        pieces: &[piece(start, len)],
        from,
        tag: None,
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
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        state(ep).receive(Receive {
            pieces: list(pieces, count),
            from,
            tag: None,
            context,
            flags: None,
        })
    }
}

unsafe extern "C" fn recvmsg(ep: *mut FidEp, message: *const FiMsg, flags: u64) -> isize {
    // SAFETY: as in `recv`; the description is valid during this call.
    unsafe {
        let message = &*message;
        state(ep).receive(Receive {
            pieces: list(message.msg_iov, message.iov_count),
            from: message.addr,
            tag: None,
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
    context: *mut c_void,
) -> isize {
    let pieces = [piece(start, len)];
    let message = Message::new(&pieces, to, context);
    // SAFETY: libfabric's promise for this call: the memory stays until the completion.
    unsafe { state(ep).transmit(message) }
}

unsafe extern "C" fn sendv(
    ep: *mut FidEp,
    pieces: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: FiAddr,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `send`.
    unsafe { state(ep).transmit(Message::new(list(pieces, count), to, context)) }
}

unsafe extern "C" fn sendmsg(ep: *mut FidEp, message: *const FiMsg, flags: u64) -> isize {
    // SAFETY: as in `send`; the description is valid during this call.
    unsafe {
        let message = &*message;
        state(ep).transmit(Message {
            data: (flags & FI_REMOTE_CQ_DATA != 0).then_some(message.data),
            flags: Some(flags),
            ..Message::new(list(message.msg_iov, message.iov_count), message.addr, message.context)
        })
    }
}

unsafe extern "C" fn inject(ep: *mut FidEp, start: *const c_void, len: usize, to: FiAddr) -> isize {
    let pieces = [piece(start, len)];
    let message = Message::injected(&pieces, to);
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
    context: *mut c_void,
) -> isize {
    let pieces = [piece(start, len)];
    let message = Message {
        data: Some(data),
        ..Message::new(&pieces, to, context)
    };
    // SAFETY: as in `send`.
    unsafe { state(ep).transmit(message) }
}

unsafe extern "C" fn injectdata(ep: *mut FidEp, start: *const c_void, len: usize, data: u64, to: FiAddr) -> isize {
    let pieces = [piece(start, len)];
    let message = Message {
        data: Some(data),
        ..Message::injected(&pieces, to)
    };
    // SAFETY: as in `inject`.
    unsafe { state(ep).transmit(message) }
}

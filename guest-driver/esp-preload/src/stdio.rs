//! Streams of the C library over connections. The C library reads and writes the descriptors of its own streams without the functions
//! of this library, so such a stream gets functions of its own.

use std::{
    collections::HashMap,
    ffi::{c_char, c_int, c_void},
    sync::{Mutex, PoisonError},
};

use esp_socket::table;
use libc::{FILE, off64_t, size_t, ssize_t};

use crate::boundary::functions;

/// `cookie_io_functions_t` of the C library.
#[repr(C)]
struct StreamFunctions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int>,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: StreamFunctions) -> *mut FILE;
}

/// Descriptors of the streams that were opened here, by the stream's address.
static OPEN: Mutex<Option<HashMap<usize, c_int>>> = Mutex::new(None);

fn fd_of(cookie: *mut c_void) -> c_int {
    cookie.addr() as c_int
}

unsafe extern "C" fn stream_read(cookie: *mut c_void, to: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: the C library's buffer.
    unsafe { crate::data::read(fd_of(cookie), to.cast(), len) }
}

unsafe extern "C" fn stream_write(cookie: *mut c_void, from: *const c_char, len: size_t) -> ssize_t {
    // SAFETY: the C library's buffer. It wants 0 for an error.
    unsafe { crate::data::write(fd_of(cookie), from.cast(), len).max(0) }
}

unsafe extern "C" fn stream_close(cookie: *mut c_void) -> c_int {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(open) = open.as_mut() {
        open.retain(|_, fd| *fd != fd_of(cookie));
    }
    drop(open);
    // SAFETY: the stream owned the descriptor.
    unsafe { crate::descriptors::close(fd_of(cookie)) }
}

fn open_stream(fd: c_int, mode: *const c_char) -> *mut FILE {
    let functions = StreamFunctions {
        read: stream_read,
        write: stream_write,
        seek: None,
        close: stream_close,
    };
    // SAFETY: the functions live as long as the program; `mode` is the caller's string.
    let stream = unsafe { fopencookie(std::ptr::without_provenance_mut(fd as usize), mode, functions) };
    if !stream.is_null() {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.get_or_insert_default().insert(stream.addr(), fd);
    }
    stream
}

fn known_fd(stream: *mut FILE) -> Option<c_int> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.as_ref()?.get(&stream.addr()).copied()
}

functions! {
    /// `fdopen(3)`.
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = |real| if table::is_known(fd) =>
        match table::stream(fd) {
            Some(_) => open_stream(fd, mode),
            None => real(),
        };

    /// `fileno(3)`.
    fn fileno(stream: *mut FILE) -> c_int = |real| if esp_socket::is_in_use() =>
        known_fd(stream).unwrap_or_else(real);

    /// `fileno(3)`.
    fn fileno_unlocked(stream: *mut FILE) -> c_int = |real| if esp_socket::is_in_use() =>
        known_fd(stream).unwrap_or_else(real);
}

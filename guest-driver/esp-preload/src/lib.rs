//! The library that `esp-run` loads into a program before any other: functions of the C library that have to do with sockets, which
//! use ESP where the peer speaks it. What each does is in the crate `esp_socket`; here are only the names.
//!
//! A descriptor of which nothing is known costs one load more than without this library.

mod boundary;
mod data;
mod descriptors;
mod processes;
mod rights;
mod sockets;
mod spawns;
mod stdio;
mod waits;

/// Notes, when a program starts, which descriptors its predecessor left to it. A program without any looks at one variable.
extern "C" fn start() {
    let _ = std::panic::catch_unwind(esp_socket::exec::take_up);
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

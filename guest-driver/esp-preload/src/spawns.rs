//! Functions that start another program without `fork` and `exec` of this library: the C library makes both in its inside.
//!
//! The new program shares what this one gives it: its input, its outputs, and descriptors that file actions name. Connections among them
//! go to keepers before. All others stay this program's.

use std::{
    collections::HashMap,
    ffi::{c_char, c_int, c_void},
    sync::{Mutex, PoisonError},
};

use esp_socket::exec::{self, Change};
use libc::{FILE, mode_t, pid_t};

use crate::{
    boundary::{Real, aside, functions},
    processes::prepared,
};

/// What file actions say, by their address; only the C library can read them.
static ACTIONS: Mutex<Option<HashMap<usize, Vec<Change>>>> = Mutex::new(None);

fn with_actions<T>(act: impl FnOnce(&mut HashMap<usize, Vec<Change>>) -> T) -> T {
    act(ACTIONS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert_default())
}

/// Notes an action that the C library has taken.
fn note(result: c_int, actions: *mut c_void, change: Change) -> c_int {
    if result == 0 {
        aside(|| with_actions(|all| all.entry(actions.addr()).or_default().push(change)));
    }
    result
}

fn forget(actions: *mut c_void) {
    aside(|| {
        with_actions(|all| all.remove(&actions.addr()));
    });
}

functions! {
    /// `posix_spawn_file_actions_init(3)`.
    fn posix_spawn_file_actions_init(actions: *mut c_void) -> c_int = |real| if true => {
        forget(actions);
        real()
    };

    /// `posix_spawn_file_actions_destroy(3)`.
    fn posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int = |real| if true => {
        forget(actions);
        real()
    };

    /// `posix_spawn_file_actions_adddup2(3)`.
    fn posix_spawn_file_actions_adddup2(actions: *mut c_void, from: c_int, to: c_int) -> c_int = |real| if true =>
        note(real(), actions, Change::Copied { from, to });

    /// `posix_spawn_file_actions_addclose(3)`.
    fn posix_spawn_file_actions_addclose(actions: *mut c_void, fd: c_int) -> c_int = |real| if true =>
        note(real(), actions, Change::Replaced(fd));

    /// `posix_spawn_file_actions_addopen(3)`.
    fn posix_spawn_file_actions_addopen(actions: *mut c_void, fd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
    |real| if true => note(real(), actions, Change::Replaced(fd));

    /// `system(3)`.
    fn system(command: *const c_char) -> c_int = |real| if esp_socket::is_in_use() => {
        if !command.is_null() {
            share_outputs();
        }
        real()
    };
}

/// Has keepers serve what a program gets that the C library starts with this one's environment. The program does not learn the names of
/// such connections.
fn share_outputs() {
    // SAFETY: no environment at all.
    drop(prepared(|| unsafe { exec::prepare_child(std::ptr::null(), &[]) }));
}

/// `popen(3)`.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    static REAL: Real = Real::new(c"popen");
    if esp_socket::is_in_use() {
        share_outputs();
    }
    // SAFETY: the C library's function of this name has this type.
    let real: unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE =
        unsafe { std::mem::transmute(REAL.get()) };
    // SAFETY: the caller's promise.
    unsafe { real(command, mode) }
}

/// `posix_spawn(3)` and `posix_spawnp(3)`.
type Spawn = unsafe extern "C" fn(
    *mut pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    *const *mut c_char,
    *const *const c_char,
) -> c_int;

/// Makes the environment of a program that is started with such actions; `None`: the given one.
///
/// # Safety
/// `given` is as the functions of the C library take it.
unsafe fn child_environment(given: *const *const c_char, actions: *const c_void) -> Option<exec::Environment> {
    if !esp_socket::is_in_use() {
        return None;
    }
    let known = with_actions(|all| all.get(&actions.addr()).cloned());
    // SAFETY: the caller's promise.
    prepared(|| unsafe { exec::prepare_child(given, &known.unwrap_or_default()) })
}

/// Defines the functions of this type that take the place of those of the C library.
macro_rules! spawns {
    ($($(#[$meta:meta])* $name:ident = $text:literal;)*) => {
        $(
            $(#[$meta])*
            ///
            /// # Safety
            /// As the function of the C library.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                pid: *mut pid_t,
                program: *const c_char,
                actions: *const c_void,
                attributes: *const c_void,
                arguments: *const *mut c_char,
                given: *const *const c_char,
            ) -> c_int {
                static REAL: Real = Real::new($text);
                // SAFETY: the caller's promise.
                let environment = unsafe { child_environment(given, actions) };
                let pointer = environment.as_ref().map_or(given, exec::Environment::pointer);
                // SAFETY: the C library's function of this name has this type.
                let real: Spawn = unsafe { std::mem::transmute(REAL.get()) };
                // SAFETY: the caller's promise; the environment lives until the call is over.
                unsafe { real(pid, program, actions, attributes, arguments, pointer) }
            }
        )*
    };
}

spawns! {
    /// `posix_spawn(3)`.
    posix_spawn = c"posix_spawn";
    /// `posix_spawnp(3)`.
    posix_spawnp = c"posix_spawnp";
}

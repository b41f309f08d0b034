//! Functions that make, replace and end processes.

use std::ffi::{c_char, c_int};

use esp_socket::{exec, processes};

use crate::boundary::{aside, functions};

functions! {
    /// `fork(2)`.
    fn fork() -> c_int = |real| if esp_socket::is_in_use() => {
        aside(processes::before_fork);
        let child = real();
        aside(|| processes::after_fork(child));
        child
    };

    /// `execve(2)`.
    fn execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int = |_real|
    if esp_socket::is_in_use() => {
        // SAFETY: the caller's promise.
        let prepared = prepared(|| unsafe { exec::prepare(environment) });
        let environment = prepared.as_ref().map_or(environment, exec::Environment::pointer);
        // SAFETY: the caller promises as much as the kernel asks.
        unsafe { libc::syscall(libc::SYS_execve, path, arguments, environment) as c_int }
    };

    /// `_exit(2)`.
    fn _exit(status: c_int) -> c_int = |real| if true => {
        aside(|| {
            processes::finish();
        });
        real()
    };

    /// `_Exit(3)`.
    fn _Exit(status: c_int) -> c_int = |real| if true => {
        aside(|| {
            processes::finish();
        });
        real()
    };
}

/// Returns the environment of the next program; `None` after a fault, in which case it stays what it was.
pub(crate) fn prepared(prepare: impl FnOnce() -> exec::Environment) -> Option<exec::Environment> {
    let mut prepared = None;
    aside(|| prepared = Some(prepare()));
    prepared
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// `vfork(2)`. The child has memory of its own: what it does with descriptors must not change the parent's table.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> c_int {
    // SAFETY: the caller's promise.
    unsafe { fork() }
}

/// `execv(3)`.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: the caller's promise; `environ` is the program's environment.
    unsafe { execve(path, arguments, environ) }
}

functions! {
    /// `execvpe(3)`.
    fn execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int = |real|
    if esp_socket::is_in_use() => {
        // SAFETY: the caller's promise.
        match prepared(|| unsafe { exec::prepare(environment) }) {
            // SAFETY: as above.
            Some(prepared) => unsafe { exec::search(file, arguments, prepared.pointer()) },
            None => real(),
        }
    };
}

/// `execvp(3)`.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: the caller's promise; `environ` is the program's environment.
    unsafe { execvpe(file, arguments, environ) }
}

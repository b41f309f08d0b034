//! Functions by which a program gives up rights. Everything else that takes some away, as filters of system calls do, comes unseen.

use std::ffi::{c_char, c_int};

use esp_socket::rights;
use libc::{gid_t, size_t, uid_t};

use crate::boundary::{aside, functions};

/// Lets a process give up rights with what it needs of them afterwards.
fn giving_up(real: impl FnOnce() -> c_int) -> c_int {
    aside(rights::before_giving_up);
    let result = real();
    aside(rights::after_giving_up);
    result
}

functions! {
    /// `setuid(2)`.
    fn setuid(user: uid_t) -> c_int = |real| if esp_socket::is_in_use() => giving_up(real);

    /// `setgid(2)`.
    fn setgid(group: gid_t) -> c_int = |real| if esp_socket::is_in_use() => giving_up(real);

    /// `seteuid(2)`.
    fn seteuid(user: uid_t) -> c_int = |real| if esp_socket::is_in_use() => giving_up(real);

    /// `setegid(2)`.
    fn setegid(group: gid_t) -> c_int = |real| if esp_socket::is_in_use() => giving_up(real);

    /// `setreuid(2)`.
    fn setreuid(real_user: uid_t, user: uid_t) -> c_int = |real| if esp_socket::is_in_use() => giving_up(real);

    /// `setregid(2)`.
    fn setregid(real_group: gid_t, group: gid_t) -> c_int = |real| if esp_socket::is_in_use() => giving_up(real);

    /// `setresuid(2)`.
    fn setresuid(real_user: uid_t, user: uid_t, saved_user: uid_t) -> c_int = |real| if esp_socket::is_in_use() => giving_up(real);

    /// `setresgid(2)`.
    fn setresgid(real_group: gid_t, group: gid_t, saved_group: gid_t) -> c_int = |real| if esp_socket::is_in_use() => giving_up(real);

    /// `setgroups(2)`.
    fn setgroups(count: size_t, groups: *const gid_t) -> c_int = |real| if esp_socket::is_in_use() => giving_up(real);

    /// `initgroups(3)`.
    fn initgroups(user: *const c_char, group: gid_t) -> c_int = |real| if esp_socket::is_in_use() => giving_up(real);

    /// `chroot(2)`.
    fn chroot(folder: *const c_char) -> c_int = |real| if esp_socket::is_in_use() => giving_up(real);
}

//! The start of an authority: it chooses the sizes on the wire and its name, and makes the table and the socket for its
//! programs.

use std::{
    fs,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::PermissionsExt},
    },
    time::Instant,
};

use ether::ETHERNET_HEADER_LEN;
use mxoe::{
    engine::Timing,
    wire::{HOST_NAME_LEN_MAX, Preset},
};
use netif::Interface;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use weft_authority::{OmxdError, PeerTableWriter, Place, START_LIMIT, Settings, replace_on_demand};

/// Chooses the preset that was asked for, or the native one that fits; it must fit the MTU.
pub(crate) fn choose_preset(interface: &Interface, wanted: Option<Preset>) -> Result<Preset, OmxdError> {
    let frame_len_max = interface.mtu + ETHERNET_HEADER_LEN;
    let fits = |preset: Preset| preset.sizes().frame_len_max() as usize <= frame_len_max;
    let preset = wanted.unwrap_or(if fits(Preset::Native9000) {
        Preset::Native9000
    } else {
        Preset::Native1500
    });
    if fits(preset) {
        return Ok(preset);
    }
    Err(OmxdError::PresetTooLong {
        preset,
        frame_len: preset.sizes().frame_len_max() as usize,
        interface: interface.name.clone(),
        frame_len_max,
    })
}

/// Returns how long pulled data may wait in queues on the path of an interface with this driver before less of it is
/// asked for, in nanoseconds. Between guests under emulation on two busy processors, 1 MiB takes 0.15 … 0.33 s with 1
/// ms, half of it or less with 20 ms and more (five runs each). The ends of a veth pair share the processors of one machine, too.
pub(crate) fn pull_queue_ns_max(driver: Option<&str>) -> u64 {
    match driver {
        Some("virtio_net" | "uio_pci_generic" | "vfio-pci" | "veth") => 50_000_000,
        _ => Timing::DEFAULT.pull_queue_ns_max,
    }
}

/// Whether data of large messages arrives on its own socket by default where the interface has this driver. Over veth
/// the sender's core hands frames to the receiver's sockets and is the limit: 4 MiB at MTU 1500 are an eighth faster if
/// the receiver's core copies them. Between emulated guests, whose one processor does both, there is no difference to
/// be seen: 1 MiB took 94 … 118 ms without it and 82 … 127 with it (five each).
pub(crate) fn has_data_socket(driver: Option<&str>) -> bool {
    driver == Some("veth")
}

/// Whether the bulk path is the better guess at this MTU, until an endpoint has measured it
/// (`mxoe::engine::DataPathChoice`). Where the kernel puts frames into pages of their own, pages that one core fills
/// and another gives back may cost more than the copy: 4 MiB at MTU 9000 took 0.92 of the time through the ring on one
/// machine, and 1.25 on another.
pub(crate) fn bulk_path_comes_first(mtu: usize) -> bool {
    mtu < rustix::param::page_size()
}

/// Returns the default name: `localhost` for loopback, else the node's name and the board's number, which programs find
/// out in this manner, too.
pub(crate) fn default_board_name(interface: &Interface) -> String {
    if interface.loopback {
        return "localhost".to_owned();
    }
    let wanted = Settings::read().unwrap_or_default().get("OMX_IFACES");
    let numbered = weft_authority::interfaces(wanted.as_deref()).unwrap_or_default();
    let own = numbered.iter().find(|board| board.interface.index == interface.index);
    let number = own.map_or(0, |board| board.number);
    let node = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}:{number}", node.trim_end())
}

/// Cuts a name to what other hosts and programs are told.
pub(crate) fn cut_name(name: &str) -> String {
    let name = &name[..name.floor_char_boundary(HOST_NAME_LEN_MAX - 1)];
    // As in the table.
    name.replace(char::is_control, "?")
}

/// Opens the peer table of an interface, which makes this process its authority. An authority that was started on
/// demand is replaced by one that was not.
pub(crate) fn own_table(place: &Place, interface: &Interface, on_demand: bool) -> Result<PeerTableWriter, OmxdError> {
    let begin = Instant::now();
    loop {
        if let Some(table) = PeerTableWriter::open(&place.table(), interface.mac)? {
            return Ok(table);
        }
        if on_demand || begin.elapsed() > START_LIMIT || !replace_on_demand(interface, place)? {
            return Err(OmxdError::AlreadyRunning {
                interface: interface.name.clone(),
            });
        }
    }
}

/// Draws a number that differs from start to start, so that others notice that this board began anew.
pub(crate) fn begin_serial() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.subsec_nanos() ^ since.as_secs() as u32)
}

/// Makes the socket on which programs reach the authority; `connections_max` may wait there.
pub(crate) fn listen_at(place: &Place, group: Option<u32>, connections_max: usize) -> Result<OwnedFd, OmxdError> {
    // It gets its final name only when programs may use it. A file with the first name was left by an authority that
    // was killed just here: the lock on the table says that no other process makes one.
    let path = place.socket_made();
    let _ = fs::remove_file(&path);
    let address = SocketAddrUnix::new(path.as_os_str().as_bytes()).map_err(OmxdError::io("name omxd's socket"))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(OmxdError::io("open a socket"))?;
    bind(&listener, &address).map_err(OmxdError::io("bind omxd's socket"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o660))
        .map_err(OmxdError::io("say who may use omxd's socket"))?;
    if group.is_some() {
        std::os::unix::fs::chown(&path, None, group).map_err(OmxdError::io("give omxd's socket to its group"))?;
    }
    listen(&listener, connections_max as i32).map_err(OmxdError::io("listen"))?;
    fs::rename(&path, place.socket()).map_err(OmxdError::io("put omxd's socket where programs look"))?;
    Ok(listener)
}

/// Finds the number of a group in the system's file.
pub(crate) fn group_id(name: &str) -> Option<u32> {
    let groups = fs::read_to_string("/etc/group").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name))
            .then(|| fields.nth(1)?.parse().ok())
            .flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An end whose processor was away for milliseconds is not taken for a queue.
    #[test]
    fn data_may_wait_longer_where_both_ends_share_processors() {
        let usual = Timing::DEFAULT.pull_queue_ns_max;
        assert_eq!(pull_queue_ns_max(None), usual);
        for driver in ["virtio_net", "veth"] {
            assert!(pull_queue_ns_max(Some(driver)) >= 10 * usual);
        }
    }

    #[test]
    fn data_may_have_a_socket_of_its_own_where_the_sender_s_core_would_copy_it() {
        assert!(has_data_socket(Some("veth")));
        assert!(!has_data_socket(Some("virtio_net")) && !has_data_socket(None));
    }
}

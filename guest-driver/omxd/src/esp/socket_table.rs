//! Which TCP sockets listen where, and whose they are, as the kernel's tables say: so that no program has another user's connections
//! announced or claims them.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{BufRead, BufReader},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// The state of a socket that listens, in the kernel's table.
const LISTENS: &str = "0A";
/// The states of one that is connected, and of one whose peer has closed.
const IS_OPEN: &str = "01";
const PEER_CLOSED: &str = "08";
/// At most so many descriptors of a program are looked at.
const DESCRIPTORS_MAX: usize = 65_536;

/// A TCP socket that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Socket {
    address: SocketAddr,
    user: u32,
    inode: u64,
}

/// Whether a TCP socket listens at this address that is the user's or that the process has.
pub(super) fn may_listen(address: SocketAddr, user: u32, pid: u32) -> bool {
    let sockets = listening(address);
    sockets.iter().any(|socket| socket.user == user) || has_one_of(pid, &sockets)
}

/// Lists the sockets that listen at this address. Those that listen come first in the kernel's table.
fn listening(address: SocketAddr) -> Vec<Socket> {
    let table = if address.is_ipv4() { "tcp" } else { "tcp6" };
    let Ok(table) = File::open(format!("/proc/thread-self/net/{table}")) else {
        return Vec::new();
    };
    let lines = BufReader::new(table).lines().skip(1).map_while(Result::ok);
    let sockets = lines.map_while(|line| of_line(&line));
    // IPv6 addresses of an interface are listened at with its number, which the table does not have.
    let is_there = |socket: &Socket| (socket.address.ip(), socket.address.port()) == (address.ip(), address.port());
    sockets.filter(is_there).collect()
}

/// Lists the peers of connections that no program has accepted yet: the kernel gives a socket its inode when that happens.
pub(super) fn unaccepted() -> HashSet<SocketAddr> {
    let mut peers = HashSet::new();
    for table in ["tcp", "tcp6"] {
        let Ok(table) = File::open(format!("/proc/thread-self/net/{table}")) else {
            continue;
        };
        let lines = BufReader::new(table).lines().skip(1).map_while(Result::ok);
        peers.extend(lines.filter_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let [_, _, peer, IS_OPEN | PEER_CLOSED, _, _, _, _, _, "0", ..] = fields[..] else {
                return None;
            };
            let peer = address_of(peer)?;
            Some(SocketAddr::new(peer.ip().to_canonical(), peer.port()))
        }));
    }
    peers
}

/// Reads a line of the table: number, own address, peer, state, queues, timers, retransmissions, user, time-out, inode, …
fn of_line(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, address, _, LISTENS, _, _, _, user, _, inode, ..] = fields[..] else {
        return None;
    };
    Some(Socket {
        address: address_of(address)?,
        user: user.parse().ok()?,
        inode: inode.parse().ok()?,
    })
}

/// Reads an address as the kernel writes it: words in the machine's order of bytes, in hexadecimal.
fn address_of(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = ip.get(8 * at..8 * at + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip: IpAddr = if ip.len() == 8 {
        Ipv4Addr::from(word(0)?).into()
    } else {
        let mut bytes = [0; 16];
        for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
            part.copy_from_slice(&word(at)?);
        }
        Ipv6Addr::from(bytes).into()
    };
    Some(SocketAddr::new(ip, port))
}

/// Whether a process has one of these sockets among its descriptors.
fn has_one_of(pid: u32, sockets: &[Socket]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    let mut names = descriptors
        .take(DESCRIPTORS_MAX)
        .filter_map(|descriptor| fs::read_link(descriptor.ok()?.path()).ok());
    let wanted: Vec<_> = sockets
        .iter()
        .map(|socket| format!("socket:[{}]", socket.inode))
        .collect();
    !wanted.is_empty() && names.any(|name| wanted.iter().any(|wanted| name.as_os_str() == wanted.as_str()))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_socket_that_listens_is_its_users_and_its_processs() {
        let own = rustix::process::geteuid().as_raw();
        let pid = std::process::id();
        for address in ["127.0.0.1:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let address = listener.local_addr().unwrap();
            assert!(may_listen(address, own, 1), "{address}");
            assert!(may_listen(address, own + 1, pid), "{address}");
            assert!(!may_listen(address, own + 1, 0), "{address}");
            drop(listener);
            assert!(!may_listen(address, own, pid), "{address}");
        }
    }

    #[test]
    fn a_connection_is_unaccepted_until_it_is_accepted() {
        for address in ["127.0.0.1:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let to = (Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
            let connected = TcpStream::connect(to).unwrap();
            let from = connected.local_addr().unwrap();
            assert!(unaccepted().contains(&from), "{address}");
            let _accepted = listener.accept().unwrap();
            assert!(!unaccepted().contains(&from), "{address}");
        }
    }

    #[test]
    fn lines_of_other_states_and_nonsense_are_no_sockets() {
        let line =
            "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 x";
        let socket = of_line(line).unwrap();
        assert_eq!(socket.address, "127.0.0.1:8080".parse().unwrap());
        assert_eq!((socket.user, socket.inode), (1000, 4711));
        assert_eq!(of_line(&line.replace(" 0A ", " 01 ")), None);
        for nonsense in [
            "",
            "0: x 0 0A 0 0 0 0 0 0",
            "0: 01:1 0 0A 0 0 0 0 0 0",
            "0: 0100007F:1F90 0 0A",
        ] {
            assert_eq!(of_line(nonsense), None);
        }
    }
}

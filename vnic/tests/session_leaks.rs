//! Connections come and go, orderly, cut off and full of nonsense, and the process has what it had before: file descriptors,
//! threads and memory mappings. One test in a file of its own, since it counts what belongs to the whole process.

use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::sock_ctrl_msg::ScmSocket;
use vnic::dataplane::{Fabric, FabricSettings};
use vnic::device::Device;
use vnic::events::EventThread;
use vnic::session::Sessions;
use vnicd_protocol::config::Config;

const CONNECTIONS: usize = 100;
const ODD_CONNECTIONS: usize = 300;
/// Long enough for any loaded machine: only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(30);
const MEMORY_LEN: u64 = 0x10_0000;
const USER: u64 = 0x7000_0000;

fn entries(path: &str) -> usize {
    std::fs::read_dir(path).unwrap().count()
}

/// Descriptors, threads and shared mappings of this process.
fn possessions() -> (usize, usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.contains("memfd:guest")).count();
    (entries("/proc/self/fd"), entries("/proc/self/task"), mapped)
}

/// A guest that starts both rings and leaves, saying goodbye or not.
fn visit(path: &Path, says_goodbye: bool) {
    let mut frontend = Frontend::connect(path, 2).unwrap();
    frontend.set_owner().unwrap();
    let features = frontend.get_features().unwrap();
    frontend.set_features(features).unwrap();
    let features = frontend.get_protocol_features().unwrap();
    frontend.set_protocol_features(features).unwrap();
    let memory = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, MEMORY_LEN).unwrap();
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr: 0,
        memory_size: MEMORY_LEN,
        userspace_addr: USER,
        mmap_offset: 0,
        mmap_handle: memory.as_raw_fd(),
    };
    frontend.add_mem_region(&region).unwrap();
    let fds: Vec<(EventFd, EventFd)> = (0..2)
        .map(|_| (EventFd::new(0).unwrap(), EventFd::new(0).unwrap()))
        .collect();
    for (index, (call, kick)) in fds.iter().enumerate() {
        let base = USER + 0x1_0000 * index as u64;
        let config = VringConfigData {
            queue_max_size: 256,
            queue_size: 256,
            flags: 0,
            desc_table_addr: base,
            avail_ring_addr: base + 0x2000,
            used_ring_addr: base + 0x4000,
            log_addr: None,
        };
        frontend.set_vring_num(index, 256).unwrap();
        frontend.set_vring_base(index, 0).unwrap();
        frontend.set_vring_addr(index, &config).unwrap();
        frontend.set_vring_call(index, call).unwrap();
        frontend.set_vring_kick(index, kick).unwrap();
        frontend.set_vring_enable(index, true).unwrap();
        kick.write(1).unwrap();
    }
    if says_goodbye {
        for index in 0..2 {
            frontend.set_vring_enable(index, false).unwrap();
            frontend.get_vring_base(index).unwrap();
        }
    }
}

/// Numbers that look random and are equal in every run (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A frontend that says what no frontend should: often known requests with right sizes, in any order, with any files.
fn visit_oddly(path: &Path, numbers: &mut Numbers) {
    let Ok(mut stream) = UnixStream::connect(path) else {
        return;
    };
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let memory = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, MEMORY_LEN).unwrap();
    let event = EventFd::new(0).unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    for _ in 0..numbers.below(30) {
        if numbers.below(50) == 0 {
            // Half a message, or bytes that are none.
            let garbage: Vec<u8> = (0..numbers.below(40)).map(|_| numbers.next() as u8).collect();
            if stream.write_all(&garbage).is_err() {
                return;
            }
        }
        let request = match numbers.below(4) {
            0 => numbers.below(50),
            _ => [1, 2, 3, 5, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 34, 37, 38][numbers.below(17) as usize],
        } as u32;
        let size = match numbers.below(8) {
            0 => numbers.below(100) as usize,
            _ => match request {
                5 | 9 | 37 | 38 => 40,
                1 | 3 | 15 | 34 => 0,
                _ => 8,
            },
        };
        let word = |numbers: &mut Numbers| match numbers.below(8) {
            0 => numbers.next(),
            1 => 1 << 30 | 1 << 32,
            2 => 0xa009,
            3 => MEMORY_LEN,
            4 => USER,
            5 => numbers.below(2) << 32,
            _ => numbers.below(3),
        };
        let body: Vec<u8> = (0..16).flat_map(|_| word(numbers).to_ne_bytes()).take(size).collect();
        let flags = [1u32, 1, 1, 9, 9, 5, 0][numbers.below(7) as usize];
        let header: Vec<u8> = [request, flags, size as u32]
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect();
        let files: Vec<RawFd> = match (request, numbers.below(6)) {
            (_, 0) => vec![null.as_raw_fd(); numbers.below(40) as usize],
            (5 | 37, _) => vec![memory.as_raw_fd()],
            (12..=14, _) => vec![event.as_raw_fd()],
            _ => Vec::new(),
        };
        // The session may have been ended by now; answers are thrown away.
        if stream.send_with_fds(&[&header[..], &body[..]], &files).is_err() {
            return;
        }
        let _ = event.write(1);
        if flags & 8 != 0 || matches!(request, 1 | 11 | 15) {
            let _ = std::io::Read::read(&mut stream, &mut [0; 64]);
        }
    }
}

#[test]
fn connections_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let fabric = Fabric::new(FabricSettings::default()).unwrap();
    let switch = fabric.add_switch("s");
    let config = r#"{"ports":[{"name":"a","switch":"s","listen":"/a"}]}"#;
    let config: Config = serde_json::from_str(config).unwrap();
    let settings = config.ports[0].clone();
    let device = Device::new(fabric.add_port(switch, settings).unwrap());
    let sessions = Sessions::new(&EventThread::start().unwrap()).unwrap();
    let port = sessions.listen(device, &path).unwrap();

    let before = possessions();
    assert_eq!(before.2, 0, "no guest's memory yet");
    // A connection is over for its guest before its threads are joined.
    let settle = || {
        let deadline = Instant::now() + PATIENCE;
        while possessions() != before || fabric.port_info("a").unwrap().connected {
            assert!(Instant::now() < deadline, "{:?} instead of {before:?}", possessions());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    visit(&path, true);
    settle();
    for count in 0..CONNECTIONS {
        visit(&path, count % 2 == 0);
    }
    settle();
    let mut numbers = Numbers(0x5eed_0001);
    for _ in 0..ODD_CONNECTIONS {
        visit_oddly(&path, &mut numbers);
    }
    settle();
    visit(&path, true);
    settle();
    assert_eq!(
        fabric.port_info("a").unwrap().failed,
        None,
        "an orderly guest works after all that"
    );
    drop(port);
    fabric.shutdown();
}

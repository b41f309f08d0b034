//! Generated vhost-user messages: for each rule of a session a family of messages that break it and no other before it, drawn from
//! a seed. They are only described here; `session_rules.rs` sends them and checks the counters.

use weft_vnic_testkit::{F_PROTOCOL_FEATURES, F_VERSION_1, Frontend, MEMORY_BASE, Seed, memory_table_body};

use crate::attacks::{RX, TX};

/// Bytes of the files that memory regions are cut from.
pub const FILE_LEN: u64 = 1 << 20;
/// Bytes of the file that is larger than all guests' memory may be.
pub const HUGE_FILE_LEN: u64 = 6 << 40;
/// Where no guest's memory is.
const FAR: u64 = 1 << 44;

/// Every rule of a session, by the name of its counter.
pub const SESSION_RULES: &[&str] = &[
    "message_cut",
    "body_too_long",
    "files_misplaced",
    "files_too_many",
    "request_unknown",
    "flags_wrong",
    "reply_unasked",
    "request_not_served",
    "feature_not_agreed",
    "body_size",
    "file_count",
    "file_kind",
    "kick_semaphore",
    "features_not_offered",
    "protocol_features_not_offered",
    "owner_twice",
    "ring_unknown",
    "ring_running",
    "unknown_bits",
    "enable_value",
    "ring_base",
    "ring_size",
    "ring_address_misaligned",
    "ring_address_outside",
    "memory_table_empty",
    "memory_region",
    "memory_file_too_small",
    "memory_file_system",
    "memory_overlap",
    "station_address",
    "memory_too_much",
    "memory_not_shared",
    "not_possible",
];

const SEND_RARP: u32 = 19;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_VRING_ENABLE: u32 = 18;
const ADD_MEM_REG: u32 = 37;
const REM_MEM_REG: u32 = 38;

/// A file that a case brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Event,
    Semaphore,
    Memory,
    ReadOnly,
    Huge,
    Pipe,
    Socket,
    Null,
    Folder,
    Proc,
}

/// What a case sends.
#[derive(Debug, Clone, Default)]
pub struct Odd {
    /// Sound messages before it.
    pub before: Vec<(u32, Vec<u8>)>,
    pub request: u32,
    pub flags: u32,
    /// What the header says, if it is not the body's length.
    pub size: Option<u32>,
    pub body: Vec<u8>,
    pub files: Vec<Kind>,
    /// The files come with the body instead of the header.
    pub late_files: bool,
    /// Only so many bytes are sent, and then nothing any more.
    pub cut: Option<usize>,
}

fn odd(request: u32, words: &[u64], files: &[Kind]) -> Odd {
    Odd {
        request,
        flags: 1,
        body: words.iter().flat_map(|word| word.to_ne_bytes()).collect(),
        files: files.to_vec(),
        ..Odd::default()
    }
}

/// Two 32-bit words as one of 64.
fn pair(low: u64, high: u64) -> u64 {
    low & 0xffff_ffff | high << 32
}

fn bytes(seed: &mut Seed, len: u64) -> Vec<u8> {
    (0..len).map(|_| seed.any() as u8).collect()
}

/// What the generator knows of the victim.
pub struct Ground {
    /// The only memory region: guest address, length, user address, offset.
    region: [u64; 4],
    /// User addresses of descriptor table, used ring and available ring of both rings.
    rings: [[u64; 3]; 2],
}

impl Ground {
    pub fn of(guest: &mut Frontend) -> Ground {
        let memory = std::sync::Arc::clone(guest.memory());
        let rings = [RX, TX].map(|index| {
            let (descriptors, available, used) = guest.ring(index).addresses();
            [descriptors, used, available].map(|addr| memory.user_addr(addr))
        });
        let region = [MEMORY_BASE, memory.len() as u64, memory.user_addr(MEMORY_BASE), 0];
        Ground { region, rings }
    }

    /// A SET_VRING_ADDR of a ring that was stopped.
    fn ring_addr(&self, ring: u64, flags: u64, [descriptors, used, available]: [u64; 3]) -> Odd {
        Odd {
            before: vec![stop(ring)],
            ..odd(
                SET_VRING_ADDR,
                &[pair(ring, flags), descriptors, used, available, 0],
                &[],
            )
        }
    }

    /// A message that breaks `rule`, and no other before it.
    pub fn attack(&self, rule: &str, seed: &mut Seed) -> Odd {
        let ring = seed.range(0, 1);
        let above = |seed: &mut Seed, low: u64| {
            if seed.chance(1, 3) {
                low
            } else {
                seed.range(low, u64::from(u32::MAX))
            }
        };
        let region = |seed: &mut Seed| {
            [
                FAR + seed.range(0, 1 << 20) * 4096,
                4096,
                FAR + seed.range(0, 1 << 20) * 4096,
                0,
            ]
        };
        let add =
            |[guest, len, user, offset]: [u64; 4], kind| odd(ADD_MEM_REG, &[0, guest, len, user, offset], &[kind]);
        match rule {
            "message_cut" => {
                let body = seed.range(0, 40);
                Odd {
                    cut: Some(seed.range(1, 11 + body) as usize),
                    body: bytes(seed, body),
                    ..odd(seed.range(1, 44) as u32, &[], &[])
                }
            }
            "body_too_long" => Odd {
                size: Some(above(seed, 4097) as u32),
                ..odd(seed.range(1, 44) as u32, &[seed.any()], &[])
            },
            "files_misplaced" => Odd {
                late_files: true,
                ..odd(
                    seed.range(1, 44) as u32,
                    &[seed.any()],
                    &vec![Kind::Event; seed.range(1, 32) as usize],
                )
            },
            "files_too_many" => {
                let count = seed.range(33, 64) as usize;
                odd(seed.range(1, 44) as u32, &[seed.any()], &vec![Kind::Event; count])
            }
            "request_unknown" => {
                let request = if seed.chance(1, 8) { 0 } else { above(seed, 45) };
                let len = seed.range(0, 64);
                Odd {
                    flags: seed.any() as u32,
                    body: bytes(seed, len),
                    ..odd(request as u32, &[], &[])
                }
            }
            "flags_wrong" => {
                let flags = match seed.range(0, 1) {
                    0 => seed.any() as u32 & !3 | seed.pick(&[0, 2, 3]),
                    _ => 1 | (seed.range(1, u64::from(u32::MAX >> 4)) as u32) << 4,
                };
                Odd {
                    flags,
                    ..odd(seed.range(1, 44) as u32, &[], &[])
                }
            }
            "reply_unasked" => Odd {
                flags: seed.pick(&[5, 13]),
                ..odd(seed.range(1, 44) as u32, &[seed.any()], &[])
            },
            "request_not_served" => {
                let requests = [
                    7, 20, 22, 23, 26, 27, 28, 29, 30, 31, 32, 33, 35, 39, 40, 41, 42, 43, 44,
                ];
                let len = seed.range(0, 4096);
                Odd {
                    body: bytes(seed, len),
                    ..odd(seed.pick(&requests), &[], &[])
                }
            }
            "feature_not_agreed" => odd(seed.pick(&[6, 21, 24, 25, 34]), &[seed.any(), seed.any()], &[]),
            "body_size" => {
                let (request, right) = seed.pick(&[
                    (1, 0),
                    (SET_FEATURES, 8),
                    (SET_OWNER, 0),
                    (SET_VRING_NUM, 8),
                    (SET_VRING_ADDR, 40),
                    (SET_VRING_BASE, 8),
                    (GET_VRING_BASE, 8),
                    (SET_VRING_KICK, 8),
                    (15, 0),
                    (SET_PROTOCOL_FEATURES, 8),
                    (17, 0),
                    (SET_VRING_ENABLE, 8),
                    (36, 0),
                    (ADD_MEM_REG, 40),
                    (REM_MEM_REG, 40),
                ]);
                let mut len = seed.pick(&[0, 1, 7, 8, 9, 39, 40, 41, 264, 4096]);
                if len == right {
                    len += 1;
                }
                Odd {
                    body: bytes(seed, len),
                    ..odd(request, &[], &[])
                }
            }
            "file_count" => {
                let count = |seed: &mut Seed, right: u64| match seed.range(0, 32) {
                    same if same == right => right + 1,
                    other => other,
                };
                let (request, words, right): (u32, &[u64], u64) = match seed.range(0, 5) {
                    0 => (seed.pick(&[SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR]), &[ring], 1),
                    1 => (seed.pick(&[SET_VRING_KICK, SET_VRING_CALL]), &[ring | 0x100], 0),
                    2 => (seed.pick(&[1, SET_OWNER, 15]), &[], 0),
                    3 => (ADD_MEM_REG, &[0, FAR, 4096, FAR, 0], 1),
                    4 => (SET_MEM_TABLE, &[1, FAR, 4096, FAR, 0], 1),
                    _ => (SET_VRING_ENABLE, &[ring], 0),
                };
                odd(request, words, &vec![Kind::Event; count(seed, right) as usize])
            }
            "file_kind" => {
                let others = [Kind::Pipe, Kind::Socket, Kind::Null, Kind::Folder];
                if seed.chance(1, 2) {
                    let request = seed.pick(&[SET_VRING_KICK, SET_VRING_CALL]);
                    let kind = if seed.chance(1, 5) {
                        Kind::Memory
                    } else {
                        seed.pick(&others)
                    };
                    return odd(request, &[ring], &[kind]);
                }
                let kind = if seed.chance(1, 5) {
                    Kind::Event
                } else {
                    seed.pick(&others)
                };
                add(region(seed), kind)
            }
            "kick_semaphore" => odd(SET_VRING_KICK, &[ring], &[Kind::Semaphore]),
            "features_not_offered" => {
                let bit = seed.pick(&[2_u64, 4, 5, 6, 10, 14, 16, 20, 23, 27, 31, 33, 34, 35, 40, 57, 63]);
                odd(
                    SET_FEATURES,
                    &[1 << bit | F_VERSION_1 | seed.pick(&[0, F_PROTOCOL_FEATURES])],
                    &[],
                )
            }
            "protocol_features_not_offered" => {
                let bit = seed.pick(&[4_u64, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 17, 18, 31, 63]);
                odd(SET_PROTOCOL_FEATURES, &[1 << bit | seed.any() & 9], &[])
            }
            "owner_twice" => odd(SET_OWNER, &[], &[]),
            "ring_unknown" => {
                if seed.chance(1, 3) {
                    let request = seed.pick(&[SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR]);
                    return odd(request, &[seed.range(2, 255)], &[Kind::Event]);
                }
                let request = seed.pick(&[
                    SET_VRING_NUM,
                    SET_VRING_BASE,
                    GET_VRING_BASE,
                    SET_VRING_ENABLE,
                    SET_VRING_ADDR,
                ]);
                let word = pair(above(seed, 2), seed.range(0, 1));
                let more = if request == SET_VRING_ADDR { 4 } else { 0 };
                odd(request, &[&[word][..], &[0; 4][..more]].concat(), &[])
            }
            "ring_running" => match seed.range(0, 2) {
                0 => odd(SET_VRING_NUM, &[pair(ring, 1 << seed.range(0, 10))], &[]),
                1 => odd(SET_VRING_BASE, &[pair(ring, seed.range(0, 0xffff))], &[]),
                _ => {
                    let [a, b, c] = self.rings[ring as usize];
                    let by = seed.range(1, 64) * 16;
                    odd(SET_VRING_ADDR, &[ring, a + by, b, c + by, 0], &[])
                }
            },
            "unknown_bits" => {
                if seed.chance(1, 3) {
                    return self.ring_addr(ring, above(seed, 2) | 2, self.rings[ring as usize]);
                }
                let request = seed.pick(&[SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR]);
                let bits = 1 << seed.range(9, 63) | seed.any() & !0x1ff;
                odd(request, &[bits | ring], &[Kind::Event])
            }
            "station_address" => {
                let any_group = seed.any() | 1;
                let group = seed.pick(&[0, 0xffff_ffff_ffff, any_group]);
                odd(SEND_RARP, &[group & 0xffff_ffff_ffff], &[])
            }
            "enable_value" => odd(SET_VRING_ENABLE, &[pair(ring, above(seed, 2))], &[]),
            "ring_base" => Odd {
                before: vec![stop(ring)],
                ..odd(SET_VRING_BASE, &[pair(ring, above(seed, 0x1_0000))], &[])
            },
            "ring_size" => {
                let entries = match seed.range(0, 2) {
                    0 => 0,
                    1 => above(seed, 1025) | 1,
                    // No power of two.
                    _ => seed.range(1, 511) * 2 + 1,
                };
                Odd {
                    before: vec![stop(ring)],
                    ..odd(SET_VRING_NUM, &[pair(ring, entries)], &[])
                }
            }
            "ring_address_misaligned" => {
                let mut places = self.rings[ring as usize];
                let part = seed.range(0, 2) as usize;
                places[part] += seed.range(1, [16, 4, 2][part] - 1);
                self.ring_addr(ring, seed.range(0, 1), places)
            }
            "ring_address_outside" => {
                let mut places = self.rings[ring as usize];
                let [_, len, user, _] = self.region;
                let part = seed.range(0, 2) as usize;
                places[part] = match seed.range(0, 2) {
                    0 => user - 16 * seed.range(1, 4096),
                    1 => (user + len + 16 * seed.range(0, 4096)).next_multiple_of(16),
                    _ => seed.any() >> 20 << 4,
                };
                if (user..user + len).contains(&places[part]) {
                    places[part] = 0;
                }
                self.ring_addr(ring, 0, places)
            }
            "memory_table_empty" => {
                if seed.chance(1, 2) {
                    return odd(SET_MEM_TABLE, &[pair(0, seed.any() >> 32)], &[]);
                }
                let count = seed.range(1, 4) as usize;
                let mut body = memory_table_body(&vec![region(seed); count]);
                body[4..8].copy_from_slice(&(above(seed, 1) as u32).to_ne_bytes());
                Odd {
                    body,
                    ..odd(SET_MEM_TABLE, &[], &vec![Kind::Memory; count])
                }
            }
            "memory_region" => {
                let mut region = region(seed);
                match seed.range(0, 3) {
                    0 => region[1] = 0,
                    1 => region[0] = 0_u64.wrapping_sub(seed.range(1, 4095)),
                    2 => region[2] = 0_u64.wrapping_sub(seed.range(1, 4095)),
                    _ => region[3] = seed.range(0, 200) * 4096 + seed.range(1, 4095),
                }
                if seed.chance(1, 2) {
                    return add(region, Kind::Memory);
                }
                Odd {
                    body: memory_table_body(&[region]),
                    ..odd(SET_MEM_TABLE, &[], &[Kind::Memory])
                }
            }
            "memory_file_too_small" => {
                let mut region = region(seed);
                match seed.range(0, 2) {
                    0 => region[1] = FILE_LEN + seed.range(1, 1 << 30),
                    1 => region[3] = FILE_LEN + 4096 * seed.range(0, 1 << 30),
                    _ => region[3] = 0_u64.wrapping_sub(4096 * seed.range(1, 1 << 30)),
                }
                add(region, Kind::Memory)
            }
            "memory_file_system" => add(region(seed), Kind::Proc),
            "memory_overlap" => {
                let [guest, len, _, _] = self.region;
                let pages = len / 4096;
                let mut region = region(seed);
                region[0] = guest + 4096 * seed.range(0, pages - 1) + seed.range(0, 4095);
                region[1] = seed.range(1, FILE_LEN);
                add(region, Kind::Memory)
            }
            "memory_too_much" => {
                let mut region = region(seed);
                region[1] = (4 << 40) - self.region[1] + seed.range(1, 1 << 40);
                add(region, Kind::Huge)
            }
            "memory_not_shared" => {
                let [mut guest, mut len, mut user, _] = self.region;
                match seed.range(0, 2) {
                    0 => guest += 4096 * seed.range(1, 1 << 20),
                    1 => len += seed.range(1, 1 << 20),
                    _ => user += 4096 * seed.range(1, 1 << 20),
                }
                odd(REM_MEM_REG, &[0, guest, len, user, 0], &[])
            }
            // Sound in form, but a file that was opened for reading cannot be mapped for writing.
            "not_possible" => add(region(seed), Kind::ReadOnly),
            other => panic!("no attacks against {other}"),
        }
    }
}

fn stop(ring: u64) -> (u32, Vec<u8>) {
    (GET_VRING_BASE, ring.to_ne_bytes().to_vec())
}

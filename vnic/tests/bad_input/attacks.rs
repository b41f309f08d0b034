//! Generated rule violations: for each rule of the rings a family of attacks drawn from a seed.
//! They are only described here; `ring_rules.rs` carries them out and checks the counters.

use weft_vnic_testkit::{DESC_INDIRECT, DESC_NEXT, DESC_WRITE, Descriptor, Frontend, MEMORY_BASE, Seed, table_len};

/// Vring numbers of queue pair 0.
pub const RX: usize = 0;
pub const TX: usize = 1;

/// What a guest writes to break one rule.
#[derive(Debug, Clone, Default)]
pub struct Attack {
    /// Vring it happens on.
    pub vring: usize,
    /// Descriptors 0, 1, … of the ring.
    pub chain: Vec<Descriptor>,
    /// Descriptors elsewhere in guest memory (indirect tables).
    pub elsewhere: Vec<(u64, Descriptor)>,
    /// Entries made available.
    pub heads: Vec<u16>,
    /// Avail index relative to the ring's start, if it is not the number of heads.
    pub avail_jump: Option<u16>,
}

/// Rules that need nothing but ring contents, by the names of their counters.
pub const RING_RULES: &[&str] = &[
    "avail_index_jump",
    "head_out_of_range",
    "next_out_of_range",
    "chain_too_long",
    "indirect_nested",
    "indirect_length",
    "indirect_outside_memory",
    "buffer_outside_memory",
    "length_wraps",
    "writable_in_transmit",
    "read_only_in_receive",
    "transmit_header_too_short",
    "receive_buffer_too_short",
];

/// A rule that needs a guest that did not negotiate indirect descriptors.
pub const PLAIN_RULE: &str = "indirect_not_negotiated";
/// A rule that needs rings of more than 258 entries.
pub const WIDE_RULE: &str = "chain_too_scattered";
/// Rules about where rings and memory are, each with a test of its own.
pub const PLACE_RULES: &[&str] = &["ring_outside_memory", "ring_misaligned", "memory_truncated"];

/// Bytes of guest memory for buffers: one half for each direction.
const SCRATCH_LEN: u64 = 256 << 10;

/// Where generated attacks may put things: sizes and addresses of the attacking guest.
#[derive(Debug, Clone, Copy)]
pub struct Ground {
    pub ring_size: u16,
    /// Guest memory for buffers.
    pub scratch: u64,
    /// 64 KiB of the guest's memory for tables.
    pub tables: u64,
    /// First address behind the guest's memory.
    pub end: u64,
}

impl Ground {
    pub fn new(frontend: &Frontend) -> Ground {
        let memory = frontend.memory();
        Ground {
            ring_size: frontend.config().ring_size,
            scratch: memory.allocate(SCRATCH_LEN as usize, 64),
            tables: memory.allocate(64 << 10, 64),
            end: MEMORY_BASE + memory.len() as u64,
        }
    }

    /// A sound buffer for `vring`, at least as long as a header.
    fn sound(&self, seed: &mut Seed, vring: usize) -> Descriptor {
        let len = seed.range(12, 1600) as u32;
        // The device writes into receive buffers only: a header that is sent stays zero.
        let half = if vring == RX { 0 } else { SCRATCH_LEN / 2 };
        let addr = self.scratch + half + seed.range(0, SCRATCH_LEN / 2 - u64::from(len));
        Descriptor {
            addr,
            len,
            flags: if vring == RX { DESC_WRITE } else { 0 },
            next: 0,
        }
    }

    /// A chain of sound buffers in ring order, then `bad` at its end.
    fn chain_to(&self, seed: &mut Seed, vring: usize, bad: Descriptor) -> Attack {
        let depth = seed.pick(&[0, 0, 1, 1, 2, 3, 7, u64::from(self.ring_size) - 2]) as u16;
        let mut chain: Vec<_> = (0..depth).map(|_| self.sound(seed, vring)).collect();
        chain.push(bad);
        link(&mut chain[..usize::from(depth)]);
        Attack {
            vring,
            chain,
            heads: vec![0],
            ..Attack::default()
        }
    }

    /// A chain of sound buffers in an indirect table, then `bad`; the ring holds only the table's descriptor.
    fn table_to(&self, seed: &mut Seed, vring: usize, bad: Descriptor) -> Attack {
        let mut attack = self.chain_to(seed, vring, bad);
        if attack.chain.len() > usize::from(self.ring_size) {
            attack.chain.truncate(1);
        }
        self.in_table(attack)
    }

    /// That chain in an indirect table.
    fn in_table(&self, attack: Attack) -> Attack {
        let elsewhere = attack
            .chain
            .iter()
            .enumerate()
            .map(|(index, d)| (self.tables + u64::from(table_len(index)), *d))
            .collect();
        let table = Descriptor {
            addr: self.tables,
            len: table_len(attack.chain.len()),
            flags: DESC_INDIRECT,
            next: 0,
        };
        Attack {
            chain: vec![table],
            elsewhere,
            ..attack
        }
    }

    fn chain_or_table(&self, seed: &mut Seed, vring: usize, bad: Descriptor) -> Attack {
        if seed.chance(1, 3) {
            self.table_to(seed, vring, bad)
        } else {
            self.chain_to(seed, vring, bad)
        }
    }

    fn indirect(&self, seed: &mut Seed, vring: usize, addr: u64, len: u32, more_flags: u16) -> Attack {
        let bad = Descriptor {
            addr,
            len,
            flags: DESC_INDIRECT | more_flags,
            next: seed.any() as u16 % self.ring_size,
        };
        self.chain_to(seed, vring, bad)
    }

    /// An address whose `len` bytes are not all in memory and do not wrap.
    fn outside(&self, seed: &mut Seed, len: u32) -> u64 {
        match seed.range(0, 4) {
            0 => seed.range(0, MEMORY_BASE - 1),
            1 => seed.range(self.end, 1 << 62),
            // Ends just behind the memory, or begins just before it.
            2 => self.end - seed.range(0, u64::from(len) - 1),
            3 => MEMORY_BASE - seed.range(1, u64::from(len)),
            _ => self.end + seed.range(0, 64),
        }
    }

    /// An attack of the family `rule`.
    pub fn attack(&self, rule: &str, seed: &mut Seed) -> Attack {
        let size = self.ring_size;
        let either = if seed.chance(1, 2) { RX } else { TX };
        match rule {
            "avail_index_jump" => {
                let jump = if seed.chance(1, 3) {
                    u64::from(size) + 1
                } else {
                    seed.range(u64::from(size) + 1, 65_535)
                };
                let chain = vec![self.sound(seed, either)];
                Attack {
                    vring: either,
                    chain,
                    heads: vec![0],
                    avail_jump: Some(jump as u16),
                    ..Attack::default()
                }
            }
            "head_out_of_range" => {
                let head = if seed.chance(1, 3) {
                    u64::from(size)
                } else {
                    seed.range(u64::from(size), 65_535)
                };
                let chain = vec![self.sound(seed, either)];
                let heads = if either == TX && seed.chance(1, 2) {
                    vec![0, head as u16]
                } else {
                    vec![head as u16]
                };
                Attack {
                    vring: either,
                    chain,
                    heads,
                    ..Attack::default()
                }
            }
            "next_out_of_range" => {
                let next = if seed.chance(1, 3) {
                    u64::from(size)
                } else {
                    seed.range(u64::from(size), 65_535)
                };
                let mut bad = self.sound(seed, either);
                (bad.flags, bad.next) = (bad.flags | DESC_NEXT, next as u16);
                self.chain_or_table(seed, either, bad)
            }
            "chain_too_long" => self.too_long(seed, either),
            "indirect_not_negotiated" => {
                let len = table_len(seed.range(1, u64::from(size)) as usize);
                self.indirect(seed, either, self.tables, len, 0)
            }
            "chain_too_scattered" => {
                let count = seed.pick(&[259, 260, 300, 512, 1000, u64::from(size) - 1]) - 1;
                let mut chain: Vec<_> = (0..=count).map(|_| self.sound(seed, either)).collect();
                link(&mut chain[..count as usize]);
                let attack = Attack {
                    vring: either,
                    chain,
                    heads: vec![0],
                    ..Attack::default()
                };
                if seed.chance(1, 2) {
                    self.in_table(attack)
                } else {
                    attack
                }
            }
            "indirect_nested" => {
                let len = table_len(seed.range(1, u64::from(size)) as usize);
                if seed.chance(1, 2) {
                    return self.indirect(seed, either, self.tables, len, DESC_NEXT);
                }
                let inner = Descriptor {
                    addr: self.tables + (32 << 10),
                    len,
                    flags: DESC_INDIRECT,
                    next: 0,
                };
                self.table_to(seed, either, inner)
            }
            "indirect_length" => {
                let len = match seed.range(0, 3) {
                    0 => 0,
                    1 => table_len(usize::from(size) + 1),
                    2 => table_len(seed.range(u64::from(size) + 1, (1 << 28) - 1) as usize),
                    _ => table_len(seed.range(0, u64::from(size)) as usize) + seed.range(1, 15) as u32,
                };
                self.indirect(seed, either, self.tables, len, 0)
            }
            "indirect_outside_memory" => {
                let len = table_len(seed.range(1, u64::from(size)) as usize);
                let addr = if seed.chance(1, 8) {
                    0_u64.wrapping_sub(seed.range(1, u64::from(len)))
                } else {
                    self.outside(seed, len)
                };
                self.indirect(seed, either, addr, len, 0)
            }
            "buffer_outside_memory" => {
                let mut bad = self.sound(seed, either);
                bad.len = seed.pick(&[1, 12, 60, 1526, 65_550, u32::MAX]);
                bad.addr = self.outside(seed, bad.len);
                self.chain_or_table(seed, either, bad)
            }
            "length_wraps" => {
                let mut bad = self.sound(seed, either);
                let below_top = if seed.chance(1, 2) {
                    seed.range(1, 4096)
                } else {
                    seed.range(1, u64::from(u32::MAX))
                };
                bad.addr = 0_u64.wrapping_sub(below_top);
                bad.len = seed.range(below_top, u64::from(u32::MAX)) as u32;
                self.chain_or_table(seed, either, bad)
            }
            "writable_in_transmit" => {
                let mut bad = self.sound(seed, TX);
                bad.flags |= DESC_WRITE;
                self.chain_or_table(seed, TX, bad)
            }
            "read_only_in_receive" => {
                let mut bad = self.sound(seed, RX);
                bad.flags &= !DESC_WRITE;
                self.chain_or_table(seed, RX, bad)
            }
            "transmit_header_too_short" => self.too_short(seed, TX),
            "receive_buffer_too_short" => self.too_short(seed, RX),
            other => panic!("no attacks against {other}"),
        }
    }

    /// Loops, and a direct chain that goes on in a table with more descriptors in all than the ring has.
    fn too_long(&self, seed: &mut Seed, vring: usize) -> Attack {
        let size = usize::from(self.ring_size);
        if seed.chance(1, 4) {
            let direct = seed.range(1, size as u64 - 1) as usize;
            let mut chain: Vec<_> = (0..direct).map(|_| self.sound(seed, vring)).collect();
            chain.push(Descriptor {
                addr: self.tables,
                len: table_len(size),
                flags: DESC_INDIRECT,
                next: 0,
            });
            link(&mut chain[..direct]);
            let mut table: Vec<_> = (0..size).map(|_| self.sound(seed, vring)).collect();
            link(&mut table[..size - 1]);
            let elsewhere = table
                .iter()
                .enumerate()
                .map(|(at, d)| (self.tables + u64::from(table_len(at)), *d))
                .collect();
            return Attack {
                vring,
                chain,
                elsewhere,
                heads: vec![0],
                ..Attack::default()
            };
        }
        let length = seed.pick(&[1, 2, 3, 17, size]);
        let mut ring: Vec<_> = (0..length).map(|_| self.sound(seed, vring)).collect();
        link(&mut ring);
        // The last one leads back into the chain.
        ring[length - 1].next = seed.range(0, length as u64 - 1) as u16;
        if seed.chance(1, 3) {
            let elsewhere = ring
                .iter()
                .enumerate()
                .map(|(at, d)| (self.tables + u64::from(table_len(at)), *d))
                .collect();
            let table = Descriptor {
                addr: self.tables,
                len: table_len(length),
                flags: DESC_INDIRECT,
                next: 0,
            };
            return Attack {
                vring,
                chain: vec![table],
                elsewhere,
                heads: vec![0],
                ..Attack::default()
            };
        }
        Attack {
            vring,
            chain: ring,
            heads: vec![0],
            ..Attack::default()
        }
    }

    /// A chain whose buffers hold fewer than 12 bytes in all.
    fn too_short(&self, seed: &mut Seed, vring: usize) -> Attack {
        let mut left = seed.range(0, 11) as u32;
        let pieces = seed.range(1, 5) as usize;
        let mut chain = Vec::new();
        for piece in 0..pieces {
            let mut descriptor = self.sound(seed, vring);
            descriptor.len = if piece + 1 == pieces {
                left
            } else {
                seed.range(0, u64::from(left)) as u32
            };
            left -= descriptor.len;
            chain.push(descriptor);
        }
        link(&mut chain[..pieces - 1]);
        Attack {
            vring,
            chain,
            heads: vec![0],
            ..Attack::default()
        }
    }

    /// Rings full of values that are sound, odd or plain nonsense, in a mixture.
    pub fn garbage(&self, seed: &mut Seed) -> Attack {
        let vring = if seed.chance(1, 8) { RX } else { TX };
        let size = usize::from(self.ring_size);
        let entry = |seed: &mut Seed| {
            let mut descriptor = self.sound(seed, vring);
            // Mostly sound, so that the device gets far before it finds something.
            if seed.chance(1, 200) {
                descriptor.addr = seed.odd_number();
            }
            if seed.chance(1, 5) {
                descriptor.len = seed.pick(&[12, 13, 25, 26, 60, 9012, 9034, 9035, 16_000]);
            }
            if seed.chance(1, 60) {
                descriptor.len = seed.pick(&[0, 1, 2, 11]);
            }
            if seed.chance(1, 300) {
                descriptor.len = seed.odd_number() as u32;
            }
            if seed.chance(1, 3) {
                descriptor.flags |= DESC_NEXT;
            }
            if seed.chance(1, 300) {
                descriptor.flags ^= DESC_WRITE;
            }
            if seed.chance(1, 300) {
                descriptor.flags = seed.any() as u16;
            }
            descriptor.next =
                seed.range(0, size as u64) as u16 & if seed.chance(1, 300) { u16::MAX } else { size as u16 - 1 };
            descriptor
        };
        let mut chain: Vec<_> = (0..size).map(|_| entry(seed)).collect();
        // Indirect tables have up to 8 entries.
        let mut table: Vec<_> = (0..size).map(|_| entry(seed)).collect();
        table
            .iter_mut()
            .for_each(|descriptor| descriptor.next %= if seed.chance(1, 40) { 64 } else { 8 });
        for descriptor in &mut chain {
            if seed.chance(1, 10) {
                let entries = seed.range(1, 8) as usize;
                *descriptor = Descriptor {
                    addr: self.tables,
                    len: table_len(entries),
                    flags: DESC_INDIRECT,
                    next: 0,
                };
            }
        }
        let elsewhere = table
            .iter()
            .enumerate()
            .map(|(at, d)| (self.tables + u64::from(table_len(at)), *d))
            .collect();
        let count = seed.range(1, size as u64);
        let heads = (0..count).map(|_| seed.range(0, size as u64 - 1) as u16).collect();
        let jump = seed.range(size as u64 + 1, 65_535) as u16;
        let avail_jump = seed.chance(1, 50).then_some(jump);
        Attack {
            vring,
            chain,
            elsewhere,
            heads,
            avail_jump,
        }
    }
}

/// Makes every descriptor lead to the one behind it.
fn link(chain: &mut [Descriptor]) {
    for (index, descriptor) in chain.iter_mut().enumerate() {
        descriptor.flags |= DESC_NEXT;
        descriptor.next = index as u16 + 1;
    }
}

//! Programs in the kernel's classic packet filter language, attached to a port. This module knows no protocol: the
//! author of a program decides what it checks.

/// One instruction, in the layout of the kernel's `sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip when a comparison holds.
    pub if_true: u8,
    /// Instructions to skip when it does not.
    pub if_false: u8,
    /// Operand.
    pub operand: u32,
}

const _: () = assert!(size_of::<Instruction>() == size_of::<libc::sock_filter>());

impl Instruction {
    const fn new(code: u32, operand: u32) -> Self {
        Self {
            code: code as u16,
            if_true: 0,
            if_false: 0,
            operand,
        }
    }

    /// Loads the byte at `offset` of the frame; a shorter frame does not pass.
    pub const fn load_byte(offset: u32) -> Self {
        Self::new(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, offset)
    }

    /// Loads the two bytes at `offset`, big-endian; a shorter frame does not pass.
    pub const fn load_half(offset: u32) -> Self {
        Self::new(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, offset)
    }

    /// Loads the length of the frame, in bytes.
    pub const fn load_len() -> Self {
        Self::new(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0)
    }

    /// Loads the index of the interface that the frame came from.
    pub const fn load_interface() -> Self {
        Self::new(
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            (libc::SKF_AD_OFF + libc::SKF_AD_IFINDEX) as u32,
        )
    }

    /// Loads how the frame was addressed, as `sll_pkttype` of packet(7) says it.
    pub const fn load_packet_type() -> Self {
        Self::new(
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32,
        )
    }

    /// Loads a constant.
    pub const fn load(value: u32) -> Self {
        Self::new(libc::BPF_LD | libc::BPF_IMM, value)
    }

    /// Keeps only these bits of what is loaded.
    pub const fn and(mask: u32) -> Self {
        Self::new(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask)
    }

    /// Flips these bits of what is loaded.
    pub const fn xor(bits: u32) -> Self {
        Self::new(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_K, bits)
    }

    /// Shifts what is loaded left by the index register.
    pub const fn shift_left_by_index() -> Self {
        Self::new(libc::BPF_ALU | libc::BPF_LSH | libc::BPF_X, 0)
    }

    /// Copies what is loaded to the index register.
    pub const fn to_index() -> Self {
        Self::new(libc::BPF_MISC | libc::BPF_TAX, 0)
    }

    /// Skips `if_true` instructions if what is loaded equals `value`, else `if_false`.
    pub const fn if_equal(value: u32, if_true: u8, if_false: u8) -> Self {
        Self {
            if_true,
            if_false,
            ..Self::new(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value)
        }
    }

    /// Skips `if_true` instructions if what is loaded is greater than or equal to `value`, else `if_false`.
    pub const fn if_at_least(value: u32, if_true: u8, if_false: u8) -> Self {
        Self {
            if_true,
            if_false,
            ..Self::new(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, value)
        }
    }

    /// Skips `if_true` instructions if what is loaded has any of the bits of `mask`, else `if_false`.
    pub const fn if_any(mask: u32, if_true: u8, if_false: u8) -> Self {
        Self {
            if_true,
            if_false,
            ..Self::new(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, mask)
        }
    }

    /// Skips instructions.
    pub const fn skip(count: u32) -> Self {
        Self::new(libc::BPF_JMP | libc::BPF_JA, count)
    }

    /// Passes the frame, whole.
    pub const fn pass() -> Self {
        Self::new(libc::BPF_RET | libc::BPF_K, u32::MAX)
    }

    /// Chooses the socket with this number, in a program of a group.
    pub const fn choose(member: u32) -> Self {
        Self::new(libc::BPF_RET | libc::BPF_K, member)
    }

    /// Drops the frame.
    pub const fn drop() -> Self {
        Self::new(libc::BPF_RET | libc::BPF_K, 0)
    }
}

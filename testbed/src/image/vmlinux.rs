//! The kernel inside a bzImage, as QEMU starts it at its PVH entry: a guest then need not unpack it, which under TCG
//! takes longer than anything else before its first process. A kernel that cannot be unpacked, or has no such entry,
//! stays a bzImage.

use std::io::Read;

use object::{
    Endianness, elf,
    read::elf::{FileHeader, ProgramHeader},
};

/// Longest kernel that is unpacked, in bytes: several times those of distributions.
const LEN_MAX: usize = 256 << 20;

/// Places in a bzImage of its signature, of the version of its boot protocol, and of the position of its payload.
const SIGNATURE_OFFSET: usize = 0x202;
const VERSION_OFFSET: usize = 0x206;
const VERSION_MIN: u16 = 0x208;
const SETUP_SECTORS_OFFSET: usize = 0x1f1;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LEN_OFFSET: usize = 0x24c;

/// First bytes of each kind of payload.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
const LZ4_LEGACY: [u8; 4] = 0x184c_2102_u32.to_le_bytes();
const XZ: [u8; 6] = *b"\xfd7zXZ\0";

/// Number of bytes that one block of a legacy LZ4 file unpacks to at most.
const LZ4_BLOCK_LEN_MAX: usize = 8 << 20;

/// Number of the note that contains the PVH entry.
const XEN_ELFNOTE_PHYS32_ENTRY: u32 = 18;

/// Returns the kernel in `bz_image`, if QEMU can start it.
pub(super) fn of(bz_image: &[u8]) -> Option<Vec<u8>> {
    unpack(bz_image).filter(|kernel| has_pvh_entry(kernel))
}

/// Returns the kernel in `bz_image`, if its compression is known here.
pub(super) fn unpack(bz_image: &[u8]) -> Option<Vec<u8>> {
    let Payload { packed, whole, len } = payload(bz_image)?;
    let kernel = if packed.starts_with(&LZ4_LEGACY) {
        unpack_lz4(&packed[LZ4_LEGACY.len()..])?
    } else if packed.starts_with(&XZ) {
        read_all(lzma_rust2::XzReader::new(packed, false))?
    } else if packed.starts_with(&ZSTD) {
        read_all(ruzstd::decoding::StreamingDecoder::new(packed).ok()?)?
    } else if packed.starts_with(&GZIP) {
        read_all(flate2::read::GzDecoder::new(whole))?
    } else {
        return None;
    };
    (kernel.len() == len).then_some(kernel)
}

/// Returns whether a driver may be built into an unpacked kernel. A built-in driver has its name there, by which it is
/// known in `/sys`; a kernel that contains the name need not have the driver.
pub(super) fn may_have_driver(kernel: &[u8], module: &str) -> bool {
    let with_dash = module.replace('_', "-");
    [module, &with_dash]
        .iter()
        .any(|name| memchr::memmem::find(kernel, name.as_bytes()).is_some())
}

fn number(bytes: &[u8], offset: usize) -> Option<usize> {
    let bytes = bytes.get(offset..offset.checked_add(4)?)?;
    usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
}

/// The payload is a packed kernel.
struct Payload<'a> {
    packed: &'a [u8],
    /// Packed bytes with the length behind them, which gzip writes itself and the kernel's build adds to the output of
    /// other packers.
    whole: &'a [u8],
    /// Length of the unpacked kernel in bytes.
    len: usize,
}

fn payload(bz_image: &[u8]) -> Option<Payload<'_>> {
    let version = bz_image.get(VERSION_OFFSET..VERSION_OFFSET + 2)?;
    let version = u16::from_le_bytes(version.try_into().ok()?);
    if !bz_image.get(SIGNATURE_OFFSET..)?.starts_with(b"HdrS") || version < VERSION_MIN {
        return None;
    }
    // 0 means 4, for very old loaders.
    let sectors = match bz_image[SETUP_SECTORS_OFFSET] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = ((sectors + 1) * 512).checked_add(number(bz_image, PAYLOAD_OFFSET)?)?;
    let end = start.checked_add(number(bz_image, PAYLOAD_LEN_OFFSET)?)?;
    let len_at = end.checked_sub(4)?;
    Some(Payload {
        packed: bz_image.get(start..len_at)?,
        whole: bz_image.get(start..end)?,
        len: number(bz_image, len_at)?,
    })
}

/// Unpacks blocks, each behind its length.
fn unpack_lz4(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut kernel = Vec::new();
    while !rest.is_empty() {
        let len = number(rest, 0)?;
        let block = rest.get(4..len.checked_add(4)?)?;
        kernel.extend(lz4_flex::block::decompress(block, LZ4_BLOCK_LEN_MAX).ok()?);
        if kernel.len() > LEN_MAX {
            return None;
        }
        rest = &rest[4 + len..];
    }
    Some(kernel)
}

fn read_all(unpacking: impl Read) -> Option<Vec<u8>> {
    let mut kernel = Vec::new();
    unpacking.take(LEN_MAX as u64 + 1).read_to_end(&mut kernel).ok()?;
    (kernel.len() <= LEN_MAX).then_some(kernel)
}

/// Returns whether it is a 64-bit program with a note about QEMU's entry point.
fn has_pvh_entry(kernel: &[u8]) -> bool {
    let note = || -> Option<bool> {
        let header = elf::FileHeader64::<Endianness>::parse(kernel).ok()?;
        let endian = header.endian().ok()?;
        if header.e_machine(endian) != elf::EM_X86_64 {
            return None;
        }
        for segment in header.program_headers(endian, kernel).ok()? {
            let Some(mut notes) = segment.notes(endian, kernel).ok()? else {
                continue;
            };
            while let Some(note) = notes.next().ok()? {
                if note.name() == b"Xen" && note.n_type(endian) == elf::NoteType(XEN_ELFNOTE_PHYS32_ENTRY) {
                    return Some(true);
                }
            }
        }
        None
    };
    note() == Some(true)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Makes a 64-bit program with one note.
    fn program(owner: &[u8; 4], number: u32) -> Vec<u8> {
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(16, 0);
        for half in [2_u16, elf::EM_X86_64.0] {
            elf.extend(half.to_le_bytes());
        }
        elf.extend(1_u32.to_le_bytes());
        for word in [0_u64, 64, 0] {
            elf.extend(word.to_le_bytes());
        }
        elf.extend(0_u32.to_le_bytes());
        for half in [64_u16, 56, 1, 0, 0, 0] {
            elf.extend(half.to_le_bytes());
        }
        for word in [elf::PT_NOTE.0, 4] {
            elf.extend(word.to_le_bytes());
        }
        for word in [120_u64, 0, 0, 20, 20, 4] {
            elf.extend(word.to_le_bytes());
        }
        for word in [4, 4, number] {
            elf.extend(word.to_le_bytes());
        }
        elf.extend(owner);
        elf.extend([0, 0, 0, 1]);
        elf
    }

    fn lz4(contents: &[u8]) -> Vec<u8> {
        let mut packed = LZ4_LEGACY.to_vec();
        for part in contents.chunks(60) {
            let block = lz4_flex::block::compress(part);
            packed.extend(u32::try_from(block.len()).expect("short").to_le_bytes());
            packed.extend(block);
        }
        packed
    }

    fn xz(contents: &[u8]) -> Vec<u8> {
        let mut writer = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).expect("options");
        writer.write_all(contents).expect("memory");
        writer.finish().expect("memory")
    }

    fn zstd(contents: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(contents, ruzstd::encoding::CompressionLevel::Uncompressed)
    }

    /// Packs without the length at the end.
    fn gzip(contents: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(contents).expect("memory");
        let mut packed = writer.finish().expect("memory");
        packed.truncate(packed.len() - 4);
        packed
    }

    fn bz_image(payload: &[u8], unpacked_len: usize) -> Vec<u8> {
        let mut image = vec![0; 1024];
        image[SETUP_SECTORS_OFFSET] = 1;
        image[SIGNATURE_OFFSET..VERSION_OFFSET].copy_from_slice(b"HdrS");
        image[VERSION_OFFSET..VERSION_OFFSET + 2].copy_from_slice(&VERSION_MIN.to_le_bytes());
        image[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].copy_from_slice(&7_u32.to_le_bytes());
        let len = u32::try_from(payload.len() + 4).expect("short");
        image[PAYLOAD_LEN_OFFSET..PAYLOAD_LEN_OFFSET + 4].copy_from_slice(&len.to_le_bytes());
        image.extend([0; 7]);
        image.extend(payload);
        image.extend(u32::try_from(unpacked_len).expect("short").to_le_bytes());
        image
    }

    #[test]
    fn a_kernel_with_the_entry_comes_out_of_each_packing_and_others_stay_where_they_are() {
        let kernel = program(b"Xen\0", XEN_ELFNOTE_PHYS32_ENTRY);
        let packed = |packed: Vec<u8>| of(&bz_image(&packed, kernel.len()));
        assert_eq!(packed(lz4(&kernel)).as_ref(), Some(&kernel));
        assert_eq!(packed(xz(&kernel)).as_ref(), Some(&kernel));
        assert_eq!(packed(zstd(&kernel)).as_ref(), Some(&kernel));
        assert_eq!(packed(gzip(&kernel)).as_ref(), Some(&kernel));
        assert_eq!(packed(lz4(&program(b"Xen\0", 5))), None, "another note");
        assert_eq!(packed(lz4(&program(b"GNU\0", 18))), None, "another owner");
        assert_eq!(packed(b"BZh91".to_vec()), None, "bzip2");
        assert_eq!(of(&bz_image(&lz4(&kernel), 1)), None, "another length");
        assert_eq!(of(&kernel), None, "no bzImage");
    }

    #[test]
    fn a_kernel_that_is_cut_off_or_damaged_stays_a_bz_image() {
        let kernel = program(b"Xen\0", XEN_ELFNOTE_PHYS32_ENTRY);
        for packed in [lz4(&kernel), xz(&kernel), zstd(&kernel), gzip(&kernel)] {
            let whole = bz_image(&packed, kernel.len());
            for len in 0..whole.len() {
                assert_eq!(of(&whole[..len]), None, "{len} bytes");
            }
            for place in 0..whole.len() {
                let mut damaged = whole.clone();
                damaged[place] ^= 0xff;
                // Any result is acceptable as long as it ends, and is a kernel or nothing.
                assert!(of(&damaged).is_none_or(|kernel| has_pvh_entry(&kernel)), "{place}");
            }
        }
    }
}

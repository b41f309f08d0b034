//! SHA-256 digests in hexadecimal.

use std::io::{self, Read};

use sha2::{Digest, Sha256};

/// Number of bytes that are read and hashed at a time.
const PIECE_LEN: usize = 1 << 20;

/// Renders bytes in hexadecimal.
pub(crate) fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads everything, and returns its digest.
pub(crate) fn digest_of(mut reader: impl Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE_LEN];
    loop {
        match reader.read(&mut piece)? {
            0 => return Ok(hex(hash.finalize())),
            length => hash.update(&piece[..length]),
        }
    }
}

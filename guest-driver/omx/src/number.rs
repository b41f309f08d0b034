//! The numbers of the open endpoints of this process: an address says which of them knows it.

use std::sync::{Mutex, PoisonError};

use crate::Error;

static TAKEN: Mutex<[u64; 4]> = Mutex::new([0; 4]);

/// A number that no other open endpoint of this process has: 0 … 255.
pub(crate) struct OpenNumber(pub(crate) u8);

impl OpenNumber {
    pub(crate) fn take() -> Result<Self, Error> {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let free = taken.iter().position(|word| *word != u64::MAX);
        let at = free.ok_or(Error::NoResources)?;
        let bit = taken[at].trailing_ones();
        taken[at] |= 1 << bit;
        Ok(Self((at as u32 * u64::BITS + bit) as u8))
    }
}

impl Drop for OpenNumber {
    fn drop(&mut self) {
        let (at, bit) = (u32::from(self.0) / u64::BITS, u32::from(self.0) % u64::BITS);
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner)[at as usize] &= !(1 << bit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_open_endpoints_never_share_a_number() {
        let (a, b) = (OpenNumber::take().unwrap(), OpenNumber::take().unwrap());
        assert_ne!(a.0, b.0);
        let many: Vec<OpenNumber> = (0..300).map_while(|_| OpenNumber::take().ok()).collect();
        let mut numbers: Vec<u8> = many.iter().map(|number| number.0).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), many.len());
        assert!(many.len() <= 254 && OpenNumber::take().is_err());
    }
}

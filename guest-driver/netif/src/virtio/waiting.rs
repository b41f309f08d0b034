//! Waits for cards that an authority is about to let go.

use std::time::{Duration, Instant};

use super::VirtioError;

/// An authority is waited for this long, which is longer than it stays without anything to do (5 s).
const RELEASE_LIMIT: Duration = Duration::from_secs(8);

/// Opens a card. If an authority has it that may be about to let it go, waits for that authority's end: one that was started for a
/// program lets its cards go by ending.
pub(super) fn open_after_authority<T>(open: impl Fn() -> Result<T, VirtioError>) -> Result<T, VirtioError> {
    let begin = Instant::now();
    loop {
        match open() {
            Err(VirtioError::InUse { by: Some(holder), .. })
                if holder.is_authority() && holder.ends_within(RELEASE_LIMIT.saturating_sub(begin.elapsed())) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtio::Holder;

    #[test]
    fn the_program_that_has_a_card_is_named() {
        let sentence = VirtioError::InUse {
            address: "00:04.0".parse().unwrap(),
            by: Some(Holder {
                pid: 7,
                name: "omxd".to_owned(),
            }),
        };
        assert_eq!(
            sentence.to_string(),
            "another program drives the card 0000:00:04.0 already (omxd, process 7); end it first"
        );
    }
}

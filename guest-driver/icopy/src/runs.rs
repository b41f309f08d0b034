//! Memory as the card has it: bytes that follow each other for the card, too; and places in it.

use netif::virtio::{PAGE, Piece};

/// Memory that is one behind the other in the process, in parts that follow each other for the card, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs(Vec<Run>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Where it begins in the process's memory, in bytes behind the first page.
    begin: usize,
    len: usize,
    address: u64,
}

/// A place in the memory of a [`Runs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    run: usize,
    /// Bytes behind the run's beginning, less than its length.
    offset: usize,
}

impl Runs {
    /// Joins pages that follow each other for the card.
    pub(crate) fn of_pages(pages: &[u64]) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        for (number, address) in pages.iter().enumerate() {
            match runs.last_mut() {
                Some(run) if run.address + run.len as u64 == *address => run.len += PAGE,
                _ => runs.push(Run {
                    begin: number * PAGE,
                    len: PAGE,
                    address: *address,
                }),
            }
        }
        Self(runs)
    }

    /// Returns the place `offset` bytes behind the first page, which must be in memory.
    pub(crate) fn cursor(&self, offset: usize) -> Cursor {
        let run = self.0.partition_point(|run| run.begin <= offset).saturating_sub(1);
        Cursor {
            run,
            offset: offset - self.0[run].begin,
        }
    }

    /// Returns the card's address of a place.
    pub(crate) fn address(&self, at: Cursor) -> u64 {
        self.0[at.run].address + at.offset as u64
    }

    /// Returns how many pieces `len` bytes from `at` on are, which must be in memory.
    pub(crate) fn count(&self, at: Cursor, len: usize) -> usize {
        let (mut left, mut offset) = (len, at.offset);
        let mut count = 0;
        for run in &self.0[at.run..] {
            if left == 0 {
                break;
            }
            left -= left.min(run.len - offset);
            offset = 0;
            count += 1;
        }
        count
    }

    /// Takes `len` bytes, which must be in memory, from `at` on: writes their pieces to `pieces` and returns how many, and moves `at`
    /// behind them. There must be as many pieces as pages that the bytes touch.
    #[inline]
    pub(crate) fn take(&self, at: &mut Cursor, len: u32, pieces: &mut [Piece]) -> usize {
        let mut left = len as usize;
        let mut count = 0;
        while left > 0 {
            let run = self.0[at.run];
            let here = left.min(run.len - at.offset);
            pieces[count] = Piece {
                address: run.address + at.offset as u64,
                len: here as u32,
            };
            count += 1;
            left -= here;
            at.offset += here;
            if at.offset == run.len {
                *at = Cursor {
                    run: at.run + 1,
                    offset: 0,
                };
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_are_the_bytes_one_by_one(
            pages in proptest::collection::vec(0u64..6, 1..12),
            begin in 0usize..8192,
            lens in proptest::collection::vec(1u32..9000, 1..8),
        ) {
            // Page numbers from few, so that neighbours are frequent.
            let pages: Vec<u64> = pages.iter().enumerate().map(|(at, page)| ((at as u64 / 3) * 8 + page) << 12).collect();
            let all = pages.len() * PAGE;
            let address = |offset: usize| pages[offset / PAGE] + (offset % PAGE) as u64;
            let runs = Runs::of_pages(&pages);
            prop_assume!(begin < all);
            let mut at = runs.cursor(begin);
            let mut offset = begin;
            for len in lens {
                if offset + len as usize >= all {
                    break;
                }
                prop_assert_eq!(runs.address(at), address(offset));
                let mut pieces = [Piece::default(); 4];
                let expected = runs.count(at, len as usize);
                let count = runs.take(&mut at, len, &mut pieces);
                prop_assert_eq!(count, expected);
                let mut taken = 0;
                for piece in &pieces[..count] {
                    for byte in 0..piece.len {
                        prop_assert_eq!(piece.address + u64::from(byte), address(offset + taken));
                        taken += 1;
                    }
                }
                prop_assert_eq!(taken, len as usize);
                offset += taken;
            }
        }
    }
}

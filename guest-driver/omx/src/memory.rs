//! The program's buffers: lists of segments, copied to and from at any offset. The caller that posts a request promises
//! that its segments stay until it is over; every access to them is in this file.

use std::{io::IoSlice, slice};

use crate::{Error, copies::Copies};

/// A message has at most so many segments.
pub const SEGMENTS_MAX: usize = 256;

/// A piece of the program's memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Segment {
    /// The first byte; not used if there is none.
    pub ptr: *mut u8,
    /// The length in bytes.
    pub len: u32,
}

impl Segment {
    /// Names memory to be sent, which is only read.
    pub const fn of(data: &[u8]) -> Self {
        Self {
            ptr: data.as_ptr().cast_mut(),
            len: data.len() as u32,
        }
    }

    /// Names memory to be received to.
    pub const fn of_mut(data: &mut [u8]) -> Self {
        Self {
            ptr: data.as_mut_ptr(),
            len: data.len() as u32,
        }
    }
}

#[derive(Debug)]
enum List {
    One(Segment),
    Two([Segment; 2]),
    Many(Box<[Segment]>),
}

/// The memory of one request.
#[derive(Debug)]
pub(crate) struct Segments {
    list: List,
    len: u32,
}

// SAFETY: the promise made to `Segments::new` is not tied to a thread.
unsafe impl Send for Segments {}

impl Segments {
    pub(crate) const EMPTY: Self = Self {
        list: List::One(Segment {
            ptr: std::ptr::null_mut(),
            len: 0,
        }),
        len: 0,
    };

    /// # Safety
    /// Until the request that gets them is over, the segments must stay valid for what it does: reading if it sends,
    /// writing if it receives. No other code may write to them or, if the request receives, read them.
    ///
    /// # Errors
    /// [`Error::BadSegments`].
    pub(crate) unsafe fn new(segments: &[Segment]) -> Result<Self, Error> {
        if segments.len() > SEGMENTS_MAX {
            return Err(Error::BadSegments);
        }
        let len: u64 = segments.iter().map(|segment| u64::from(segment.len)).sum();
        let len = u32::try_from(len).map_err(|_| Error::BadSegments)?;
        Ok(match segments {
            _ if len == 0 => Self::EMPTY,
            [one] => Self {
                list: List::One(*one),
                len,
            },
            [first, second] => Self {
                list: List::Two([*first, *second]),
                len,
            },
            many => Self {
                list: List::Many(many.iter().copied().filter(|segment| segment.len > 0).collect()),
                len,
            },
        })
    }

    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    fn list(&self) -> &[Segment] {
        match &self.list {
            List::One(one) => slice::from_ref(one),
            List::Two(two) => two,
            List::Many(many) => many,
        }
    }

    /// Calls `with` with every piece of memory that holds bytes `offset .. offset + len`, in order; what is beyond the end is
    /// left out.
    fn pieces(&self, offset: u32, len: usize, mut with: impl FnMut(*mut u8, usize)) {
        self.pieces_of_segments(offset, len, |ptr, len, _| with(ptr, len));
    }

    /// Calls `with` as [`Segments::pieces`] does, also with the segment that each piece lies in.
    fn pieces_of_segments(&self, offset: u32, len: usize, mut with: impl FnMut(*mut u8, usize, Segment)) {
        let (mut skip, mut left) = (offset as usize, len);
        for segment in self.list() {
            let segment_len = segment.len as usize;
            if skip >= segment_len {
                skip -= segment_len;
                continue;
            }
            let here = (segment_len - skip).min(left);
            if here == 0 {
                return;
            }
            with(segment.ptr.wrapping_add(skip), here, *segment);
            left -= here;
            skip = 0;
        }
    }

    /// Copies received bytes to offset `offset`; what is beyond the end is left out.
    #[inline]
    pub(crate) fn write(&mut self, offset: u32, data: &[u8]) {
        if let List::One(one) = &self.list
            && offset == 0
        {
            let len = data.len().min(one.len as usize);
            // SAFETY: the first `len` bytes of the segment, which may be written (`new`); `data` is not the program's.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), one.ptr, len) };
            return;
        }
        let mut rest = data;
        self.pieces(offset, data.len(), |ptr, len| {
            let (now, later) = rest.split_at(len);
            // SAFETY: `ptr .. ptr + len` lies inside a segment, which may be written (`new`); `data` is not the program's.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), ptr, len) };
            rest = later;
        });
    }

    /// Has a copy engine copy received bytes to offset `offset`; what is beyond the end is left out. Returns how many bytes the engine
    /// copies; the others are in their place.
    ///
    /// # Safety
    /// `data` and the request stay as they are until the copies that this submits are finished, and [`Copies::over`] is called with the
    /// segments before the request is over.
    pub(crate) unsafe fn write_by(&mut self, offset: u32, data: &[u8], copies: &mut Copies) -> usize {
        let (mut rest, mut submitted) = (data, 0);
        self.pieces_of_segments(offset, data.len(), |ptr, len, segment| {
            let (now, later) = rest.split_at(len);
            // SAFETY: as in `write`, and both stay, as the caller promises.
            if unsafe { copies.copy(now.as_ptr(), ptr, len, segment) } {
                submitted += len;
            }
            rest = later;
        });
        submitted
    }

    /// Returns all bytes, if they lie in one piece.
    #[inline]
    pub(crate) fn as_slice(&self) -> Option<&[u8]> {
        match &self.list {
            _ if self.len == 0 => Some(&[]),
            // SAFETY: as in `read`; borrowed no longer than `self`, which goes when the request is over.
            List::One(one) => Some(unsafe { slice::from_raw_parts(one.ptr, one.len as usize) }),
            List::Two(_) | List::Many(_) => None,
        }
    }

    /// Returns a copy of all bytes, in memory that nothing is written to before.
    pub(crate) fn to_boxed(&self) -> Box<[u8]> {
        let mut copy = Vec::with_capacity(self.len as usize);
        self.pieces(0, self.len as usize, |ptr, len| {
            // SAFETY: as in `read_at`; nobody writes to it during this call.
            copy.extend_from_slice(unsafe { slice::from_raw_parts(ptr, len) });
        });
        copy.into_boxed_slice()
    }

    /// Copies the first bytes out, as many as `out` has.
    pub(crate) fn read(&self, out: &mut [u8]) {
        self.read_at(0, out);
    }

    /// Copies bytes from `offset` on out, as many as `out` has.
    #[inline]
    pub(crate) fn read_at(&self, offset: u32, out: &mut [u8]) {
        let mut at = 0;
        self.pieces(offset, out.len(), |ptr, len| {
            // SAFETY: `ptr .. ptr + len` lies inside a segment, which may be read (`new`); `out` is not the program's.
            unsafe { std::ptr::copy_nonoverlapping(ptr, out[at..].as_mut_ptr(), len) };
            at += len;
        });
    }

    /// Returns address and length of each piece, in order: another process needs them to read the pieces.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (u64, u64)> {
        let pieces = self.list().iter().filter(|segment| segment.len > 0);
        pieces.map(|segment| (segment.ptr.addr() as u64, segment.len.into()))
    }

    /// Copies up to `len` bytes from offset `offset` of another process's memory, which is `remote`, to that offset
    /// here. Returns how many; fewer where the other memory ends.
    pub(crate) fn read_process(
        &mut self,
        pid: i32,
        remote: &[(u64, u64)],
        offset: u32,
        len: u32,
    ) -> std::io::Result<u32> {
        let iovec = |base, len| libc::iovec {
            iov_base: base,
            iov_len: len,
        };
        let mut here = Vec::with_capacity(self.list().len());
        self.pieces(offset, len as usize, |ptr, len| here.push(iovec(ptr.cast(), len)));
        let mut there = Vec::with_capacity(remote.len());
        let (mut skip, mut left) = (u64::from(offset), u64::from(len));
        for (address, piece_len) in remote {
            if skip >= *piece_len {
                skip -= piece_len;
                continue;
            }
            let now = (piece_len - skip).min(left);
            if now == 0 {
                break;
            }
            let base = std::ptr::without_provenance_mut(address.wrapping_add(skip) as usize);
            there.push(iovec(base, now as usize));
            left -= now;
            skip = 0;
        }
        // SAFETY: `here` names memory inside the segments, which may be written (`new`); `there` is only looked at in the
        // other process, where the system checks it.
        let read = unsafe {
            libc::process_vm_readv(
                pid,
                here.as_ptr(),
                here.len() as libc::c_ulong,
                there.as_ptr(),
                there.len() as libc::c_ulong,
                0,
            )
        };
        match u32::try_from(read) {
            Ok(read) => Ok(read),
            Err(_) => Err(std::io::Error::last_os_error()),
        }
    }

    /// Returns a copy of all bytes. `None`: the program has given some of the memory back, although the request is not over, or the system
    /// lets no program read its own memory so.
    pub(crate) fn copied(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.len as usize];
        // SAFETY: `bytes` lives until `own` goes, and nothing else uses it meanwhile.
        let mut own = unsafe { Self::new(&[Segment::of_mut(&mut bytes)]) }.ok()?;
        let there: Vec<_> = self.addresses().collect();
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let mut read = 0;
        while read < self.len {
            match own.read_process(pid, &there, read, self.len - read) {
                Ok(0) | Err(_) => return None,
                Ok(more) => read += more,
            }
        }
        Some(bytes)
    }

    /// Adds the memory of bytes `offset .. offset + len` to a list for sending.
    #[inline]
    pub(crate) fn append_parts<'a>(&'a self, offset: u32, len: u32, parts: &mut Vec<IoSlice<'a>>) {
        self.pieces(offset, len as usize, |ptr, len| {
            // SAFETY: as in `read`; borrowed no longer than `self`, which goes when the request is over.
            parts.push(IoSlice::new(unsafe { slice::from_raw_parts(ptr, len) }));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_to_and_come_from_any_offset_of_a_list() {
        let mut memory = [0u8; 40];
        let base = memory.as_mut_ptr();
        let list: Vec<Segment> = [(0, 3), (10, 0), (20, 5), (30, 7)]
            .iter()
            .map(|(at, len)| Segment {
                ptr: base.wrapping_add(*at),
                len: *len,
            })
            .collect();
        // SAFETY: all inside `memory`, which outlives the list and is not used meanwhile.
        let mut segments = unsafe { Segments::new(&list) }.unwrap();
        assert_eq!(segments.len(), 15);
        segments.write(2, &[1, 2, 3, 4, 5, 6, 7, 8]);
        segments.write(14, &[9, 9, 9]);
        let mut out = [0; 15];
        segments.read(&mut out);
        assert_eq!(out, [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 9]);
        assert_eq!(*segments.to_boxed(), out);
        let mut parts = Vec::new();
        segments.append_parts(1, 9, &mut parts);
        let lens: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        assert_eq!(lens, [2, 5, 2]);
        assert_eq!(memory[36], 9);
        assert_eq!(memory[37..], [0, 0, 0], "nothing beyond the end");
    }

    #[test]
    fn memory_that_is_not_there_any_more_is_not_copied() {
        let mut memory = [1, 2, 3, 4, 5, 6];
        let [first, second] = [0, 4].map(|at| Segment {
            ptr: memory.as_mut_ptr().wrapping_add(at),
            len: 2,
        });
        let gone = Segment {
            ptr: std::ptr::without_provenance_mut(4096),
            len: 2,
        };
        // SAFETY: inside `memory`, which outlives them, or never read but by the system.
        let copied = |list: &[Segment]| unsafe { Segments::new(list) }.unwrap().copied();
        assert_eq!(copied(&[first, second]), Some(vec![1, 2, 5, 6]));
        assert_eq!(copied(&[]), Some(vec![]));
        assert_eq!(copied(&[first, gone]), None);
    }

    #[test]
    fn too_many_segments_and_too_many_bytes_are_refused() {
        let one = Segment {
            ptr: std::ptr::null_mut(),
            len: 0,
        };
        // SAFETY: empty segments, which nothing reads.
        unsafe {
            assert!(Segments::new(&[one; SEGMENTS_MAX]).is_ok());
            assert!(matches!(
                Segments::new(&[one; SEGMENTS_MAX + 1]),
                Err(Error::BadSegments)
            ));
        }
        let huge = Segment { len: u32::MAX, ..one };
        // SAFETY: refused before anything reads them.
        let refused = unsafe { Segments::new(&[huge, huge]) };
        assert!(matches!(refused, Err(Error::BadSegments)));
    }
}

//! Several requests in flight at once, each with a buffer of its own that outlives it whatever happens.

use omx::{Request, Segment};

use super::side::{Buffer, Side};

/// At most this many requests are in flight: enough that neither side waits for the other.
const REQUESTS_MAX: usize = 64;
/// At most this many bytes in all buffers: a peer may make this side allocate no more, unless one message alone is
/// longer.
const BYTES_MAX: usize = 64 << 20;

struct Slot {
    buffer: Buffer,
    request: Option<Request>,
}

/// The requests in the order in which they were made.
pub(super) struct Window<'a> {
    side: &'a Side<'a>,
    slots: Vec<Slot>,
}

impl<'a> Window<'a> {
    pub(super) fn new(side: &'a Side<'a>, length: usize, aligned: bool) -> anyhow::Result<Self> {
        let count = (BYTES_MAX / length.max(1)).clamp(1, REQUESTS_MAX);
        let slots = (0..count).map(|_| {
            Ok(Slot {
                buffer: Buffer::new(length, aligned)?,
                request: None,
            })
        });
        let slots = slots.collect::<anyhow::Result<_>>()?;
        Ok(Self { side, slots })
    }

    /// Returns how many requests there can be at once.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Waits for the request made `len` requests before this one, and sends.
    pub(super) fn send(&mut self, number: u64) -> anyhow::Result<()> {
        let slot = self.free(number)?;
        let data = Segment::of(self.slots[slot].buffer.bytes());
        let Side {
            endpoint,
            partner,
            match_info,
            synchronous,
            ..
        } = *self.side;
        // SAFETY: the buffer stays where it is until the request is over: `free` and `drop` see to it.
        let request = unsafe { endpoint.isend(&[data], partner, match_info, 0, synchronous) }?;
        self.slots[slot].request = Some(request);
        Ok(())
    }

    /// Waits for the request made `len` requests before this one, and receives.
    pub(super) fn receive(&mut self, number: u64) -> anyhow::Result<()> {
        let slot = self.free(number)?;
        let buffer = Segment::of_mut(self.slots[slot].buffer.bytes_mut());
        let info = self.side.match_info;
        // SAFETY: as in `send`.
        let request = unsafe { self.side.endpoint.irecv(&[buffer], info, u64::MAX, 0) }?;
        self.slots[slot].request = Some(request);
        Ok(())
    }

    /// Waits until the request of this number is over, and returns the slot that it used.
    pub(super) fn free(&mut self, number: u64) -> anyhow::Result<usize> {
        let slot = (number % self.slots.len() as u64) as usize;
        if let Some(request) = self.slots[slot].request {
            let over = self.side.over(request);
            self.slots[slot].request = None;
            over?;
        }
        Ok(slot)
    }
}

impl Drop for Window<'_> {
    /// Ends all requests after a failure: none may still write to or read from a buffer that is freed.
    fn drop(&mut self) {
        for slot in &mut self.slots {
            let Some(request) = slot.request.take() else { continue };
            if self.side.end(request).is_err()
                && let Ok(unused) = Buffer::new(0, false)
            {
                // It is not known whether it is still in use.
                std::mem::forget(std::mem::replace(&mut slot.buffer, unused));
            }
        }
    }
}

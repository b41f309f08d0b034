//! Receives and probes beyond MX, for interfaces such as libfabric's: messages of one source only, and messages that are
//! claimed before they are received.

use mxoe::matching::{Filter, SourceKey, UnexpectedId};

use crate::{
    Endpoint, Error, Request, RequestKind, Segment, Status, completion::selector, memory::Segments, store::HEAD_LEN,
};

/// The messages that a receive or a probe takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageFilter {
    /// The match information that a message has where the mask has bits.
    pub match_info: u64,
    /// The bits of the match information that count.
    pub match_mask: u64,
    /// The only endpoint that the messages come from; `None`: any.
    pub source: Option<SourceKey>,
}

impl MessageFilter {
    /// This filter takes any message.
    pub const ANY: Self = Self {
        match_info: 0,
        match_mask: 0,
        source: None,
    };

    fn checked(self) -> Result<Filter, Error> {
        Ok(Filter {
            selector: selector(self.match_info, self.match_mask)?,
            source: self.source,
        })
    }
}

/// A message that has arrived and was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundMessage {
    /// Its description.
    pub status: Status,
    /// Its first bytes, zeros beyond its end; all zeros for a large message whose sender [does not announce
    /// them](crate::EndpointOptions::announces_head).
    pub head: [u8; HEAD_LEN],
}

/// A message that was claimed: no receive and no probe finds it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim(UnexpectedId);

impl Endpoint {
    /// Posts a receive, as [`Endpoint::irecv`], for the messages that `filter` takes.
    ///
    /// # Safety
    /// As [`Endpoint::irecv`].
    ///
    /// # Errors
    /// As [`Endpoint::irecv`].
    pub unsafe fn irecv_filtered(
        &self,
        segments: &[Segment],
        filter: MessageFilter,
        context: u64,
    ) -> Result<Request, Error> {
        let filter = filter.checked()?;
        // SAFETY: the caller's promise is that of `Segments::new`.
        let memory = unsafe { Segments::new(segments) }?;
        self.post(|core| core.receive(memory, filter, context).map(Request))
    }

    /// Describes the first unexpected message that `filter` takes, which stays. One whose first bytes are still to
    /// arrive is not told.
    ///
    /// # Errors
    /// [`Error::BadMatchMask`], [`Error::BadEndpoint`].
    pub fn iprobe_filtered(&self, filter: MessageFilter) -> Result<Option<FoundMessage>, Error> {
        let filter = filter.checked()?;
        self.inspect(|core| {
            let found = core.store.table.unexpected.peek(filter).and_then(|(_, message)| {
                Some(FoundMessage {
                    head: message.head()?,
                    status: core.describe(message),
                })
            });
            Ok(found)
        })
    }

    /// Claims the first unexpected message that `filter` takes, for [`Endpoint::receive_claimed`] or
    /// [`Endpoint::drop_claimed`]. One whose first bytes are still to arrive is not claimed.
    ///
    /// # Errors
    /// [`Error::BadMatchMask`], [`Error::BadEndpoint`].
    pub fn claim(&self, filter: MessageFilter) -> Result<Option<(Claim, FoundMessage)>, Error> {
        let filter = filter.checked()?;
        self.inspect(|core| {
            let Some((_, message)) = core.store.table.unexpected.peek(filter) else {
                return Ok(None);
            };
            let Some(head) = message.head() else { return Ok(None) };
            let status = core.describe(message);
            let claimed = core.store.table.unexpected.claim(filter);
            Ok(claimed.map(|id| (Claim(id), FoundMessage { status, head })))
        })
    }

    /// Posts a receive for the message that was claimed.
    ///
    /// # Safety
    /// As [`Endpoint::irecv`].
    ///
    /// # Errors
    /// [`Error::BadSegments`], [`Error::NoResources`], [`Error::BadEndpoint`]; [`Error::BadRequest`]: the message is gone,
    /// because it was taken before or its sender is lost.
    pub unsafe fn receive_claimed(&self, claim: Claim, segments: &[Segment], context: u64) -> Result<Request, Error> {
        // SAFETY: the caller's promise is that of `Segments::new`.
        let memory = unsafe { Segments::new(segments) }?;
        self.post(|core| {
            let store = &mut core.store;
            if !store.requests.has_room() {
                return Err(Error::NoResources);
            }
            let message = store.table.unexpected.remove(claim.0).ok_or(Error::BadRequest)?;
            let info = message.envelope.match_info;
            let request = store
                .requests
                .add(RequestKind::Receive, info, context)
                .ok_or(Error::NoResources)?;
            if let Some(entry) = store.requests.get_mut(request) {
                entry.memory = memory;
            }
            core.give(request, message);
            core.resume();
            Ok(Request(request))
        })
    }

    /// Drops the message that was claimed: its sender completes as if it had been received.
    ///
    /// # Errors
    /// [`Error::BadEndpoint`].
    pub fn drop_claimed(&self, claim: Claim) -> Result<(), Error> {
        self.post(|core| {
            core.consume(claim.0);
            Ok(())
        })
    }
}

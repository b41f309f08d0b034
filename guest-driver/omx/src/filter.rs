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
    /// The only endpoint that the messages come from; `None`: any. A receive from one endpoint alone fails as
    /// [`StatusCode::Unreachable`](crate::StatusCode::Unreachable) when that endpoint is given up because it does not
    /// answer.
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
        self.post_receive(memory, filter, context)
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ether::MacAddr;
    use mxoe::wire::Preset;

    use super::*;
    use crate::{Address, EndpointOptions, SendUntil, StatusCode};

    /// Opens two endpoints that are joined in memory; the first one knows the second one's address.
    fn joined() -> (Endpoint, Endpoint, Address) {
        joined_for(EndpointOptions::default().give_up)
    }

    /// Connects two endpoints, which give each other up after this time without an answer.
    fn joined_for(give_up: Duration) -> (Endpoint, Endpoint, Address) {
        let macs = [1, 2].map(|last| MacAddr([2, 0, 0, 0, 0, last]));
        let (port_a, port_b) = netif::memory_pair(macs, 9000, 64).unwrap();
        let options = EndpointOptions {
            progress: false,
            announces_head: true,
            give_up,
            ..EndpointOptions::default()
        };
        let a = Endpoint::open_on(&options, Box::new(port_a), Preset::Native9000).unwrap();
        let b = Endpoint::open_on(&options, Box::new(port_b), Preset::Native9000).unwrap();
        let connect = a.iconnect(macs[1], 0, options.key, 0, 0).unwrap();
        let to_b = finish(&a, &b, connect).address.unwrap();
        (a, b, to_b)
    }

    /// Makes progress on one endpoint until there is what a test waits for. What is late by far will not come.
    fn until<T>(other: &Endpoint, what: &str, look: impl Fn() -> Option<T>) -> T {
        let late_at = Instant::now() + Duration::from_secs(30);
        loop {
            other.progress();
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < late_at, "{what} after 30 s");
        }
    }

    /// Waits for a request of one endpoint while the other one makes progress.
    fn finish(of: &Endpoint, other: &Endpoint, request: Request) -> Status {
        until(other, "the request is not over", || of.test(request).unwrap())
    }

    fn send(from: &Endpoint, bytes: &[u8], to: Address, match_info: u64, until: SendUntil) -> Request {
        // SAFETY: every test keeps the bytes until the request is over or both endpoints are gone.
        unsafe { from.isend_until(&[Segment::of(bytes)], to, match_info, 0, until) }.unwrap()
    }

    fn from(source: Option<SourceKey>) -> MessageFilter {
        MessageFilter {
            match_info: 5,
            match_mask: u64::MAX,
            source,
        }
    }

    /// Waits until a message is there that this filter takes.
    fn find(of: &Endpoint, other: &Endpoint, filter: MessageFilter) -> FoundMessage {
        until(other, "there is no such message", || {
            of.iprobe_filtered(filter).unwrap()
        })
    }

    #[test]
    fn a_receive_takes_only_what_its_source_sent() {
        let (a, b, to_b) = joined();
        let own = b.address();
        let receives = [Some(a.address().source_key()), Some(own.source_key()), None].map(|source| {
            let mut byte = Box::new([0_u8]);
            // SAFETY: the byte stays until its request is over.
            let request = unsafe { b.irecv_filtered(&[Segment::of_mut(&mut *byte)], from(source), 0) }.unwrap();
            (request, byte)
        });
        send(&b, b"o", own, 5, SendUntil::Buffered);
        send(&b, b"x", own, 5, SendUntil::Buffered);
        send(&a, b"a", to_b, 5, SendUntil::Standard);
        for ((request, byte), expected) in receives.into_iter().zip(*b"aox") {
            assert_eq!(finish(&b, &a, request).code, StatusCode::Success);
            assert_eq!(*byte, [expected]);
        }
    }

    #[test]
    fn receives_that_only_a_silent_peer_could_fulfil_fail_and_others_wait() {
        let (a, b, to_b) = joined_for(Duration::from_millis(200));
        let sources = [
            Some(to_b.source_key()),
            None,
            Some(a.address().source_key()),
            Some(to_b.source_key()),
        ];
        let [first, from_anyone, from_itself, last] = sources.map(|source| {
            let mut byte = Box::new([0_u8]);
            // SAFETY: the byte stays until its request is over.
            let request = unsafe { a.irecv_filtered(&[Segment::of_mut(&mut *byte)], from(source), 0) }.unwrap();
            (request, byte)
        });
        // It is over for the program at once, and lost.
        let sent = send(&a, b"x", to_b, 5, SendUntil::Buffered);
        assert_eq!(finish(&a, &a, sent).code, StatusCode::Success);
        for (request, _) in [&first, &last] {
            let status = finish(&a, &a, *request);
            assert_eq!(status.code, StatusCode::Unreachable);
            assert_eq!(status.address.map(|of| of.source_key()), Some(to_b.source_key()));
        }
        for (request, _) in [&from_anyone, &from_itself] {
            assert_eq!(a.test(*request).unwrap(), None);
        }
        for ((request, byte), expected) in [(from_anyone, b"y"), (from_itself, b"z")] {
            send(&a, expected, a.address(), 5, SendUntil::Buffered);
            assert_eq!(finish(&a, &a, request).code, StatusCode::Success);
            assert_eq!(&*byte, expected);
        }
        drop(b);
    }

    #[test]
    fn a_probe_tells_the_first_bytes_of_short_and_long_messages() {
        let (a, b, to_b) = joined();
        for len in [0, 5, 8, 100, 20_000, 500_000] {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8 + 1).collect();
            let sent = send(&a, &bytes, to_b, 5, SendUntil::Standard);
            let found = find(&b, &a, from(None));
            let mut head = [0; HEAD_LEN];
            let shown = bytes.len().min(HEAD_LEN);
            head[..shown].copy_from_slice(&bytes[..shown]);
            assert_eq!((found.status.length as usize, found.head), (len, head));
            let (claim, again) = b
                .claim(from(Some(a.address().source_key())))
                .unwrap()
                .expect("it is there");
            assert_eq!(again.head, head);
            assert_eq!(b.iprobe_filtered(from(None)).unwrap(), None, "it is claimed");
            let mut got = vec![0; len];
            // SAFETY: the memory stays until the request is over.
            let request = unsafe { b.receive_claimed(claim, &[Segment::of_mut(&mut got)], 0) }.unwrap();
            assert_eq!(finish(&b, &a, request).transferred as usize, len);
            assert_eq!(got, bytes);
            finish(&a, &b, sent);
            // SAFETY: nothing is posted.
            let gone = unsafe { b.receive_claimed(claim, &[], 0) };
            assert!(matches!(gone, Err(Error::BadRequest)));
        }
    }

    #[test]
    fn a_claimed_message_that_is_dropped_ends_its_send() {
        let (a, b, to_b) = joined();
        let bytes = vec![7; 300_000];
        let sent = send(&a, &bytes, to_b, 5, SendUntil::Standard);
        find(&b, &a, from(None));
        let (claim, _) = b.claim(from(None)).unwrap().expect("it is there");
        b.drop_claimed(claim).unwrap();
        assert_eq!(finish(&a, &b, sent).transferred, 0);
        assert!(b.claim(from(None)).unwrap().is_none());
    }

    #[test]
    fn sends_complete_when_they_are_asked_to() {
        let (a, b, to_b) = joined();
        let acknowledged = send(&a, b"1", to_b, 5, SendUntil::Acknowledged);
        let matched = send(&a, b"2", to_b, 5, SendUntil::Matched);
        assert_eq!(a.test(acknowledged).unwrap(), None, "the other one has not looked");
        assert_eq!(finish(&a, &b, acknowledged).code, StatusCode::Success);
        for _ in 0..100 {
            b.progress();
            assert_eq!(a.test(matched).unwrap(), None, "nothing took it");
        }
        for _ in 0..2 {
            let mut byte = [0];
            // SAFETY: the byte stays until its request is over.
            let request = unsafe { b.irecv_filtered(&[Segment::of_mut(&mut byte)], from(None), 0) }.unwrap();
            finish(&b, &a, request);
        }
        assert_eq!(finish(&a, &b, matched).code, StatusCode::Success);
        // To itself: standard is as MX has it.
        let own = a.address();
        let standard = send(&a, b"3", own, 6, SendUntil::Standard);
        let buffered = send(&a, b"4", own, 6, SendUntil::Buffered);
        assert_eq!(a.test(standard).unwrap(), None);
        assert_eq!(finish(&a, &b, buffered).code, StatusCode::Success);
        assert!(a.wait_delivered(std::time::Duration::from_secs(5)).unwrap());
    }
}

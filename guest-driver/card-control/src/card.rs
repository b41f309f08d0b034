//! A conversation with the card behind a port (`docs/spec/card-control.md`): one request, one reply, and a limit on
//! waiting. The authority and `nicctl` use it and decide what to ask for.

use std::{
    io::IoSlice,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use firmware::{
    CONTROL_FRAME_MAX,
    control::{CONTROL_VERSION, Doorbell, Refusal, Reply, Request},
};
use netif::{Interest, Netif, NetifError, Wake};

/// A request is sent again after this time. All requests may be repeated: settings are absolute, counters only read.
const RESEND: Duration = Duration::from_millis(500);
/// Requests before the card counts as absent: an emulated guest may be busy for a second, an ordinary card stays silent.
const ATTEMPTS: u32 = 4;

/// Bytes of a receive ring for control frames, which are few and short: the smallest ring there is.
pub const CONTROL_RING_LEN: usize = 128 << 10;

/// Asks a card, and takes what it reports out of a reply of one of these kinds; [`CardError::Unexpected`] for any other.
#[macro_export]
macro_rules! ask {
    ($card:expr, $request:expr, $($kind:ident)|+) => {
        $card.ask($request).and_then(|reply| match reply {
            $(::firmware::control::Reply::$kind(report))|+ => Ok(report),
            _ => Err($crate::CardError::Unexpected),
        })
    };
}

/// Why the card could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// The port failed.
    #[error("{0}")]
    Port(NetifError),
    /// The card gave no answer.
    #[error(
        "no programmable card answers on this interface ({} requests in {} s): it is an ordinary card, or what emulates \
         it is not running",
        ATTEMPTS,
        (RESEND * ATTEMPTS).as_secs()
    )]
    NoAnswer,
    /// The answer cannot be read by this program.
    #[error(
        "the card's answers are not such as this program understands: what emulates the card may be newer than the program"
    )]
    NotUnderstood,
    /// The card refused the request, with this reason.
    #[error("{0}")]
    Refused(Refusal),
    /// The card answered another question than it was asked.
    #[error("the card answered another question than it was asked; its settings are unknown")]
    Unexpected,
    /// A signal came while waiting.
    #[error("interrupted while waiting for the card")]
    Interrupted,
}

impl From<NetifError> for CardError {
    fn from(error: NetifError) -> Self {
        Self::Port(error)
    }
}

/// The card behind a port that was opened for control frames.
pub struct Card<'a, N> {
    port: &'a mut N,
    stop: BorrowedFd<'a>,
    next_id: u16,
    /// Control frames came that could not be read.
    unreadable: bool,
}

impl<'a, N: Netif> Card<'a, N> {
    /// Begins a conversation over `port`, which ends early when `stop` becomes readable.
    pub fn new(port: &'a mut N, stop: BorrowedFd<'a>) -> Self {
        // Replies to an earlier program that are still in flight must not be taken for ours.
        Self {
            port,
            stop,
            next_id: std::process::id() as u16,
            unreadable: false,
        }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// [`CardError`]; [`CardError::Refused`] when the card said no.
    pub fn ask(&mut self, request: &Request) -> Result<Reply, CardError> {
        self.next_id = self.next_id.wrapping_add(1);
        let id = self.next_id;
        let mut frame = [0; CONTROL_FRAME_MAX];
        let len = request.encode(self.port.mac(), id, &mut frame);
        for _ in 0..ATTEMPTS {
            let deadline = Instant::now() + RESEND;
            // A port that is full now may have room at the next attempt.
            self.port.send(&[IoSlice::new(&frame[..len])])?;
            if let Some(reply) = self.reply(id, deadline)? {
                return match reply {
                    Reply::Refused(refusal) => Err(CardError::Refused(refusal)),
                    reply => Ok(reply),
                };
            }
        }
        Err(if self.unreadable {
            CardError::NotUnderstood
        } else {
            CardError::NoAnswer
        })
    }

    /// Asks which version both speak and what the card can do.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn hello(&mut self) -> Result<firmware::control::Abilities, CardError> {
        let request = Request::Hello {
            version_min: CONTROL_VERSION,
            version_max: CONTROL_VERSION,
        };
        ask!(self, &request, Hello)
    }

    /// Waits until `deadline` for the next timer of the card to ring.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn doorbell(&mut self, deadline: Instant) -> Result<Option<Doorbell>, CardError> {
        self.wait_for(deadline, |_, reply| match reply {
            Reply::TimerExpired(doorbell) => Some(doorbell),
            _ => None,
        })
    }

    fn reply(&mut self, id: u16, deadline: Instant) -> Result<Option<Reply>, CardError> {
        // A reply to another program on this machine is not for us, nor is what the card says unasked.
        self.wait_for(deadline, |reply_id, reply| {
            (reply_id == id && !matches!(reply, Reply::TimerExpired(_))).then_some(reply)
        })
    }

    fn wait_for<T>(
        &mut self,
        deadline: Instant,
        mut wanted: impl FnMut(u16, Reply) -> Option<T>,
    ) -> Result<Option<T>, CardError> {
        loop {
            while let Some(frame) = self.port.poll_receive()? {
                // The card pads its frames; the decoder wants no more than a control frame.
                let frame = &frame[..frame.len().min(CONTROL_FRAME_MAX)];
                match Reply::decode(frame) {
                    Ok((id, reply)) => {
                        if let Some(wanted) = wanted(id, reply) {
                            return Ok(Some(wanted));
                        }
                    }
                    Err(_) => self.unreadable = true,
                }
            }
            match self.port.wait(Interest::Receive, deadline, Some(self.stop))? {
                Wake::Ready => {}
                Wake::Deadline => return Ok(None),
                Wake::Stop => return Err(CardError::Interrupted),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::{fd::AsFd, unix::net::UnixStream},
        thread,
    };

    use ether::MacAddr;
    use netif::memory_pair;

    use super::*;

    /// Returns what `ask` says of a card that gives this answer to each request.
    fn asked(answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static) -> CardError {
        let (mut ours, mut card) = memory_pair([1, 2].map(|n| MacAddr([2, 0, 0, 0, 0, n])), 1500, 8).unwrap();
        let (stop, _open) = UnixStream::pair().unwrap();
        let answering = thread::spawn(move || {
            let until = Instant::now() + RESEND * (ATTEMPTS + 1);
            // Until the other end is dropped.
            while let Ok(Wake::Ready) = card.wait(Interest::Receive, until, None) {
                let request = card.poll_receive().unwrap().map(|frame| frame.to_vec());
                if let Some(answer) = request.and_then(|request| answer(&request)) {
                    card.send(&[IoSlice::new(&answer)]).unwrap();
                }
            }
        });
        let error = Card::new(&mut ours, stop.as_fd()).hello().unwrap_err();
        drop(ours);
        answering.join().unwrap();
        error
    }

    #[test]
    fn a_card_that_answers_in_words_unknown_here_is_told_apart_from_none() {
        assert!(matches!(asked(|_| None), CardError::NoAnswer));
        // A reply of a version that does not exist.
        let newer = |request: &[u8]| {
            let mut answer = request.to_vec();
            answer[14] = 0xff;
            Some(answer)
        };
        let error = asked(newer);
        assert!(matches!(error, CardError::NotUnderstood), "{error:?}");
    }
}

//! Frames on the `weft.agent` port: a small header and a body, byte-stuffed (COBS) and ended by a zero byte. So each
//! end finds the next frame, even if the other one died in the middle of a frame. The module `message` defines their
//! meaning.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longest body of a frame, in bytes: a command line and its environment must fit into one.
pub const BODY_MAX: usize = 64 * 1024;

/// Longest piece of a stream in one frame, in bytes; short enough for commands to share the port fairly.
pub const DATA_MAX: usize = 16 * 1024;

/// Length of the header: session (4), id (4), kind (1), body length (4).
const HEADER_LEN: usize = 13;

/// Longest frame on the wire without its end mark.
const ENCODED_MAX: usize = cobs::max_encoding_length(HEADER_LEN + BODY_MAX);

/// The byte that ends every frame and occurs in none.
pub const DELIMITER: u8 = 0;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// The kind of a frame. The host's requests are below 0x80, the guest's answers above.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind { $($(#[$doc])* $name = $value,)* }

        impl TryFrom<u8> for Kind {
            type Error = FrameError;
            fn try_from(value: u8) -> Result<Self, FrameError> {
                match value {
                    $($value => Ok(Self::$name),)*
                    other => Err(FrameError::UnknownKind(other)),
                }
            }
        }
    };
}

kinds! {
    /// Opens a session; body: [`crate::message::Hello`]. Everything that an older session still runs is ended.
    Hello = 0x01,
    /// Runs a command; body: [`crate::message::Exec`].
    Exec = 0x10,
    /// Carries bytes for the command's standard input, or of the archive that is copied in.
    Stdin = 0x11,
    /// Ends the standard input.
    StdinEnd = 0x12,
    /// Sends a signal to the command's process group; body: [`crate::message::Signal`].
    Signal = 0x13,
    /// Reports that the terminal's size changed; body: [`crate::message::WindowSize`].
    Resize = 0x14,
    /// Reports that the host consumed output; body: stream (1 = stdout, 2 = stderr), then bytes as u32.
    CreditOutput = 0x15,
    /// Ends the command immediately and forgets it; there is no answer.
    Abort = 0x16,
    /// Unpacks an archive that follows as `Stdin`; body: [`crate::message::CopyIn`].
    CopyIn = 0x20,
    /// Packs a path and sends the archive as `Stdout`; body: [`crate::message::CopyOut`].
    CopyOut = 0x21,
    /// Asks for the guest's counters; empty body.
    Report = 0x30,
    /// Asks for a sign of life; empty body.
    Ping = 0x31,
    /// Switches the guest off or boots it again; body: [`crate::message::Power`].
    Power = 0x32,

    /// Reports that the agent has just started (session 0, id 0); empty body. The host answers with a `Hello`.
    Ready = 0x80,
    /// Reports that the session is open, and again when the guest's problems have become more; body:
    /// [`crate::message::Welcome`].
    Welcome = 0x81,
    /// Reports that the command runs; body: [`crate::message::Started`].
    Started = 0x90,
    /// Carries bytes of the command's standard output, or of the archive that is copied out.
    Stdout = 0x91,
    /// Carries bytes of the command's standard error.
    Stderr = 0x92,
    /// Reports that the guest consumed input; body: bytes as u32.
    CreditInput = 0x93,
    /// Reports that the command ended and all its output was sent; body: [`crate::message::ExitStatus`]. Ends the id.
    Exited = 0x94,
    /// Reports that the request failed; body: [`crate::message::Failed`]. Ends the id.
    Failed = 0x95,
    /// Carries the counters; body: [`crate::message::Report`]. Ends the id.
    ReportAnswer = 0xb0,
    /// Confirms a request without a result; empty body. Ends the id.
    Done = 0xb1,
}

/// A frame of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Session that the frame belongs to: a number that the host chose in its `Hello`; 0 before any session.
    pub session: u32,
    /// Command or request that the frame belongs to, chosen by the host; 0 for the session itself.
    pub id: u32,
    /// Kind of the frame.
    pub kind: Kind,
    /// Body, at most [`BODY_MAX`] bytes.
    pub body: Vec<u8>,
}

/// The reasons why bytes are not a frame. Such bytes are dropped up to the next end mark.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// The stuffing or the length is wrong: a frame that was cut off, usually by a reconnect.
    #[error("a frame was cut off")]
    CutOff,
    /// The bytes are too long for a frame.
    #[error("a frame is longer than {BODY_MAX} bytes")]
    TooLong,
    /// The kind is unknown to this version.
    #[error("unknown frame kind {0:#04x}")]
    UnknownKind(u8),
}

impl Frame {
    /// Makes a frame; see the fields for what the arguments mean.
    #[must_use]
    pub const fn new(session: u32, id: u32, kind: Kind, body: Vec<u8>) -> Self {
        Self {
            session,
            id,
            kind,
            body,
        }
    }

    /// Encodes the frame for the wire, including the end mark.
    ///
    /// # Panics
    /// Panics when the body is longer than [`BODY_MAX`]: the sender has to cut streams into pieces of [`DATA_MAX`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.body.len() <= BODY_MAX, "frame body of {} bytes", self.body.len());
        let mut plain = Vec::with_capacity(HEADER_LEN + self.body.len());
        plain.extend_from_slice(&self.session.to_le_bytes());
        plain.extend_from_slice(&self.id.to_le_bytes());
        plain.push(self.kind as u8);
        plain.extend_from_slice(&(self.body.len() as u32).to_le_bytes());
        plain.extend_from_slice(&self.body);
        let mut wire = cobs::encode_vec(&plain);
        wire.push(DELIMITER);
        wire
    }

    /// Decodes one frame from its bytes without the end mark; the buffer is used up.
    ///
    /// # Errors
    /// When the bytes are not exactly one frame.
    pub fn decode(wire: &mut [u8]) -> Result<Self, FrameError> {
        let len = cobs::decode_in_place(wire).map_err(|_| FrameError::CutOff)?;
        let (header, body) = wire[..len].split_at_checked(HEADER_LEN).ok_or(FrameError::CutOff)?;
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if word(9) as usize != body.len() {
            return Err(FrameError::CutOff);
        }
        if body.len() > BODY_MAX {
            return Err(FrameError::TooLong);
        }
        Ok(Self {
            session: word(0),
            id: word(4),
            kind: Kind::try_from(header[8])?,
            body: body.to_vec(),
        })
    }

    /// Makes a frame with a JSON body.
    ///
    /// # Errors
    /// Fails with one sentence when the body is longer than a frame may be.
    pub fn json<T: Serialize>(session: u32, id: u32, kind: Kind, message: &T) -> Result<Self, String> {
        let body = serde_json::to_vec(message).map_err(|error| format!("a message cannot be written: {error}"))?;
        if body.len() > BODY_MAX {
            let (len, max) = (body.len(), BODY_MAX);
            return Err(format!("the request is {len} bytes long, {max} are possible"));
        }
        Ok(Self::new(session, id, kind, body))
    }

    /// Parses a JSON body.
    ///
    /// # Errors
    /// Fails with one sentence when the body does not fit the frame's kind.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, String> {
        serde_json::from_slice(&self.body).map_err(|error| format!("a {:?} message is malformed: {error}", self.kind))
    }

    /// Makes a frame that gives back `bytes` of credit for output stream 1 or 2.
    #[must_use]
    pub fn credit_output(session: u32, id: u32, stream: u8, bytes: u32) -> Self {
        let mut body = vec![stream];
        body.extend_from_slice(&bytes.to_le_bytes());
        Self::new(session, id, Kind::CreditOutput, body)
    }

    /// Makes a frame that gives back `bytes` of credit for the input.
    #[must_use]
    pub fn credit_input(session: u32, id: u32, bytes: u32) -> Self {
        Self::new(session, id, Kind::CreditInput, bytes.to_le_bytes().to_vec())
    }

    /// Returns stream (0 for the input) and bytes of a credit frame; `None` when the body is malformed.
    #[must_use]
    pub fn credit(&self) -> Option<(u8, u32)> {
        match (self.kind, self.body.as_slice()) {
            (Kind::CreditInput, bytes) => Some((0, u32::from_le_bytes(bytes.try_into().ok()?))),
            (Kind::CreditOutput, [stream @ 1..=2, bytes @ ..]) => {
                Some((*stream, u32::from_le_bytes(bytes.try_into().ok()?)))
            }
            _ => None,
        }
    }
}

/// The decoder cuts a stream of bytes into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    partial: Vec<u8>,
    overlong: bool,
}

impl Decoder {
    /// Takes the next bytes and passes every frame that they complete, or the error in it, to `each`.
    pub fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Result<Frame, FrameError>)) {
        while !bytes.is_empty() {
            let end = bytes.iter().position(|&byte| byte == DELIMITER);
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            if self.partial.len() + piece.len() > ENCODED_MAX {
                self.overlong = true;
                self.partial.clear();
            } else if !self.overlong {
                self.partial.extend_from_slice(piece);
            }
            let Some(end) = end else { return };
            bytes = &bytes[end + 1..];
            if std::mem::take(&mut self.overlong) {
                each(Err(FrameError::TooLong));
            } else if !self.partial.is_empty() {
                each(Frame::decode(&mut self.partial));
            }
            self.partial.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(decoder: &mut Decoder, bytes: &[u8]) -> Vec<Result<Frame, FrameError>> {
        let mut all = Vec::new();
        decoder.feed(bytes, |frame| all.push(frame));
        all
    }

    fn sample(len: usize) -> Frame {
        let body = (0..len).map(|at| (at * 7 % 256) as u8).collect();
        Frame {
            session: 0x0102_0304,
            id: 9,
            kind: Kind::Stdout,
            body,
        }
    }

    #[test]
    fn frames_survive_any_cutting_of_the_stream() {
        let sent = [
            sample(0),
            sample(1),
            sample(254),
            sample(255),
            sample(DATA_MAX),
            sample(BODY_MAX),
        ];
        let wire: Vec<u8> = sent.iter().flat_map(Frame::encode).collect();
        for step in [1, 7, 4096, wire.len()] {
            let mut decoder = Decoder::default();
            let got: Vec<_> = wire
                .chunks(step)
                .flat_map(|chunk| frames(&mut decoder, chunk))
                .collect();
            assert!(
                got.iter().map(|frame| frame.as_ref().unwrap()).eq(sent.iter()),
                "step {step}"
            );
        }
    }

    #[test]
    fn a_frame_after_a_cut_off_one_is_found() {
        let mut decoder = Decoder::default();
        let mut wire = sample(300).encode();
        wire.truncate(100);
        wire.push(DELIMITER);
        wire.extend(sample(3).encode());
        assert_eq!(frames(&mut decoder, &wire), [Err(FrameError::CutOff), Ok(sample(3))]);
    }

    #[test]
    fn endless_rubbish_costs_bounded_memory_and_one_error() {
        let mut decoder = Decoder::default();
        for _ in 0..100 {
            assert_eq!(frames(&mut decoder, &[0xaa; 10_000]), []);
        }
        assert!(decoder.partial.capacity() <= 2 * ENCODED_MAX);
        let mut end = vec![DELIMITER];
        end.extend(sample(5).encode());
        assert_eq!(frames(&mut decoder, &end), [Err(FrameError::TooLong), Ok(sample(5))]);
    }

    #[test]
    fn an_unknown_kind_is_named() {
        let mut wire = sample(0).encode();
        wire.pop();
        let len = cobs::decode_in_place(&mut wire).unwrap();
        wire[8] = 0x7f;
        let mut wire = cobs::encode_vec(&wire[..len]);
        assert_eq!(Frame::decode(&mut wire), Err(FrameError::UnknownKind(0x7f)));
    }
}

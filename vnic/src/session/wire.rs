//! Vhost-user messages over a Unix stream socket: whole messages with their files, and nothing read beyond them.
//! The files must come with the header, as the specification says. Calls block until the socket is shut down from outside.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use super::message::{BODY_LEN_MAX, FILES_MAX, HEADER_LEN, Message};
use super::refusal::{Refusal, SessionRule};

/// Why no message could be read.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The peer broke the form of a message: the session ends.
    #[error(transparent)]
    Malformed(#[from] Refusal),
    /// The socket failed: the session ends.
    #[error("the socket failed: {0}")]
    Socket(#[from] io::Error),
}

/// Reads one message; none if the peer closed the connection between two messages.
pub fn receive(stream: &UnixStream) -> Result<Option<Message>, ReceiveError> {
    let mut header = [0; HEADER_LEN];
    let mut files = Vec::new();
    match receive_exactly(stream, &mut header, &mut files)? {
        0 => return Ok(None),
        HEADER_LEN => {}
        len => {
            return Err(malformed(
                SessionRule::MessageCut,
                format!("the connection was closed {len} bytes into a message header"),
            ));
        }
    }
    let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (request, flags, size) = (word(0), word(4), word(8) as usize);
    if size > BODY_LEN_MAX {
        return Err(malformed(
            SessionRule::BodyTooLong,
            format!("request {request} announces {size} bytes, more than {BODY_LEN_MAX}"),
        ));
    }
    let mut body = vec![0; size];
    let with_header = files.len();
    let len = receive_exactly(stream, &mut body, &mut files)?;
    if len != size {
        return Err(malformed(
            SessionRule::MessageCut,
            format!("the connection was closed {len} bytes into a message of {size}"),
        ));
    }
    if files.len() != with_header {
        return Err(malformed(
            SessionRule::FilesMisplaced,
            format!("request {request} brings files behind its header"),
        ));
    }
    Ok(Some(Message {
        request,
        flags,
        body,
        files,
    }))
}

/// Sends one message with its files.
pub fn send(stream: &UnixStream, message: &Message) -> io::Result<()> {
    let header = message.header();
    let files: Vec<BorrowedFd<'_>> = message.files.iter().map(AsFd::as_fd).collect();
    let mut sent = 0;
    while sent < HEADER_LEN + message.body.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        // Files travel once, with the first byte.
        if sent == 0 && !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(io::Error::other("too many files for one message"));
        }
        let rest_of_header = &header[sent.min(HEADER_LEN)..];
        let rest_of_body = &message.body[sent.saturating_sub(HEADER_LEN)..];
        let parts = [IoSlice::new(rest_of_header), IoSlice::new(rest_of_body)];
        match rustix::net::sendmsg(stream, &parts, &mut control, SendFlags::NOSIGNAL) {
            Ok(len) => sent += len,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Fills `buffer` unless the peer closes first; gives the bytes read.
fn receive_exactly(stream: &UnixStream, buffer: &mut [u8], files: &mut Vec<OwnedFd>) -> Result<usize, ReceiveError> {
    let mut filled = 0;
    while filled < buffer.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut buffer[filled..])];
        let received = match rustix::net::recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(io::Error::from(error).into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                files.extend(received);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) || files.len() > FILES_MAX {
            return Err(malformed(
                SessionRule::FilesTooMany,
                format!("a message brings more than {FILES_MAX} files, or more than this process may open"),
            ));
        }
        if received.bytes == 0 {
            break;
        }
        filled += received.bytes;
    }
    Ok(filled)
}

fn malformed(rule: SessionRule, sentence: String) -> ReceiveError {
    ReceiveError::Malformed(rule.broken(sentence))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::message::{FLAG_VERSION, SET_MEM_TABLE, SET_VRING_KICK};
    use super::*;

    fn with_files(count: usize) -> Message {
        let files = (0..count)
            .map(|_| OwnedFd::from(std::fs::File::open("/dev/null").unwrap()))
            .collect();
        Message {
            request: SET_MEM_TABLE,
            flags: FLAG_VERSION,
            body: vec![7; 40],
            files,
        }
    }

    #[test]
    fn a_message_arrives_whole_with_its_files() {
        let (a, b) = UnixStream::pair().unwrap();
        for count in [0, 1, FILES_MAX] {
            send(&a, &with_files(count)).unwrap();
            let message = receive(&b).unwrap().unwrap();
            assert_eq!(
                (message.request, message.body.len(), message.files.len()),
                (SET_MEM_TABLE, 40, count)
            );
        }
        drop(a);
        assert!(receive(&b).unwrap().is_none());
    }

    #[test]
    fn a_message_in_single_bytes_is_put_together() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let writer = std::thread::spawn(move || {
            let message = Message::request(SET_VRING_KICK, vec![3; 8]);
            for byte in message.header().iter().chain(&message.body) {
                a.write_all(&[*byte]).unwrap();
            }
        });
        assert_eq!(receive(&b).unwrap().unwrap().body, [3; 8]);
        writer.join().unwrap();
    }

    #[test]
    fn cut_oversized_and_misplaced_parts_are_refused() {
        let refusal = |write: &dyn Fn(&UnixStream)| {
            let (a, b) = UnixStream::pair().unwrap();
            write(&a);
            drop(a);
            receive(&b).unwrap_err().to_string()
        };
        let half = refusal(&|mut a| a.write_all(&[1, 0, 0]).unwrap());
        assert_eq!(half, "the connection was closed 3 bytes into a message header");
        let message = Message::request(SET_VRING_KICK, vec![3; 8]);
        let cut = refusal(&|mut a| a.write_all(&message.header()).unwrap());
        assert_eq!(cut, "the connection was closed 0 bytes into a message of 8");
        let long = Message::request(SET_VRING_KICK, vec![0; BODY_LEN_MAX + 1]);
        let oversized = refusal(&|mut a| a.write_all(&long.header()).unwrap());
        assert_eq!(oversized, "request 12 announces 4097 bytes, more than 4096");
        let late = refusal(&|mut a| {
            a.write_all(&message.header()).unwrap();
            let file = std::fs::File::open("/dev/null").unwrap();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let files = [file.as_fd()];
            assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
            rustix::net::sendmsg(a, &[IoSlice::new(&message.body)], &mut control, SendFlags::empty()).unwrap();
        });
        assert_eq!(late, "request 12 brings files behind its header");
    }

    #[test]
    fn surplus_files_are_refused_and_closed() {
        let (a, b) = UnixStream::pair().unwrap();
        let message = with_files(FILES_MAX + 8);
        let files: Vec<_> = message.files.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX + 8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        rustix::net::sendmsg(&a, &[IoSlice::new(&message.header())], &mut control, SendFlags::empty()).unwrap();
        assert!(receive(&b).unwrap_err().to_string().contains("more than 32 files"));
    }
}

//! The IOMMU that a guest is behind, as its frontend serves it: a thread answers what the backend asks over its channel, and the test
//! takes translations back or has questions answered wrongly.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::memory::{GuestMemory, PAGE_LEN};

const HEADER_LEN: usize = 12;
const BODY_LEN: usize = 32;
const IOTLB_MSG: u32 = 22;
const BACKEND_IOTLB_MSG: u32 = 1;
const FLAG_VERSION: u32 = 1;
const FLAG_REPLY: u32 = 4;
const FLAG_NEED_REPLY: u32 = 8;
const READ_WRITE: u8 = 3;
const UPDATE: u8 = 2;
const INVALIDATE: u8 = 3;

/// Longest wait for the answer to an invalidation; a backend that takes longer hangs.
const REPLY_WAIT: Duration = Duration::from_secs(20);

/// What the backend asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The I/O address.
    pub iova: u64,
    /// 1 to read, 2 to write.
    pub permission: u8,
}

/// How questions are answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Answers {
    /// By the translation, or by denying that there is one.
    #[default]
    Honest,
    /// Not at all.
    Never,
    /// By a translation of a page that was not asked for.
    OtherPage,
    /// By a permission that was not asked for.
    OtherPermission,
    /// By an address outside the memory.
    Outside,
    /// By a translation of no addresses.
    Empty,
    /// By a translation beyond the last address.
    Wrapping,
}

#[derive(Debug, Default)]
struct State {
    /// Pages that are not mapped.
    unmapped: BTreeSet<u64>,
    answers: Answers,
    questions: Vec<Question>,
}

/// The IOMMU of one guest. At first, all of its memory is mapped.
#[derive(Debug)]
pub struct Iommu {
    memory: Arc<GuestMemory>,
    state: Arc<Mutex<State>>,
    serving: Option<(UnixStream, UnixStream, JoinHandle<()>)>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A message with an IOTLB body.
fn message(request: u32, flags: u32, words: [u64; 3], permission: u8, kind: u8) -> Vec<u8> {
    let mut bytes = [request, flags, BODY_LEN as u32].map(u32::to_ne_bytes).concat();
    bytes.extend(words.map(u64::to_ne_bytes).concat());
    bytes.extend([permission, kind, 0, 0, 0, 0, 0, 0]);
    bytes
}

impl Iommu {
    pub(super) fn new(memory: &Arc<GuestMemory>) -> Self {
        Self {
            memory: Arc::clone(memory),
            state: Arc::default(),
            serving: None,
        }
    }

    /// Serves a session on `stream` from now on; gives the backend's end of its channel.
    pub(super) fn begin(&mut self, stream: UnixStream) -> io::Result<UnixStream> {
        self.end();
        let (ours, theirs) = UnixStream::pair()?;
        let (channel, main) = (ours.try_clone()?, stream.try_clone()?);
        let (memory, state) = (Arc::clone(&self.memory), Arc::clone(&self.state));
        let thread = std::thread::Builder::new().name("iommu".to_owned()).spawn(move || {
            // Ends with the session.
            while answer(&channel, &main, &memory, &state).is_ok() {}
        })?;
        self.serving = Some((ours, stream, thread));
        Ok(theirs)
    }

    pub(super) fn end(&mut self) {
        if let Some((channel, _, thread)) = self.serving.take() {
            // It is closed already if the backend is gone.
            let _ = channel.shutdown(std::net::Shutdown::Both);
            // A panic in it was shown.
            let _ = thread.join();
        }
    }

    /// How questions are answered from now on.
    pub fn set_answers(&self, answers: Answers) {
        lock(&self.state).answers = answers;
    }

    /// What was asked so far.
    pub fn questions(&self) -> Vec<Question> {
        lock(&self.state).questions.clone()
    }

    /// Maps these I/O addresses (whole pages).
    pub fn map(&self, range: Range<u64>) {
        lock(&self.state).unmapped.retain(|page| !range.contains(page));
    }

    /// Unmaps these I/O addresses (whole pages) and waits until the backend has let go of them. No other message of the session
    /// may be in flight.
    pub fn unmap(&self, range: Range<u64>) -> io::Result<()> {
        lock(&self.state).unmapped.extend(range.clone().step_by(PAGE_LEN));
        self.invalidate(range)
    }

    /// Tells the backend that translations of these addresses are void, and waits until it has let go of them.
    pub fn invalidate(&self, range: Range<u64>) -> io::Result<()> {
        let Some((_, stream, _)) = &self.serving else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        stream.set_read_timeout(Some(REPLY_WAIT))?;
        let words = [range.start, range.end - range.start, 0];
        (&*stream).write_all(&message(
            IOTLB_MSG,
            FLAG_VERSION | FLAG_NEED_REPLY,
            words,
            0,
            INVALIDATE,
        ))?;
        let mut reply = [0; HEADER_LEN + 8];
        (&*stream).read_exact(&mut reply)?;
        let expected = [IOTLB_MSG, FLAG_VERSION | FLAG_REPLY, 8, 0, 0]
            .map(u32::to_ne_bytes)
            .concat();
        assert!(
            reply[..] == expected,
            "backend fault: an invalidation was answered by {reply:?}"
        );
        Ok(())
    }
}

impl Drop for Iommu {
    fn drop(&mut self) {
        self.end();
    }
}

/// Answers one question.
fn answer(
    mut channel: &UnixStream,
    mut stream: &UnixStream,
    memory: &GuestMemory,
    state: &Mutex<State>,
) -> io::Result<()> {
    let mut bytes = [0; HEADER_LEN + BODY_LEN];
    channel.read_exact(&mut bytes)?;
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    assert_eq!(
        (word(0), word(8), bytes[HEADER_LEN + 25]),
        (BACKEND_IOTLB_MSG, BODY_LEN as u32, 1),
        "backend fault: no question"
    );
    let question = Question {
        iova: u64::from_ne_bytes(std::array::from_fn(|byte| bytes[HEADER_LEN + byte])),
        permission: bytes[HEADER_LEN + 24],
    };
    // Held until the answer is sent, so that it cannot come behind an invalidation.
    let mut state = lock(state);
    state.questions.push(question);
    let page = question.iova & !(PAGE_LEN as u64 - 1);
    let place = memory.translated(page).filter(|_| !state.unmapped.contains(&page));
    let len = PAGE_LEN as u64;
    let update =
        |first, len, place, permission| message(IOTLB_MSG, FLAG_VERSION, [first, len, place], permission, UPDATE);
    let place_or_none = place.unwrap_or(0);
    let sent = match state.answers {
        Answers::Never => return Ok(()),
        Answers::Honest => place.map(|place| update(page, len, place, READ_WRITE)),
        Answers::OtherPage => Some(update(page ^ len, len, place_or_none, READ_WRITE)),
        Answers::OtherPermission => Some(update(page, len, place_or_none, READ_WRITE & !question.permission)),
        Answers::Outside => Some(update(page, len, 0x1000, READ_WRITE)),
        Answers::Empty => Some(update(page, 0, place_or_none, READ_WRITE)),
        Answers::Wrapping => Some(update(page, u64::MAX, place_or_none, READ_WRITE)),
    };
    if let Some(update) = &sent {
        stream.write_all(update)?;
    }
    if word(4) & FLAG_NEED_REPLY != 0 {
        let header = [BACKEND_IOTLB_MSG, FLAG_VERSION | FLAG_REPLY, 8]
            .map(u32::to_ne_bytes)
            .concat();
        let value = u64::from(sent.is_none()).to_ne_bytes();
        channel.write_all(&[&header[..], &value].concat())?;
    }
    Ok(())
}

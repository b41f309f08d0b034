//! A card in this process that copies when it is told to, piece by piece, with addresses of its own.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    io,
    ptr::NonNull,
    rc::Rc,
};

use ether::MacAddr;
use firmware::copy_engine::CopyHeader;
use icopy::{Backend, Engine, LoopFrame, Options, PAGE, Piece, Reaped, VirtioError};

/// A frame that the card has.
struct Posted {
    header: CopyHeader,
    source: Vec<Piece>,
    destination: Vec<Piece>,
    notification: Option<(u64, u64)>,
}

/// Counts of pinned memory.
#[derive(Default)]
pub struct Pinned {
    pub pins: usize,
    pub unpins: usize,
}

/// The memory that the card reaches.
#[derive(Default)]
struct Pages {
    /// Addresses in this process, by the card's page.
    at: HashMap<u64, usize>,
    /// The page that was given last.
    last: u64,
}

/// What a test sees of the card.
#[derive(Default)]
pub struct State {
    posted: VecDeque<Posted>,
    /// Frames that the card may see.
    published: usize,
    pages: Pages,
    number: u16,
    /// Frames that are done and not reaped.
    pub done: u32,
    /// The next reaping says that a frame was lost, or that the card broke a rule.
    pub loses: bool,
    pub breaks: bool,
    pub stopped: bool,
    /// It gives no frame back that it is done with.
    pub withholds: bool,
    /// A reminder makes it do what it has.
    pub wakes_up: bool,
    pub reminders: u32,
    /// What `physical_pages` adds to every page: other memory was mapped there.
    pub generation: u64,
    /// The privilege to see physical pages.
    pub is_blind: bool,
    /// How often memory was pinned, and let go.
    pub pinned: Pinned,
    /// Lengths of the data of all frames so far.
    pub lens: Vec<u32>,
}

/// The card; the test keeps the other handle.
pub struct Model {
    pub state: Rc<RefCell<State>>,
    frame_data_max: usize,
    room: usize,
}

pub fn engine(frame_data_max: usize, room: usize) -> (Engine<Model>, Rc<RefCell<State>>) {
    engine_with(frame_data_max, room, &Options::default())
}

pub fn engine_with(frame_data_max: usize, room: usize, options: &Options) -> (Engine<Model>, Rc<RefCell<State>>) {
    let state = Rc::new(RefCell::new(State {
        pages: Pages {
            last: 1 << 20,
            ..Pages::default()
        },
        ..State::default()
    }));
    let model = Model {
        state: Rc::clone(&state),
        frame_data_max,
        room,
    };
    (Engine::with(model, options), state)
}

impl State {
    fn bytes(&self, pieces: &[Piece]) -> Vec<*mut u8> {
        let all = pieces
            .iter()
            .flat_map(|piece| (0..u64::from(piece.len)).map(|byte| piece.address + byte));
        all.map(|address| self.place(address)).collect()
    }

    fn place(&self, address: u64) -> *mut u8 {
        let page = self
            .pages
            .at
            .get(&(address / PAGE as u64))
            .expect("the card reaches pinned memory only");
        (page + (address % PAGE as u64) as usize) as *mut u8
    }

    /// The card does the next frame up to its notification, if there is one. False if it has none.
    pub fn copy_data(&mut self) -> bool {
        let Some(frame) = self.posted.front().filter(|_| self.published > 0) else {
            return false;
        };
        let (from, to) = (self.bytes(&frame.source), self.bytes(&frame.destination));
        assert_eq!(from.len(), to.len(), "as many bytes come in as go out");
        for (from, to) in from.into_iter().zip(to) {
            // SAFETY: pinned memory of the test, which is mapped until it is unpinned.
            unsafe { to.write_volatile(from.read_volatile()) };
        }
        true
    }

    /// The card ends the frame.
    pub fn notify(&mut self) {
        let frame = self.posted.pop_front().expect("a frame");
        self.published -= 1;
        assert_eq!(frame.header.notifies, frame.notification.is_some());
        if let Some((variable, value)) = frame.notification {
            // SAFETY: as above; the engine checked that it is aligned.
            unsafe { self.place(variable).cast::<u64>().write_volatile(value) };
        }
        self.done += 1;
    }

    /// The card does a frame.
    pub fn step(&mut self) -> bool {
        let has_one = self.copy_data();
        if has_one {
            self.notify();
        }
        has_one
    }

    pub fn frames(&self) -> usize {
        self.posted.len()
    }
}

impl Backend for Model {
    type Hold = (usize, usize);

    fn mac(&self) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, 7])
    }

    fn frame_data_max(&self) -> usize {
        self.frame_data_max
    }

    fn pin(&mut self, base: NonNull<u8>, len: usize) -> io::Result<(Vec<u64>, Self::Hold)> {
        let mut state = self.state.borrow_mut();
        state.pinned.pins += 1;
        let base = base.as_ptr() as usize;
        assert!(base.is_multiple_of(PAGE) && len.is_multiple_of(PAGE) && len > 0);
        let addresses = (0..len / PAGE).map(|page| {
            // Two neighbours, then a jump.
            state.pages.last += if page % 2 == 0 { 5 } else { 1 };
            let number = state.pages.last;
            state.pages.at.insert(number, base + page * PAGE);
            number * PAGE as u64
        });
        Ok((addresses.collect(), (base, len)))
    }

    fn unpin(&mut self, (base, len): Self::Hold) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        state.pinned.unpins += 1;
        // Another pin of the same memory keeps addresses of its own.
        let mut left = len / PAGE;
        let mut gone: Vec<u64> = state
            .pages
            .at
            .iter()
            .filter(|(_, at)| (base..base + len).contains(at))
            .map(|(page, _)| *page)
            .collect();
        gone.sort_unstable();
        for page in gone {
            if left > 0 {
                state.pages.at.remove(&page);
                left -= 1;
            }
        }
        Ok(())
    }

    fn physical_pages(&self, base: NonNull<u8>, len: usize) -> Option<Vec<u64>> {
        let state = self.state.borrow();
        let pages = (0..len / PAGE).map(|page| (base.as_ptr() as usize + page * PAGE) as u64 + state.generation);
        (!state.is_blind).then(|| pages.collect())
    }

    fn room(&self) -> u16 {
        let state = self.state.borrow();
        (self.room - state.posted.len() - state.done as usize) as u16
    }

    fn next_number(&self) -> u16 {
        self.state.borrow().number
    }

    unsafe fn post(&mut self, frame: &LoopFrame<'_>) {
        assert!(self.room() > 0);
        let mut state = self.state.borrow_mut();
        assert!(!state.stopped, "a card that was stopped gets nothing");
        let mut header = [0; 64];
        header[..24].copy_from_slice(&frame.header);
        let header = CopyHeader::decode(&header).expect("the header of a copy");
        assert_eq!(header.index, state.number);
        state.number = state.number.wrapping_add(1);
        let len: u32 = frame.source.iter().map(|piece| piece.len).sum();
        let notification = if frame.notification.is_some() { 8 } else { 0 };
        assert!(
            len as usize + notification <= self.frame_data_max,
            "{len} bytes in a frame"
        );
        state.lens.push(len);
        state.posted.push_back(Posted {
            header,
            source: frame.source.to_vec(),
            destination: frame.destination.to_vec(),
            notification: frame.notification,
        });
    }

    fn publish(&mut self) {
        let mut state = self.state.borrow_mut();
        state.published = state.posted.len();
    }

    fn remind(&mut self) {
        let mut state = self.state.borrow_mut();
        state.reminders += 1;
        if state.wakes_up {
            drop(state);
            while self.state.borrow_mut().step() {}
        }
    }

    fn reap(&mut self) -> Result<Reaped, VirtioError> {
        let mut state = self.state.borrow_mut();
        if state.breaks {
            return Err(VirtioError::Broken {
                address: "00:04.0".parse().unwrap(),
                what: "it was told to",
            });
        }
        let frames = if state.withholds {
            0
        } else {
            std::mem::take(&mut state.done)
        };
        Ok(Reaped {
            frames,
            failed: state.loses,
        })
    }

    fn stop(&mut self) {
        self.state.borrow_mut().stopped = true;
    }
}

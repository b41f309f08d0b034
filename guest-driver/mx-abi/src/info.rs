//! The calls `mx_get_info` and `omx_get_info`, boards, and names of hosts (`mx-api.md` sections 5.2 and 7).

use std::ffi::c_void;

use mxoe::{
    engine::{Counter, REFERENCE_COUNTERS},
    wire::Preset,
};
use omx::{Board, BoardPeer};
use weft_authority::BoardStatus;

use crate::{
    calls::{board, initialized, mac_of, nic_id},
    codes,
    fault::{Fault, Outcome, returned},
    maps::{self, Map},
    slots::{Handle, Opened},
    types::{Bytes, Flavor, Out, Text},
};

/// The number of boards of a host, as the reference has by default.
const BOARDS_MAX: u32 = 32;
/// The length of a text in bytes.
const MX_TEXT_LEN: usize = 128;
const HOST_NAME_LEN: usize = 80;
const NUMA_UNKNOWN: u32 = u32::MAX;
const NET_ETHERNET: u32 = 1;
/// Line speeds: 10 Gbit/s on the original wire, Open-MX's own otherwise.
const SPEED_10G: u32 = 1;
const SPEED_OPEN_MX: u32 = 2;
const PRODUCT: &str = "N/A (Open-MX)";
/// The longest message whose bytes travel in the call itself, in bytes.
const PIO_SEND_MAX: u32 = 128;

/// One call that asks for information.
pub(crate) struct Call<'a> {
    opened: Option<&'a Opened>,
    input: Bytes,
    input_len: u32,
    output: Bytes,
    output_len: u32,
}

/// Answers a call; errors go through the handler.
pub(crate) fn answer(
    flavor: Flavor,
    endpoint: Handle,
    what: &str,
    (input, input_len): (Out<c_void>, u32),
    (output, output_len): (Out<c_void>, u32),
    body: impl FnOnce(&Call<'_>) -> Outcome,
) -> u32 {
    let opened = if endpoint.is_null() {
        None
    } else {
        match endpoint.opened() {
            Ok(opened) => Some(opened),
            Err(fault) => return returned(flavor, None, what, Err(fault)),
        }
    };
    let call = Call {
        opened: opened.as_deref(),
        input: input.bytes(),
        input_len,
        output: output.bytes(),
        output_len,
    };
    let outcome = initialized().and_then(|()| {
        if call.output.is_null() {
            return Err(Fault::new(codes::BAD_INFO_ADDRESS));
        }
        body(&call)
    });
    returned(flavor, opened.as_deref(), what, outcome)
}

impl Call<'_> {
    /// `mx_get_info`.
    pub(crate) fn mx(&self, key: u32) -> Outcome {
        match key {
            1 => self.put(Board::all()?.len() as u32),
            2 => self.put_ids(),
            3 => self.put(weft_authority::ENDPOINTS.into()),
            4 => self.put(u32::MAX),
            5 => self.put(REFERENCE_COUNTERS as u32),
            6 => {
                let mut text = vec![0; MX_TEXT_LEN * REFERENCE_COUNTERS];
                for (place, counter) in text.chunks_mut(MX_TEXT_LEN).zip(Counter::ALL) {
                    place[..counter.name().len()].copy_from_slice(counter.name().as_bytes());
                }
                self.put_bytes(&text)
            }
            7 => self.put_counters(),
            8..=10 => self.put_text(PRODUCT),
            11 => self.put(1),
            12 => self.put(PIO_SEND_MAX),
            13 => self.put(self.eager_len_max()?),
            14 => self.put(self.board()?.interface().numa_node().unwrap_or(NUMA_UNKNOWN)),
            15 => self.put(NET_ETHERNET),
            16 => {
                let wire = self.preset().is_ok_and(|preset| preset == Preset::Wire);
                self.put(if wire { SPEED_10G } else { SPEED_OPEN_MX })
            }
            _ => Err(Fault::new(codes::BAD_INFO_KEY)),
        }
    }

    /// `omx_get_info`.
    pub(crate) fn open_mx(&self, key: u32) -> Outcome {
        match key {
            0 => self.put(BOARDS_MAX),
            1 => self.put(weft_authority::ENDPOINTS.into()),
            2 => self.put(Board::all()?.len() as u32),
            3 => self.put_ids(),
            4 => self.put_text(&status(&self.board()?)?.0.name),
            5 => self.put_text(&self.board()?.interface().name),
            6 => self.put(self.board()?.interface().numa_node().unwrap_or(NUMA_UNKNOWN)),
            7 => self.put(REFERENCE_COUNTERS as u32),
            8 => self.put_counters(),
            9 => {
                let number = self.number()? as usize;
                let counter = Counter::ALL[..REFERENCE_COUNTERS].get(number);
                self.put_text(counter.ok_or_else(|| Fault::new(codes::BAD_INFO_KEY))?.name())
            }
            _ => Err(Fault::new(codes::BAD_INFO_KEY)),
        }
    }

    /// Reads the number that the caller gives: 32 bits if there is room for them, else 8.
    fn number(&self) -> Outcome<u32> {
        if self.input.is_null() {
            return Err(Fault::new(codes::BAD_INFO_ADDRESS));
        }
        let byte = |at| self.input.at(at).get().unwrap_or(0);
        match self.input_len {
            0 => Err(Fault::new(codes::BAD_INFO_LENGTH)),
            1..=3 => Ok(byte(0).into()),
            _ => Ok(u32::from_ne_bytes([byte(0), byte(1), byte(2), byte(3)])),
        }
    }

    /// Returns the endpoint's board, or the one whose number is given.
    fn board(&self) -> Outcome<Board> {
        match self.opened.and_then(|opened| opened.endpoint.board()) {
            Some(board) => Ok(board.clone()),
            None => board(self.number()?),
        }
    }

    /// Returns the sizes on the wire of the board, or of the first one that is switched on where the caller names none.
    fn preset(&self) -> Outcome<Preset> {
        let board = if self.opened.is_none() && self.input.is_null() {
            Board::first()?
        } else {
            self.board()?
        };
        let (status, _) = status(&board)?;
        status.preset.parse().map_err(|_| Fault::new(codes::BAD_KERNEL_ABI))
    }

    /// Returns the longest message that is sent eagerly, in bytes: the sizes on the wire bound what the environment
    /// says.
    fn eager_len_max(&self) -> Outcome<u32> {
        let threshold = omx::EndpointOptions::default().rndv_threshold;
        let bound = |preset: Preset| preset.sizes().medium_len_max();
        // Boards are not asked about a length that all of them carry.
        if Preset::ALL.into_iter().all(|preset| threshold <= bound(preset)) {
            return Ok(threshold);
        }
        Ok(threshold.min(bound(self.preset()?)))
    }

    fn put_bytes(&self, bytes: &[u8]) -> Outcome {
        if bytes.len() > self.output_len as usize {
            return Err(Fault::new(codes::BAD_INFO_LENGTH));
        }
        self.output.put_all(bytes);
        Ok(())
    }

    fn put(&self, value: u32) -> Outcome {
        self.put_bytes(&value.to_ne_bytes())
    }

    /// Writes a text with its end, cut to the caller's room; without room for the end no text is written.
    fn put_text(&self, text: &str) -> Outcome {
        if self.output_len == 0 {
            return Err(Fault::new(codes::BAD_INFO_LENGTH));
        }
        self.put_bytes(&cut(text, MX_TEXT_LEN.min(self.output_len as usize)))
    }

    fn put_ids(&self) -> Outcome {
        let boards = Board::all()?;
        let ids = boards.iter().map(|board| nic_id(board.interface().mac));
        let bytes: Vec<u8> = ids.chain([0]).flat_map(u64::to_ne_bytes).collect();
        self.put_bytes(&bytes)
    }

    fn put_counters(&self) -> Outcome {
        let board = self.board()?;
        let counters = board.counters().map_err(|error| Fault::of_board(&board, error))?;
        let values = &counters.values()[..REFERENCE_COUNTERS];
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        self.put_bytes(&bytes)
    }
}

/// Returns as much of a text as fits into `room` bytes with the zero that ends it, in whole characters.
fn cut(text: &str, room: usize) -> Vec<u8> {
    let len = text.floor_char_boundary(room.saturating_sub(1));
    let mut bytes = text.as_bytes()[..len].to_vec();
    bytes.push(0);
    bytes
}

/// Returns what the authority of a board knows.
fn status(board: &Board) -> Outcome<(BoardStatus, Vec<BoardPeer>)> {
    board.status().map_err(|error| Fault::of_board(board, error))
}

/// Returns the address of a board.
pub(crate) fn nic_of_board(number: u32, out: Out<u64>) -> Outcome {
    initialized()?;
    out.put(nic_id(board(number)?.interface().mac));
    Ok(())
}

/// Finds the board with an address.
pub(crate) fn board_of_nic(nic: u64, out: Out<u32>) -> Outcome {
    initialized()?;
    let boards = Board::numbered()?;
    let found = boards.iter().find(|board| nic_id(board.interface().mac) == nic);
    let board = found.ok_or_else(|| Fault::new(codes::BOARD_NOT_FOUND))?;
    out.put(board.board_number());
    Ok(())
}

/// Finds the address of a host, by its name in the peer table of any board.
pub(crate) fn find_host(name: Text, out: Out<u64>) -> Outcome {
    initialized()?;
    let name = name.to_string().ok_or_else(|| Fault::new(codes::PEER_NOT_FOUND))?;
    for board in usable_boards()? {
        if let Ok(mac) = board.find_peer(&name) {
            out.put(nic_id(mac));
            return Ok(());
        }
    }
    Err(Fault::new(codes::PEER_NOT_FOUND))
}

/// Returns the name of a host; empty while it is not known.
pub(crate) fn name_of(nic: u64, out: Bytes) -> Outcome {
    initialized()?;
    let mac = mac_of(nic).ok_or_else(|| Fault::new(codes::PEER_NOT_FOUND))?;
    for board in usable_boards()? {
        let Ok((_, peers)) = board.status() else { continue };
        if let Some(peer) = peers.into_iter().find(|peer| peer.mac == mac) {
            out.put_all(&cut(&peer.name.unwrap_or_default(), HOST_NAME_LEN));
            return Ok(());
        }
    }
    Err(Fault::new(codes::PEER_NOT_FOUND))
}

fn usable_boards() -> Outcome<impl Iterator<Item = Board>> {
    Ok(Board::all()?.into_iter().filter(|board| board.interface().up))
}

/// Returns the state of a board's peer table: as a mapping daemon of this process said, else as its authority has it.
pub(crate) fn map(board: &Board) -> Outcome<Map> {
    if let Some(map) = maps::of(board) {
        return Ok(map);
    }
    let (_, peers) = status(board)?;
    Ok(Map {
        mapper: board.interface().mac,
        // The table grows while it is used: there is one map.
        version: 1,
        hosts: peers.len() as u32,
        complete: true,
    })
}

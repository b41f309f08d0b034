//! Reading a card's flight recorder over `vnicd`'s control socket: records as they come, until the reader asks for the end.
//! What records mean and how they are shown is decided by the reader.

use std::{
    io::{self, BufReader, Read},
    os::unix::net::UnixStream,
    sync::{Arc, atomic::Ordering},
};

use super::{CaptureEnd, VnicdClient, VnicdError};
use crate::{Request, TraceInfo};
use firmware::recorder::{RECORD_LEN, RECORD_VERSION, Record};

/// Records that are kept of one card: 32 MiB of memory, and more than a picture shows.
pub const TRACE_RECORDS_MAX: usize = 1 << 20;

/// A flight recorder that is on as long as this lives.
#[derive(Debug)]
pub struct Trace {
    reader: BufReader<UnixStream>,
    end: CaptureEnd,
    /// What time 0 of the records is, in nanoseconds since 1970.
    pub origin_unix_ns: u64,
    /// Names of the card's strategies, in the order of their codes.
    pub strategies: Vec<String>,
}

/// How a trace came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEnd {
    /// The reader asked for it.
    Asked,
    /// [`TRACE_RECORDS_MAX`] records are there.
    Full,
    /// `vnicd` has ended.
    Gone,
}

impl VnicdClient {
    /// Switches the flight recorder of a port's card on and turns this connection into a stream of its records.
    ///
    /// # Errors
    /// [`VnicdError`]; a recorder has one reader at a time.
    pub fn trace(self, port: &str) -> Result<Trace, VnicdError> {
        let port = port.to_owned();
        let request = Request::Trace { port, events: None };
        let (reader, about) = self.into_stream::<TraceInfo>(&request)?;
        if about.record_version != RECORD_VERSION || about.record_bytes != RECORD_LEN {
            return Err(VnicdError::Unexpected {
                request: "trace".to_owned(),
                why: format!(
                    "its records are of version {}, this weft reads version {RECORD_VERSION}",
                    about.record_version
                ),
            });
        }
        let end = CaptureEnd {
            stream: reader.get_ref().try_clone().map_err(VnicdError::Unreachable)?,
            asked: Arc::default(),
        };
        Ok(Trace {
            reader,
            end,
            origin_unix_ns: about.origin_unix_ns,
            strategies: about.strategies,
        })
    }
}

impl Trace {
    /// A handle that ends the trace from elsewhere.
    ///
    /// # Errors
    /// When the system has no more file handles.
    pub fn handle(&self) -> io::Result<CaptureEnd> {
        Ok(CaptureEnd {
            stream: self.end.stream.try_clone()?,
            asked: Arc::clone(&self.end.asked),
        })
    }

    /// Reads until the handle asks for the end, and then what the recorder still holds.
    ///
    /// # Errors
    /// When what comes are no records.
    pub fn read_to_end(mut self) -> io::Result<(Vec<Record>, TraceEnd)> {
        let mut records = Vec::new();
        let mut bytes = [0; RECORD_LEN];
        loop {
            match self.reader.read_exact(&mut bytes) {
                Ok(()) => {}
                // A record that `vnicd` did not finish is none.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    let asked = self.end.asked.load(Ordering::SeqCst);
                    return Ok((records, if asked { TraceEnd::Asked } else { TraceEnd::Gone }));
                }
                Err(error) => return Err(error),
            }
            let record = Record::from_bytes(&bytes)
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "what vnicd sends are no records"))?;
            records.push(record);
            if records.len() == TRACE_RECORDS_MAX {
                return Ok((records, TraceEnd::Full));
            }
        }
    }
}

//! What this process did, as numbers.

use std::{
    fs::OpenOptions,
    io::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::settings;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Connections that were made by ESP.
    Connects,
    /// Connections that were accepted by ESP.
    Accepts,
    /// Connections that were made by TCP, because the peer does not speak ESP or nobody listens there by ESP.
    FallBacks,
    /// Connections that were given to a keeper.
    Passes,
    /// Connections that a forked child took over.
    Adoptions,
    /// Connections that could not be given to another program.
    Losses,
}

impl Count {
    /// All that is counted.
    pub const ALL: [Self; 6] = [
        Self::Connects,
        Self::Accepts,
        Self::FallBacks,
        Self::Passes,
        Self::Adoptions,
        Self::Losses,
    ];

    /// Says what is counted.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Connects => "connections that were made by ESP",
            Self::Accepts => "connections that were accepted by ESP",
            Self::FallBacks => {
                "connections that were left to TCP: the peer has no ESP, or no program listens there by ESP"
            }
            Self::Passes => "connections that were given to a keeper, since another program shares them",
            Self::Adoptions => "connections that a forked child took over",
            Self::Losses => "connections that another program should have had, but no keeper could be started",
        }
    }

    /// Returns a name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connects => "connects",
            Self::Accepts => "accepts",
            Self::FallBacks => "fall_backs",
            Self::Passes => "passes",
            Self::Adoptions => "adoptions",
            Self::Losses => "losses",
        }
    }
}

static COUNTS: [AtomicU64; Count::ALL.len()] = [const { AtomicU64::new(0) }; Count::ALL.len()];

pub(crate) fn count(what: Count) {
    COUNTS[what as usize].fetch_add(1, Ordering::Relaxed);
    crate::processes::at_exit();
}

/// Returns a count of this process.
pub fn get(what: Count) -> u64 {
    COUNTS[what as usize].load(Ordering::Relaxed)
}

/// In a forked child: what the parent did is the parent's to say.
pub(crate) fn forget() {
    for count in &COUNTS {
        count.store(0, Ordering::Relaxed);
    }
}

/// Says what this process did where the user wants that, in one line.
pub(crate) fn report() {
    let Some(place) = &settings::get().statistics else {
        return;
    };
    let counts = Count::ALL.map(|what| format!(" {}={}", what.name(), get(what)));
    let line = format!("esp process={}{}\n", std::process::id(), counts.concat());
    // There is nobody any more who could be told of an error.
    let _ = if place.as_os_str() == "-" {
        std::io::stderr().write_all(line.as_bytes())
    } else {
        let file = OpenOptions::new().create(true).append(true).open(place);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
    };
}

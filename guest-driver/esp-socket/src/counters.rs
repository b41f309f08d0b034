//! What this process did, as numbers.

use std::{
    fs::OpenOptions,
    io::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::settings;

#[rustfmt::skip]
ether::counters! {
    /// What is counted.
    pub enum Count:

    Connects "connects" "connections that were made by ESP",
    Accepts "accepts" "connections that were accepted by ESP",
    FallBacks "fall_backs" "connections that were left to TCP: the peer has no ESP, or no program listens there by ESP",
    Passes "passes" "connections that were given to a keeper, since another program shares them",
    Adoptions "adoptions" "connections that a forked child took over",
    Losses "losses" "connections that another program should have had, but no keeper could be started",
    Unserved "unserved" "connections that were accepted and reset, since the authority had no ports left for this process",
    Finishes "finishes" "connections whose last bytes a process delivers after the end of this one",
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
    let counts: String = Count::ALL
        .iter()
        .map(|what| format!(" {}={}", what.name(), get(*what)))
        .collect();
    let line = format!("esp process={}{counts}\n", std::process::id());
    // There is nobody any more who could be told of an error.
    let _ = if place.as_os_str() == "-" {
        std::io::stderr().write_all(line.as_bytes())
    } else {
        let file = OpenOptions::new().create(true).append(true).open(place);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
    };
}

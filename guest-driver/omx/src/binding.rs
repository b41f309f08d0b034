//! Binding of the thread that opens an endpoint to a processor, as `OMX_PROCESS_BINDING` says (mx-api 9): `0,1,2` names
//! one per endpoint number, `all:3` one for all endpoints, `file` or `file:NAME` a file that `omx_prepare_binding`
//! wrote.

use std::{env, fs, path::Path};

use ether::MacAddr;
use rustix::thread::{CpuSet, sched_setaffinity};

/// `omx_prepare_binding` writes this file unless told otherwise.
pub const BINDINGS_FILE: &str = "/tmp/open-mx.bindings.dat";

/// Binds the calling thread if the environment asks for it; a binding that cannot be made is logged and changes
/// nothing.
pub(crate) fn bind(mac: MacAddr, endpoint: u8) {
    let Ok(wish) = env::var("OMX_PROCESS_BINDING") else {
        return;
    };
    let Some(processors) = processors(wish.trim(), mac, endpoint) else {
        tracing::warn!("OMX_PROCESS_BINDING={wish} says nothing about endpoint {endpoint}; the process is not bound");
        return;
    };
    let mut set = CpuSet::new();
    for processor in processors.into_iter().filter(|processor| *processor < CpuSet::MAX_CPU) {
        set.set(processor);
    }
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!("the process cannot be bound for endpoint {endpoint}: {error}");
    }
}

fn processors(wish: &str, mac: MacAddr, endpoint: u8) -> Option<Vec<usize>> {
    if let Some(one) = wish.strip_prefix("all:") {
        return Some(vec![one.trim().parse().ok()?]);
    }
    let file = match wish {
        "file" => Some(BINDINGS_FILE),
        _ => wish.strip_prefix("file:"),
    };
    match file {
        Some(file) => in_file(&fs::read_to_string(Path::new(file)).ok()?, mac, endpoint),
        None => Some(vec![wish.split(',').nth(endpoint.into())?.trim().parse().ok()?]),
    }
}

/// Reads the processors from lines `board <mac> ep <n> irq <n> mask <hex>`.
fn in_file(text: &str, mac: MacAddr, endpoint: u8) -> Option<Vec<usize>> {
    text.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["board", board, "ep", number, "irq", _, "mask", mask] = words[..] else {
            return None;
        };
        if board.parse() != Ok(mac) || number.parse() != Ok(endpoint) {
            return None;
        }
        in_mask(mask)
    })
}

/// Reads the bits of a number in hexadecimal digits, as many as there are processors: with or without `0x` before it
/// and the commas of `/proc/irq/*/smp_affinity`.
fn in_mask(mask: &str) -> Option<Vec<usize>> {
    let digits = mask.strip_prefix("0x").unwrap_or(mask).chars().rev();
    let mut processors = Vec::new();
    for (at, digit) in digits.filter(|digit| *digit != ',').enumerate() {
        let digit = digit.to_digit(16)?;
        processors.extend((0..4).filter(|bit| digit & (1 << bit) != 0).map(|bit| 4 * at + bit));
    }
    // Bound to no processor at all nothing would run.
    (!processors.is_empty()).then_some(processors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_come_as_lists_as_one_for_all_or_from_a_file() {
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        assert_eq!(processors("3,1", mac, 1), Some(vec![1]));
        assert_eq!(processors("3,1", mac, 2), None);
        assert_eq!(processors("all:2", mac, 9), Some(vec![2]));
        let text = "board 02:00:00:00:00:01 ep 0 irq 24 mask 1\nboard 02:00:00:00:00:01 ep 1 irq 25 mask 0xa\n";
        assert_eq!(in_file(text, mac, 1), Some(vec![1, 3]));
        assert_eq!(in_file(text, mac, 2), None);
        assert_eq!(processors("file:/nowhere", mac, 0), None);
        assert_eq!(processors("nonsense", mac, 0), None);
    }

    #[test]
    fn masks_of_hosts_with_more_than_64_processors_are_read_with_and_without_commas() {
        for (mask, expected) in [
            ("1", Some(vec![0])),
            ("80000000,00000000", Some(vec![63])),
            ("00000001,00000000,00000000", Some(vec![64])),
            ("000000010000000000000000", Some(vec![64])),
            ("0x3,00000000,00000000,00000000,00000001", Some(vec![0, 128, 129])),
            ("00000000,00000000", None),
            ("", None),
            ("1 g", None),
        ] {
            assert_eq!(in_mask(mask), expected, "{mask}");
        }
        // As `omx_prepare_binding` writes it.
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let text = "board 02:00:00:00:00:01 ep 3 irq 99 mask 000000010000000000000000\n";
        assert_eq!(in_file(text, mac, 3), Some(vec![64]));
    }
}

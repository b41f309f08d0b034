//! What the environment says about a node.

use std::{env, str::FromStr, time::Duration};

use ether::MacAddr;
use lci_port::{Options, Policy};

use crate::boundary::Failure;

/// A number that the environment may set.
fn number<T: FromStr>(name: &str, default: T) -> Result<T, Failure> {
    match env::var(name) {
        Ok(text) => text
            .trim()
            .parse()
            .map_err(|_| Failure(format!("{name} is to be a number, not {text:?}"))),
        Err(_) => Ok(default),
    }
}

/// The interface of the node.
pub(crate) fn interface() -> Result<String, Failure> {
    env::var("LCI_IFACE").map_err(|_| Failure("LCI_IFACE is to name the interface of this node".to_owned()))
}

/// The addresses of all nodes, from `text` or the environment.
pub(crate) fn nodes(text: Option<&str>) -> Result<Vec<MacAddr>, Failure> {
    let from_environment = env::var("LCI_NODES");
    let text = match (text, &from_environment) {
        (Some(text), _) => text,
        (None, Ok(text)) => text,
        (None, Err(_)) => return Err(Failure("LCI_NODES is to have the addresses of all nodes".to_owned())),
    };
    let address = |text: &str| {
        let address = text.trim().parse();
        address.map_err(|_| Failure(format!("{text:?} is no Ethernet address such as 02:00:00:00:00:01")))
    };
    text.split(',').map(address).collect()
}

/// Everything else.
pub(crate) fn options() -> Result<Options, Failure> {
    let mut options = Options::default();
    options.job = number("LCI_JOB", options.job)?;
    options.ready_timeout = Duration::from_secs(number("LCI_TIMEOUT_S", options.ready_timeout.as_secs())?);
    options.watchdog = Duration::from_micros(number("LCI_WATCHDOG_US", options.watchdog.as_micros() as u64)?);
    options.by_card = number("LCI_BY_CARD", 0u8)? != 0;
    if let Ok(name) = env::var("LCI_IMPLEMENTATION") {
        let known = Policy::ALL.into_iter().find(|known| known.name() == name.trim());
        options.policy =
            known.ok_or_else(|| Failure(format!("LCI_IMPLEMENTATION is to be host, mixed or ni, not {name:?}")))?;
    }
    let dead_ms: u64 = number("LCI_DEAD_MS", options.timing.dead_ns / 1_000_000)?;
    options.timing.dead_ns = dead_ms.saturating_mul(1_000_000);
    options.timing.retransmit_max_ns = options.timing.retransmit_max_ns.min(options.timing.dead_ns / 8);
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes_are_read_and_nonsense_is_named() {
        let two = nodes(Some("02:00:00:00:00:01, 02:00:00:00:00:02")).ok();
        assert_eq!(two, Some([1, 2].map(|last| MacAddr([2, 0, 0, 0, 0, last])).to_vec()));
        for wrong in ["", "02:00:00:00:00:01,", "hello"] {
            assert!(
                nodes(Some(wrong)).is_err_and(|Failure(why)| why.contains("is no Ethernet address")),
                "{wrong}"
            );
        }
    }
}

//! Whom a ping is for: the host's address, and the interface on whose network it is.

use std::{
    fmt,
    net::{IpAddr, ToSocketAddrs},
};

use anyhow::{Context, bail};
use ether::MacAddr;
use netif::{HostAddress, Interface};
use omx::Board;
use weft_authority::{Session, esp::EspTarget};

/// A host on an Ethernet of this host's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    host: String,
    pub(super) to: EspTarget,
    pub(super) interface: Interface,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "EDP PING {} ({}) over {}",
            self.host,
            self.address(),
            self.interface.name
        )
    }
}

impl Target {
    /// Finds a host by name, IP address or Ethernet address.
    pub(super) fn find(host: &str, interface: Option<&str>) -> anyhow::Result<Self> {
        let named = interface.map(Interface::find).transpose()?;
        if let Some(sentence) = named.as_ref().and_then(omxd::why_no_esp) {
            bail!(sentence);
        }
        let (to, interface) = if let Ok(mac) = host.parse::<MacAddr>() {
            if mac.is_multicast() || mac == MacAddr([0; 6]) {
                bail!("{host} is not the address of one host");
            }
            let interface = named.map_or_else(only_interface, Ok)?;
            if mac == interface.mac {
                bail!("{host} is this host itself, which no frame reaches over a wire");
            }
            (EspTarget::Mac(mac.0), interface)
        } else {
            let (ip, interface) = by_ip(host, named)?;
            (EspTarget::Ip(ip), interface)
        };
        let host = host.to_owned();
        Ok(Self { host, to, interface })
    }

    /// Returns the address that is asked.
    pub(super) fn address(&self) -> String {
        match self.to {
            EspTarget::Mac(mac) => MacAddr(mac).to_string(),
            EspTarget::Ip(ip) => ip.to_string(),
        }
    }

    /// Connects to the interface's authority.
    pub(super) fn session(&self) -> anyhow::Result<Session> {
        Ok(Session::connect(&self.interface)?)
    }
}

/// Returns the interface that is meant where there is only one.
fn only_interface() -> anyhow::Result<Interface> {
    let mut boards = Board::all()?.into_iter().filter(|board| board.interface().up);
    let first = boards.next().context("no interface is switched on")?;
    if boards.next().is_some() {
        bail!("there are several interfaces: name one with -I");
    }
    Ok(first.interface().clone())
}

/// Finds the first of a host's addresses that is on a network of this host's.
fn by_ip(host: &str, named: Option<Interface>) -> anyhow::Result<(IpAddr, Interface)> {
    let found: Vec<IpAddr> = match host.parse::<IpAddr>() {
        Ok(ip) => vec![ip.to_canonical()],
        Err(_) => (host, 0)
            .to_socket_addrs()
            .with_context(|| format!("{host} is no host that is known here"))?
            .map(|address| address.ip().to_canonical())
            .collect(),
    };
    let own = HostAddress::list().context("cannot list the addresses of this host")?;
    let first = *found.first().with_context(|| format!("{host} has no address"))?;
    if first.is_loopback() || own.iter().any(|address| found.contains(&address.ip)) {
        bail!("{host} is this host itself, which no frame reaches over a wire");
    }
    let usable = |address: &&HostAddress| named.as_ref().is_none_or(|named| named.name == address.interface);
    for ip in &found {
        if let Some(near) = own.iter().filter(usable).find(|address| address.is_near(*ip)) {
            let interface = named.clone().map_or_else(|| Interface::find(&near.interface), Ok)?;
            return Ok((*ip, interface));
        }
    }
    match named {
        Some(named) => bail!(
            "{first} is not on the Ethernet of {}: EDP crosses no router",
            named.name
        ),
        None => bail!("{first} is on no Ethernet of this host: EDP crosses no router"),
    }
}

//! The command line of `omxd`.

use std::{env, path::PathBuf};

use clap::{CommandFactory, FromArgMatches, Parser, error::ErrorKind, parser::ValueSource};
use ether::EtherType;
use mxoe::{
    engine::{Lost, parse_packet_loss},
    wire::Preset,
};
use weft_authority::{ENDPOINTS, PEERS};

use crate::ether_type;

/// Serves one Ethernet interface for programs that send MX messages: gives them endpoints, keeps the table of peers, and
/// answers other hosts for endpoints that are not open.
#[derive(Debug, Parser)]
#[command(name = "omxd", version)]
pub struct Arguments {
    /// The interface.
    #[arg(value_name = "IFACE")]
    named: Option<String>,
    /// Another option to name the interface.
    #[arg(long, short, value_name = "IFACE", env = "OMX_INTERFACE")]
    interface: Option<String>,
    /// Sizes on the wire: `wire`, `native-1500`, `native-9000`, or `native:MTU:BLOCK` for hosts whose Open-MX was built with others: MTU is
    /// the longest frame in bytes with its Ethernet header, 256 to 65535, BLOCK the frames per pull block, a power of two up to 64.
    /// Default: the native one that fits the interface's MTU. All hosts must use the same.
    #[arg(long, env = "OMX_PRESET")]
    pub preset: Option<Preset>,
    /// Name of this board, as other hosts see it. Default: `<node>:<number of the board>`, and `localhost` for
    /// loopback.
    #[arg(long, env = "OMX_BOARD_NAME")]
    pub name: Option<String>,
    /// Group whose members may open endpoints. Default: `omx` if that group exists, otherwise only root may.
    #[arg(long, env = "OMX_GROUP")]
    pub group: Option<String>,
    /// Run in the background, and exit some seconds after the last endpoint was closed.
    #[arg(long)]
    pub on_demand: bool,
    /// Run in the background until stopped. The command ends when the interface is served, or fails.
    #[arg(long, conflicts_with = "on_demand")]
    pub background: bool,
    /// Log file of an omxd in the background. Default: none.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Accept only peers that root adds with `omx_init_peers`: other hosts are ignored, and this board does not announce itself.
    #[arg(long)]
    pub static_peers: bool,
    /// Endpoints that can be open at once. A lower limit closes none that are open.
    #[arg(long, env = "OMX_ENDPOINTS_MAX", value_name = "COUNT", default_value_t = ENDPOINTS, value_parser = clap::value_parser!(u8).range(1..=i64::from(ENDPOINTS)))]
    pub endpoints_max: u8,
    /// Peers in the table, including this board. A lower limit removes none that are in it.
    #[arg(long, env = "OMX_PEERS_MAX", value_name = "COUNT", default_value_t = PEERS as u16, value_parser = clap::value_parser!(u16).range(1..=i64::from(PEERS)))]
    pub peers_max: u16,
    /// What users other than root may change, as a sum: 1 counters, 2 this board's name, 4 the peer table.
    #[arg(long, env = "OMX_USER_RIGHTS", value_name = "MASK", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..8))]
    pub user_rights: u8,
    /// Microseconds that data of large messages may wait in queues before less of it is requested at once. Default: 1000, and 50000 on
    /// virtio cards and veth, where a processor that is away looks like a queue. A lower value leaves IP more of a slow link.
    #[arg(long, env = "OMX_QUEUE_US_MAX", value_name = "MICROSECONDS", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub queue_us_max: Option<u32>,
    /// Whether data of large messages arrives on its own socket, from which the receiver's core copies it, or in the ring, into which it
    /// is copied by the core on which it arrives. By default an endpoint on veth, where that is the sender's core, measures which is
    /// quicker, if its sockets share the kernel's lookup of each frame with omxd; elsewhere data arrives in the ring. Needs
    /// CAP_NET_ADMIN.
    #[arg(
        long,
        env = "OMX_DATA_SOCKET",
        value_name = "true|false",
        hide_possible_values = true
    )]
    pub data_socket: Option<bool>,
    /// Whether endpoints hand frames of up to 2048 bytes directly to the driver of a veth, bridge or macvlan interface
    /// while nothing else observes or queues what it sends: no queueing discipline, no filter of `tc`, no listener such
    /// as tcpdump. omxd checks every second; three seconds after it has ended or hangs, frames go by packet sockets.
    /// Saves a third of what a frame costs the sender, and takes 2 MiB of locked memory. Needs Linux 6.4. Only
    /// endpoints of the user whose endpoint opened first can do so.
    #[arg(
        long,
        env = "OMX_DIRECT_TRANSMIT",
        value_name = "true|false",
        hide_possible_values = true
    )]
    pub direct_transmit: Option<bool>,
    /// While endpoints are open, keep idle processors out of states from which they take longer than this many microseconds to wake up.
    /// 0: they do not halt at all, which costs power, and in a virtual machine its host's processors. Default: power saving is not
    /// changed. Needs root.
    #[arg(long, env = "OMX_CPU_LATENCY_US_MAX", value_name = "MICROSECONDS", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub cpu_latency_us_max: Option<u32>,
    /// EtherType of all frames, in hexadecimal, for hosts whose Open-MX was built with another one than 86df. All hosts
    /// must use the same. A Weft card checks marks and endpoints of 86df only. With IPv6's, 86dd, no host may use IPv6
    /// on the interface.
    #[arg(long, env = "OMX_ETHER_TYPE", value_name = "HEX", value_parser = ether_type::parse)]
    pub ether_type: Option<EtherType>,
    /// EtherType of the frames of ESP, stream sockets directly over Ethernet (`esp-run`), in hexadecimal; all hosts must use the same.
    /// `off`: this interface has no ESP, and programs use TCP. Default: 4553.
    #[arg(long, env = "OMX_ESP_ETHER_TYPE", value_name = "HEX|off", value_parser = ether_type::parse_esp)]
    pub esp_ether_type: Option<ether_type::OfEsp>,
    /// Whether endpoints negotiate the latency mark with others, and the card is told to check it. `false`: no endpoint
    /// announces it, so it is neither sent nor understood, as in the original Open-MX. Open endpoints are not changed.
    #[arg(long, env = "OMX_MARKS", value_name = "true|false", hide_possible_values = true)]
    pub marks: Option<bool>,
    /// Packets that omxd loses on purpose, for tests, with the names that endpoints use: `nack_lib=2` loses, on average, one of two
    /// answers that an endpoint is not open, `raw=2` one of two announcements.
    #[arg(long, env = "OMX_PACKET_LOSS", value_name = "LIST")]
    pub packet_loss: Option<String>,
}

impl Arguments {
    /// Parses the list of packets to lose. Words that are no parameters are named in the log.
    pub fn parsed_packet_loss(&self) -> Vec<(Lost, u32)> {
        let (faults, sentence) = parse_packet_loss(self.packet_loss.as_deref().unwrap_or_default());
        if let Some(sentence) = sentence {
            tracing::warn!("OMX_PACKET_LOSS: {sentence}");
        }
        faults
    }
}

impl Arguments {
    /// Returns the interface.
    pub fn interface(&self) -> &str {
        // One of them is there (`read`); the command line's counts before the environment's.
        self.named.as_deref().or(self.interface.as_deref()).unwrap_or_default()
    }

    /// Reads the command line and the environment, where an empty variable counts as none; ends the process where they
    /// make no sense.
    pub fn read() -> Self {
        let mut command = Self::command().mut_args(|argument| {
            let set = argument.get_env().map(env::var_os);
            if set.flatten().is_some_and(|value| value.is_empty()) {
                argument.env(None::<&str>)
            } else {
                argument
            }
        });
        let matches = command.get_matches_mut();
        let arguments = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let said_twice = matches.value_source("interface") == Some(ValueSource::CommandLine);
        let refused = match (&arguments.named, &arguments.interface) {
            (None, None) => Some((
                ErrorKind::MissingRequiredArgument,
                "which interface? `omxd eth1` serves eth1; `ip -brief link` lists them",
            )),
            (Some(_), Some(_)) if said_twice => Some((
                ErrorKind::ArgumentConflict,
                "an omxd serves one interface: name it once, as `omxd eth1` or `omxd --interface eth1`",
            )),
            _ => None,
        };
        if let Some((kind, sentence)) = refused {
            command.error(kind, sentence).exit();
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use weft_authority::OMXD_VARIABLES;

    use super::*;

    #[test]
    fn programs_that_start_an_omxd_hand_on_every_variable_it_takes() {
        let command = Arguments::command();
        let taken: Vec<_> = command
            .get_arguments()
            .filter(|argument| argument.get_id() != "interface")
            .filter_map(|argument| argument.get_env()?.to_str())
            .collect();
        assert_eq!(taken, OMXD_VARIABLES);
    }
}

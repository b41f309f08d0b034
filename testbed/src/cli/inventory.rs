//! `weft inventory`: prints the nodes of a lab in the formats of other tools.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use anyhow::{Context, Result};

use super::common::{CommonOptions, act, client};
use crate::lab::topology::Topology;

/// Print the nodes for /etc/hosts, ssh or Ansible.
///
/// ssh and Ansible reach a node through its agent, so its addresses need not be reachable from here. The node needs an ssh server
/// on port 22, and nc.
#[derive(Debug, clap::Args)]
#[command(add = act(&[
    ("weft inventory", "names and addresses as in /etc/hosts"),
    ("weft inventory --format ssh > lab.ssh", "then: ssh -F lab.ssh n1"),
    ("weft inventory --format ansible > lab.yml", "then: ansible -i lab.yml all -m ping"),
]))]
pub(super) struct InventoryArgs {
    /// Output format.
    #[arg(long, default_value = "hosts", value_name = "FORMAT")]
    format: Format,
    /// The user to log in as.
    #[arg(long, default_value = "root", value_name = "NAME", value_parser = user)]
    user: String,
}

/// The tool that reads an inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// Lines for a file such as /etc/hosts.
    Hosts,
    /// A configuration for ssh and scp: ssh -F FILE n1.
    Ssh,
    /// An inventory in YAML for ansible -i FILE.
    Ansible,
}

/// Parses the name of a user; names that would need quotes are refused.
fn user(name: &str) -> Result<String, String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if !name.is_empty() && name.len() <= 32 && !name.starts_with('-') && name.chars().all(plain) {
        return Ok(name.to_owned());
    }
    Err("a user's name has up to 32 letters, digits, dots, dashes and underscores, no dash first".to_owned())
}

pub(super) fn run(options: &CommonOptions, args: &InventoryArgs) -> Result<()> {
    let topology = client(options)?.topology()?;
    let weft = std::env::current_exe().context("cannot find the running weft")?;
    let weft = weft.to_str().context("the folder of weft is not named in UTF-8")?;
    let text = match args.format {
        Format::Hosts => hosts(&topology),
        Format::Ssh => ssh(&topology, weft, &args.user),
        Format::Ansible => ansible(&topology, weft, &args.user),
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// Renders every address: the first of a node under its name, each under the name of its card.
fn hosts(topology: &Topology) -> String {
    let mut out = String::new();
    for node in &topology.nodes {
        let mut first = [true, true];
        for nic in &node.nics {
            for address in nic.hosts() {
                let is_first = std::mem::take(&mut first[usize::from(address.is_ipv6())]);
                let name = if is_first {
                    format!("{} ", node.name)
                } else {
                    String::new()
                };
                // Writing to a string does not fail.
                _ = writeln!(out, "{address} {name}{}", nic.name);
            }
        }
    }
    out
}

/// Returns how ssh reaches a node from here, where none of its addresses is known: through its agent, to the port in
/// the guest.
fn proxy(topology: &Topology, weft: &str, node: &str) -> String {
    // A percent sign has a meaning in ssh's configuration, and the command is run by a shell.
    let weft = weft.replace('\'', "'\\''").replace('%', "%%");
    format!("'{weft}' exec --lab {} {node} -- nc 127.0.0.1 22", topology.lab)
}

/// Options that skip the check of host keys: keys of guests change with every lab, so the question would only train
/// people to say yes.
const HOST_KEYS: [(&str, &str); 3] = [
    ("StrictHostKeyChecking", "no"),
    ("UserKnownHostsFile", "/dev/null"),
    ("LogLevel", "ERROR"),
];

fn ssh(topology: &Topology, weft: &str, user: &str) -> String {
    let mut out = format!(
        "# The lab {} for ssh: ssh -F FILE NODE. Needs an ssh server and nc in the node, and Weft's agent.\n",
        topology.lab
    );
    for node in &topology.nodes {
        // Writing to a string does not fail.
        _ = writeln!(out, "Host {}\n    HostName {0}\n    User {user}", node.name);
        _ = writeln!(out, "    ProxyCommand {}", proxy(topology, weft, &node.name));
        for (key, value) in HOST_KEYS {
            _ = writeln!(out, "    {key} {value}");
        }
    }
    out
}

/// Renders text in YAML's double quotes, which have the escapes of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn ansible(topology: &Topology, weft: &str, user: &str) -> String {
    let mut out = format!(
        "# The lab {0} for Ansible: ansible -i FILE {1} -m ping. Needs python3, an ssh server and nc in the nodes, and Weft's agent.\n\
         {1}:\n  hosts:\n",
        topology.lab,
        group(topology)
    );
    for node in &topology.nodes {
        // Writing to a string does not fail.
        _ = writeln!(out, "    {}:", node.name);
        let keys = HOST_KEYS
            .iter()
            .map(|(key, value)| format!("-o {key}={value} "))
            .collect::<String>();
        let proxy = proxy(topology, weft, &node.name);
        let arguments = format!("{keys}-o ProxyCommand=\"{}\"", proxy.replace('"', "\\\""));
        _ = writeln!(out, "      ansible_ssh_common_args: {}", quoted(&arguments));
        for (v6, name) in [(false, "weft_address"), (true, "weft_address6")] {
            if let Some(address) = node.address(v6) {
                _ = writeln!(out, "      {name}: {}", quoted(&address.to_string()));
            }
        }
    }
    _ = writeln!(
        out,
        "  vars:\n    ansible_user: {}\n    ansible_python_interpreter: auto_silent",
        quoted(user)
    );
    out
}

/// Returns the name of the group of all nodes: Ansible allows no dashes in it.
fn group(topology: &Topology) -> String {
    format!("lab_{}", topology.lab.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command};

    use super::*;
    use crate::lab::Lab;

    fn topology() -> Topology {
        let text = "name = \"my-lab\"\n[[node]]\nname = \"n1\"\nnic = [{}, {}]\n[[node]]\nname = \"web-1\"\n";
        Topology::of(&Lab::parse(text, "lab.toml", "lab", Path::new("/")).expect("valid"))
    }

    #[test]
    fn hosts_have_names_of_nodes_and_of_cards() {
        assert_eq!(
            hosts(&topology()),
            "10.77.1.1 n1 n1.eth0\nfd10:fe7e:c47:1::1 n1 n1.eth0\n10.77.1.2 n1.eth1\nfd10:fe7e:c47:1::2 n1.eth1\n\
             10.77.1.3 web-1 web-1.eth0\nfd10:fe7e:c47:1::3 web-1 web-1.eth0\n"
        );
    }

    #[test]
    fn ssh_reads_its_configuration_and_reaches_nodes_by_their_agent() {
        let text = ssh(&topology(), "/opt/it's 100%/weft", "root");
        assert!(
            text.contains("    ProxyCommand '/opt/it'\\''s 100%%/weft' exec --lab my-lab web-1 -- nc 127.0.0.1 22\n"),
            "{text}"
        );
        let folder = tempfile::tempdir().expect("temporary folder");
        let file = folder.path().join("config");
        std::fs::write(&file, &text).expect("it can be written");
        let Ok(read) = Command::new("ssh").arg("-G").arg("-F").arg(&file).arg("web-1").output() else {
            println!("there is no ssh here: only the text is tested");
            return;
        };
        let read = String::from_utf8_lossy(&read.stdout);
        for line in ["hostname web-1", "user root", "userknownhostsfile /dev/null"] {
            assert!(read.lines().any(|found| found == line), "{line}: {read}");
        }
        assert!(read.contains("exec --lab my-lab web-1 -- nc 127.0.0.1 22"), "{read}");
    }

    #[test]
    fn names_of_users_need_no_quotes() {
        for (name, is_fine) in [
            ("root", true),
            ("a.b-c_1", true),
            ("", false),
            ("-x", false),
            ("a b", false),
            ("a\nb", false),
        ] {
            assert_eq!(user(name).is_ok(), is_fine, "{name}");
        }
    }

    #[test]
    fn ansible_gets_a_group_with_a_host_for_each_node() {
        let text = ansible(&topology(), "/opt/weft", "root");
        assert!(
            text.contains("\nlab_my_lab:\n  hosts:\n    n1:\n      ansible_ssh_common_args: \"-o "),
            "{text}"
        );
        assert!(text.contains("      weft_address: \"10.77.1.3\"\n"), "{text}");
        assert!(
            text.contains("-o ProxyCommand=\\\"'/opt/weft' exec --lab my-lab web-1 -- nc 127.0.0.1 22\\\"\"\n"),
            "{text}"
        );
    }
}

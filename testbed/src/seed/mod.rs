//! The seed that sets up a stock cloud image: a small disk labelled `cidata` that cloud-init's NoCloud source reads at
//! the first boot. It contains the guest's identity, the addresses of its cards, who may log in, and how Weft's agent
//! is installed. This module attaches nothing and boots nothing.

mod iso;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use weft_agent::config::GuestConfig;

use crate::lab::CloudInit;

/// Label that cloud-init searches for.
const LABEL: &str = "cidata";

/// Path of the agent in the guest, which its unit contains too.
const AGENT_PATH: &str = "/usr/local/sbin/weft-agent";

/// Unit of the agent for systemd, also shipped for images that are made by hand.
pub const AGENT_UNIT: &str = include_str!("../../agent/weft-agent.service");

/// Makes the seed of a guest with the configuration `guest`, with the keys of `cloud_init` read already (`ssh_keys`,
/// one a line) and the static program `agent`, if the guest is to have it.
#[must_use]
pub fn image(guest: &GuestConfig, cloud_init: &CloudInit, ssh_keys: &[String], agent: Option<&[u8]>) -> Vec<u8> {
    let user_data = format!(
        "#cloud-config\n{:#}\n",
        user_data(guest, cloud_init, ssh_keys, agent.is_some())
    );
    let network = format!("{:#}\n", network_config(guest));
    // A changed seed is another instance to cloud-init, so that a disk that is kept is set up anew.
    let hash = Sha256::new()
        .chain_update(&user_data)
        .chain_update(&network)
        .chain_update(agent.unwrap_or_default())
        .finalize();
    let instance = format!("weft-{}-{}", guest.hostname, crate::digest::hex(&hash[..6]));
    let meta_data = format!(
        "{:#}\n",
        json!({"instance-id": instance, "local-hostname": guest.hostname})
    );
    let mut files = vec![
        ("meta-data", meta_data.as_bytes()),
        ("network-config", network.as_bytes()),
        ("user-data", user_data.as_bytes()),
    ];
    if let Some(agent) = agent {
        files.extend([("weft-agent", agent), ("weft-agent.service", AGENT_UNIT.as_bytes())]);
    }
    iso::image(LABEL, &files)
}

/// Makes the user data as JSON, which is YAML, which cloud-init reads.
fn user_data(guest: &GuestConfig, cloud_init: &CloudInit, ssh_keys: &[String], with_agent: bool) -> Value {
    let hosts: String = guest
        .hosts
        .iter()
        .map(|host| format!("{} {}\n", host.address, host.names.join(" ")))
        .collect();
    let mut data = json!({
        "hostname": guest.hostname,
        "preserve_hostname": false,
        // Debian's images default to true, and would rewrite the file at each boot, without the other nodes.
        "manage_etc_hosts": false,
        "ssh_authorized_keys": ssh_keys,
        "write_files": [{"path": "/etc/hosts", "content": hosts, "append": true}],
    });
    let mut user = json!({"ssh_authorized_keys": ssh_keys, "lock_passwd": cloud_init.password.is_none()});
    if let Some(password) = &cloud_init.password {
        user["plain_text_passwd"] = json!(password);
        data["ssh_pwauth"] = json!(true);
    }
    match &cloud_init.user {
        Some(name) => {
            user["name"] = json!(name);
            user["shell"] = json!("/bin/bash");
            user["sudo"] = json!("ALL=(ALL) NOPASSWD:ALL");
            data["users"] = json!(["default", user]);
        }
        // The settings are for the image's own user.
        None => data["user"] = user,
    }
    if with_agent {
        data["runcmd"] = json!([["sh", "-c", install_agent()]]);
    }
    data
}

/// Returns the script that the guest runs once, as root, to install the agent from the seed.
fn install_agent() -> String {
    format!(
        "set -e; seed=$(mktemp -d); mount -o ro \"$(blkid -L {LABEL} || blkid -L CIDATA)\" \"$seed\"; \
         install -m 755 \"$seed/weft-agent\" {AGENT_PATH}; \
         install -m 644 \"$seed/weft-agent.service\" /etc/systemd/system/weft-agent.service; \
         umount \"$seed\"; rmdir \"$seed\"; systemctl daemon-reload; systemctl enable --now weft-agent.service"
    )
}

/// Makes version 2 of cloud-init's network configuration. A card without addresses is brought up all the same.
fn network_config(guest: &GuestConfig) -> Value {
    let mut ethernets = serde_json::Map::new();
    for interface in &guest.interfaces {
        let mut card = json!({
            "match": {"macaddress": interface.mac},
            "set-name": interface.name,
            "dhcp4": false,
            "optional": true,
        });
        if !interface.addresses.is_empty() {
            card["addresses"] = json!(interface.addresses);
        }
        if interface.without_ipv6 || !guest.ipv6 {
            card["link-local"] = json!([]);
            card["accept-ra"] = json!(false);
        }
        if let Some(mtu) = interface.mtu {
            card["mtu"] = json!(mtu);
        }
        if let Some(gateway) = interface.gateway {
            card["routes"] = json!([{"to": "default", "via": gateway}]);
            card["nameservers"] = json!({"addresses": [crate::qemu::Uplink::NAMESERVER]});
        }
        ethernets.insert(interface.name.clone(), card);
    }
    json!({"version": 2, "ethernets": ethernets})
}

#[cfg(test)]
mod tests {
    use weft_agent::config::{Host, Interface};

    use super::*;

    fn guest() -> GuestConfig {
        let eth0 = Interface {
            mac: "52:54:00:00:01:01".to_owned(),
            name: "eth0".to_owned(),
            addresses: vec!["10.77.1.1/24".to_owned(), "fd00::1/64".to_owned()],
            mtu: Some(9000),
            ..Interface::default()
        };
        let uplink = Interface {
            mac: "52:54:00:ff:ff:01".to_owned(),
            name: "uplink".to_owned(),
            addresses: vec!["10.0.2.15/24".to_owned()],
            gateway: "10.0.2.2".parse().ok(),
            without_ipv6: true,
            ..Interface::default()
        };
        let hosts = vec![Host {
            address: "10.77.1.2".parse().expect("an address"),
            names: vec!["n2".to_owned(), "n2.eth0".to_owned()],
        }];
        GuestConfig {
            hostname: "n1".to_owned(),
            interfaces: vec![eth0, uplink],
            hosts,
            ipv6: true,
            ..GuestConfig::default()
        }
    }

    #[test]
    fn a_seed_says_who_the_guest_is_and_who_may_log_in() {
        let keys = ["ssh-ed25519 AAAA me".to_owned()];
        let data = user_data(&guest(), &CloudInit::default(), &keys, true);
        assert_eq!(data["hostname"], "n1");
        assert_eq!(data["user"]["ssh_authorized_keys"], json!(keys));
        assert_eq!(data["user"]["lock_passwd"], true);
        assert_eq!(data["write_files"][0]["content"], "10.77.1.2 n2 n2.eth0\n");
        assert!(
            data["runcmd"][0][2]
                .as_str()
                .is_some_and(|script| script.contains("systemctl enable --now weft-agent"))
        );
        let named = CloudInit {
            user: Some("student".to_owned()),
            password: Some("weft".to_owned()),
            ..CloudInit::default()
        };
        let data = user_data(&guest(), &named, &keys, false);
        assert_eq!(
            (&data["users"][0], &data["users"][1]["name"]),
            (&json!("default"), &json!("student"))
        );
        assert_eq!(data["users"][1]["plain_text_passwd"], "weft");
        assert_eq!(data.get("runcmd"), None);
    }

    #[test]
    fn a_seed_gives_each_card_its_name_and_addresses() {
        let network = network_config(&guest());
        let eth0 = &network["ethernets"]["eth0"];
        assert_eq!(eth0["match"]["macaddress"], "52:54:00:00:01:01");
        assert_eq!(
            (&eth0["addresses"], &eth0["mtu"]),
            (&json!(["10.77.1.1/24", "fd00::1/64"]), &json!(9000))
        );
        assert_eq!(eth0.get("link-local"), None, "IPv6 is on");
        let uplink = &network["ethernets"]["uplink"];
        assert_eq!(uplink["routes"][0]["via"], "10.0.2.2");
        assert_eq!(uplink["link-local"], json!([]), "IPv6 is off");
    }

    #[test]
    fn another_seed_is_another_instance() {
        let id = |seed: &[u8]| {
            let text = String::from_utf8_lossy(seed);
            let start = text.find("weft-n1-").expect("an instance");
            text[start..start + 20].to_owned()
        };
        let none = CloudInit::default();
        let one = image(&guest(), &none, &[], None);
        assert_eq!(one, image(&guest(), &none, &[], None), "equal inputs give equal images");
        assert_ne!(id(&one), id(&image(&guest(), &none, &["ssh-rsa B".to_owned()], None)));
        assert_ne!(id(&one), id(&image(&guest(), &none, &[], Some(b"agent"))));
    }

    #[test]
    fn the_unit_is_one_that_systemd_takes() {
        assert!(AGENT_UNIT.contains(&format!("ExecStart={AGENT_PATH} serve")));
        let folder = tempfile::tempdir().expect("temporary folder");
        let unit = folder.path().join("weft-agent.service");
        // The program is not installed here, which is no mistake of the unit.
        std::fs::write(&unit, AGENT_UNIT.replace(AGENT_PATH, "/bin/true")).expect("writable");
        let verified = std::process::Command::new("systemd-analyze")
            .arg("verify")
            .arg(&unit)
            .output();
        match verified {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(
                    output.status.success() && !said.contains("weft-agent.service"),
                    "{said}"
                );
            }
            Err(error) => println!("systemd is not here to read the unit: {error}"),
        }
    }
}

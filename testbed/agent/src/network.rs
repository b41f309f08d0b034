//! Gives a guest its host name, addresses and neighbours, as its configuration says, with the `ip` command. What does
//! not work is noted and the rest goes on: the host shows the notes.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use weft_agent::config::{GuestConfig, Interface};

/// Sets everything up; adds one sentence to `problems` for each failure.
pub fn set_up(config: &GuestConfig, problems: &mut Vec<String>) {
    let hostname = config.own_name();
    let mut note = |what: &str, result: std::io::Result<()>| {
        if let Err(error) = result {
            problems.push(format!("{what}: {error}"));
        }
    };
    note(
        "the host name cannot be set",
        rustix::system::sethostname(hostname.as_bytes()).map_err(Into::into),
    );
    note(
        "/etc/hostname cannot be written",
        fs::write("/etc/hostname", format!("{hostname}\n")),
    );
    note(
        "/etc/hosts cannot be written",
        fs::write("/etc/hosts", config.hosts_file()),
    );
    let servers: String = config
        .nameservers
        .iter()
        .map(|server| format!("nameserver {server}\n"))
        .collect();
    note(
        "/etc/resolv.conf cannot be written",
        fs::write("/etc/resolv.conf", servers),
    );
    set_kernel_parameters(config.ipv6, &mut note);
    ip(problems, &["link", "set", "lo", "up"]);
    let present = interfaces();
    name_interfaces(&config.interfaces, &present, problems);
    crate::setup::sysctl(&config.sysctl, problems);
    for interface in &config.interfaces {
        if !present.contains_key(&interface.mac.to_ascii_lowercase()) {
            problems.push(format!(
                "there is no card with the address {} ({})",
                interface.mac, interface.name
            ));
        } else if let Some(driver) = &interface.bypass {
            run(problems, "/bin/nicctl", &["bind", "--driver", driver, &interface.name]);
        } else {
            bring_up(interface, problems);
        }
    }
}

/// Sets what concerns all interfaces.
fn set_kernel_parameters(ipv6: bool, note: &mut impl FnMut(&str, std::io::Result<()>)) {
    let mut set = |name: &str, value: &str, problem: &str| {
        let path = format!("/proc/sys/net/{name}");
        // A kernel without IPv6, or one that is older than the parameter, has no such file, and nothing to set.
        if fs::exists(&path).unwrap_or(false) {
            note(problem, fs::write(&path, value));
        }
    };
    // The kernel detects duplicate addresses unless both `all` and the interface switch that off; `bring_up` does so
    // for each interface.
    let problem = "detection of duplicate IPv6 addresses cannot be switched off";
    set("ipv6/conf/all/accept_dad", "0", problem);
    if !ipv6 {
        for which in ["all", "default"] {
            let name = format!("ipv6/conf/{which}/disable_ipv6");
            set(&name, "1", "IPv6 cannot be switched off");
        }
    }
    // A card's carrier is away for some ten milliseconds when its `vnicd` is exchanged. Neighbours that were forgotten
    // with the carrier would be resolved again only once a second. Linux has these parameters since 5.16.
    let problem = "neighbours cannot be kept when the carrier is lost";
    set("ipv4/conf/all/arp_evict_nocarrier", "0", problem);
    set("ipv6/conf/all/ndisc_evict_nocarrier", "0", problem);
}

/// Returns MAC address (lower case) and name of every Ethernet interface.
fn interfaces() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Ok(mac) = fs::read_to_string(entry.path().join("address"))
            && name != "lo"
        {
            found.insert(mac.trim().to_ascii_lowercase(), name);
        }
    }
    found
}

/// Gives the interfaces the configured names. This takes two steps, since a wanted name may be in use by another
/// interface.
fn name_interfaces(wanted: &[Interface], present: &BTreeMap<String, String>, problems: &mut Vec<String>) {
    let mut aside = Vec::new();
    for (index, interface) in wanted.iter().enumerate() {
        match present.get(&interface.mac.to_ascii_lowercase()) {
            Some(name) if *name != interface.name => {
                let temporary = format!("weft-tmp{index}");
                ip(problems, &["link", "set", name, "name", &temporary]);
                aside.push((temporary, &interface.name));
            }
            _ => {}
        }
    }
    for (temporary, name) in aside {
        ip(problems, &["link", "set", &temporary, "name", name]);
    }
}

fn bring_up(interface: &Interface, problems: &mut Vec<String>) {
    let name = interface.name.as_str();
    if interface.without_ipv6
        && let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
        && fs::exists(&path).unwrap_or(false)
        && let Err(error) = fs::write(&path, "1")
    {
        problems.push(format!("IPv6 cannot be switched off on {name}: {error}"));
    }
    // The lab's addresses are unique. Duplicate address detection would keep an address unusable for a second or two in
    // which the node counts as ready.
    let path = format!("/proc/sys/net/ipv6/conf/{name}/accept_dad");
    if fs::exists(&path).unwrap_or(false)
        && let Err(error) = fs::write(&path, "0")
    {
        problems.push(format!(
            "detection of duplicate IPv6 addresses cannot be switched off on {name}: {error}"
        ));
    }
    match interface.mtu {
        Some(mtu) => ip(problems, &["link", "set", name, "mtu", &mtu.to_string(), "up"]),
        None => ip(problems, &["link", "set", name, "up"]),
    }
    for address in &interface.addresses {
        ip(problems, &["addr", "add", address, "dev", name]);
    }
    if let Some(gateway) = interface.gateway {
        ip(
            problems,
            &["route", "add", "default", "via", &gateway.to_string(), "dev", name],
        );
    }
}

fn ip(problems: &mut Vec<String>, arguments: &[&str]) {
    // A guest of the recipe `minimal` has both; busybox's starts sooner, and knows all that is needed here.
    match fs::exists("/bin/busybox") {
        Ok(true) => run(problems, "/bin/busybox", &[&["ip"], arguments].concat()),
        _ => run(problems, "/bin/ip", arguments),
    }
}

fn run(problems: &mut Vec<String>, program: &str, arguments: &[&str]) {
    let run = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let why = match run {
        Ok(output) if output.status.success() => return,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "),
        Err(error) => error.to_string(),
    };
    let name = program.rsplit('/').next().unwrap_or(program);
    problems.push(format!("{name} {} failed: {why}", arguments.join(" ")));
}

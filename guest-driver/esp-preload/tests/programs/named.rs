//! C programs that ask for ESP by name, over `esp.h`.

use std::{path::Path, process::Command};

use weft_guest_driver_testkit::static_library;

use crate::{
    between_hosts,
    faults::mac_of,
    hosts::{Hosts, Left, Right},
};

/// Links the library and compiles the program.
fn compile(hosts: &Hosts) -> [String; 2] {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../esp-socket");
    let out = hosts.dir().join("esp");
    let linked = Command::new(own.join("link"))
        .arg(static_library("libesp_socket"))
        .arg(&out)
        .status()
        .unwrap();
    assert!(linked.success(), "the library does not link");
    let program = hosts.dir().join("named");
    let compiled = Command::new("gcc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(out.join("include"))
        .arg(own.join("tests/c/named.c"))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(out.join("lib"))
        .arg("-lesp")
        .status()
        .expect("gcc");
    assert!(compiled.success(), "it does not compile");
    [
        format!("LD_LIBRARY_PATH={}", out.join("lib").display()),
        program.display().to_string(),
    ]
}

#[test]
fn m_hr2_c_programs_connect_by_ip_and_by_ethernet_address_alone() {
    between_hosts(
        "named::m_hr2_c_programs_connect_by_ip_and_by_ethernet_address_alone",
        |hosts| {
            let [path, program] = compile(&hosts);
            let start = |host, arguments: &[&str]| {
                hosts.start(host, &[&["env", path.as_str(), program.as_str()], arguments].concat())
            };
            let mut tcp = hosts.count_tcp();
            let server = start(Right, &["serve", "7006"]);
            hosts.await_listener(Right, 7006);
            start(Left, &["connect", Right.ip(), "7006"]).finish();
            let mac = mac_of(&hosts, Right).to_string();
            start(Left, &["connect", &mac, "7006", hosts.interface(Left)]).finish();
            server.finish();
            assert_eq!(tcp.take(), 0);
        },
    );
}

//! Programs of Debian's, unmodified: over ESP between two hosts that have it, and by TCP where the peer has none.

use std::{fs, io::Write, path::PathBuf};

use crate::{
    between_hosts,
    hosts::{Hosts, Left, Right},
};

/// Makes a file of so many bytes that are not all alike.
fn file(hosts: &Hosts, name: &str, len: usize) -> PathBuf {
    let path = hosts.dir().join(name);
    let bytes: Vec<u8> = (0..len as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect();
    fs::File::create(&path).unwrap().write_all(&bytes).unwrap();
    path
}

/// A program of a Debian package must be there.
fn needs(program: &str, package: &str) {
    let found = ["/usr/bin", "/usr/sbin"]
        .iter()
        .any(|dir| PathBuf::from(dir).join(program).exists());
    assert!(found, "this test needs the Debian package {package}");
}

/// Runs a test between hosts with ESP, and checks that no TCP segment was on the wire.
fn by_esp_alone(test: &str, body: impl FnOnce(&Hosts)) {
    between_hosts(test, |hosts| {
        let mut tcp = hosts.count_tcp();
        body(&hosts);
        assert_eq!(tcp.take(), 0, "TCP segments were on the wire");
    });
}

#[test]
fn m_hr2_iperf3_runs_over_esp_in_both_directions_and_with_eight_streams() {
    needs("iperf3", "iperf3");
    by_esp_alone(
        "real::m_hr2_iperf3_runs_over_esp_in_both_directions_and_with_eight_streams",
        |hosts| {
            for options in [&[][..], &["-R"], &["-P", "8"]] {
                let server = hosts.serve(Right, 5201, &["iperf3", "-s", "-1"]);
                let text = hosts.must_esp(Left, &[&["iperf3", "-c", Right.ip(), "-n", "20M"], options].concat());
                assert!(text.contains("iperf Done"), "{text}");
                server.finish();
            }
        },
    );
}

#[test]
fn m_hr2_netcat_copies_a_file_over_esp() {
    needs("nc", "netcat-openbsd or netcat-traditional");
    by_esp_alone("real::m_hr2_netcat_copies_a_file_over_esp", |hosts| {
        let sent = file(hosts, "sent", 3_000_000);
        let receive = format!("nc -l -p 7001 > {}", hosts.dir().join("received").display());
        let server = hosts.serve(Right, 7001, &["sh", "-c", &receive]);
        hosts.must_esp(
            Left,
            &["sh", "-c", &format!("nc -q 0 {} 7001 < {}", Right.ip(), sent.display())],
        );
        server.finish();
        assert!(fs::read(sent).unwrap() == fs::read(hosts.dir().join("received")).unwrap());
    });
}

#[test]
fn m_hr2_curl_fetches_from_pythons_http_server_over_esp() {
    needs("curl", "curl");
    by_esp_alone("real::m_hr2_curl_fetches_from_pythons_http_server_over_esp", |hosts| {
        let sent = file(hosts, "sent", 1 << 20);
        let _server = hosts.serve(Right, 8000, &["python3", "-m", "http.server", "8000"]);
        let address = format!("http://{}:8000/sent", Right.ip());
        let got = hosts.start_esp(Left, &["curl", "-sS", &address]).finish();
        assert!(got.stdout == fs::read(sent).unwrap());
    });
}

#[test]
fn m_hr2_curl_fetches_from_nginx_whose_workers_are_forked_over_esp() {
    needs("nginx", "nginx-light");
    by_esp_alone(
        "real::m_hr2_curl_fetches_from_nginx_whose_workers_are_forked_over_esp",
        |hosts| {
            let large = file(hosts, "large", 1 << 20);
            file(hosts, "small", 100);
            // Debian's workers become this user, who is not of the group that may use the authority.
            hosts.open_to_all();
            let dir = hosts.dir().display().to_string();
            let settings = format!(
                "worker_processes 2; daemon off; user www-data; pid {dir}/pid; error_log {dir}/errors; events {{}} \
             http {{ access_log off; client_body_temp_path {dir}/body; server {{ listen 8080; root {dir}; }} }}"
            );
            fs::write(hosts.dir().join("nginx.conf"), settings).unwrap();
            let server = hosts.serve(Right, 8080, &["nginx", "-c", &format!("{dir}/nginx.conf"), "-p", &dir]);
            let base = format!("http://{}:8080", Right.ip());
            let got = hosts
                .start_esp(Left, &["curl", "-sS", &format!("{base}/large")])
                .finish();
            assert!(got.stdout == fs::read(large).unwrap());
            // One connection is kept for all.
            let small = format!("{base}/small");
            let got = hosts
                .start_esp(Left, &[&["curl", "-sS"], &[small.as_str(); 1000][..]].concat())
                .finish();
            assert_eq!(got.stdout.len(), 100_000);
            server.signal("-TERM");
            server.finish();
        },
    );
}

#[test]
fn m_hr2_redis_serves_its_benchmark_over_esp_and_saves_by_a_forked_child() {
    needs("redis-server", "redis-server");
    by_esp_alone(
        "real::m_hr2_redis_serves_its_benchmark_over_esp_and_saves_by_a_forked_child",
        |hosts| {
            let options = [
                "--port",
                "6379",
                "--bind",
                "0.0.0.0",
                "--protected-mode",
                "no",
                "--save",
                "",
            ];
            let _server = hosts.serve(Right, 6379, &[&["redis-server"], &options[..]].concat());
            let client = ["redis-cli", "-h", Right.ip()];
            let benchmark = [
                "redis-benchmark",
                "-h",
                Right.ip(),
                "-n",
                "3000",
                "-c",
                "20",
                "-q",
                "-t",
                "set,get",
            ];
            let text = hosts.must_esp(Left, &benchmark);
            assert_eq!(text.matches("requests per second, p50").count(), 2, "{text}");
            assert_eq!(
                hosts
                    .must_esp(Left, &[&client[..], &["set", "key", "value"]].concat())
                    .trim(),
                "OK"
            );
            hosts.must_esp(Left, &[&client[..], &["bgsave"]].concat());
            assert_eq!(
                hosts.must_esp(Left, &[&client[..], &["get", "key"]].concat()).trim(),
                "value"
            );
        },
    );
}

#[test]
fn m_hr2_memcached_with_several_threads_answers_over_esp() {
    needs("memcached", "memcached");
    by_esp_alone("real::m_hr2_memcached_with_several_threads_answers_over_esp", |hosts| {
        let _server = hosts.serve(Right, 11211, &["memcached", "-u", "root", "-p", "11211", "-t", "2"]);
        for _ in 0..5 {
            let talk = format!(
                r"printf 'set a 0 0 5\r\nhello\r\nget a\r\nquit\r\n' | nc -q 1 {} 11211",
                Right.ip()
            );
            let text = hosts.must_esp(Left, &["sh", "-c", &talk]);
            assert_eq!(text, "STORED\r\nVALUE a 0 5\r\nhello\r\nEND\r\n");
        }
    });
}

#[test]
fn m_hr2_socat_forks_and_starts_programs_for_connections_over_esp() {
    needs("socat", "socat");
    by_esp_alone(
        "real::m_hr2_socat_forks_and_starts_programs_for_connections_over_esp",
        |hosts| {
            let _server = hosts.serve(Right, 7003, &["socat", "TCP-LISTEN:7003,fork,reuseaddr", "EXEC:cat"]);
            for at in 0..5 {
                let talk = format!("echo hello {at} | socat - TCP:{}:7003", Right.ip());
                assert_eq!(hosts.must_esp(Left, &["sh", "-c", &talk]), format!("hello {at}\n"));
            }
        },
    );
}

#[test]
fn m_hr2_openssh_forks_and_starts_itself_again_with_a_connection_over_esp() {
    needs("sshd", "openssh-server");
    by_esp_alone(
        "real::m_hr2_openssh_forks_and_starts_itself_again_with_a_connection_over_esp",
        |hosts| {
            let dir = hosts.dir().display().to_string();
            for key in ["host", "own"] {
                let path = format!("{dir}/{key}");
                hosts.must(Left, &["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", &path]);
            }
            hosts.must(Left, &["mkdir", "-p", "/run/sshd"]);
            let settings = format!(
                "HostKey {dir}/host\nAuthorizedKeysFile {dir}/own.pub\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
            );
            fs::write(hosts.dir().join("sshd_config"), settings).unwrap();
            let sent = file(hosts, "sent", 1 << 20);
            let _server = hosts.serve(
                Right,
                2222,
                &[
                    "/usr/sbin/sshd",
                    "-D",
                    "-p",
                    "2222",
                    "-f",
                    &format!("{dir}/sshd_config"),
                ],
            );
            let talk = format!(
                "ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i {dir}/own -p 2222 root@{} cat < {}",
                Right.ip(),
                sent.display()
            );
            let got = hosts.start_esp(Left, &["sh", "-c", &talk]).finish();
            assert!(got.stdout == fs::read(sent).unwrap());
        },
    );
}

#[test]
fn m_hr2_programs_fall_back_to_tcp_when_the_peer_has_no_esp() {
    use crate::in_private_network_as_root;
    in_private_network_as_root("real::m_hr2_programs_fall_back_to_tcp_when_the_peer_has_no_esp", || {
        let mut hosts = Hosts::without_esp(1500);
        hosts.start_daemon(Left);
        file(&hosts, "sent", 1 << 20);
        // The server has no ESP: neither its host nor the library.
        let mut server = hosts.command(Right);
        server
            .args(["python3", "-m", "http.server", "8000"])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        let mut server = server.spawn().unwrap();
        hosts.await_listener(Right, 8000);
        let mut tcp = hosts.count_tcp();
        let address = format!("http://{}:8000/sent", Right.ip());
        let said = format!("ESP_STATISTICS={}/statistics", hosts.dir().display());
        let got = hosts.start_esp(Left, &["env", &said, "curl", "-sS", &address]).finish();
        assert_eq!(got.stdout.len(), 1 << 20);
        assert!(tcp.take() > 0);
        let statistics = fs::read_to_string(hosts.dir().join("statistics")).unwrap();
        assert!(
            statistics.contains(" connects=0 accepts=0 fall_backs=1 "),
            "{statistics}"
        );
        // It is an error if the user wants that.
        let mut command = hosts.esp(Left);
        command.args(["curl", "-sS", &address]).env("ESP_FALLBACK", "never");
        assert!(!command.output().unwrap().status.success());
        // And the other way round: a client without ESP, a server with it.
        server.kill().unwrap();
        server.wait().unwrap();
        let _server = hosts.serve(Left, 8001, &["python3", "-m", "http.server", "8001"]);
        let address = format!("http://{}:8001/sent", Left.ip());
        let got = hosts.start(Right, &["curl", "-sS", &address]).finish();
        assert_eq!(got.stdout.len(), 1 << 20);
    });
}

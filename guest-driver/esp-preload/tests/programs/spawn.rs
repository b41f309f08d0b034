//! Programs that are started without `fork` and `exec`.

use std::fs;

use crate::{
    between_hosts,
    hosts::{Left, Right, compile},
};

const TALK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/talk.py");

#[test]
fn m_hr2_programs_that_are_spawned_get_the_connections_that_they_are_given_and_no_others() {
    let test = "spawn::m_hr2_programs_that_are_spawned_get_the_connections_that_they_are_given_and_no_others";
    between_hosts(test, |hosts| {
        let program = compile(&hosts, "spawn.c");
        let mut tcp = hosts.count_tcp();
        let _server = hosts.serve(Right, 7005, &["python3", TALK, "serve", "7005"]);
        let statistics = hosts.dir().join("statistics");
        for (how, passes) in [("spawn", 1), ("spawnp", 1), ("keep", 0), ("share", 1)] {
            let _ = fs::remove_file(&statistics);
            let place = format!("ESP_STATISTICS={}", statistics.display());
            let said = hosts.must_esp(Left, &["env", &place, &program, how, Right.ip(), "7005"]);
            assert_eq!(said, "good\n", "{how}");
            let counted = fs::read_to_string(&statistics).unwrap();
            let own = counted.lines().find(|line| line.contains(" connects=1 ")).unwrap();
            assert!(
                own.contains(&format!(" passes={passes} ")) && own.ends_with("=0"),
                "{how}: {counted}"
            );
        }
        assert_eq!(tcp.take(), 0);
    });
}

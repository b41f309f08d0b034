//! Open MPI over its TCP transport, unmodified, over ESP.

use std::{path::Path, process::Command};

use weft_guest_driver_testkit::write_program;

use crate::{
    between_hosts,
    hosts::{Left, Right, library},
};

#[test]
fn m_hr5_open_mpis_tcp_transport_runs_over_esp_with_four_ranks_on_two_hosts() {
    between_hosts(
        "mpi::m_hr5_open_mpis_tcp_transport_runs_over_esp_with_four_ranks_on_two_hosts",
        |hosts| {
            let program = hosts.dir().join("mpi").display().to_string();
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/mpi.c");
            let compiled = Command::new("mpicc")
                .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o", &program])
                .arg(source)
                .status();
            assert!(compiled.expect("mpicc of libopenmpi-dev").success());
            // In place of ssh: options, the host, and the command for its shell.
            let agent = hosts.dir().join("agent");
            let right = hosts.command(Right);
            let enter: Vec<_> = right.get_args().map(|one| one.to_string_lossy().into_owned()).collect();
            let script = format!(
                "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nshift\nexec nsenter {} sh -c \"$*\"\n",
                enter.join(" ")
            );
            write_program(&agent, script.as_bytes());
            let mut tcp = hosts.count_tcp();
            let places = format!("{}:2,{}:2", Left.ip(), Right.ip());
            let network = "192.0.2.0/24";
            let run_dir = format!("OMX_RUN_DIR={}", hosts.dir().display());
            let mut mpirun = vec![
                "mpirun",
                "-n",
                "4",
                "--host",
                &places,
                "--map-by",
                "node",
                "--oversubscribe",
            ];
            let agent = agent.display().to_string();
            mpirun.extend(["--mca", "plm_rsh_agent", &agent, "--mca", "btl", "tcp,self"]);
            mpirun.extend([
                "--mca",
                "btl_tcp_if_include",
                network,
                "--mca",
                "oob_tcp_if_include",
                network,
            ]);
            let library = library().display().to_string();
            mpirun.extend([
                "-x",
                &run_dir,
                env!("CARGO_BIN_EXE_esp-run"),
                "--library",
                &library,
                &program,
            ]);
            let root = ["env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"];
            let text = hosts.must(Left, &[&root[..], &mpirun].concat());
            assert_eq!(text.trim(), "sum 6");
            // Open MPI's own daemons say little, by TCP; what the ranks exchange, some 13 MiB, is not among it.
            let count = tcp.take();
            assert!(count < 200, "{count} TCP segments were on the wire");
        },
    );
}

//! Open MPI and MPICH over their TCP transports, unmodified, over ESP.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use weft_guest_driver_testkit::write_program;

use crate::{
    between_hosts,
    hosts::{Hosts, Left, Right, library},
};

/// Release of MPICH, one of those that the repository has hashes of.
const MPICH: &str = "mpich==5.0.2";

/// Runs a command on this machine, which must succeed.
fn succeed(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}

/// Compiles the program of the ranks with an MPI's compiler wrapper.
fn compile(hosts: &Hosts, mpicc: &Path) -> String {
    let program = hosts.dir().join("mpi").display().to_string();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/mpi.c");
    let options = ["-O1", "-Wall", "-Wextra", "-Werror", "-o", &program];
    succeed(Command::new(mpicc).args(options).arg(source));
    program
}

/// Makes the program that MPIs start in place of ssh: it takes options, the host, and the command for its shell.
fn agent(hosts: &Hosts) -> String {
    let enter = |host| {
        let command = hosts.command(host);
        let program = command.get_program().to_string_lossy().into_owned();
        let words = command.get_args().map(|one| one.to_string_lossy().into_owned());
        [program].into_iter().chain(words).collect::<Vec<_>>().join(" ")
    };
    let script = format!(
        "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=$1\nshift\ncase $host in\n\
         {}) exec {} sh -c \"$*\" ;;\n*) exec {} sh -c \"$*\" ;;\nesac\n",
        Left.ip(),
        enter(Left),
        enter(Right)
    );
    let agent = hosts.dir().join("agent");
    write_program(&agent, script.as_bytes());
    agent.display().to_string()
}

/// Fetches the wheel of MPICH, unless it is there already, and returns its folder with programs, headers and libraries.
fn mpich() -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(MPICH.replace("==", "-"));
    let data = root.join(MPICH.replace("==", "-") + ".data/data");
    if data.exists() {
        return data;
    }
    let wheels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/workloads/mpi/wheels.txt");
    let wheels = fs::read_to_string(wheels).unwrap();
    let wanted = wheels.lines().find(|line| line.starts_with(MPICH)).expect("its hash");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(folder.path().join("wanted"), wanted).unwrap();
    let python = |arguments: &[&str]| {
        succeed(Command::new("python3").args(arguments).current_dir(folder.path()));
    };
    let quiet = [
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-input",
        "--no-deps",
        "--only-binary=:all:",
    ];
    python(
        &[
            &quiet[..],
            &["--require-hashes", "--requirement=wanted", "--dest=wheel"],
        ]
        .concat(),
    );
    let wheel = fs::read_dir(folder.path().join("wheel"))
        .unwrap()
        .next()
        .expect("a wheel");
    python(&[
        "-m",
        "zipfile",
        "-e",
        wheel.unwrap().path().to_str().unwrap(),
        "unpacked",
    ]);
    let unpacked = folder.path().join("unpacked");
    let programs = unpacked.join(data.strip_prefix(&root).unwrap()).join("bin");
    for program in fs::read_dir(programs).unwrap() {
        fs::set_permissions(program.unwrap().path(), PermissionsExt::from_mode(0o755)).unwrap();
    }
    // Only what is complete has the name.
    fs::rename(unpacked, root).unwrap();
    data
}

/// Runs four ranks on two hosts by a launcher, and checks their result, that each of them had connections over ESP, and that what they
/// exchanged, some 13 MiB, did not go by TCP.
fn run(hosts: &Hosts, launcher: &[&str]) {
    let mut tcp = hosts.count_tcp();
    let library = library().display().to_string();
    let program = hosts.dir().join("mpi").display().to_string();
    let statistics = format!("ESP_STATISTICS={}/statistics", hosts.dir().display());
    let under = [
        "env",
        &statistics,
        env!("CARGO_BIN_EXE_esp-run"),
        "--library",
        &library,
        &program,
    ];
    assert_eq!(hosts.must(Left, &[launcher, &under].concat()).trim(), "sum 6");
    // Launchers and their daemons say little by TCP; on a busy machine it was in more than 200 segments. One pair of ranks exchanges
    // some 3 MiB, of which each segment has 1448 bytes at most.
    let count = tcp.take();
    assert!(count < 1000, "{count} TCP segments were on the wire");
    let said = fs::read_to_string(hosts.dir().join("statistics")).unwrap();
    let over_esp = |line: &&str| !line.contains("connects=0 accepts=0 ");
    assert_eq!(said.lines().filter(over_esp).count(), 4, "{said}");
}

#[test]
fn m_hr5_open_mpis_tcp_transport_runs_over_esp_with_four_ranks_on_two_hosts() {
    between_hosts(
        "mpi::m_hr5_open_mpis_tcp_transport_runs_over_esp_with_four_ranks_on_two_hosts",
        |hosts| {
            compile(&hosts, Path::new("mpicc"));
            let places = format!("{}:2,{}:2", Left.ip(), Right.ip());
            let network = "192.0.2.0/24";
            let run_dir = format!("OMX_RUN_DIR={}", hosts.dir().display());
            let root = ["env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"];
            let ranks = [
                "mpirun",
                "-n",
                "4",
                "--host",
                &places,
                "--map-by",
                "node",
                "--oversubscribe",
            ];
            let agent = agent(&hosts);
            let transport = ["--mca", "plm_rsh_agent", &agent, "--mca", "btl", "tcp,self"];
            let networks = [
                "--mca",
                "btl_tcp_if_include",
                network,
                "--mca",
                "oob_tcp_if_include",
                network,
            ];
            run(
                &hosts,
                &[&root[..], &ranks, &transport, &networks, &["-x", &run_dir]].concat(),
            );
        },
    );
}

#[test]
fn m_hr5_mpichs_tcp_netmod_runs_over_esp_with_four_ranks_on_two_hosts() {
    // Before the hosts, which reach no other machine.
    let mpich = mpich();
    between_hosts(
        "mpi::m_hr5_mpichs_tcp_netmod_runs_over_esp_with_four_ranks_on_two_hosts",
        |hosts| {
            compile(&hosts, &mpich.join("bin/mpicc"));
            let launcher = mpich.join("bin/mpiexec.hydra").display().to_string();
            let places = format!("{},{}", Left.ip(), Right.ip());
            let agent = agent(&hosts);
            // Ranks of one host have TCP between them, too, and not memory that they share.
            let transport = [
                "env",
                "FI_PROVIDER=tcp",
                "MPIR_CVAR_CH4_NETMOD=ofi",
                "MPIR_CVAR_NOLOCAL=1",
            ];
            let ranks = [
                &launcher,
                "-launcher",
                "ssh",
                "-launcher-exec",
                &agent,
                "-n",
                "4",
                "-hosts",
                &places,
            ];
            run(&hosts, &[&transport[..], &ranks].concat());
        },
    );
}

//! Tests of unmodified MPI in guests: Debian's Open MPI and MPICH from its wheel run over the libfabric provider, which ranks
//! they start with ssh, and a program that uses something else is found out; and over TCP's calls by ESP.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use rustix::process::Signal;
use serde_json::Value;
use testbed::image::Cache;

use crate::{
    esp::{captured, frames},
    support::{World, eventually, signal},
};

/// A lab like `testbed/experiments/mpi-4.toml`, with programs in place of its folder: Debian's smaller kernel boots faster.
const LAB: &str = r#"
name = "mpi"
[defaults]
image = "mpi"
memory = "512M"
files = [{ from = "programs", to = "/opt/programs" }]

[defaults.nic]
mtu = 9000

[[node]]
name = "n"
count = 4
"#;

/// Checks of the conformance program that take each path of the provider, and not too long on an emulated processor.
const CHECKS: &str =
    "ring_sizes,any_source,probe_large,mprobe_large,ssend_large,truncate_posted_large,cancel,allreduce,threads_tags";

/// Returns the repository's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Runs a command on this machine; it must succeed.
fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// Builds the workloads with a compiler wrapper into `to`.
fn build(mpicc: &Path, to: &Path) {
    let mut script = Command::new(root().join("scripts/mpi-workloads"));
    succeed(script.arg(mpicc).arg(to));
}

/// Makes a compiler wrapper for the MPICH of the image, whose wheel is in the cache once the image was made.
fn mpich_wrapper(folder: &Path) -> PathBuf {
    let packages = Cache::open_default().unwrap().root().join("packages");
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "whl");
    let files = std::fs::read_dir(packages).unwrap().map(|entry| entry.unwrap().path());
    let wheel = files
        .filter(is_wheel)
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    let unpacked = folder.join("wheel");
    let mut zip = Command::new("python3");
    succeed(
        zip.args(["-m", "zipfile", "-e"])
            .arg(wheel.expect("a wheel"))
            .arg(&unpacked),
    );
    let data = std::fs::read_dir(&unpacked)
        .unwrap()
        .map(|entry| entry.unwrap().path().join("data"))
        .find(|path| path.is_dir());
    let data = data.expect("the wheel has programs").display().to_string();
    let wrapper = folder.join("mpicc");
    let text = format!(
        "#!/bin/sh\nexec gcc -I'{data}/include' \"$@\" '{data}/lib/libmpi.so.12' -Wl,--allow-shlib-undefined\n"
    );
    std::fs::write(&wrapper, text).unwrap();
    std::fs::set_permissions(&wrapper, PermissionsExt::from_mode(0o755)).unwrap();
    wrapper
}

/// Starts the lab with the workloads of both implementations in its guests.
fn up() -> World {
    let world = World::new(None);
    let programs = world.dir.path().join("programs");
    build(Path::new("mpicc"), &programs.join("open"));
    // The image is made by the first lab, and only with it there is a wheel to build with.
    world.file("one.toml", "name = \"one\"\n[[node]]\nname = \"n1\"\nimage = \"mpi\"\n");
    world.ok(&["up", "--detach", "--accel", "tcg", "one.toml"]);
    world.ok(&["down"]);
    build(&mpich_wrapper(world.dir.path()), &programs.join("mpich"));
    world.up(LAB);
    world
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs `weft mpirun`, which must succeed over the provider of each rank.
fn over_the_provider(world: &World, mpi: &str, ranks: u64, program: &str) -> String {
    let ranks_text = ranks.to_string();
    let mut args = vec!["--json", "mpirun", "-n", &ranks_text, "--mpi", mpi, "--"];
    args.extend(program.split(' '));
    let output = world.run(&args);
    let heard = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{mpi} {program}: {}: {heard}", output.status);
    let carried: Value = serde_json::from_slice(&output.stdout).unwrap();
    let carried = carried.as_array().unwrap();
    assert_eq!(carried.len() as u64, ranks, "{carried:?}");
    for rank in carried {
        let messages = |name: &str| rank[name].as_u64().unwrap();
        assert!(
            messages("sent_messages") > 0 && messages("received_messages") > 0,
            "{rank}"
        );
    }
    heard
}

#[test]
fn m_om9_open_mpi_and_mpich_run_in_guests_over_the_provider_and_nothing_else() {
    let world = up();

    // A guest is a cluster's node: ssh asks nothing, and what it starts has the guest's variables.
    let names = "for node in n1 n2 n3 n4; do ssh $node 'echo $(hostname) $FI_PROVIDER_PATH'; done";
    let folder = "/usr/lib/x86_64-linux-gnu/libfabric";
    assert_eq!(
        world.guest("n3", names),
        ["n1", "n2", "n3", "n4"]
            .map(|node| format!("{node} {folder}\n"))
            .concat()
    );
    assert!(world.guest("n1", "fi_info -p mx").contains("provider: mx"));

    for mpi in ["open", "mpich"] {
        let conformance = format!("/opt/programs/{mpi}/conformance --timeout 500 --only {CHECKS}");
        let heard = over_the_provider(&world, mpi, 4, &conformance);
        assert!(heard.contains("9 passed, 0 failed, 0 skipped; 4 ranks"), "{heard}");
        // Several ranks in a node use the provider, too.
        let few = format!("/opt/programs/{mpi}/conformance --timeout 500 --only ring_sizes,allreduce");
        let heard = over_the_provider(&world, mpi, 6, &few);
        assert!(heard.contains("2 passed, 0 failed, 0 skipped; 6 ranks"), "{heard}");
    }

    // Without `weft`, as on any cluster; Open MPI is started so by the session of the book.
    let heard = world.guest("n1", "FI_PROVIDER=mx MPIR_CVAR_CH4_NETMOD=ofi /opt/mpich/bin/mpirun -hosts n1,n2 -env FI_MX_STATISTICS - /opt/programs/mpich/heat 32 20 2>&1");
    assert_eq!(heard.matches("mx process=").count(), 2, "{heard}");

    everything_else_is_refused(&world);
    over_esp_no_segment_of_the_ranks_crosses_the_cable(&world, "open", OPEN_MPI);
    a_comparison_shows_all_transports_and_leaves_nothing(&world);
    cables_with_faults_change_no_message(&world);
}

/// Checks programs of both implementations over cables that lose, reorder and double frames. The provider is below both, so each takes half
/// of the checks.
fn cables_with_faults_change_no_message(world: &World) {
    let nodes = ["n1", "n2", "n3", "n4"];
    for node in nodes {
        let faults = "link set --loss 1% --reorder 2% --reorder-delay 2ms --duplicate 0.5%";
        world.ok(&faults.split(' ').chain([node]).collect::<Vec<_>>());
    }
    for (mpi, checks) in [
        ("open", "ring_sizes,any_source,allreduce"),
        ("mpich", "probe_large,mprobe_large,ssend_large"),
    ] {
        let conformance = format!("/opt/programs/{mpi}/conformance --timeout 500 --only {checks}");
        let heard = over_the_provider(world, mpi, 4, &conformance);
        assert!(heard.contains("3 passed, 0 failed, 0 skipped; 4 ranks"), "{heard}");
    }
    for node in nodes {
        let stats = world.stats(node);
        let lost = ["rx", "tx"].map(|direction| stats[direction]["dropped"]["link"].as_u64().unwrap());
        assert!(
            lost.iter().sum::<u64>() > 0,
            "the cable of {node} loses frames: {stats}"
        );
    }
}

/// Starts ranks over Open MPI's own TCP, at ports of a range.
const OPEN_MPI: &str = "mpirun --host n1,n2,n3,n4 --mca pml ob1 --mca btl self,tcp --mca btl_tcp_port_min_v4 20000 \
                        --mca btl_tcp_port_range_v4 1000 --mca mpi_yield_when_idle 1 -x ESP_STATISTICS=-";

/// Checks an implementation with ranks under `esp-run` (M-HR5): no segment is for the ports of its TCP transport.
fn over_esp_no_segment_of_the_ranks_crosses_the_cable(world: &World, mpi: &str, launcher: &str) {
    let program = format!("/opt/programs/{mpi}/conformance --timeout 500 --only ring_sizes,allreduce");
    let count = |by: &str| {
        let mut heard = String::new();
        let file = captured(world, &format!("{mpi}{}.pcapng", by.len()), || {
            heard = world.guest("n1", &format!("{launcher} {by} {program} 2>&1"));
        });
        assert!(heard.contains("2 passed, 0 failed, 0 skipped; 4 ranks"), "{heard}");
        let by_tcp = frames(&file, "tcp.port in {20000..20999}");
        (heard, by_tcp, frames(&file, "eth.type == 0x4553"))
    };
    let (heard, by_tcp, by_esp) = count("esp-run --never-fall-back");
    assert!(
        by_tcp == 0 && by_esp > 100,
        "{mpi}: {by_tcp} segments, {by_esp} frames of ESP"
    );
    let ranks: Vec<_> = heard.lines().filter(|line| line.starts_with("esp process=")).collect();
    assert!(
        ranks.len() == 4 && ranks.iter().all(|line| line.contains(" fall_backs=0 ")),
        "{mpi}: {heard}"
    );
    // The same ranks without esp-run are a check of the check.
    let (_, by_tcp, by_esp) = count("");
    assert!(
        by_tcp > 100 && by_esp == 0,
        "{mpi}: {by_tcp} segments, {by_esp} frames of ESP"
    );
}

/// Checks a short `weft bench mpi` and one that is interrupted: figures of all transports, and nothing left in the nodes.
fn a_comparison_shows_all_transports_and_leaves_nothing(world: &World) {
    let nothing_is_left = || {
        for node in ["n1", "n2", "n3", "n4"] {
            let left = world.guest(node, "ls -d /tmp/weft-* 2>/dev/null; pgrep imb; true");
            assert_eq!(left, "", "{node}");
        }
    };
    a_short_comparison_has_figures_of_all_transports(world, "open");
    nothing_is_left();

    let long = bench(world, "open", &["--rounds", "100", "--operations", "PingPong"]);
    let mut child = world.spawn(&long.iter().map(String::as_str).collect::<Vec<_>>());
    eventually("ranks of imb", || !world.guest("n2", "pgrep imb; true").is_empty());
    signal(child.id() as i32, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    nothing_is_left();
}

/// Returns the arguments of a comparison in the lab.
fn bench(world: &World, mpi: &str, more: &[&str]) -> Vec<String> {
    let imb = world.dir.path().join("programs").join(mpi).join("imb");
    let imb = imb.to_str().unwrap();
    let args = ["--json", "bench", "mpi", "--lab", "mpi", "--mpi", mpi, "--imb", imb];
    [&args[..], more].concat().into_iter().map(str::to_owned).collect()
}

fn a_short_comparison_has_figures_of_all_transports(world: &World, mpi: &str) {
    let short = [
        "--rounds",
        "1",
        "--operations",
        "PingPong,Barrier",
        "--sizes",
        "0,65536",
    ];
    let short = bench(world, mpi, &short);
    let output = world.run(&short.iter().map(String::as_str).collect::<Vec<_>>());
    let heard = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(3),
        "one pair is too few for a verdict: {heard}"
    );
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = shown["measurements"].as_array().unwrap().iter().collect();
    assert_eq!(names.len(), 3, "{shown}");
    for measured in names {
        let rivals = measured["rivals"].as_array().unwrap();
        let figures = rivals.iter().filter(|rival| rival["median"].as_f64() > Some(0.0));
        assert_eq!(figures.count(), 3, "mx, ESP and TCP: {measured}");
    }
    assert_eq!(shown["bars"][0]["met"], Value::Null, "{shown}");
}

/// Checks that a program that does not use the provider is no success, and that a program's own failure is passed on.
fn everything_else_is_refused(world: &World) {
    let refused = |mpi: &str, program: &str| {
        let mut args = vec!["mpirun", "-n", "2", "--mpi", mpi, "--"];
        args.extend(program.split(' '));
        let output = world.run(&args);
        (output.status.code(), said(&output))
    };
    let sentence = "weft: 2 of 2 ranks carried no message over the provider mx (n1: 1, n2: 1): the program used another transport, or none\n";
    // MPICH takes libfabric's TCP without a word. Open MPI, which has one of its own, does so in the session of the book.
    let (code, heard) = refused("mpich", "env FI_PROVIDER=tcp /opt/programs/mpich/heat 32 20");
    assert!(code == Some(1) && heard.ends_with(sentence), "{code:?} {heard}");
    // A provider that is withdrawn is missed by Open MPI itself, since it is told to use it.
    let (code, heard) = refused("mpich", "env FI_PROVIDER=^mx /opt/programs/mpich/heat 32 20");
    assert!(code == Some(1) && heard.ends_with(sentence), "{code:?} {heard}");
    let (code, heard) = refused("open", "env FI_PROVIDER=^mx /opt/programs/open/heat 32 20");
    assert!(
        code == Some(1) && heard.contains("before a rank had closed the provider mx"),
        "{code:?} {heard}"
    );
    let (code, heard) = refused("open", "/opt/programs/open/haet 32 20");
    let missing = "weft: n1 has no program /opt/programs/open/haet: it is a path in the nodes, or in their PATH\n";
    assert!(code == Some(127) && heard == missing, "{code:?} {heard}");
    for mpi in ["open", "mpich"] {
        // 33 lines cannot be shared by two ranks.
        let (code, heard) = refused(mpi, &format!("/opt/programs/{mpi}/heat 33 20"));
        assert!(
            code == Some(2) && heard.contains("must be a multiple"),
            "{mpi}: {code:?} {heard}"
        );
    }
}

#[test]
fn m_om9_a_lab_without_mpi_is_told_what_it_lacks() {
    let world = World::new(None);
    world.up(crate::support::LONELY);
    // With the name of the lab and without, since only one runs.
    for args in [&["mpirun", "--", "true"][..], &["mpirun", "lonely", "--", "true"]] {
        let output = world.run(args);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            said(&output),
            "weft: n1 has no /usr/bin/mpirun: nodes for MPI have `image = \"mpi\"` in the lab file\n"
        );
    }
    let output = world.run(&["mpirun", "lonly", "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        said(&output),
        "weft: the lab lonly does not run, did you mean lonely? (running: lonely)\n"
    );
}

#[test]
fn m_om9_the_plate_of_the_heat_equation_is_drawn_with_axes_and_isotherms() {
    let folder = tempfile::tempdir().unwrap();
    let draw = |picture: &str| {
        std::fs::write(folder.path().join("heat.pgm"), picture).unwrap();
        let mut plot = Command::new("python3");
        plot.arg(root().join("testbed/workloads/mpi/plot.py"));
        plot.current_dir(folder.path()).output().unwrap()
    };
    // A plate that is hot on the left, and computed by two ranks.
    let line = "1000 750 250 0\n";
    let picture = format!("P2\n# 10 steps on 2 ranks\n4 4 1000\n{}", line.repeat(4));
    let output = draw(&picture);
    assert!(output.status.success(), "{}", said(&output));
    let svg = std::fs::read_to_string(folder.path().join("heat.svg")).unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
    for text in [
        "4 × 4 points, 10 steps on 2 ranks",
        "x (grid points)",
        "y (grid points)",
        "isotherm",
        "border between ranks",
    ] {
        assert!(texts.contains(&text), "{text}: {texts:?}");
    }
    // An isotherm of this plate is one vertical line from the first line of points to the last: here the one of half the heat.
    let isotherms = document
        .descendants()
        .filter(|node| node.attribute("class") == Some("isotherm"));
    let paths: Vec<_> = isotherms.map(|node| node.attribute("d").unwrap()).collect();
    assert!(
        paths.contains(&"M320.0 160.0L320.0 280.0M320.0 280.0L320.0 400.0M320.0 400.0L320.0 520.0"),
        "{paths:?}"
    );

    for wrong in ["", "P5 4 4 255", "P2 4 4 255 1 2 3", "P2 4 4 255 a"] {
        let output = draw(wrong);
        let heard = said(&output);
        assert!(
            output.status.code() == Some(1) && heard.starts_with("heat.pgm: "),
            "{heard}"
        );
    }
}

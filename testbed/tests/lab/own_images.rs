//! Tests of nodes with images of the user: what is known of them without Weft's agent, what becomes of those that
//! cannot boot, and how a seed installs the agent.

use std::{fs, io::Write, path::PathBuf, time::Instant};

use cpio::newc;
use testbed::{
    image::{self, Cache, GuestBinaries, Image, Recipe},
    lab::Lab,
};

use crate::support::{PATIENCE, World, eventually, processes_of};

/// The init begins with mounts and modules, as any init does.
const BEGIN: &str = "#!/bin/sh
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
for module in $(cat /etc/weft/modules); do insmod $module; done
";

fn recipe() -> Image {
    image::build(
        &Recipe::minimal(),
        &Cache::open_default().unwrap(),
        &GuestBinaries::locate().unwrap(),
        &mut |_| {},
    )
    .unwrap()
}

/// Makes the recipe's initramfs with another init: the kernel unpacks one archive over the other.
fn initramfs(world: &World, image: &Image, name: &str, init: &str) -> PathBuf {
    let mut bytes = fs::read(&image.initramfs).unwrap();
    let entry = newc::Builder::new("init").ino(1).mode(0o100_755).nlink(1);
    let script = format!("{BEGIN}{init}");
    let mut writer = entry.write(&mut bytes, script.len() as u32);
    writer.write_all(script.as_bytes()).unwrap();
    writer.finish().unwrap();
    newc::trailer(&mut bytes).unwrap();
    let path = world.dir.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// Returns the message of `weft up -d` for a lab that cannot start; only logs of the lab are left.
fn failure(world: &World, lab: &str) -> String {
    world.file("lab.toml", lab);
    let output = world.run(&["up", "--detach", "--accel", "tcg", "lab.toml"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(processes_of(&world.labs()), Vec::<String>::new());
    said.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_guest_that_cannot_boot_ends_the_lab_at_once_and_its_log_stays() {
    let world = World::new(None);
    let kept = world.labs().join("broken.failed");
    let logs = format!("; logs are in {} until `weft clean`", kept.display());
    fs::write(world.dir.path().join("empty.raw"), vec![0; 1 << 20]).unwrap();
    let began = Instant::now();
    let said = failure(
        &world,
        "name = \"broken\"\n[[node]]\nname = \"n1\"\nnic = []\ndisk = \"empty.raw\"\n",
    );
    assert_eq!(
        said,
        format!("weft: n1 did not boot: there is nothing to boot on its disk{logs}")
    );
    assert!(began.elapsed() < PATIENCE);
    let shown = world.run(&["logs", "n1"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("No bootable device."));
    assert!(String::from_utf8_lossy(&shown.stderr).contains("these are the logs of one that failed"));

    let image = recipe();
    let initramfs = initramfs(&world, &image, "panics", "exit 1\n");
    let began = Instant::now();
    let said = failure(
        &world,
        &format!(
            "name = \"broken\"\n[[node]]\nname = \"n1\"\nnic = []\nkernel = {:?}\ninitramfs = {initramfs:?}\n",
            image.kernel
        ),
    );
    assert_eq!(
        said,
        format!("weft: n1 did not boot: kernel panic: Attempted to kill init! exitcode=0x00000100{logs}")
    );
    assert!(began.elapsed() < PATIENCE);
    assert!(
        fs::read_to_string(kept.join("n1.log"))
            .unwrap()
            .contains("Kernel panic")
    );
    world.ok(&["clean"]);
    assert!(!world.labs().exists(), "nothing is left");
}

#[test]
fn a_guest_without_agent_is_called_so_and_a_seed_brings_the_agent() {
    let world = World::new(None);
    let image = recipe();
    let plain = initramfs(
        &world,
        &image,
        "plain",
        "printf '\\nn1 login: ' >/dev/console; exec sleep 1000000\n",
    );
    // This does what cloud-init would do, in short.
    let seeded = "modprobe isofs && mkdir /seed && mount -t iso9660 -o ro /dev/vda /seed
cp /seed/weft-agent /bin/seeded-agent
exec /bin/seeded-agent serve
";
    let seeded = initramfs(&world, &image, "seeded", seeded);
    fs::write(world.dir.path().join("id.pub"), "ssh-ed25519 AAAA student\n").unwrap();
    world.up(&format!(
        "name = \"own\"\n[[node]]\nname = \"n1\"\nnic = []\nkernel = {kernel:?}\ninitramfs = {plain:?}\n\
         [[node]]\nname = \"n2\"\nkernel = {kernel:?}\ninitramfs = {seeded:?}\n\
         cloud_init = {{ user = \"student\", ssh_keys = [\"id.pub\"] }}\n",
        kernel = image.kernel
    ));
    let nodes = world.json(&["ps"]);
    assert_eq!(
        (&nodes[0]["phase"], &nodes[1]["phase"]),
        (&"no-agent".into(), &"ready".into())
    );
    // On a busy machine the guest may have been silent for a while before.
    eventually("a login prompt", || {
        world.json(&["ps"])[0]["note"] == "it waits for a login on its serial line"
    });
    let began = Instant::now();
    for args in [&["exec", "-n", "n1", "--", "true"][..], &["cp", "lab.toml", "n1:/tmp"]] {
        let refusal = world.run(args);
        let said = String::from_utf8(refusal.stderr).unwrap();
        assert!(
            !refusal.status.success() && said.contains("n1 has no agent that answers (no agent): "),
            "{said}"
        );
    }
    assert!(began.elapsed().as_secs() < 30, "no time was spent on an agent");

    let seed = world.guest(
        "n2",
        "cat /seed/meta-data /seed/user-data /seed/network-config; ls /seed",
    );
    for part in [
        "\"local-hostname\": \"n2\"",
        "#cloud-config",
        "ssh-ed25519 AAAA student",
        "10.77.1.",
        "weft-agent.service",
    ] {
        assert!(seed.contains(part), "{part} is not in {seed}");
    }
    // A panic in a running lab stops the guest, which is reported.
    world.run(&["exec", "-n", "n2", "--", "sh", "-c", "echo c >/proc/sysrq-trigger"]);
    eventually("n2 is stopped", || world.json(&["ps"])[1]["phase"] == "stopped");
    assert_eq!(world.json(&["ps"])[1]["note"], "kernel panic: sysrq triggered crash");
    world.ok(&["restart", "n2"]);
    world.ok(&["wait", "n2"]);
    // The agent of a node that is off cannot be asked.
    world.ok(&["stop", "--force", "n1"]);
    assert_eq!(world.json(&["ps"])[0]["phase"], "stopped");
}

/// Returns the key by which a node gets this recipe.
fn key_of(recipe: &str) -> String {
    match recipe {
        "packages" => "packages = [\"tcpdump\"]".to_owned(),
        image => format!("image = \"{image}\""),
    }
}

/// Returns the least memory that a lab file may give a node of this recipe, from the message for a smaller value.
fn least_memory(recipe: &str) -> String {
    let text = format!("[[node]]\nname = \"n1\"\n{}\nmemory = \"1M\"\n", key_of(recipe));
    let error = Lab::parse(&text, "lab.toml", "lab", "/".as_ref())
        .unwrap_err()
        .to_string();
    let (_, least) = error.split_once("whole MiB from ").expect("the least memory is named");
    least.split_whitespace().next().unwrap_or_default().to_owned()
}

#[test]
fn every_recipe_boots_with_the_least_memory_that_its_nodes_may_have() {
    let world = World::new(None);
    let recipes = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../images")).unwrap();
    let recipes: Vec<_> = recipes.map(|file| file.unwrap().path()).collect();
    let mut lab = "name = \"least\"\n".to_owned();
    for recipe in &recipes {
        let name = recipe.file_stem().unwrap().to_str().unwrap();
        let memory = least_memory(name);
        lab += &format!("[[node]]\nname = \"{name}\"\n{}\nmemory = \"{memory}\"\n", key_of(name));
    }
    assert!(recipes.len() >= 2);
    // This is the recipe with another kernel, for folders of the host.
    fs::create_dir(world.dir.path().join("share")).unwrap();
    lab += "[[node]]\nname = \"shared\"\nmemory = \"192M\"\nmount = [{ from = \"share\", to = \"/mnt/share\" }]\n";
    world.up(&lab);
    for node in world.json(&["ps"]).as_array().unwrap() {
        assert_eq!(
            (&node["phase"], &node["note"]),
            (&"ready".into(), &serde_json::Value::Null)
        );
    }
}

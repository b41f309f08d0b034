//! Tests of what is set up in nodes.

use super::*;

#[test]
fn what_a_node_has_of_its_own_is_the_labs_and_then_its_own() {
    let lab = parse(
        r#"
        [defaults]
        packages = ["tcpdump"]
        exec = ["first"]
        env = { A = "lab", B = "lab" }
        labels = { course = "os" }
        [[switch]]
        name = "s1"
        subnet6 = "fd00:1::/64"
        [[node]]
        name = "n1"
        packages = ["socat"]
        exec = ["second"]
        env = { B = "node" }
        sysctl.net.ipv4.ip_forward = 1
        nic = [{ address6 = "fd00:1::77/64" }]
        files = [{ text = "x", to = "/etc/x", mode = "0600" }]
        [[node]]
        name = "n2"
        ipv6 = false
        "#,
    )
    .expect("valid");
    let (n1, n2) = (&lab.nodes[0], &lab.nodes[1]);
    let Boot::Recipe { image, .. } = &n1.boot else {
        panic!("a recipe")
    };
    assert!(image.packages.iter().eq(["socat", "tcpdump"]) && image.root_is_on_disk());
    assert_eq!(n1.setup.exec, ["first", "second"]);
    assert_eq!(
        (n1.setup.env["A"].as_str(), n1.setup.env["B"].as_str()),
        ("lab", "node")
    );
    assert_eq!(n1.setup.sysctl["net.ipv4.ip_forward"], "1");
    assert_eq!(n1.setup.files[0].mode, Some(0o600));
    assert_eq!(
        n1.address6().map(|net| net.to_string()).as_deref(),
        Some("fd00:1::77/64")
    );
    assert_eq!((n1.memory_mib, n2.labels["course"].as_str()), (256, "os"));
    assert_eq!((n2.ipv6, n2.address6()), (false, None));
    let shown = Topology::of(&lab);
    let addresses = |node: usize| [false, true].map(|v6| shown.nodes[node].address(v6).is_some());
    assert_eq!((addresses(0), addresses(1)), ([true, true], [true, false]));
}

#[test]
fn mistakes_in_what_a_node_has_of_its_own_are_answered() {
    for (keys, says) in [
        (
            "packages = [\"rm -rf\"]",
            "3:13: \"rm -rf\" is not the name of a Debian package",
        ),
        (
            "packages = [\"tcpdump\"]\nmemory = \"128M\"",
            "4:10: a guest cannot have 128M of memory = whole MiB from 192M (with",
        ),
        (
            "files = [{ from = \"none\", to = \"/x\" }]",
            "3:19: there is no file or folder /nowhere/none",
        ),
        (
            "files = [{ text = \"\", to = \"/a/../b\" }]",
            "3:28: \"/a/../b\" is not a plain path in the guest",
        ),
        (
            "files = [{ to = \"/x\" }]",
            "3:17: the file /x needs either `from` or `text`",
        ),
        (
            "files = [{ text = \"\", to = \"/x\", mode = \"9\" }]",
            "3:41: \"9\" are no permissions",
        ),
        (
            "mount = [{ from = \"none\", to = \"/x\" }]",
            "3:19: there is no folder /nowhere/none",
        ),
        (
            "mount = [{ from = \"/\", to = \"/proc\" }]",
            "3:29: /proc is a folder that the guest needs itself",
        ),
        (
            "sysctl = { \"a b.c\" = 1 }",
            "3:10: \"a b.c\" is not the name of a kernel setting",
        ),
        (
            "sysctl = { \"a..c\" = 1 }",
            "3:10: \"a..c\" is not the name of a kernel setting",
        ),
        (
            "env = { \"a=b\" = \"1\" }",
            "3:7: \"a=b\" is not the name of an environment variable",
        ),
        ("modules = \"/\"", "3:11: a folder of `modules` without a `kernel`"),
        ("image = \"none\"", "3:"),
        (
            "nic = [{ address6 = \"fe80::1/64\" }]",
            "3:21: fe80::1/64 is not an address of a host",
        ),
        (
            "nic = [{ address6 = \"fd00::1\" }]",
            "3:21: the prefix length is missing",
        ),
    ] {
        let found = mistake(&format!("[[node]]\nname = \"n1\"\n{keys}\n"));
        assert!(found.starts_with(says), "{keys}: {found}");
    }
}

#[test]
fn cloud_init_is_for_images_and_says_what_is_wrong() {
    let folder = tempfile::tempdir().expect("temporary folder");
    for name in ["image.raw", "id.pub"] {
        std::fs::write(folder.path().join(name), "").expect("writable");
    }
    let lab = |text: &str| {
        Lab::parse_in(
            text,
            "lab.toml",
            "lab",
            LabFolder::new(folder.path(), &crate::lab_file::at_path),
            None,
        )
    };
    let node = "[[node]]\nname = \"n1\"\n";
    let disk = format!("{node}disk = \"image.raw\"\n");
    let of = |text: &str| lab(text).unwrap_or_else(|error| panic!("{error:#}")).nodes[0].clone();
    assert!(of(node).has_agent() && !of(&disk).has_agent());
    assert_eq!(of(&format!("{disk}cloud_init = false\n")).cloud_init, None);
    assert!(of(&format!("{disk}cloud_init = true\n")).has_agent());
    let full = of(&format!(
        "{disk}cloud_init = {{ user = \"student\", ssh_keys = [\"id.pub\"], agent = false }}\n"
    ));
    assert!(!full.has_agent());
    let cloud_init = full.cloud_init.expect("stated");
    assert_eq!(cloud_init.ssh_keys, [folder.path().join("id.pub")]);
    assert_eq!(cloud_init.user.as_deref(), Some("student"));
    for (text, says) in [
        (
            format!("{node}cloud_init = true\n"),
            "`cloud_init` has no effect without `disk` or `initramfs`",
        ),
        (
            format!("{disk}cloud_init = {{ user = \"a b\" }}\n"),
            "\"a b\" cannot be the name of a user",
        ),
        (
            format!("{disk}cloud_init = {{ ssh_keys = [\"no\"] }}\n"),
            "there is no ssh key ",
        ),
        (format!("{disk}cloud_init = {{ colour = 1 }}\n"), "unknown key `colour`"),
        (
            format!("{disk}cloud_init = 7\n"),
            "expected here: true, false, or a table such as",
        ),
    ] {
        let error = format!("{:#}", lab(&text).expect_err(says));
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn modules_are_names_of_debians_kernel_or_the_folder_of_ones_own() {
    let lab =
        parse("[defaults]\nmodules = [\"nfs\"]\n[[node]]\nname = \"n1\"\nmodules = [\"rdma-rxe\"]\n").expect("valid");
    let Boot::Recipe { image, .. } = &lab.nodes[0].boot else {
        panic!("it boots a recipe");
    };
    assert!(image.modules.iter().eq(["nfs", "rdma_rxe"]) && image.has_full_kernel());
    assert_eq!(lab.nodes[0].memory_mib, 256);
    for (keys, says) in [
        ("modules = [\"../x\"]", "\"../x\" is not the name of a kernel module"),
        ("modules = \"/nowhere\"", "there is no folder /nowhere"),
        (
            "modules = 7",
            "wrong kind of value: the number 7 = expected here: a list of modules, such as",
        ),
        (
            "memory = \"144M\"\nmodules = [\"nfs\"]",
            "whole MiB from 160M (with `mount` or a list of `modules`)",
        ),
    ] {
        let mistake = mistake(&format!("[[node]]\nname = \"n1\"\n{keys}\n"));
        assert!(mistake.contains(says), "{keys}: {mistake}");
    }
}

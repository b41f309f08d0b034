//! Tests of images: made without root, cached, and failing with one sentence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use testbed::image::{self, Cache, GuestBinaries, Recipe, Step};

#[test]
fn an_image_is_made_once_and_found_again_without_network() {
    let first = crate::support::image();
    let mut steps = Vec::new();
    let cache = Cache::open_default().unwrap();
    let again = image::build(
        &Recipe::minimal(),
        &cache,
        &GuestBinaries::locate().unwrap(),
        &mut |step| steps.push(step),
    );
    assert_eq!(again.unwrap(), first);
    assert_eq!(steps, [], "nothing was asked of apt");
    assert!(
        first.kernel_release.ends_with("-cloud-amd64"),
        "{}",
        first.kernel_release
    );
}

/// Checks that `modprobe` in a guest loads what kmod's would load, in an order that kmod's `depmod` allows: the one
/// that it writes itself, except for modules that do not need each other.
#[test]
fn modules_are_listed_as_depmod_lists_them() {
    let image = crate::support::image();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    unpack_modules(&image.initramfs, &root);
    let folder = root.join("lib/modules").join(&image.kernel_release);
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let ours = (read("modules.dep"), read("modules.alias"));
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
    let made = Command::new("depmod")
        .env("PATH", &path)
        .arg("-b")
        .arg(&root)
        .arg(&image.kernel_release)
        .status();
    assert!(made.expect("kmod is installed").success());
    let lists = |text: &str| -> BTreeMap<String, Vec<String>> {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        lines
            .map(|(path, needs)| (path.into(), needs.split_whitespace().map(str::to_owned).collect()))
            .collect()
    };
    let (ours_dep, theirs_dep) = (lists(&ours.0), lists(&read("modules.dep")));
    assert!(
        ours_dep.keys().eq(theirs_dep.keys()) && ours_dep.len() > 40,
        "{ours_dep:?}"
    );
    for (path, theirs) in &theirs_dep {
        let ours = &ours_dep[path];
        let sorted = |list: &[String]| list.iter().cloned().collect::<BTreeSet<_>>();
        assert_eq!(sorted(ours), sorted(theirs), "{path}");
        // Loading begins at the end: what a module needs is behind it.
        for (index, module) in ours.iter().enumerate() {
            let behind = sorted(&ours[index + 1..]);
            assert!(
                theirs_dep[module].iter().all(|need| behind.contains(need)),
                "{path}: {ours:?}"
            );
        }
        if theirs.len() < 5 {
            assert_eq!(ours, theirs, "{path}");
        }
    }
    let aliases = |text: &str| -> BTreeSet<String> {
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(aliases(&ours.1), aliases(&read("modules.alias")));
}

/// Unpacks what is below `lib/modules` in an initramfs.
fn unpack_modules(initramfs: &Path, to: &Path) {
    let mut rest: Box<dyn std::io::Read> = Box::new(std::io::BufReader::new(std::fs::File::open(initramfs).unwrap()));
    loop {
        let mut reader = cpio::newc::Reader::new(rest).unwrap();
        if reader.entry().is_trailer() {
            return;
        }
        let path = to.join(reader.entry().name());
        if reader.entry().name().starts_with("lib/modules/") && reader.entry().mode() & 0o170_000 == 0o100_000 {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::io::copy(&mut reader, &mut std::fs::File::create(path).unwrap()).unwrap();
        }
        rest = reader.finish().unwrap();
    }
}

#[test]
fn labs_that_start_at_once_make_the_image_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    // The packages are there already; the test is about making the image.
    let packages = Cache::open_default().unwrap();
    crate::support::image();
    let copied = Command::new("cp")
        .args(["-a"])
        .arg(packages.root().join("packages"))
        .arg(dir.path())
        .status()
        .unwrap();
    assert!(copied.success());
    let images: Vec<_> = std::thread::scope(|scope| {
        let build = || {
            let cache = Cache::open(dir.path()).unwrap();
            image::build(
                &Recipe::minimal(),
                &cache,
                &GuestBinaries::locate().unwrap(),
                &mut |step| {
                    assert!(!matches!(step, Step::Downloading { .. }), "{step}");
                },
            )
        };
        let both = [scope.spawn(build), scope.spawn(build)];
        both.map(|thread| thread.join().unwrap().unwrap()).into()
    });
    assert_eq!(images[0], images[1]);
    let left = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect::<Vec<_>>();
    assert!(
        !left.iter().any(|name| name.to_string_lossy().starts_with("staging")),
        "{left:?}"
    );
}

#[test]
fn what_cannot_be_had_is_one_sentence_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(&dir.path().join("cache")).unwrap();
    let recipe = dir.path().join("r.toml");
    std::fs::write(&recipe, "name = 'r'\n[kernel]\npackage = 'no-such-package-anywhere'\n").unwrap();
    let recipe = Recipe::load(&recipe).unwrap();
    let none = GuestBinaries::in_folders(vec![PathBuf::from("/nowhere")]);
    let error = image::build(&recipe, &cache, &none, &mut |_| {})
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "the package no-such-package-anywhere, needed for guests, is not available: apt does not know it; are its lists \
         fresh (apt-get update as root)?"
    );
    assert_eq!(std::fs::read_dir(cache.root().join("images")).unwrap().count(), 0);
}

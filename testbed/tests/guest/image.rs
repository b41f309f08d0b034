//! Images: made without root's help, cached, and failing with one sentence.

use std::path::PathBuf;
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

#[test]
fn labs_that_start_at_once_make_the_image_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    // The packages are there already; what is tested is the making.
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
        "the package no-such-package-anywhere, needed for guests, cannot be had: apt does not know it; are its lists \
         fresh (apt-get update as root)?"
    );
    assert_eq!(std::fs::read_dir(cache.root().join("images")).unwrap().count(), 0);
}

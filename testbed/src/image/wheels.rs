//! Python wheels for images: pip fetches one as any user, with the index that this machine is set up for, and what it
//! installs beside Python's packages is unpacked. Nothing is installed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ImageError;
use super::recipe::Wheel;
use super::tool::run;

/// Folder of a wheel's part that guests have no use for: they have no compiler.
const LEFT_OUT: &str = "include";

/// Downloads a wheel into the empty folder `to`, and returns its path.
pub(super) fn download(wheel: &Wheel, to: &Path) -> Result<PathBuf, ImageError> {
    let name = format!("{}=={}", wheel.name, wheel.version);
    let mut pip = python();
    pip.args(["-m", "pip", "download", "--quiet", "--no-input", "--no-deps"])
        .args(["--only-binary=:all:", "--retries=1", "--dest"])
        .arg(to)
        .arg(&name);
    run(pip).map_err(|why| {
        if why.contains("No module named pip") || why.contains("python3 cannot be started") {
            return ImageError::Tool {
                tool: "pip",
                package: "python3-pip",
            };
        }
        ImageError::Package {
            package: name.clone(),
            why: format!("{why}; is the package index of pip reachable (`pip config list` shows which it is)?"),
        }
    })?;
    let mut files = fs::read_dir(to).map_err(|error| ImageError::io(to, error))?.flatten();
    let file = files.next().map(|entry| entry.path());
    file.ok_or_else(|| ImageError::Package {
        package: name,
        why: "pip downloaded nothing".into(),
    })
}

/// Returns the command that unpacks a wheel into the folder `to`.
pub(super) fn unpacking(file: &Path, to: &Path) -> Command {
    let mut python = python();
    python.args(["-m", "zipfile", "-e"]).arg(file).arg(to);
    python
}

/// Returns the files of an unpacked wheel that belong into the guest, each with its path below the wheel's folder there.
pub(super) fn files(unpacked: &Path, wheel: &Wheel) -> io::Result<Vec<(String, PathBuf)>> {
    let root = unpacked.join(format!("{}-{}.data/data", wheel.name, wheel.version));
    let mut found = Vec::new();
    let mut open = vec![root.clone()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let below = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().into_owned();
            if path.is_file() {
                found.push((below, path));
            } else if below != LEFT_OUT {
                open.push(path);
            }
        }
    }
    Ok(found)
}

fn python() -> Command {
    let mut python = Command::new("python3");
    python.env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    python
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_gets_programs_and_libraries_of_a_wheel_without_headers() {
        let dir = tempfile::tempdir().unwrap();
        for path in [
            "a-1.data/data/bin/run",
            "a-1.data/data/include/a.h",
            "a-1.dist-info/RECORD",
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let wheel = Wheel {
            name: "a".into(),
            version: "1".into(),
            sha256: String::new(),
            to: "/opt/a".into(),
        };
        let found = files(dir.path(), &wheel).unwrap();
        assert_eq!(found, [("bin/run".into(), dir.path().join("a-1.data/data/bin/run"))]);
    }
}

//! The file tree of an image and its initramfs: every entry once, in order, with fixed times and owners, so that equal
//! ingredients give equal bytes. The `cpio` crate writes it uncompressed: unpacking costs a guest under TCG more than
//! reading.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cpio::newc;

use super::accounts::Accounts;
use super::binaries::OwnFile;
use super::kernel::Kernel;
use super::packages::{SCRIPTS_FOLDER, Unpacked, libraries};
use super::{ImageError, Recipe, wheels};

/// Directories that every guest has.
const DIRECTORIES: [&str; 11] = [
    "bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "var", "var/log",
];

/// Links that every guest has: one place for programs, under all its names.
const LINKS: [(&str, &str); 5] = [
    ("sbin", "bin"),
    ("usr/bin", "../bin"),
    ("usr/sbin", "../bin"),
    ("usr/lib", "../lib"),
    ("var/run", "../run"),
];

/// Folders of packages that are for people and translators, and of no use to guests.
const LEFT_OUT: [&str; 7] = [
    SCRIPTS_FOLDER,
    "usr/share/doc",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/bash-completion",
];

/// Folders in which programs search for libraries and for their loader.
const LIBRARIES: &str = "lib/x86_64-linux-gnu";
const LOADER_FOLDER: &str = "lib64";

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

/// A file tree under construction.
#[derive(Debug, Default)]
pub(super) struct Tree {
    entries: BTreeMap<String, Entry>,
}

/// One file, directory or symbolic link.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Kind and permissions, as in `st_mode`.
    pub mode: u32,
    pub contents: Contents,
}

/// The contents of a file, or the target of a link.
#[derive(Clone, Debug)]
pub(super) enum Contents {
    Bytes(Vec<u8>),
    /// The contents of this file, which must not change until the tree was written.
    File(PathBuf),
}

impl Entry {
    pub(super) fn directory() -> Self {
        Self {
            mode: DIRECTORY | 0o755,
            contents: Contents::Bytes(Vec::new()),
        }
    }
}

impl Contents {
    fn len(&self) -> io::Result<u64> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.len() as u64),
            Self::File(path) => Ok(path.metadata()?.len()),
        }
    }

    fn copy_to(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Bytes(bytes) => out.write_all(bytes),
            Self::File(path) => io::copy(&mut File::open(path)?, out).map(drop),
        }
    }
}

impl Tree {
    /// Builds the tree of a recipe.
    pub(super) fn of(
        recipe: &Recipe,
        unpacked: &Unpacked,
        kernel: &Kernel,
        own: &[OwnFile],
    ) -> Result<Self, ImageError> {
        let mut tree = Self::default();
        for path in DIRECTORIES {
            tree.directory(path);
        }
        for (path, target) in LINKS {
            tree.link(path, target);
        }
        for program in &recipe.programs {
            let missing = |why: String| ImageError::Package {
                package: program.package.clone(),
                why,
            };
            let path = unpacked.program(&program.package, &program.name);
            let path = path.ok_or_else(|| missing(format!("there is no program {} in it", program.name)))?;
            if program.applets {
                for applet in applets(&path).map_err(missing)? {
                    tree.link(&format!("bin/{applet}"), &program.name);
                }
            }
        }
        // Packages come after the applets' links, so that a real program takes an applet's place.
        for folder in unpacked.whole() {
            tree.package(folder).map_err(|error| ImageError::io(folder, error))?;
        }
        tree.wheels(recipe, unpacked)?;
        for program in &recipe.programs {
            if let Some(path) = unpacked.program(&program.package, &program.name) {
                tree.file(&format!("bin/{}", program.name), 0o755, read(&path)?);
            }
        }
        for (name, path) in libraries(recipe, unpacked, own)? {
            // The libraries of the packages' own programs were found with them.
            let path = path.ok_or_else(|| {
                ImageError::Binary(format!(
                    "a program or library of weft's own needs {name}, which no package of the recipe has"
                ))
            })?;
            let folder = if name.starts_with("ld-linux") {
                LOADER_FOLDER
            } else {
                LIBRARIES
            };
            tree.file(&format!("{folder}/{name}"), 0o755, read(&path)?);
        }
        tree.modules(kernel)?;
        for (path, text) in &recipe.files {
            tree.file(path.trim_start_matches('/'), 0o644, text.clone().into_bytes());
        }
        tree.accounts(recipe, unpacked);
        for (path, target) in &recipe.links {
            tree.link(path.trim_start_matches('/'), target);
        }
        for file in own {
            tree.file(file.path.trim_start_matches('/'), 0o755, file.contents.clone());
        }
        for own in &recipe.own {
            for link in &own.links {
                tree.link(link.trim_start_matches('/'), &own.path);
            }
        }
        tree.entries.get_mut("tmp").expect("made above").mode = DIRECTORY | 0o1777;
        Ok(tree)
    }

    /// Adds the modules, the list of those to load, and the files of `modprobe`.
    fn modules(&mut self, kernel: &Kernel) -> Result<(), ImageError> {
        let folder = format!("lib/modules/{}", kernel.release);
        let files = kernel.modules.files();
        for file in files.map_err(|error| ImageError::io(Path::new("/").join(&folder).as_path(), error))? {
            self.file(&format!("{folder}/{}", file.path), 0o644, file.contents);
        }
        let load: String = kernel
            .modules
            .to_load()
            .map(|path| format!("/{folder}/{path}\n"))
            .collect();
        self.file("etc/weft/modules", 0o644, load.into_bytes());
        Ok(())
    }

    /// Adds the accounts that the packages would make when they are installed, if there are any packages.
    fn accounts(&mut self, recipe: &Recipe, unpacked: &Unpacked) {
        if recipe.packages.is_empty() {
            return;
        }
        let mut accounts = Accounts::default();
        let text = |path: &str| recipe.files.get(path).map_or("", String::as_str);
        accounts.add_files(text("/etc/passwd"), text("/etc/group"));
        for folder in unpacked.whole() {
            accounts.add_package(folder);
        }
        self.file("etc/passwd", 0o644, accounts.passwd().into_bytes());
        self.file("etc/group", 0o644, accounts.group_file().into_bytes());
        self.file("etc/shadow", 0o640, accounts.shadow().into_bytes());
    }

    fn directory(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.entries.entry(path.to_owned()).or_insert_with(Entry::directory);
    }

    fn link(&mut self, path: &str, target: &str) {
        self.put(path, SYMLINK | 0o777, target.as_bytes().to_vec());
    }

    fn file(&mut self, path: &str, mode: u32, contents: Vec<u8>) {
        self.put(path, REGULAR | mode, contents);
    }

    fn put(&mut self, path: &str, mode: u32, contents: Vec<u8>) {
        self.put_entry(
            path,
            Entry {
                mode,
                contents: Contents::Bytes(contents),
            },
        );
    }

    fn put_entry(&mut self, path: &str, entry: Entry) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.entries.insert(path.to_owned(), entry);
    }

    /// Moves the files of an unpacked package to their places in a guest, which has one folder for programs and one for
    /// libraries.
    fn package(&mut self, folder: &Path) -> io::Result<()> {
        let mut open = vec![folder.to_path_buf()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory)? {
                let path = entry?.path();
                let below = path
                    .strip_prefix(folder)
                    .unwrap_or(&path)
                    .to_string_lossy()
                    .into_owned();
                if LEFT_OUT.contains(&below.as_str()) {
                    continue;
                }
                let at = place(&below);
                let meta = fs::symlink_metadata(&path)?;
                let mode = std::os::unix::fs::MetadataExt::mode(&meta);
                if meta.is_dir() {
                    self.directory(&at);
                    if let Some(entry) = self.entries.get_mut(&at) {
                        entry.mode = mode;
                    }
                    open.push(path);
                } else if meta.is_symlink() {
                    let target = fs::read_link(&path)?.to_string_lossy().into_owned();
                    // `sbin/ip` may be a link to `bin/ip`: here both have one place.
                    if place(&resolved(&below, &target)) != at {
                        self.link(&at, &target);
                    }
                } else if meta.is_file() {
                    let contents = Contents::File(path);
                    self.put_entry(&at, Entry { mode, contents });
                }
            }
        }
        Ok(())
    }

    /// Adds the files of wheels. Their archives do not say which of them are programs, so all may be run.
    fn wheels(&mut self, recipe: &Recipe, unpacked: &Unpacked) -> Result<(), ImageError> {
        for wheel in &recipe.wheels {
            let folder = unpacked.wheel(&wheel.name).unwrap_or(Path::new(&wheel.name));
            for (below, path) in wheels::files(folder, wheel).map_err(|error| ImageError::io(folder, error))? {
                let at = format!("{}/{below}", wheel.to.trim_start_matches('/'));
                let mode = REGULAR | 0o755;
                let contents = Contents::File(path);
                self.put_entry(&at, Entry { mode, contents });
            }
        }
        Ok(())
    }

    /// Returns the part that boots a guest whose root file system is on a disk: the agent and the modules that it
    /// loads.
    pub(super) fn boot_part(&self, kernel: &Kernel) -> Self {
        let mut part = Self::default();
        for path in ["dev", "proc", "sys"] {
            part.directory(path);
        }
        let folder = format!("lib/modules/{}", kernel.release);
        let modules = kernel.modules.to_load().map(|path| format!("{folder}/{path}"));
        for path in modules.chain(["etc/weft/modules".to_owned(), "init".to_owned()]) {
            if let Some(entry) = self.entries.get(&path) {
                part.put_entry(&path, entry.clone());
            }
        }
        part.file("etc/weft/root-is-on-disk", 0o644, Vec::new());
        part
    }

    /// Writes the tree as a disk image.
    pub(super) fn write_disk(&self, path: &Path) -> Result<(), ImageError> {
        super::erofs::write(&self.entries, path).map_err(|error| ImageError::io(path, error))
    }

    /// Writes the tree as an initramfs.
    pub(super) fn write(&self, path: &Path) -> Result<(), ImageError> {
        let write = || -> io::Result<()> {
            let mut out = BufWriter::new(File::create(path)?);
            for (inode, (name, entry)) in self.entries.iter().enumerate() {
                let len = u32::try_from(entry.contents.len()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
                let builder = newc::Builder::new(name).ino(inode as u32 + 1).mode(entry.mode).nlink(1);
                let mut writer = builder.write(&mut out, len);
                entry.contents.copy_to(&mut writer)?;
                writer.finish()?;
            }
            newc::trailer(&mut out)?.flush()
        };
        write().map_err(|error| ImageError::io(path, error))
    }
}

/// Returns where a path leads when links between directories are followed.
fn place(path: &str) -> String {
    for (link, target) in LINKS {
        let target = target.trim_start_matches("../");
        match path.strip_prefix(link) {
            Some("") => return target.to_owned(),
            Some(rest) if rest.starts_with('/') => return format!("{target}{rest}"),
            _ => {}
        }
    }
    path.to_owned()
}

/// Resolves a link at `link` with this target.
fn resolved(link: &str, target: &str) -> String {
    if let Some(from_root) = target.strip_prefix('/') {
        return from_root.to_owned();
    }
    let mut parts: Vec<&str> = link.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => _ = parts.pop(),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn read(path: &Path) -> Result<Vec<u8>, ImageError> {
    fs::read(path).map_err(|error| ImageError::io(path, error))
}

/// Returns the names under which a busybox can be called.
fn applets(busybox: &Path) -> Result<Vec<String>, String> {
    let output = Command::new(busybox).arg("--list").stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{} cannot be run: {error}", busybox.display()))?;
    let names = String::from_utf8_lossy(&output.stdout);
    let plain = |name: &&str| !name.is_empty() && !name.contains('/') && *name != "busybox";
    Ok(names.lines().map(str::trim).filter(plain).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_laid_out_as_guests_are_and_links_lead_where_they_did() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["bin", "sbin", "usr/sbin", "usr/lib/x", "usr/share/doc"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, dir.path().join(at)).unwrap();
        fs::write(dir.path().join("bin/ip"), "program").unwrap();
        fs::write(dir.path().join("usr/share/doc/text"), "long").unwrap();
        link("/bin/ip", "sbin/ip");
        link("../../bin/ip", "usr/sbin/ip");
        link("ip", "bin/other");
        link("a.so.1", "usr/lib/x/a.so");
        let mut tree = Tree::default();
        tree.package(dir.path()).unwrap();
        let is_link = |path: &str| tree.entries[path].mode & 0o170_000 == SYMLINK;
        assert!(!is_link("bin/ip") && is_link("bin/other") && is_link("lib/x/a.so"));
        assert!(!tree.entries.contains_key("usr/share/doc/text") && !tree.entries.contains_key("sbin/ip"));
    }

    #[test]
    fn an_initramfs_holds_every_entry_behind_its_directory() {
        let mut tree = Tree::default();
        tree.file("etc/weft/modules", 0o644, b"list\n".to_vec());
        tree.link("bin/sh", "busybox");
        tree.file("bin/busybox", 0o755, vec![7; 5]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("initramfs.cpio");
        tree.write(&path).unwrap();
        let mut rest: Box<dyn io::Read> = Box::new(File::open(&path).unwrap());
        let mut seen = Vec::new();
        loop {
            let mut reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let mut contents = Vec::new();
            io::Read::read_to_end(&mut reader, &mut contents).unwrap();
            seen.push((reader.entry().name().to_owned(), reader.entry().mode(), contents.len()));
            rest = reader.finish().unwrap();
        }
        let want = [
            ("bin", DIRECTORY | 0o755, 0),
            ("bin/busybox", REGULAR | 0o755, 5),
            ("bin/sh", SYMLINK | 0o777, 7),
            ("etc", DIRECTORY | 0o755, 0),
            ("etc/weft", DIRECTORY | 0o755, 0),
            ("etc/weft/modules", REGULAR | 0o644, 5),
        ];
        assert!(
            seen.iter()
                .map(|(name, mode, len)| (name.as_str(), *mode, *len))
                .eq(want),
            "{seen:?}"
        );
    }
}

//! Debian packages for images: which versions there are (apt's own lists), fetching them as any user, unpacking them
//! beside the system, and finding the libraries a program needs. Nothing is installed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::binaries::OwnFile;
use super::{Cache, ImageError, Recipe, Step, elf, hex};

/// Packages of one image; more means that a dependency was followed astray.
const PACKAGES_MAX: usize = 64;

/// Programs this module starts, and the Debian packages they come in.
const TOOLS: [(&str, &str); 3] = [("apt-get", "apt"), ("apt-cache", "apt"), ("dpkg-deb", "dpkg")];

/// A program that is needed to make images and is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingTool {
    /// The program.
    pub tool: &'static str,
    /// The Debian package it comes in.
    pub package: &'static str,
}

/// What of the programs that make images is missing on this machine.
#[must_use]
pub fn missing_tools() -> Vec<MissingTool> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |tool: &str| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    let missing = TOOLS.iter().filter(|(tool, _)| !there(tool));
    missing.map(|&(tool, package)| MissingTool { tool, package }).collect()
}

/// One package of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Package {
    pub name: String,
    pub version: String,
    /// Hash of the package file, in hexadecimal.
    pub sha256: String,
}

impl Package {
    fn file_name(&self) -> String {
        format!("{}.deb", self.sha256)
    }
}

/// What apt knows of a package.
struct Record {
    name: String,
    version: String,
    sha256: String,
    depends: Vec<String>,
}

/// Packages that were unpacked, each in a folder of its own. The first one is the kernel's.
pub(super) struct Unpacked {
    folders: Vec<(String, PathBuf)>,
}

impl Unpacked {
    pub(super) fn kernel(&self) -> &Path {
        &self.folders[0].1
    }

    /// The program `name` out of `package`: the same path with and without `/usr`, as Debian is moving them.
    pub(super) fn program(&self, package: &str, name: &str) -> Option<PathBuf> {
        let (_, folder) = self.folders.iter().find(|(have, _)| have == package)?;
        let places = ["usr/bin", "usr/sbin", "bin", "sbin"].map(|place| folder.join(place).join(name));
        places.into_iter().find(|path| path.is_file())
    }

    /// The library with this file name, from whichever package has it, links resolved.
    pub(super) fn library(&self, name: &str) -> Option<PathBuf> {
        const PLACES: [&str; 6] = [
            "usr/lib/x86_64-linux-gnu",
            "lib/x86_64-linux-gnu",
            "usr/lib64",
            "lib64",
            "usr/lib",
            "lib",
        ];
        self.folders.iter().find_map(|(_, folder)| {
            let real = PLACES.map(|place| fs::canonicalize(folder.join(place).join(name)).ok());
            // An absolute link would lead out of the package, into this machine's own libraries.
            real.into_iter()
                .flatten()
                .find(|path| path.is_file() && path.starts_with(folder))
        })
    }
}

/// The packages in the cache, and the way to more.
pub(super) struct Store<'a> {
    cache: &'a Cache,
    staging: &'a Path,
    progress: &'a mut dyn FnMut(Step),
    /// Folders of packages unpacked by this store.
    folders: BTreeMap<String, PathBuf>,
}

impl<'a> Store<'a> {
    pub(super) fn new(
        cache: &'a Cache,
        staging: &'a Path,
        progress: &'a mut dyn FnMut(Step),
    ) -> Result<Self, ImageError> {
        if let Some(missing) = missing_tools().first() {
            return Err(ImageError::Tool {
                tool: missing.tool,
                package: missing.package,
            });
        }
        Ok(Self {
            cache,
            staging,
            progress,
            folders: BTreeMap::new(),
        })
    }

    /// Whether the files of all `packages` are here.
    pub(super) fn has_all(&self, packages: &[Package]) -> bool {
        packages
            .iter()
            .all(|package| self.cache.packages().join(package.file_name()).is_file())
    }

    /// Finds and fetches the packages of `recipe`: the kernel's first, then those of its programs, then those with
    /// the libraries the programs need.
    pub(super) fn resolve(&mut self, recipe: &Recipe) -> Result<Vec<Package>, ImageError> {
        (self.progress)(Step::Resolving);
        let mut packages = vec![self.kernel(&recipe.kernel.package)?];
        let mut names = BTreeSet::new();
        let mut later = VecDeque::new();
        let named = recipe.programs.iter().map(|program| &program.package);
        for package in named.chain(recipe.libraries.iter().map(|library| &library.package)) {
            if names.insert(package.clone()) {
                let record = record(package)?;
                later.extend(record.depends.clone());
                packages.push(self.fetch(&record)?);
            }
        }
        loop {
            let unpacked = self.unpack(&packages)?;
            let missing = missing_libraries(recipe, &unpacked)?;
            if missing.is_empty() {
                return Ok(packages);
            }
            // One step further along the dependencies: libraries come in packages called lib…, and in zlib1g.
            let mut found = false;
            for name in std::mem::take(&mut later) {
                if !["lib", "zlib"].iter().any(|start| name.starts_with(start)) || !names.insert(name.clone()) {
                    continue;
                }
                let record = record(&name)?;
                later.extend(record.depends.clone());
                packages.push(self.fetch(&record)?);
                found = true;
            }
            if !found || packages.len() > PACKAGES_MAX {
                let package = recipe.name.clone();
                let why = format!("no dependency of its programs has the libraries {}", missing.join(", "));
                return Err(ImageError::Package { package, why });
            }
        }
    }

    /// The package that really has the kernel.
    fn kernel(&mut self, name: &str) -> Result<Package, ImageError> {
        let mut record = record(name)?;
        if let Some(real) = record
            .depends
            .iter()
            .find(|depends| depends.starts_with("linux-image-"))
        {
            record = self::record(&real.clone())?;
        }
        self.fetch(&record)
    }

    /// Puts the package file into the cache, if it is not there.
    fn fetch(&mut self, record: &Record) -> Result<Package, ImageError> {
        let Record {
            name, version, sha256, ..
        } = record;
        let package = Package {
            name: name.clone(),
            version: version.clone(),
            sha256: sha256.clone(),
        };
        let place = self.cache.packages().join(package.file_name());
        if place.is_file() {
            return Ok(package);
        }
        let failed = |why: String| ImageError::Package {
            package: name.clone(),
            why,
        };
        (self.progress)(Step::Downloading {
            package: format!("{name} {version}"),
        });
        let folder = self.staging.join(format!("download-{name}"));
        fs::create_dir(&folder).map_err(|error| ImageError::io(&folder, error))?;
        let mut apt = Command::new("apt-get");
        apt.args([
            "-q",
            "-o",
            "APT::Sandbox::User=root",
            "download",
            &format!("{name}={version}"),
        ])
        .current_dir(&folder);
        if let Err(why) = run(apt) {
            return Err(self.no_space(&why).unwrap_or_else(|| {
                failed(format!(
                    "{why}; is the network reachable, and are apt's lists fresh (apt-get update as root)?"
                ))
            }));
        }
        let mut files = fs::read_dir(&folder)
            .map_err(|error| ImageError::io(&folder, error))?
            .flatten();
        let file = files
            .next()
            .ok_or_else(|| failed("apt-get has left no file".into()))?
            .path();
        let contents = fs::read(&file).map_err(|error| ImageError::io(&file, error))?;
        if hex(&Sha256::digest(contents)) != *sha256 {
            return Err(failed("what was downloaded is not what apt's lists promise".into()));
        }
        fs::rename(&file, &place).map_err(|error| ImageError::io(&place, error))?;
        Ok(package)
    }

    /// Unpacks packages, each only once.
    pub(super) fn unpack(&mut self, packages: &[Package]) -> Result<Unpacked, ImageError> {
        let mut folders = Vec::new();
        for package in packages {
            if !self.folders.contains_key(&package.sha256) {
                (self.progress)(Step::Unpacking {
                    package: package.name.clone(),
                });
                let folder = self.staging.join(format!("unpacked-{}", package.name));
                let mut dpkg = Command::new("dpkg-deb");
                dpkg.arg("-x")
                    .arg(self.cache.packages().join(package.file_name()))
                    .arg(&folder);
                if let Err(why) = run(dpkg) {
                    let failed = ImageError::Package {
                        package: package.name.clone(),
                        why: why.clone(),
                    };
                    return Err(self.no_space(&why).unwrap_or(failed));
                }
                self.folders.insert(package.sha256.clone(), folder);
            }
            folders.push((package.name.clone(), self.folders[&package.sha256].clone()));
        }
        Ok(Unpacked { folders })
    }

    /// The error for a full disk, when that is what a program said.
    fn no_space(&self, why: &str) -> Option<ImageError> {
        let full = ["No space left on device", "Disk quota exceeded", "enough free space"];
        full.iter()
            .any(|text| why.contains(text))
            .then(|| ImageError::NoSpace(self.cache.root().to_path_buf()))
    }
}

/// Libraries that the recipe names or its programs need, and those libraries in turn, and no unpacked package has.
fn missing_libraries(recipe: &Recipe, unpacked: &Unpacked) -> Result<Vec<String>, ImageError> {
    Ok(libraries(recipe, unpacked, &[])?
        .into_iter()
        .filter(|(_, path)| path.is_none())
        .map(|(name, _)| name)
        .collect())
}

/// Every library that the recipe names, or that its programs or weft's own files need, and where it is.
pub(super) fn libraries(
    recipe: &Recipe,
    unpacked: &Unpacked,
    own: &[OwnFile],
) -> Result<BTreeMap<String, Option<PathBuf>>, ImageError> {
    let mut found: BTreeMap<String, Option<PathBuf>> = BTreeMap::new();
    let mut open: Vec<PathBuf> = Vec::new();
    let mut needed: Vec<String> = recipe.libraries.iter().map(|library| library.name.clone()).collect();
    for file in own {
        needed.extend(elf::needed_libraries(&file.contents).unwrap_or_default());
    }
    for program in &recipe.programs {
        let path = unpacked.program(&program.package, &program.name);
        open.push(path.ok_or_else(|| ImageError::Package {
            package: program.package.clone(),
            why: format!("there is no program {} in it", program.name),
        })?);
    }
    loop {
        for name in needed.drain(..) {
            if let Entry::Vacant(vacant) = found.entry(name) {
                let library = unpacked.library(vacant.key());
                open.extend(library.clone());
                vacant.insert(library);
            }
        }
        let Some(path) = open.pop() else { return Ok(found) };
        let bytes = fs::read(&path).map_err(|error| ImageError::io(&path, error))?;
        needed = elf::needed_libraries(&bytes).unwrap_or_default();
    }
}

/// Asks apt's lists for the version of `name` that an installation would take.
fn record(name: &str) -> Result<Record, ImageError> {
    let failed = |why: String| ImageError::Package {
        package: name.to_owned(),
        why,
    };
    let mut apt = Command::new("apt-cache");
    apt.args(["show", "--no-all-versions", name]);
    let unknown = "apt does not know it; are its lists fresh (apt-get update as root)?";
    let text = run(apt).map_err(|_| failed(unknown.into()))?;
    parse_record(&text).ok_or_else(|| failed(unknown.into()))
}

/// Reads the first paragraph of `apt-cache show`.
fn parse_record(text: &str) -> Option<Record> {
    let field = |name: &str| {
        let paragraph = text.lines().take_while(|line| !line.is_empty());
        paragraph
            .filter_map(|line| line.split_once(": "))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    };
    let first = |alternatives: &str| {
        let name = alternatives.split('|').next().unwrap_or_default().trim();
        name.split(|c: char| c.is_whitespace() || c == ':')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let depends = [field("Pre-Depends"), field("Depends")].into_iter().flatten();
    Some(Record {
        name: field("Package")?.to_owned(),
        version: field("Version")?.to_owned(),
        sha256: field("SHA256")?.to_owned(),
        depends: depends
            .flat_map(|list| list.split(','))
            .map(first)
            .filter(|name| !name.is_empty())
            .collect(),
    })
}

/// Runs a program to its end; its output, or what it complained about in one line.
fn run(mut command: Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null()).output();
    let output = output.map_err(|error: io::Error| format!("{name} cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    // apt marks what matters with E:, dpkg-deb has one or two lines.
    let lines = || errors.lines().map(str::trim).filter(|line| !line.is_empty());
    let marked: Vec<&str> = lines().filter_map(|line| line.strip_prefix("E: ")).collect();
    let said = if marked.is_empty() {
        lines().collect::<Vec<_>>()
    } else {
        marked
    };
    Err(format!("{name} says: {}", said.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_of_a_package_is_read() {
        let text = "Package: iperf3\nVersion: 3.12-1\nPre-Depends: init-system-helpers (>= 1.54~)\nDepends: \
                    debconf (>= 0.5) | debconf-2.0, libc6:any (>= 2.34), libiperf0 (>= 3.1.3)\nSHA256: \
                    00ff\nDescription: x\n more: y\n\nPackage: other\n";
        let record = parse_record(text).unwrap();
        assert_eq!((record.name.as_str(), record.version.as_str()), ("iperf3", "3.12-1"));
        assert_eq!(record.depends, ["init-system-helpers", "debconf", "libc6", "libiperf0"]);
        assert!(parse_record("").is_none());
    }

    #[test]
    fn a_failing_program_is_quoted_in_one_line() {
        let mut sh = Command::new("sh");
        sh.args(["-c", "echo 'W: warned' >&2; echo 'E: broken' >&2; exit 1"]);
        assert_eq!(run(sh).unwrap_err(), "sh says: broken");
        assert!(
            run(Command::new("/no/such"))
                .unwrap_err()
                .starts_with("/no/such cannot be started")
        );
    }
}

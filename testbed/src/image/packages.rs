//! Debian packages for images: which versions there are (apt's own lists), fetching them as any user, unpacking them
//! beside the system, and finding the libraries a program needs. Nothing is installed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::binaries::OwnFile;
use super::recipe::Wheel;
use super::tool::run;
use super::{Cache, ImageError, Recipe, Step, elf, wheels};
use crate::digest::hex;

/// Number of packages that are fetched for single programs of a recipe; more means that a wrong dependency was
/// followed.
const PACKAGES_MAX: usize = 64;

/// Number of packages of a guest with all their dependencies: a desktop would be too many.
const WHOLE_PACKAGES_MAX: usize = 600;

/// Number of packages that are fetched with one call of apt, which takes a second by itself; more would be a long wait
/// without progress.
const DOWNLOADS_MAX: usize = 20;

/// Packages that others depend on only to be installed, supervised or started by a system that guests do not have. They
/// are left out, unless the user names them.
const LEFT_OUT: [&str; 16] = [
    "cron",
    "cron-daemon-common",
    "dbus",
    "debconf",
    "default-mta",
    "install-info",
    "logrotate",
    "lsb-base",
    "mailcap",
    "runit-helper",
    "sensible-utils",
    "systemd",
    "systemd-sysv",
    "ucf",
    "usr-is-merged",
    "usrmerge",
];

/// Folder of an unpacked package with its installation scripts, which are no files of the guest.
pub(super) const SCRIPTS_FOLDER: &str = "DEBIAN";

/// Programs that this module starts, and the Debian packages that contain them.
const TOOLS: [(&str, &str); 3] = [("apt-get", "apt"), ("apt-cache", "apt"), ("dpkg-deb", "dpkg")];

/// A program that is needed to make images and is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingTool {
    /// Name of the program.
    pub tool: &'static str,
    /// Debian package that contains it.
    pub package: &'static str,
}

/// Returns the programs for making images that are missing on this machine.
#[must_use]
pub fn missing_tools() -> Vec<MissingTool> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |tool: &str| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    let missing = TOOLS.iter().filter(|(tool, _)| !there(tool));
    missing.map(|&(tool, package)| MissingTool { tool, package }).collect()
}

/// The purpose of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Role {
    /// The kernel and its modules are taken from it.
    Kernel,
    /// Single programs and libraries are taken from it.
    Parts,
    /// The guest contains it as a whole.
    Whole,
    /// It is a Python wheel.
    Wheel,
}

/// One package of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Package {
    /// Purpose of the package.
    pub role: Role,
    pub name: String,
    pub version: String,
    /// SHA-256 of the package file, in hexadecimal.
    pub sha256: String,
}

impl Package {
    fn file_name(&self) -> String {
        let kind = if self.role == Role::Wheel { "whl" } else { "deb" };
        format!("{}.{kind}", self.sha256)
    }
}

/// A record is what apt knows of a package.
#[derive(Clone)]
struct Record {
    /// The package, with a role that is chosen when it is fetched.
    package: Package,
    depends: Vec<String>,
}

/// Packages that were unpacked, each in a folder of its own.
pub(super) struct Unpacked {
    folders: Vec<(Role, String, PathBuf)>,
}

impl Unpacked {
    /// Returns the folder of the kernel's package, if there is one.
    pub(super) fn kernel(&self) -> Option<&Path> {
        let mut folders = self.folders.iter();
        let kernel = folders.find(|(role, ..)| *role == Role::Kernel);
        kernel.map(|(.., folder)| folder.as_path())
    }

    /// Returns the folders of the packages that the guest contains as a whole.
    pub(super) fn whole(&self) -> impl Iterator<Item = &Path> {
        let whole = self.folders.iter().filter(|(role, ..)| *role == Role::Whole);
        whole.map(|(.., folder)| folder.as_path())
    }

    /// Returns the folder of a wheel.
    pub(super) fn wheel(&self, name: &str) -> Option<&Path> {
        let mut folders = self.folders.iter();
        let wheel = folders.find(|(role, have, _)| *role == Role::Wheel && have == name);
        wheel.map(|(.., folder)| folder.as_path())
    }

    /// Finds the program `name` of `package`: a path with or without `/usr`, as Debian is moving them.
    pub(super) fn program(&self, package: &str, name: &str) -> Option<PathBuf> {
        let (.., folder) = self.folders.iter().find(|(_, have, _)| have == package)?;
        let places = ["usr/bin", "usr/sbin", "bin", "sbin"].map(|place| folder.join(place).join(name));
        places.into_iter().find(|path| path.is_file())
    }

    /// Finds the library with this file name in any of the packages, with links resolved.
    pub(super) fn library(&self, name: &str) -> Option<PathBuf> {
        const PLACES: [&str; 6] = [
            "usr/lib/x86_64-linux-gnu",
            "lib/x86_64-linux-gnu",
            "usr/lib64",
            "lib64",
            "usr/lib",
            "lib",
        ];
        self.folders.iter().find_map(|(.., folder)| {
            let real = PLACES.map(|place| fs::canonicalize(folder.join(place).join(name)).ok());
            // An absolute link would lead out of the package, into this machine's own libraries.
            real.into_iter()
                .flatten()
                .find(|path| path.is_file() && path.starts_with(folder))
        })
    }
}

/// The packages in the cache, and the means to fetch more.
pub(super) struct Store<'a> {
    cache: &'a Cache,
    staging: &'a Path,
    progress: &'a mut dyn FnMut(Step),
    /// Folders of packages that this store has unpacked.
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

    /// Returns whether the files of all `packages` are in the cache.
    pub(super) fn has_all(&self, packages: &[Package]) -> bool {
        packages
            .iter()
            .all(|package| self.cache.packages().join(package.file_name()).is_file())
    }

    /// Finds and fetches the packages of `recipe`: the kernel's, those of its programs, those with the libraries that
    /// the programs need, and those that the guest contains as a whole.
    pub(super) fn resolve(&mut self, recipe: &Recipe) -> Result<Vec<Package>, ImageError> {
        (self.progress)(Step::Resolving);
        let mut packages = Vec::new();
        if recipe.own_kernel.is_none() {
            packages.push(self.kernel(&recipe.kernel.package)?);
        }
        let mut names = BTreeSet::new();
        let mut later = VecDeque::new();
        let named = recipe.programs.iter().map(|program| &program.package);
        for package in named.chain(recipe.libraries.iter().map(|library| &library.package)) {
            if names.insert(package.clone()) {
                let record = record(package)?;
                later.extend(record.depends.clone());
                packages.push(self.fetch(Role::Parts, &record)?);
            }
        }
        loop {
            let unpacked = self.unpack(&packages)?;
            let missing = missing_libraries(recipe, &unpacked)?;
            if missing.is_empty() {
                break;
            }
            // This is one step further along the dependencies: libraries come in packages called lib…, and in zlib1g.
            let mut found = false;
            for name in std::mem::take(&mut later) {
                if !["lib", "zlib"].iter().any(|start| name.starts_with(start)) || !names.insert(name.clone()) {
                    continue;
                }
                let record = record(&name)?;
                later.extend(record.depends.clone());
                packages.push(self.fetch(Role::Parts, &record)?);
                found = true;
            }
            if !found || packages.len() > PACKAGES_MAX {
                let package = recipe.name.clone();
                let why = format!("no dependency of its programs has the libraries {}", missing.join(", "));
                return Err(ImageError::Package { package, why });
            }
        }
        let whole = self.closure(&recipe.packages)?;
        packages.extend(self.fetch_all(Role::Whole, &whole)?);
        for wheel in &recipe.wheels {
            packages.push(self.wheel(wheel)?);
        }
        Ok(packages)
    }

    /// Fetches a wheel, if the cache lacks it.
    fn wheel(&mut self, wheel: &Wheel) -> Result<Package, ImageError> {
        let package = Package {
            role: Role::Wheel,
            name: wheel.name.clone(),
            version: wheel.version.clone(),
            sha256: wheel.sha256.clone(),
        };
        let place = self.cache.packages().join(package.file_name());
        if place.is_file() {
            return Ok(package);
        }
        (self.progress)(Step::Downloading {
            package: format!("{} {}", wheel.name, wheel.version),
        });
        let folder = self.staging.join(format!("wheel-{}", wheel.name));
        fs::create_dir(&folder).map_err(|error| ImageError::io(&folder, error))?;
        let file = wheels::download(wheel, &folder)?;
        let contents = fs::read(&file).map_err(|error| ImageError::io(&file, error))?;
        if hex(Sha256::digest(contents)) != wheel.sha256 {
            return Err(ImageError::Package {
                package: wheel.name.clone(),
                why: "what pip downloaded is not what the recipe names".into(),
            });
        }
        fs::rename(&file, &place).map_err(|error| ImageError::io(&place, error))?;
        Ok(package)
    }

    /// Returns these packages with all that they depend on.
    fn closure(&mut self, names: &BTreeSet<String>) -> Result<Vec<Record>, ImageError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let failed = |why: String| ImageError::Package {
            package: names.iter().map(String::as_str).collect::<Vec<_>>().join(" "),
            why,
        };
        let wanted = self.solve(names, &failed)?;
        if wanted.is_empty() || wanted.len() > WHOLE_PACKAGES_MAX {
            return Err(failed(format!(
                "{} packages would be needed, at most {WHOLE_PACKAGES_MAX} are possible",
                wanted.len()
            )));
        }
        let mut apt = Command::new("apt-cache");
        apt.arg("show").args(&wanted);
        let text = run(apt).map_err(failed)?;
        let records = text.split("\n\n").filter_map(parse_record);
        let records: BTreeMap<String, Record> = records
            .map(|record| (format!("{}={}", record.package.name, record.package.version), record))
            .collect();
        let missing = |wanted: &String| failed(format!("apt does not say where {wanted} is"));
        wanted
            .iter()
            .map(|wanted| records.get(wanted).cloned().ok_or_else(|| missing(wanted)))
            .collect()
    }

    /// Asks apt what it would install for these packages on an empty machine, each as `NAME=VERSION`.
    fn solve(
        &self,
        names: &BTreeSet<String>,
        failed: &impl Fn(String) -> ImageError,
    ) -> Result<Vec<String>, ImageError> {
        let folder = self.staging.join("apt");
        let (archives, status) = (folder.join("archives"), folder.join("status"));
        fs::create_dir_all(archives.join("partial")).map_err(|error| ImageError::io(&archives, error))?;
        let there = LEFT_OUT.iter().filter(|name| !names.contains(**name));
        let there: String = there
            .map(|name| {
                format!(
                    "Package: {name}\nStatus: install ok installed\nArchitecture: all\nMulti-Arch: foreign\nVersion: 9999\n\
                     Maintainer: -\nDescription: -\n\n"
                )
            })
            .collect();
        fs::write(&status, there).map_err(|error| ImageError::io(&status, error))?;
        let mut apt = Command::new("apt-get");
        apt.args(["-q", "-y", "--print-uris", "--no-install-recommends"]);
        for option in [
            "Debug::NoLocking=1".to_owned(),
            format!("Dir::State::status={}", status.display()),
            format!("Dir::Cache::archives={}", archives.display()),
        ] {
            apt.args(["-o", &option]);
        }
        apt.arg("install").args(names);
        let text = run(apt).map_err(failed)?;
        Ok(text.lines().filter_map(name_and_version).collect())
    }

    /// Finds the package that really contains the kernel.
    fn kernel(&mut self, name: &str) -> Result<Package, ImageError> {
        let mut record = record(name)?;
        if let Some(real) = record
            .depends
            .iter()
            .find(|depends| depends.starts_with("linux-image-"))
        {
            record = self::record(&real.clone())?;
        }
        self.fetch(Role::Kernel, &record)
    }

    fn fetch(&mut self, role: Role, record: &Record) -> Result<Package, ImageError> {
        let mut packages = self.fetch_all(role, std::slice::from_ref(record))?;
        Ok(packages.remove(0))
    }

    /// Fetches the package files that the cache lacks, with one call of apt for each [`DOWNLOADS_MAX`].
    fn fetch_all(&mut self, role: Role, records: &[Record]) -> Result<Vec<Package>, ImageError> {
        let package = |record: &Record| Package {
            role,
            ..record.package.clone()
        };
        let packages: Vec<_> = records.iter().map(package).collect();
        let missing: Vec<&Package> = packages
            .iter()
            .filter(|package| !self.cache.packages().join(package.file_name()).is_file())
            .collect();
        for few in missing.chunks(DOWNLOADS_MAX) {
            self.download(few)?;
        }
        Ok(packages)
    }

    fn download(&mut self, packages: &[&Package]) -> Result<(), ImageError> {
        let failed = |package: &Package, why: String| ImageError::Package {
            package: package.name.clone(),
            why,
        };
        let Some(first) = packages.first() else { return Ok(()) };
        let more = match packages.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (self.progress)(Step::Downloading {
            package: format!("{} {}{more}", first.name, first.version),
        });
        let folder = self.staging.join(format!("download-{}", first.name));
        fs::create_dir(&folder).map_err(|error| ImageError::io(&folder, error))?;
        let mut apt = Command::new("apt-get");
        apt.args(["-q", "-o", "APT::Sandbox::User=root", "download"])
            .args(
                packages
                    .iter()
                    .map(|package| format!("{}={}", package.name, package.version)),
            )
            .current_dir(&folder);
        if let Err(why) = run(apt) {
            let why = format!("{why}; is the network reachable, and are apt's lists fresh (apt-get update as root)?");
            return Err(self.no_space(&why).unwrap_or_else(|| failed(first, why)));
        }
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(&folder)
            .map_err(|error| ImageError::io(&folder, error))?
            .flatten()
        {
            let contents = fs::read(entry.path()).map_err(|error| ImageError::io(&entry.path(), error))?;
            files.insert(hex(Sha256::digest(contents)), entry.path());
        }
        for package in packages {
            let wrong = || failed(package, "what was downloaded is not what apt's lists promise".into());
            let file = files.get(&package.sha256).ok_or_else(wrong)?;
            let place = self.cache.packages().join(package.file_name());
            fs::rename(file, &place).map_err(|error| ImageError::io(&place, error))?;
        }
        Ok(())
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
                let file = self.cache.packages().join(package.file_name());
                if let Err(why) = run(unpacking(package.role, &file, &folder)) {
                    let failed = ImageError::Package {
                        package: package.name.clone(),
                        why: why.clone(),
                    };
                    return Err(self.no_space(&why).unwrap_or(failed));
                }
                self.folders.insert(package.sha256.clone(), folder);
            }
            folders.push((
                package.role,
                package.name.clone(),
                self.folders[&package.sha256].clone(),
            ));
        }
        Ok(Unpacked { folders })
    }

    /// Returns the error for a full disk, when that is what a program reported.
    fn no_space(&self, why: &str) -> Option<ImageError> {
        let full = ["No space left on device", "Disk quota exceeded", "enough free space"];
        full.iter()
            .any(|text| why.contains(text))
            .then(|| ImageError::NoSpace(self.cache.root().to_path_buf()))
    }
}

/// Returns the command that unpacks a package into `folder`.
fn unpacking(role: Role, file: &Path, folder: &Path) -> Command {
    if role == Role::Wheel {
        return wheels::unpacking(file, folder);
    }
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.arg("--raw-extract").arg(file).arg(folder);
    dpkg
}

/// Returns the libraries that the recipe names or its programs need, directly or indirectly, and that no unpacked
/// package has.
fn missing_libraries(recipe: &Recipe, unpacked: &Unpacked) -> Result<Vec<String>, ImageError> {
    Ok(libraries(recipe, unpacked, &[])?
        .into_iter()
        .filter(|(_, path)| path.is_none())
        .map(|(name, _)| name)
        .collect())
}

/// Finds every library that the recipe names, or that its programs or Weft's own files need.
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

/// Parses `NAME=VERSION` from a line of `apt-get --print-uris`, in which the name of the file contains both.
fn name_and_version(line: &str) -> Option<String> {
    let file = line
        .strip_prefix('\'')?
        .split_whitespace()
        .nth(1)?
        .strip_suffix(".deb")?;
    let mut parts = file.split('_');
    let (name, version) = (parts.next()?, parts.next()?);
    Some(format!("{name}={}", version.replace("%3a", ":")))
}

/// Parses the first paragraph of `apt-cache show`.
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
        package: Package {
            role: Role::Parts,
            name: field("Package")?.to_owned(),
            version: field("Version")?.to_owned(),
            sha256: field("SHA256")?.to_owned(),
        },
        depends: depends
            .flat_map(|list| list.split(','))
            .map(first)
            .filter(|name| !name.is_empty())
            .collect(),
    })
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
        assert_eq!(
            (record.package.name.as_str(), record.package.version.as_str()),
            ("iperf3", "3.12-1")
        );
        assert_eq!(record.depends, ["init-system-helpers", "debconf", "libc6", "libiperf0"]);
        assert!(parse_record("").is_none());
    }

    #[test]
    fn names_of_package_files_are_read() {
        let line = "'http://deb.example/x/openssh-client_9.2p1-2_amd64.deb' openssh-client_1%3a9.2p1-2_amd64.deb 993532 MD5Sum:ee";
        assert_eq!(name_and_version(line).as_deref(), Some("openssh-client=1:9.2p1-2"));
        assert_eq!(name_and_version("Reading package lists..."), None);
    }
}

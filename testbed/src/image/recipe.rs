//! The recipe of an image as it is written in TOML (`images/minimal.toml`), checked once. It names packages, programs
//! and files; the module `packages` finds them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use super::ImageError;
use crate::lab::{ImageName, ImageSpec, OwnKernel, is_package_name};

/// Package of Debian's kernel with all its modules.
const FULL_KERNEL: &str = "linux-image-amd64";

/// A checked recipe.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub(super) text: String,
    pub(super) name: String,
    pub(super) kernel: KernelPart,
    pub(super) own_kernel: Option<OwnKernel>,
    /// Packages that the guest contains as a whole, with all their dependencies.
    pub(super) packages: BTreeSet<String>,
    pub(super) programs: Vec<Program>,
    pub(super) libraries: Vec<Library>,
    pub(super) wheels: Vec<Wheel>,
    pub(super) own: Vec<Own>,
    pub(super) files: BTreeMap<String, String>,
    /// Symbolic links, each with its target.
    pub(super) links: BTreeMap<String, String>,
    /// Variables of every command in the guest.
    env: BTreeMap<String, String>,
    /// Commands for the guest's shell at every boot.
    exec: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    kernel: KernelPart,
    #[serde(default)]
    packages: BTreeSet<String>,
    #[serde(default)]
    program: Vec<Program>,
    #[serde(default)]
    library: Vec<Library>,
    #[serde(default)]
    wheel: Vec<Wheel>,
    #[serde(default)]
    own: Vec<Own>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    links: BTreeMap<String, String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    exec: Vec<String>,
}

/// The kernel and its modules.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KernelPart {
    pub package: String,
    #[serde(default)]
    pub load: Vec<String>,
    #[serde(default)]
    pub carry: Vec<String>,
}

/// A program of a package.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Program {
    pub name: String,
    pub package: String,
    #[serde(default)]
    pub applets: bool,
}

/// A shared library of a package that no program of the recipe needs: for programs that users bring.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Library {
    pub name: String,
    pub package: String,
}

/// A Python wheel, of which the guest contains what it installs beside Python's packages.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wheel {
    pub name: String,
    pub version: String,
    /// SHA-256 of the wheel, in hexadecimal.
    pub sha256: String,
    /// Folder in the guest.
    pub to: String,
}

/// A program or shared library of Weft.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Own {
    pub name: String,
    pub path: String,
    /// The program is not static, so that a library can be loaded into it; what it needs is in the image.
    #[serde(default)]
    pub dynamic: bool,
    /// Other names of the program; they take the place of applets.
    #[serde(default)]
    pub links: Vec<String>,
}

impl Recipe {
    /// Returns the recipe that is compiled into this program.
    ///
    /// # Panics
    /// Never panics: a test parses it.
    #[must_use]
    pub fn minimal() -> Self {
        Self::parse(include_str!("../../../images/minimal.toml"), "minimal").expect("the recipe inside is right")
    }

    /// Returns the recipe of what a lab asks for.
    ///
    /// # Panics
    /// Never panics: a test parses all recipes that are compiled in.
    #[must_use]
    pub fn of(spec: &ImageSpec) -> Self {
        let added = match spec.recipe {
            ImageName::Minimal => None,
            ImageName::Network => Some((include_str!("../../../images/network.toml"), "network")),
            ImageName::Mpi => Some((include_str!("../../../images/mpi.toml"), "mpi")),
        };
        let mut recipe = Self::minimal();
        if let Some((text, name)) = added {
            recipe = recipe.extended(text, name).expect("the recipe inside is right");
        }
        recipe.packages.extend(spec.packages.iter().cloned());
        if recipe.root_is_on_disk() {
            let (text, name) = (include_str!("../../../images/packages.toml"), recipe.name.clone());
            recipe = recipe.extended(text, "packages").expect("the recipe inside is right");
            recipe.name = name;
        }
        if spec.host_folders {
            recipe.kernel.load.extend(["9pnet_virtio", "9p"].map(str::to_owned));
        }
        recipe.kernel.carry.extend(spec.modules.iter().cloned());
        // Debian's cloud kernel has no 9p, and lacks others.
        if spec.has_full_kernel() {
            recipe.kernel.package = FULL_KERNEL.to_owned();
        }
        recipe.own_kernel.clone_from(&spec.kernel);
        recipe
    }

    /// Returns whether the guest's root file system is on a disk, because it is too large for memory.
    pub(super) fn root_is_on_disk(&self) -> bool {
        !self.packages.is_empty()
    }

    /// Returns the variables of every command in the guest, and the commands for its shell at every boot.
    pub(crate) fn into_env_and_exec(self) -> (BTreeMap<String, String>, Vec<String>) {
        (self.env, self.exec)
    }

    /// Returns the names of Weft's own programs and libraries in the guest.
    pub(crate) fn own_names(&self) -> impl Iterator<Item = &str> {
        self.own.iter().map(|own| own.name.as_str())
    }

    /// Returns a key of everything that decides which packages there are.
    pub(super) fn packages_key(&self) -> String {
        let own_kernel = self.own_kernel.is_some();
        format!(
            "{}\n{} {own_kernel} {:?}",
            self.text, self.kernel.package, self.packages
        )
    }

    /// Extends the recipe by a second text: packages, modules and files, which replace those of an equal path.
    fn extended(mut self, text: &str, whence: &str) -> Result<Self, ImageError> {
        let added = Self::parse(text, whence)?;
        self.text += text;
        self.name = added.name;
        self.kernel.load.extend(added.kernel.load);
        self.kernel.carry.extend(added.kernel.carry);
        self.packages.extend(added.packages);
        self.programs.extend(added.programs);
        self.libraries.extend(added.libraries);
        self.wheels.extend(added.wheels);
        self.own.extend(added.own);
        self.files.extend(added.files);
        self.links.extend(added.links);
        self.env.extend(added.env);
        self.exec.extend(added.exec);
        Ok(self)
    }

    /// Loads a recipe from a file.
    ///
    /// # Errors
    /// Fails when it cannot be read or is wrong.
    pub fn load(path: &Path) -> Result<Self, ImageError> {
        let text = std::fs::read_to_string(path).map_err(|error| ImageError::io(path, error))?;
        Self::parse(&text, &path.display().to_string())
    }

    fn parse(text: &str, whence: &str) -> Result<Self, ImageError> {
        let wrong = |why: String| ImageError::Recipe {
            recipe: whence.to_owned(),
            why,
        };
        let written: Written = toml::from_str(text).map_err(|error| wrong(error.to_string().trim().to_owned()))?;
        let packages = written
            .program
            .iter()
            .map(|program| &program.package)
            .chain(written.library.iter().map(|library| &library.package))
            .chain(&written.packages)
            .chain([&written.kernel.package]);
        for package in packages {
            if !is_package_name(package) {
                return Err(wrong(format!("{package:?} is not the name of a Debian package")));
            }
        }
        for name in written
            .program
            .iter()
            .map(|program| &program.name)
            .chain(written.library.iter().map(|library| &library.name))
            .chain(written.own.iter().map(|own| &own.name))
        {
            if name.is_empty() || name.contains('/') || name.starts_with('.') {
                return Err(wrong(format!("{name:?} is not the name of a program or library")));
            }
        }
        if let Some(wheel) = written.wheel.iter().find(|wheel| !wheel.is_pinned()) {
            let why = format!("the wheel {:?} needs a plain name, a version and a SHA-256", wheel.name);
            return Err(wrong(why));
        }
        let own = written.own.iter().flat_map(|own| own.links.iter().chain([&own.path]));
        let wheels = written.wheel.iter().map(|wheel| &wheel.to);
        for path in own
            .chain(wheels)
            .chain(written.files.keys())
            .chain(written.links.keys())
        {
            let parts = path.strip_prefix('/').unwrap_or_default().split('/');
            if !path.starts_with('/') || parts.clone().any(|part| part.is_empty() || part == "." || part == "..") {
                return Err(wrong(format!("{path:?} is not a plain path from the root")));
            }
        }
        Ok(Self {
            text: text.to_owned(),
            name: written.name,
            kernel: written.kernel,
            own_kernel: None,
            packages: written.packages,
            programs: written.program,
            libraries: written.library,
            wheels: written.wheel,
            own: written.own,
            files: written.files,
            links: written.links,
            env: written.env,
            exec: written.exec,
        })
    }
}

impl Wheel {
    /// Returns whether there can be only one file of this name, version and sum.
    fn is_pinned(&self) -> bool {
        let plain = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphanumeric())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        let sum = self.sha256.as_bytes();
        plain(&self.name) && plain(&self.version) && sum.len() == 64 && sum.iter().all(u8::is_ascii_hexdigit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_inside_is_right_and_boots_our_agent() {
        let recipe = Recipe::minimal();
        assert!(
            recipe
                .own
                .iter()
                .any(|own| own.name == "weft-agent" && own.path == "/init")
        );
        assert!(recipe.kernel.load.iter().any(|module| module == "virtio_net"));
    }

    #[test]
    fn every_recipe_inside_is_right_and_one_with_packages_mounts_its_root() {
        let of = |recipe, packages: &[&str]| {
            Recipe::of(&ImageSpec {
                recipe,
                packages: packages.iter().map(|&name| name.to_owned()).collect(),
                ..ImageSpec::default()
            })
        };
        let network = of(ImageName::Network, &[]);
        assert!(network.root_is_on_disk() && network.name == "network");
        assert!(network.kernel.load.iter().any(|module| module == "erofs"));
        let mpi = of(ImageName::Mpi, &[]);
        assert!(mpi.own.iter().any(|own| own.name == "libmx-fi.so") && mpi.wheels.len() == 1);
        assert!(mpi.files["/etc/ssh/sshd_config"].contains("HostKey /etc/ssh/lab_key\n"));
        let minimal = of(ImageName::Minimal, &[]);
        assert!(!minimal.root_is_on_disk());
        let with = of(ImageName::Minimal, &["tcpdump"]);
        assert!(with.root_is_on_disk());
        assert_ne!(with.packages_key(), minimal.packages_key());
    }

    #[test]
    fn a_wrong_recipe_is_refused_with_its_place() {
        let kernel = "name = 'x'\n[kernel]\npackage = 'linux'\n";
        for (added, says) in [
            ("colour = 1", "unknown field"),
            (
                "[[program]]\nname = 'a'\npackage = 'rm -rf'",
                "not the name of a Debian package",
            ),
            (
                "[[program]]\nname = '../a'\npackage = 'a'",
                "not the name of a program or library",
            ),
            (
                "[[library]]\nname = '/a.so'\npackage = 'a'",
                "not the name of a program or library",
            ),
            (
                "[[library]]\nname = 'a.so'\npackage = 'A'",
                "not the name of a Debian package",
            ),
            ("[[own]]\nname = 'a'\npath = '/../a'", "not a plain path"),
            (
                "[[wheel]]\nname = 'a'\nversion = '1'\nsha256 = 'ff'\nto = '/a'",
                "needs a plain name, a version and a SHA-256",
            ),
            ("[[own]]\nname = 'a'\npath = '/a'\nlinks = ['b']", "not a plain path"),
        ] {
            let error = Recipe::parse(&format!("{kernel}{added}"), "r.toml")
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("r.toml: ") && error.contains(says), "{error}");
        }
    }
}

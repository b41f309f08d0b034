//! Guest images: a kernel and an initramfs made from Debian packages by a recipe, without root and without installing
//! anything, and cached by a hash of their ingredients. The module `qemu` boots them.

mod accounts;
mod binaries;
mod cache;
mod elf;
mod erofs;
mod kernel;
mod modules;
mod packages;
mod recipe;
mod shell;
mod tool;
mod tree;
mod vmlinux;
mod wheels;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::digest::hex;

pub use binaries::GuestBinaries;
pub use cache::Cache;
pub use packages::{MissingTool, missing_tools};
pub use recipe::Recipe;

/// Part of every image's hash, to be raised when the method of making images changes.
const FORMAT: u32 = 4;

/// The errors of making an image, with their remedies.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The recipe is wrong.
    #[error("{recipe}: {why}")]
    Recipe {
        /// File or name of the recipe.
        recipe: String,
        /// Problem in the recipe.
        why: String,
    },
    /// A program that unpacks packages is missing.
    #[error("{tool} is missing: guest images are made with it; install the package {package}")]
    Tool {
        /// Name of the program.
        tool: &'static str,
        /// Package that contains it.
        package: &'static str,
    },
    /// A package is not available.
    #[error("the package {package}, needed for guests, is not available: {why}")]
    Package {
        /// Name of the package.
        package: String,
        /// Reason in one clause, with the remedy.
        why: String,
    },
    /// A program of Weft for guests is missing.
    #[error("{0}")]
    Binary(String),
    /// The user's kernel cannot be used.
    #[error("the kernel {}: {why}", .kernel.display())]
    Kernel {
        /// File of the kernel.
        kernel: PathBuf,
        /// Reason in one clause, with the remedy.
        why: String,
    },
    /// The disk is full.
    #[error("no space left at {}: free some, or name another place in XDG_CACHE_HOME", .0.display())]
    NoSpace(PathBuf),
    /// A file or directory cannot be read or written.
    #[error("{}: {error}", .path.display())]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
}

impl ImageError {
    /// Wraps the system's error about `path`.
    fn io(path: &Path, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace(path.to_path_buf()),
            _ => Self::Io {
                path: path.to_path_buf(),
                error,
            },
        }
    }
}

/// An image that is ready to boot. Its files never change; they stay until the cache is cleared or has made
/// [`Cache::IMAGES_MAX`] newer images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Kernel image, unpacked if QEMU can start it so.
    pub kernel: PathBuf,
    /// Initramfs of the image.
    pub initramfs: PathBuf,
    /// Root file system, if the initramfs does not contain it: to be attached as a read-only disk with the serial
    /// number [`weft_agent::config::ROOT_DISK`].
    pub root: Option<PathBuf>,
    /// Release of the kernel, such as `6.1.0-56-cloud-amd64`.
    pub kernel_release: String,
    /// Hash of all ingredients, in hexadecimal.
    pub hash: String,
}

/// Memory in MiB that Debian's kernel needs in addition to an initramfs, measured: with 2 MiB less it could not unpack
/// one of 26 MiB.
const KERNEL_MEMORY_MIB: u64 = 68;

impl Image {
    /// Returns the least memory in MiB that a guest needs to boot the image: the initramfs is in memory twice while it
    /// is unpacked.
    ///
    /// # Errors
    /// Fails when the initramfs cannot be read.
    pub fn memory_mib_min(&self) -> Result<u64, ImageError> {
        let file = std::fs::metadata(&self.initramfs).map_err(|error| ImageError::io(&self.initramfs, error))?;
        Ok(KERNEL_MEMORY_MIB + 2 * file.len().div_ceil(1 << 20))
    }
}

/// The current step of [`build`], for a progress line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Another weft makes an image, which this one waits for.
    Waiting,
    /// apt is asked which packages there are.
    Resolving,
    /// A package is downloaded.
    Downloading {
        /// Name and version of the package.
        package: String,
    },
    /// A package is unpacked.
    Unpacking {
        /// Name of the package.
        package: String,
    },
    /// The initramfs is written.
    Writing,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("waiting for another weft that makes a guest image"),
            Self::Resolving => f.write_str("looking up the guest's packages"),
            Self::Downloading { package } => write!(f, "downloading {package}"),
            Self::Unpacking { package } => write!(f, "unpacking {package}"),
            Self::Writing => f.write_str("writing the guest image"),
        }
    }
}

/// The label is stored beside an image's files.
#[derive(Debug, Serialize, Deserialize)]
struct Label {
    recipe: String,
    kernel_release: String,
    root_is_on_disk: bool,
    packages: Vec<packages::Package>,
}

const KERNEL_FILE: &str = "kernel";
const INITRAMFS_FILE: &str = "initramfs.cpio";
const ROOT_FILE: &str = "root.erofs";
const LABEL_FILE: &str = "image.json";

/// Makes the image of `recipe`, or finds it in the cache. A recipe's packages are looked up only once until the cache
/// is cleared, so that the network is not needed again.
///
/// # Errors
/// Fails with one sentence about the first thing that is unavailable or cannot be written. The cache never contains a
/// partial image.
pub fn build(
    recipe: &Recipe,
    cache: &Cache,
    binaries: &GuestBinaries,
    progress: &mut dyn FnMut(Step),
) -> Result<Image, ImageError> {
    let own = binaries.for_recipe(recipe)?;
    let kernel = recipe.own_kernel.as_ref().map(kernel::fingerprint).transpose()?;
    let hash = |packages: &[packages::Package]| hash(recipe, kernel.as_deref(), packages, &own);
    if let Some(packages) = cache.resolved(recipe) {
        let hash = hash(&packages);
        if let Some(image) = cache.image(&hash) {
            return Ok(image);
        }
    }
    let _lock = cache.lock(|| progress(Step::Waiting))?;
    cache.tidy();
    let staging = cache.staging()?;
    let mut store = packages::Store::new(cache, staging.path(), progress)?;
    let set = match cache.resolved(recipe).filter(|packages| store.has_all(packages)) {
        Some(packages) => packages,
        None => {
            let packages = store.resolve(recipe)?;
            cache.note_resolved(recipe, &packages)?;
            packages
        }
    };
    let hash = hash(&set);
    // Another weft may have made it while this one waited.
    if let Some(image) = cache.image(&hash) {
        return Ok(image);
    }
    let unpacked = store.unpack(&set)?;
    progress(Step::Writing);
    let kernel = kernel::Kernel::find(recipe, &unpacked)?;
    let tree = tree::Tree::of(recipe, &unpacked, &kernel, &own)?;
    let ready = staging.path().join("ready");
    std::fs::create_dir(&ready).map_err(|error| ImageError::io(&ready, error))?;
    let packed = std::fs::read(&kernel.image).map_err(|error| ImageError::io(&kernel.image, error))?;
    let written = std::fs::write(ready.join(KERNEL_FILE), vmlinux::of(&packed).unwrap_or(packed));
    written.map_err(|error| ImageError::io(&ready.join(KERNEL_FILE), error))?;
    let root_is_on_disk = recipe.root_is_on_disk();
    if root_is_on_disk {
        tree.write_disk(&ready.join(ROOT_FILE))?;
        tree.boot_part(&kernel).write(&ready.join(INITRAMFS_FILE))?;
    } else {
        tree.write(&ready.join(INITRAMFS_FILE))?;
    }
    let label = Label {
        recipe: recipe.name.clone(),
        kernel_release: kernel.release,
        root_is_on_disk,
        packages: set,
    };
    let text = serde_json::to_vec_pretty(&label).expect("plain strings become JSON");
    let label_file = ready.join(LABEL_FILE);
    std::fs::write(&label_file, text).map_err(|error| ImageError::io(&label_file, error))?;
    cache.put_image(&ready, &hash)
}

/// Computes the hash of an image: of the recipe, a kernel of the user, the packages and Weft's own programs.
fn hash(recipe: &Recipe, kernel: Option<&str>, packages: &[packages::Package], own: &[binaries::OwnFile]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(FORMAT.to_le_bytes());
    hasher.update(recipe.packages_key().as_bytes());
    hasher.update(format!("{:?} {:?} {kernel:?}", recipe.kernel.load, recipe.kernel.carry).as_bytes());
    for package in packages {
        hasher.update(package.sha256.as_bytes());
    }
    for file in own {
        hasher.update(file.path.as_bytes());
        hasher.update(Sha256::digest(&file.contents));
    }
    hex(hasher.finalize())
}

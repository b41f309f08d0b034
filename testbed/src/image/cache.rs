//! The cache of images and packages. Everything enters it complete, by a rename; so its contents can be trusted, and
//! two labs that start simultaneously do not disturb each other. This module fetches nothing.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::packages::Package;
use super::{INITRAMFS_FILE, Image, ImageError, KERNEL_FILE, LABEL_FILE, Label, ROOT_FILE, Recipe};
use crate::digest::hex;

/// Age of partially written notes above which they were left by a weft that was killed.
const STAGING_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

const STAGING_PREFIX: &str = "staging-";

/// A directory that contains images and packages.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Number of images kept; the ones beyond it that have not been used for the longest time are removed when a new
    /// one is made.
    pub const IMAGES_MAX: usize = 16;

    /// Opens the user's cache: `$XDG_CACHE_HOME/weft`, else `~/.cache/weft`.
    ///
    /// # Errors
    /// Fails when neither variable is set, or the directory cannot be made.
    pub fn open_default() -> Result<Self, ImageError> {
        let absolute = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
        let missing = || {
            io::Error::new(
                io::ErrorKind::NotFound,
                "set HOME or XDG_CACHE_HOME to an absolute path",
            )
        };
        let base = base.ok_or_else(|| ImageError::io(Path::new("the cache of guest images"), missing()))?;
        Self::open(&base.join("weft"))
    }

    /// Opens the cache at `root`, and makes it if necessary.
    ///
    /// # Errors
    /// Fails when it cannot be made.
    pub fn open(root: &Path) -> Result<Self, ImageError> {
        for part in ["images", "packages", "resolved"] {
            let path = root.join(part);
            fs::create_dir_all(&path).map_err(|error| ImageError::io(&path, error))?;
        }
        Ok(Self {
            root: root.to_path_buf(),
        })
    }

    /// Returns the directory of the cache.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Removes everything. A guest that runs keeps running; one that has yet to start from the cache does not.
    ///
    /// # Errors
    /// Fails when something cannot be removed.
    pub fn clear(&self) -> Result<(), ImageError> {
        fs::remove_dir_all(&self.root).map_err(|error| ImageError::io(&self.root, error))
    }

    /// Returns a directory of the cache for notes of another kind.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, ImageError> {
        let path = self.root.join(name);
        fs::create_dir_all(&path).map_err(|error| ImageError::io(&path, error))?;
        Ok(path)
    }

    pub(super) fn packages(&self) -> PathBuf {
        self.root.join("packages")
    }

    /// Locks out other builders as long as the file lives; `waiting` is called when there is one.
    pub(super) fn lock(&self, waiting: impl FnOnce()) -> Result<File, ImageError> {
        let path = self.root.join("lock");
        let file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|e| ImageError::io(&path, e))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            waiting();
            flock(&file, FlockOperation::LockExclusive).map_err(|error| ImageError::io(&path, error.into()))?;
        }
        Ok(file)
    }

    /// Makes a directory on the cache's disk that is removed with its handle.
    pub(super) fn staging(&self) -> Result<TempDir, ImageError> {
        let made = tempfile::Builder::new().prefix(STAGING_PREFIX).tempdir_in(&self.root);
        made.map_err(|error| ImageError::io(&self.root, error))
    }

    /// Returns the path of the note about the packages of `recipe`: they differ between Debian releases, which may
    /// share a home directory.
    fn resolved_path(&self, recipe: &Recipe) -> PathBuf {
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let release = release
            .lines()
            .find_map(|line| line.strip_prefix("VERSION_ID="))
            .unwrap_or_default()
            .to_owned();
        let key = hex(Sha256::digest(format!("{release}\n{}", recipe.packages_key())));
        self.root.join("resolved").join(format!("{key}.json"))
    }

    /// Returns the packages that were found for `recipe` the last time.
    pub(super) fn resolved(&self, recipe: &Recipe) -> Option<Vec<Package>> {
        // A note that cannot be read is treated as missing: it is made again.
        serde_json::from_slice(&fs::read(self.resolved_path(recipe)).ok()?).ok()
    }

    pub(super) fn note_resolved(&self, recipe: &Recipe, packages: &[Package]) -> Result<(), ImageError> {
        let text = serde_json::to_vec_pretty(packages).expect("plain strings become JSON");
        self.write(&self.resolved_path(recipe), &text)
    }

    /// Writes a small file completely or not at all.
    pub(crate) fn write(&self, path: &Path, contents: &[u8]) -> Result<(), ImageError> {
        let failed = |error| ImageError::io(path, error);
        let mut file = tempfile::Builder::new()
            .prefix(STAGING_PREFIX)
            .tempfile_in(&self.root)
            .map_err(failed)?;
        io::Write::write_all(&mut file, contents).map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error)).map(drop)
    }

    /// Returns the image with this hash, and notes that it was used now.
    pub(super) fn image(&self, hash: &str) -> Option<Image> {
        let place = self.root.join("images").join(hash);
        let label: Label = serde_json::from_slice(&fs::read(place.join(LABEL_FILE)).ok()?).ok()?;
        let image = Image {
            kernel: place.join(KERNEL_FILE),
            initramfs: place.join(INITRAMFS_FILE),
            root: label.root_is_on_disk.then(|| place.join(ROOT_FILE)),
            kernel_release: label.kernel_release,
            hash: hash.to_owned(),
        };
        // Only the order of removal depends on it: a cache that cannot be written is still good for reading.
        let used = File::open(place.join(LABEL_FILE)).and_then(|file| file.set_modified(SystemTime::now()));
        if let Err(error) = used {
            tracing::debug!(%error, "an image's time of use was not noted");
        }
        let root_exists = image.root.as_ref().is_none_or(|root| root.exists());
        (image.kernel.exists() && image.initramfs.exists() && root_exists).then_some(image)
    }

    /// Takes in the directory `ready` as the image with this hash.
    pub(super) fn put_image(&self, ready: &Path, hash: &str) -> Result<Image, ImageError> {
        let place = self.root.join("images").join(hash);
        // An existing image is unusable, or it would have been used.
        let _ = fs::remove_dir_all(&place);
        fs::rename(ready, &place).map_err(|error| ImageError::io(&place, error))?;
        let gone = || io::Error::new(io::ErrorKind::NotFound, "the image has vanished again");
        self.image(hash).ok_or_else(|| ImageError::io(&place, gone()))
    }

    /// Removes what killed builders left and the images beyond the limit. The caller has to have the lock.
    pub(super) fn tidy(&self) {
        let entries = |path: &Path| {
            fs::read_dir(path)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path())
        };
        let age = |path: &Path| {
            let modified = fs::metadata(path)
                .and_then(|meta| meta.modified())
                .unwrap_or(SystemTime::UNIX_EPOCH);
            modified.elapsed().unwrap_or_default()
        };
        for path in entries(&self.root) {
            let staging = path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(STAGING_PREFIX));
            // Directories are made only under the lock, so the maker of this one is dead. What cannot be removed now is
            // tried again the next time.
            if staging && path.is_dir() {
                let _ = fs::remove_dir_all(&path);
            } else if staging && age(&path) > STAGING_AGE_MAX {
                let _ = fs::remove_file(&path);
            }
        }
        let mut images: Vec<PathBuf> = entries(&self.root.join("images")).collect();
        images.sort_by_key(|path| age(&path.join(LABEL_FILE)));
        for path in images.into_iter().skip(Self::IMAGES_MAX - 1) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

//! The kernel of an image: its file, its release, and which of its modules go into the image. The module `modules`
//! knows their dependencies.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::modules::{Modules, Wanted};
use super::packages::Unpacked;
use super::{ImageError, Recipe, vmlinux};
use crate::lab::OwnKernel;

/// Place of a bzImage's signature, and the bytes from there to the end of the pointer to its release, which counts from
/// 0x200.
const SIGNATURE_OFFSET: u64 = 0x202;
const SIGNATURE: [u8; 4] = *b"HdrS";
const HEADER_LEN: usize = 0x20e + 2 - 0x202;

/// Longest release that is read, in bytes; the kernel's own limit is 64.
const RELEASE_LEN_MAX: usize = 128;

/// The kernel and the modules that a recipe asks for.
#[derive(Debug)]
pub(super) struct Kernel {
    pub image: PathBuf,
    pub release: String,
    pub modules: Modules,
}

impl Kernel {
    pub(super) fn find(recipe: &Recipe, unpacked: &Unpacked) -> Result<Self, ImageError> {
        match &recipe.own_kernel {
            Some(own) => Self::of_user(recipe, own),
            None => Self::of_package(recipe, unpacked),
        }
    }

    fn of_package(recipe: &Recipe, unpacked: &Unpacked) -> Result<Self, ImageError> {
        let wrong = |why: String| ImageError::Package {
            package: recipe.kernel.package.clone(),
            why,
        };
        let without_modules = || wrong("there are no modules in it".into());
        let package = unpacked.kernel().ok_or_else(without_modules)?;
        let modules = ["lib/modules", "usr/lib/modules"].map(|path| package.join(path));
        let modules = modules.iter().find(|path| path.is_dir()).ok_or_else(without_modules)?;
        let mut releases = fs::read_dir(modules).into_iter().flatten().flatten();
        let folder = releases.next().ok_or_else(without_modules)?.path();
        let release = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let image = package.join("boot").join(format!("vmlinuz-{release}"));
        if !image.is_file() {
            return Err(wrong(format!("there is no boot/vmlinuz-{release} in it")));
        }
        let wanted = Wanted {
            load: &recipe.kernel.load,
            carry: &recipe.kernel.carry,
            carry_may_miss: false,
        };
        let modules = Modules::collect(&folder, &wanted).map_err(wrong)?;
        Ok(Self {
            image,
            release,
            modules,
        })
    }

    /// Makes the kernel of a user, with those of the recipe's modules that it has: the builder of a kernel decides
    /// which it has.
    fn of_user(recipe: &Recipe, own: &OwnKernel) -> Result<Self, ImageError> {
        let wrong = |why: String| ImageError::Kernel {
            kernel: own.kernel.clone(),
            why,
        };
        let release = release_of(&own.kernel)?;
        let Some(folder) = &own.modules else {
            let missing = drivers_missing(&own.kernel, &recipe.kernel.load)?;
            if !missing.is_empty() {
                return Err(wrong(format!(
                    "it is {release}, and has no {} built in, which guests need: name the folder of its modules, such as \
                     `modules = \"/lib/modules/{release}\"`",
                    missing.join(", ")
                )));
            }
            return Ok(Self {
                image: own.kernel.clone(),
                release,
                modules: Modules::none(),
            });
        };
        let named = folder.canonicalize().map_err(|error| ImageError::io(folder, error))?;
        let named = named.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if named != release && folder.join("kernel").is_dir() && named.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(wrong(format!("it is {release}, and the modules are those of {named}")));
        }
        if !folder.join("modules.builtin").is_file() {
            let why = format!(
                "{} is no folder of modules: it has no modules.builtin (name one like /lib/modules/{release}, as `make modules_install` makes it)",
                folder.display()
            );
            return Err(wrong(why));
        }
        let wanted = Wanted {
            load: &recipe.kernel.load,
            carry: &recipe.kernel.carry,
            carry_may_miss: true,
        };
        let modules = Modules::collect(folder, &wanted).map_err(|why| {
            wrong(format!(
                "{why}, neither built in nor in {}; guests need {}",
                folder.display(),
                recipe.kernel.load.join(", ")
            ))
        })?;
        Ok(Self {
            image: own.kernel.clone(),
            release,
            modules,
        })
    }
}

/// Returns those of `wanted` that are certainly not built into a kernel. A kernel that cannot be unpacked may have them
/// all.
fn drivers_missing(kernel: &Path, wanted: &[String]) -> Result<Vec<String>, ImageError> {
    let packed = fs::read(kernel).map_err(|error| ImageError::io(kernel, error))?;
    let Some(unpacked) = vmlinux::unpack(&packed) else {
        return Ok(Vec::new());
    };
    let missing = wanted
        .iter()
        .filter(|driver| !vmlinux::may_have_driver(&unpacked, driver));
    Ok(missing.cloned().collect())
}

/// Returns a fingerprint that differs when the user's kernel has changed.
pub(super) fn fingerprint(own: &OwnKernel) -> Result<String, ImageError> {
    let mut text = String::new();
    let order = own.modules.iter().flat_map(|folder| {
        [
            folder.clone(),
            folder.join("modules.dep"),
            folder.join("modules.builtin"),
        ]
    });
    for path in [own.kernel.clone()].into_iter().chain(order) {
        // `modules.dep` may be absent.
        let Ok(meta) = fs::metadata(&path) else { continue };
        let modified = meta.modified().map_err(|error| ImageError::io(&path, error))?;
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        text += &format!("{} {} {since}\n", path.display(), meta.len());
    }
    Ok(text)
}

/// Reads the release of a bzImage.
fn release_of(path: &Path) -> Result<String, ImageError> {
    let wrong = |why: &str| ImageError::Kernel {
        kernel: path.to_path_buf(),
        why: why.to_owned(),
    };
    let read = |offset: u64, len: usize| {
        let mut bytes = Vec::new();
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        file.take(len as u64).read_to_end(&mut bytes).map(|_| bytes)
    };
    let failed = |error| ImageError::io(path, error);
    let header = read(SIGNATURE_OFFSET, HEADER_LEN).map_err(failed)?;
    let Some(pointer) = header
        .last_chunk()
        .filter(|_| header.starts_with(&SIGNATURE) && header.len() == HEADER_LEN)
    else {
        return Err(wrong(
            "it is no bzImage (arch/x86/boot/bzImage of a kernel that was built, or a vmlinuz)",
        ));
    };
    let text = read(u64::from(u16::from_le_bytes(*pointer)) + 0x200, RELEASE_LEN_MAX).map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    let release = text.split([' ', '\0']).next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-~".contains(c);
    if release.is_empty() || release.starts_with('.') || !release.chars().all(plain) {
        return Err(wrong("it does not say which release it is"));
    }
    Ok(release.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bz_image(release: &str) -> Vec<u8> {
        let mut bytes = vec![0; 0x400];
        bytes[0x202..0x206].copy_from_slice(&SIGNATURE);
        bytes[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        bytes.splice(0x300.., release.bytes());
        bytes
    }

    #[test]
    fn the_release_of_a_kernel_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vmlinuz");
        fs::write(&path, bz_image("6.18.0-mine (me@here) #1 SMP\0")).unwrap();
        assert_eq!(release_of(&path).unwrap(), "6.18.0-mine");
        for (bytes, says) in [
            (b"\x7fELF".to_vec(), "is no bzImage"),
            (vec![0; 0x400], "is no bzImage"),
            (bz_image("../../etc \0"), "does not say which release"),
            (bz_image(""), "does not say which release"),
        ] {
            fs::write(&path, bytes).unwrap();
            let error = release_of(&path).unwrap_err().to_string();
            assert!(error.starts_with("the kernel /") && error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_kernel_without_what_guests_need_is_refused_with_what_that_is() {
        let dir = tempfile::tempdir().unwrap();
        let (kernel, modules) = (dir.path().join("vmlinuz"), dir.path().join("modules"));
        fs::write(&kernel, bz_image("6.18.0-mine \0")).unwrap();
        fs::create_dir(&modules).unwrap();
        let of = |modules| {
            let own = OwnKernel {
                kernel: kernel.clone(),
                modules,
            };
            Kernel::of_user(&Recipe::minimal(), &own).map_err(|error| error.to_string())
        };
        assert!(
            of(Some(modules.clone()))
                .unwrap_err()
                .contains("it has no modules.builtin")
        );
        let builtin =
            "kernel/a/virtio_pci.ko\nkernel/a/virtio_net.ko\nkernel/a/virtio_blk.ko\nkernel/a/qemu_fw_cfg.ko\n";
        fs::write(modules.join("modules.builtin"), builtin).unwrap();
        let error = of(Some(modules.clone())).unwrap_err();
        assert!(
            error.contains("it has no module virtio_console, neither built in nor in"),
            "{error}"
        );
        fs::write(
            modules.join("modules.builtin"),
            format!("{builtin}kernel/a/virtio_console.ko\n"),
        )
        .unwrap();
        assert_eq!(of(Some(modules)).unwrap().release, "6.18.0-mine");
        assert_eq!(of(None).unwrap().modules.to_load().count(), 0);
    }
}

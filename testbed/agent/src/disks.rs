//! Disks that the lab gives a guest, found by their serial numbers, and the root file system on one of them: its
//! contents are read on demand, and what the guest writes is kept in memory.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, mount, mount_move};
use weft_agent::config::ROOT_DISK;

/// Marker file in an initramfs that is not the whole guest.
const ROOT_IS_ON_DISK: &str = "/etc/weft/root-is-on-disk";

/// Mount points of the parts of the root file system before it is entered.
const LOWER: &str = "/weft/lower";
const UPPER: &str = "/weft/upper";
const ROOT: &str = "/weft/root";

/// Share of the free memory, in percent, that the guest's writes may take.
const UPPER_PERCENT: u64 = 50;

/// Returns the device of the disk with this serial number.
pub fn find(serial: &str) -> Result<Option<PathBuf>> {
    let Ok(entries) = fs::read_dir("/sys/block") else {
        return Ok(None);
    };
    for entry in entries {
        let entry = entry?;
        if fs::read_to_string(entry.path().join("serial")).is_ok_and(|text| text.trim() == serial) {
            return Ok(Some(Path::new("/dev").join(entry.file_name())));
        }
    }
    Ok(None)
}

/// Switches to the root file system on the disk, if this initramfs is not the whole guest. The mounts in `mounted` are
/// moved along.
pub fn enter_root(mounted: &[&str], free_kib: Option<u64>) -> Result<()> {
    if !fs::exists(ROOT_IS_ON_DISK)? {
        return Ok(());
    }
    let disk = find(ROOT_DISK)?.context("there is no disk with the guest's root file system")?;
    for place in [LOWER, UPPER, ROOT] {
        fs::create_dir_all(place)?;
    }
    mount(&disk, LOWER, c"erofs", MountFlags::RDONLY, None).with_context(|| format!("mounting {}", disk.display()))?;
    let size = free_kib.map(|free| CString::new(format!("size={}k", free * UPPER_PERCENT / 100)));
    mount(
        c"tmpfs",
        UPPER,
        c"tmpfs",
        MountFlags::empty(),
        size.transpose()?.as_deref(),
    )
    .context("mounting a tmpfs")?;
    for part in ["files", "work"] {
        fs::create_dir(Path::new(UPPER).join(part))?;
    }
    let parts = CString::new(format!("lowerdir={LOWER},upperdir={UPPER}/files,workdir={UPPER}/work"))?;
    mount(
        c"overlay",
        ROOT,
        c"overlay",
        MountFlags::empty(),
        Some(parts.as_c_str()),
    )
    .context("mounting an overlay")?;
    for place in mounted {
        let to = format!("{ROOT}{place}");
        fs::create_dir_all(&to)?;
        mount_move(*place, &to).with_context(|| format!("moving {place}"))?;
    }
    // The files of the initramfs are no longer needed and would stay in memory.
    for left in ["/init", "/lib", "/bin"] {
        let path = Path::new(left);
        if path.is_symlink() || path.is_file() {
            fs::remove_file(path)?;
        } else if path.is_dir() {
            fs::remove_dir_all(path)?;
        }
    }
    std::env::set_current_dir(ROOT)?;
    mount_move(".", "/").context("entering the root file system")?;
    rustix::process::chroot(".")?;
    std::env::set_current_dir("/")?;
    Ok(())
}

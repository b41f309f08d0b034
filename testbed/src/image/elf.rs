//! The three questions that an image builder asks of ELF files: whether a program is static, which libraries it needs,
//! and which modules a kernel module needs. This module changes no file.

use object::elf::{DT_NEEDED, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, Object, ObjectSection};

/// Returns whether a program runs without a loader, as every shared library does that is not a program too; `None` when
/// it is no 64-bit ELF program.
pub(super) fn is_static(bytes: &[u8]) -> Option<bool> {
    let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, bytes).ok()?;
    Some(!segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP))
}

/// Returns the file names of the shared libraries that a program or library needs itself, its loader included; `None`
/// when it is no 64-bit ELF file.
pub(super) fn needed_libraries(bytes: &[u8]) -> Option<Vec<String>> {
    let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let mut names = Vec::new();
    for segment in header.program_headers(endian, bytes).ok()? {
        if let Ok(Some(loader)) = segment.interpreter(endian, bytes) {
            let loader = String::from_utf8_lossy(loader).into_owned();
            names.extend(loader.rsplit('/').next().map(str::to_owned));
        }
    }
    let sections = header.sections(endian, bytes).ok()?;
    for section in sections.iter() {
        let Ok(Some((entries, strings))) = section.dynamic(endian, bytes) else {
            continue;
        };
        let strings = sections.strings(endian, bytes, strings).ok()?;
        for entry in entries.iter().filter(|entry| entry.d_tag(endian) == DT_NEEDED) {
            let name = strings.get(u32::try_from(entry.d_val(endian)).ok()?).ok()?;
            names.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    Some(names)
}

/// The metadata of a kernel module.
#[derive(Debug)]
pub(super) struct ModuleInfo {
    /// Names of the modules that it needs.
    pub depends: Vec<String>,
    /// Names, as `modprobe` knows them, of modules to load first although no symbol says so.
    pub before: Vec<String>,
    /// Patterns of names by which the kernel requests this module.
    pub aliases: Vec<String>,
}

/// Reads the metadata of an uncompressed kernel module; `None` when it is no module.
pub(super) fn module_info(bytes: &[u8]) -> Option<ModuleInfo> {
    let file = object::File::parse(bytes).ok()?;
    let section = file.section_by_name(".modinfo")?;
    let fields = section.data().ok()?.split(|&byte| byte == 0);
    let fields: Vec<_> = fields.map(String::from_utf8_lossy).collect();
    let depends = fields.iter().find_map(|field| field.strip_prefix("depends="))?;
    let aliases = fields.iter().filter_map(|field| field.strip_prefix("alias="));
    let before = fields.iter().filter_map(|field| field.strip_prefix("softdep=pre:"));
    // A field may name further modules that have to come afterwards.
    let before = before.flat_map(|names| names.split_whitespace().take_while(|word| !word.ends_with(':')));
    Some(ModuleInfo {
        before: before.map(str::to_owned).collect(),
        depends: depends
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
        aliases: aliases.map(str::to_owned).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_program_needs_the_c_library_and_a_loader() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(is_static(&bytes), Some(false));
        let needed = needed_libraries(&bytes).unwrap();
        assert!(needed.iter().any(|name| name == "libc.so.6"), "{needed:?}");
        assert!(needed.iter().any(|name| name.starts_with("ld-linux")), "{needed:?}");
    }

    #[test]
    fn rubbish_is_no_program_and_no_module() {
        assert_eq!(is_static(b"#!/bin/sh\n"), None);
        assert_eq!(needed_libraries(&[0x7f, b'E', b'L', b'F', 2, 1, 1]), None);
        assert!(module_info(b"").is_none());
    }
}

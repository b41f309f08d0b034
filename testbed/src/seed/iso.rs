//! Writes an ISO 9660 image (ECMA-119) with a few files in its root folder, which every Linux can mount and tools find
//! by its label. There are no folders and no extensions for owners or long names: names are stored unchanged, which
//! Linux accepts.

use std::iter;

/// Length of a sector in bytes.
const SECTOR: usize = 2048;

/// Number of sectors that the standard leaves to the system, before the first descriptor.
const SYSTEM_SECTORS: usize = 16;

/// Places of the parts of the image, in sectors: descriptors, the two path tables, the root folder, then the files.
const PATH_TABLE_LITTLE: u32 = 18;
const PATH_TABLE_BIG: u32 = 19;
const ROOT: u32 = 20;
const FIRST_FILE: u32 = 21;

/// Length in bytes of a path table with the root folder alone.
const PATH_TABLE_LEN: u32 = 10;

/// Length of the longest file name that Linux accepts without extensions.
pub(super) const NAME_LEN_MAX: usize = 30;

/// Flag of a folder in its record.
const IS_FOLDER: u8 = 2;

/// Identifier of the standard, in every descriptor.
const STANDARD: &[u8] = b"CD001";

/// Makes an image called `label` with these files, at most as many as fit into one sector of the root folder.
///
/// # Panics
/// Panics when a name is too long or there are too many files, which the caller must prevent.
pub(super) fn image(label: &str, files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut next = FIRST_FILE;
    let mut root = [folder_record(&[0]), folder_record(&[1])].concat();
    for (name, contents) in files {
        assert!(name.len() <= NAME_LEN_MAX, "{name} is too long");
        let identifier = format!("{name};1");
        root.extend(record(next, length(contents), 0, identifier.as_bytes()));
        next += sectors(contents);
    }
    assert!(root.len() <= SECTOR, "more files than one sector names");
    let mut image = vec![0; SYSTEM_SECTORS * SECTOR];
    put(&mut image, &primary_descriptor(label, next));
    put(&mut image, &[&[255][..], STANDARD, &[1]].concat());
    put(&mut image, &path_table(ROOT.to_le_bytes(), 1u16.to_le_bytes()));
    put(&mut image, &path_table(ROOT.to_be_bytes(), 1u16.to_be_bytes()));
    put(&mut image, &root);
    for (_, contents) in files {
        put(&mut image, contents);
    }
    image
}

fn length(contents: &[u8]) -> u32 {
    u32::try_from(contents.len()).expect("a file of less than 4 GiB")
}

fn sectors(contents: &[u8]) -> u32 {
    length(contents).div_ceil(SECTOR as u32)
}

/// Adds whole sectors.
fn put(image: &mut Vec<u8>, contents: &[u8]) {
    image.extend_from_slice(contents);
    image.resize(image.len().next_multiple_of(SECTOR), 0);
}

/// Encodes a number in both byte orders as the standard requires: little-endian, then big-endian.
fn both32(number: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn both16(number: u16) -> [u8; 4] {
    let mut bytes = [0; 4];
    bytes[..2].copy_from_slice(&number.to_le_bytes());
    bytes[2..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn folder_record(identifier: &[u8]) -> Vec<u8> {
    record(ROOT, SECTOR as u32, IS_FOLDER, identifier)
}

/// Makes an entry of a folder. Times are all zero, so that equal files make equal images.
fn record(sector: u32, length: u32, flags: u8, identifier: &[u8]) -> Vec<u8> {
    let padding = usize::from(identifier.len().is_multiple_of(2));
    let size = 33 + identifier.len() + padding;
    let mut record = vec![u8::try_from(size).expect("a short name"), 0];
    record.extend(both32(sector));
    record.extend(both32(length));
    record.extend([0; 7]);
    record.extend([flags, 0, 0]);
    record.extend(both16(1));
    record.push(u8::try_from(identifier.len()).expect("a short name"));
    record.extend_from_slice(identifier);
    record.extend(iter::repeat_n(0, padding));
    record
}

fn path_table(sector: [u8; 4], parent: [u8; 2]) -> Vec<u8> {
    [&[1, 0][..], &sector, &parent, &[0, 0]].concat()
}

/// Pads a text to a fixed length with blanks.
fn text(text: &str, length: usize) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(length, b' ');
    bytes
}

fn primary_descriptor(label: &str, sectors: u32) -> Vec<u8> {
    let no_time = || [&[b'0'; 16][..], &[0]].concat();
    let mut parts = vec![[&[1][..], STANDARD, &[1, 0]].concat()];
    parts.extend([text("LINUX", 32), text(label, 32), vec![0; 8]]);
    parts.extend([both32(sectors).to_vec(), vec![0; 32]]);
    parts.extend([both16(1).to_vec(), both16(1).to_vec(), both16(SECTOR as u16).to_vec()]);
    parts.push(both32(PATH_TABLE_LEN).to_vec());
    parts.extend([PATH_TABLE_LITTLE.to_le_bytes().to_vec(), vec![0; 4]]);
    parts.extend([PATH_TABLE_BIG.to_be_bytes().to_vec(), vec![0; 4]]);
    parts.push(folder_record(&[0]));
    // These are volume set, publisher, preparer, application; copyright, abstract and bibliographic file.
    parts.extend([128, 128, 128, 128, 37, 37, 37].map(|length| text("", length)));
    parts.extend(iter::repeat_with(no_time).take(4));
    parts.push(vec![1, 0]);
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the files of an image as a reader finds them: from the descriptor to the root folder to each of its
    /// records.
    fn read(image: &[u8]) -> Vec<(String, Vec<u8>)> {
        let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().expect("four bytes")) as usize;
        let descriptor = SYSTEM_SECTORS * SECTOR;
        assert_eq!(&image[descriptor..descriptor + 7], b"\x01CD001\x01");
        assert_eq!(word(descriptor + 80) * SECTOR, image.len(), "it says how long it is");
        let root = descriptor + 156;
        let (mut at, end) = (word(root + 2) * SECTOR, word(root + 2) * SECTOR + word(root + 10));
        let mut files = Vec::new();
        while at < end && image[at] != 0 {
            let name = &image[at + 33..at + 33 + usize::from(image[at + 32])];
            let (start, length) = (word(at + 2) * SECTOR, word(at + 10));
            if image[at + 25] & IS_FOLDER == 0 {
                let name = String::from_utf8(name.to_vec()).expect("text");
                files.push((name, image[start..start + length].to_vec()));
            }
            at += usize::from(image[at]);
        }
        files
    }

    #[test]
    fn a_reader_finds_the_label_and_every_file() {
        let big = vec![7; 3 * SECTOR + 1];
        let image = image(
            "cidata",
            &[("meta-data", b"{}"), ("empty", b""), ("weft-agent.service", &big)],
        );
        assert_eq!(image.len() % SECTOR, 0);
        let descriptor = SYSTEM_SECTORS * SECTOR;
        assert_eq!(&image[descriptor + 40..descriptor + 47], b"cidata ");
        assert_eq!(image[descriptor + SECTOR..descriptor + SECTOR + 7], *b"\xffCD001\x01");
        assert_eq!(
            read(&image),
            [
                ("meta-data;1".to_owned(), b"{}".to_vec()),
                ("empty;1".to_owned(), Vec::new()),
                ("weft-agent.service;1".to_owned(), big)
            ]
        );
    }
}

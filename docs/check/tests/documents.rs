//! Every document is where others say it is: links and their anchors, the book's table of contents, documents that code cites, and
//! READMEs of crates.

use std::{
    collections::BTreeSet,
    fs,
    path::{Component, Path, PathBuf},
};

/// Crates with a README of one page.
const CRATES: [&str; 27] = [
    "fabric",
    "fabric/ether",
    "fabric/settings",
    "firmware",
    "guest-driver/authority",
    "guest-driver/card-control",
    "guest-driver/esp",
    "guest-driver/esp-preload",
    "guest-driver/esp-socket",
    "guest-driver/icopy",
    "guest-driver/icopy-abi",
    "guest-driver/lci",
    "guest-driver/lci-abi",
    "guest-driver/lci-port",
    "guest-driver/lci-programs",
    "guest-driver/mx-abi",
    "guest-driver/mxoe",
    "guest-driver/netif",
    "guest-driver/ofi",
    "guest-driver/omx",
    "guest-driver/omxd",
    "guest-driver/tools",
    "testbed",
    "testbed/agent",
    "testbed/bench",
    "vnic",
    "vnic/protocol",
];

/// Most words of pages that people read first.
const WORDS_MAX: [(&str, usize); 2] = [("README.md", 900), ("ARCHITECTURE.md", 800)];

fn root() -> PathBuf {
    clean(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

/// A path without `.` and `..`.
fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => _ = clean.pop(),
            other => clean.push(other),
        }
    }
    clean
}

/// All files of the sources: not what was built, and nothing hidden but CI's.
fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the sources") {
            let path = entry.expect("readable").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_symlink() || name == "target" || name.starts_with('.') && name != ".ci" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files
}

fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "md")
}

/// A document as the book shows it: with the text of the files that it includes.
fn text_of(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = text.lines().map(|line| {
        let included = line
            .strip_prefix("{{#include ")
            .and_then(|rest| rest.strip_suffix("}}"));
        included.map_or_else(
            || line.to_owned(),
            |included| text_of(&path.parent().expect("a folder").join(included.trim())),
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Lines that are no code.
fn prose(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !line.starts_with("    ") {
            lines.push(line);
        }
    }
    lines
}

/// Targets of links, those in code left out.
fn links(text: &str) -> Vec<String> {
    let text = prose(text).join("\n");
    let without_code: String = text.split('`').step_by(2).collect();
    let targets = without_code.split("](").skip(1);
    targets
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target.trim().to_owned()))
        .collect()
}

/// Names by which headings are linked to, as mdBook and GitHub make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(text) {
        let Some(heading) = line
            .trim_start_matches('#')
            .strip_prefix(' ')
            .filter(|_| line.starts_with('#'))
        else {
            continue;
        };
        let letters = heading.trim().chars().filter_map(|letter| match letter {
            ' ' => Some('-'),
            letter if letter.is_alphanumeric() || matches!(letter, '-' | '_') => Some(letter),
            _ => None,
        });
        let anchor: String = letters.flat_map(char::to_lowercase).collect();
        let mut name = anchor.clone();
        let mut number = 0;
        while !anchors.insert(name) {
            number += 1;
            name = format!("{anchor}-{number}");
        }
    }
    anchors
}

/// Returns where a link of the document at `path` leads to, and the heading there, unless it leaves this repository.
fn target_of(path: &Path, link: &str) -> Option<(PathBuf, Option<String>)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link
        .split_once('#')
        .map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = match file {
        "" => path.to_owned(),
        file => clean(&path.parent().expect("a folder").join(file)),
    };
    Some((target, anchor.map(str::to_owned)))
}

/// Says whether there is such a heading in such a file.
fn is_there((target, anchor): &(PathBuf, Option<String>)) -> bool {
    match anchor {
        None => target.exists(),
        Some(anchor) => target.is_file() && anchors(&text_of(target)).contains(anchor),
    }
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for path in files().iter().filter(|path| is_document(path)) {
        for link in links(&text_of(path)) {
            let Some(target) = target_of(path, &link) else { continue };
            count += 1;
            if !is_there(&target) {
                wrong.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
    assert!(count > 100, "{count} links");
}

/// The book is read where the repository is not: a page that includes a specification has its links, too, from the page's own place.
#[test]
fn every_link_of_the_rendered_book_stays_inside_it() {
    let source = root().join("docs/book/src");
    let (mut wrong, mut count) = (Vec::new(), 0);
    for path in files().iter().filter(|path| path.starts_with(&source)) {
        if path.extension().is_some_and(|end| end == "md") {
            for link in links(&text_of(path)) {
                let Some(target) = target_of(path, &link) else { continue };
                count += 1;
                if !target.0.starts_with(&source) || !is_there(&target) {
                    wrong.push(format!("{}: {link}", path.display()));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "links that lead out of the book; name the file instead:\n{}",
        wrong.join("\n")
    );
    assert!(count > 100, "{count} links");
}

#[test]
fn the_books_table_of_contents_has_every_page_and_no_other() {
    let source = root().join("docs/book/src");
    let summary = fs::read_to_string(source.join("SUMMARY.md")).expect("the book has a table of contents");
    let listed: BTreeSet<_> = links(&summary).iter().map(|link| clean(&source.join(link))).collect();
    let pages: BTreeSet<_> = files()
        .into_iter()
        .filter(|path| path.starts_with(&source) && is_document(path) && !path.ends_with("SUMMARY.md"))
        .collect();
    assert_eq!(listed, pages);
    // Each specification is a page.
    for path in files().iter().filter(|path| path.starts_with(root().join("docs/spec"))) {
        let page = source.join("spec").join(path.file_name().expect("a name"));
        assert!(
            text_of(&page).contains(&fs::read_to_string(path).expect("text")[..80]),
            "{}",
            page.display()
        );
    }
}

/// Names of documents in a text, with as much of their path as is there.
fn cited(text: &str) -> Vec<&str> {
    let is_path = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    text.match_indices(".md")
        .filter(|(end, _)| !text[end + 3..].starts_with(|next: char| next.is_alphanumeric()))
        .map(|(end, _)| {
            let start = text[..end]
                .char_indices()
                .rev()
                .take_while(|(_, letter)| is_path(*letter))
                .last();
            &text[start.map_or(end, |(start, _)| start)..end + 3]
        })
        .filter(|name| name.len() > ".md".len())
        .collect()
}

#[test]
fn documents_that_code_cites_exist() {
    let files = files();
    let documents: Vec<_> = files.iter().filter(|path| is_document(path)).collect();
    let (mut missing, mut count) = (Vec::new(), 0);
    for path in files
        .iter()
        .filter(|path| !is_document(path) && !path.starts_with(root().join("docs/check")))
    {
        let Ok(text) = fs::read_to_string(path) else { continue };
        for name in cited(&text) {
            count += 1;
            let name = name.trim_start_matches("../").trim_start_matches("./");
            if !documents.iter().any(|document| document.ends_with(name)) {
                missing.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "documents that do not exist:\n{}",
        missing.join("\n")
    );
    assert!(count > 50, "{count} citations");
}

#[test]
fn every_crate_has_a_page_for_its_users_and_the_first_pages_are_short() {
    for name in CRATES {
        let text =
            fs::read_to_string(root().join(name).join("README.md")).unwrap_or_else(|error| panic!("{name}: {error}"));
        for part in [
            "**For whom:**",
            "\n## Contract\n",
            "\n## Example\n",
            "\n## What it does not do\n",
        ] {
            assert!(text.contains(part), "{name}/README.md: {part}");
        }
    }
    for (name, most) in WORDS_MAX {
        let words = fs::read_to_string(root().join(name))
            .expect("it is there")
            .split_whitespace()
            .count();
        assert!(words <= most, "{name} has {words} words, {most} at most");
    }
}

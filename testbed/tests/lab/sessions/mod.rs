//! The sessions of the README and the book are typed as they stand there, and what is printed is compared with what the page shows.
//!
//! A session is a `console` block. Its commands are typed in order, in one shell for all sessions of a page, in a folder in which only the
//! files are that the page shows. What is printed has the words and the shape of what is shown; figures, times and addresses may differ,
//! and `…` stands for anything. A page need not show what `weft init`, `up` and `down` say. In a session that shows commands alone they only
//! have to succeed. A command whose failure the page shows is followed by `echo $?`.

mod page;
mod shape;
mod shell;

use std::fs;

use self::{
    page::{Step, blocks, steps},
    shell::Shell,
};
use crate::support::World;

pub use self::shell::path;

use crate::readme::{pages, root};

/// Sessions that are shown and not typed: their pages, how they begin, and what a machine for tests has not.
const NOT_TYPED: &[(&str, &str, &str)] = &[
    (
        "docs/book/src/card/queues.md",
        "$ weft exec n2 -- grep put",
        "QEMU 9.2 or newer",
    ),
    (
        "docs/book/src/open-mx/c-api.md",
        "node2$ cc receiver.c",
        "the package on two machines",
    ),
    (
        "docs/book/src/open-mx/measure.md",
        "$ omx_tune --check",
        "settings of the machine, which it judges",
    ),
    (
        "docs/book/src/open-mx/mpi.md",
        "$ scripts/weft bench mpi",
        "minutes of measuring",
    ),
    (
        "docs/book/src/open-mx/mpi.md",
        "$ ssh right hostname",
        "two machines with ssh",
    ),
];

/// Commands that say how a lab is made, started and ended, which is the same on every page and is not shown on each.
const REPORTS: [&str; 3] = ["weft init", "weft up", "weft down"];

/// Makes a test for each page with sessions.
macro_rules! sessions {
    ($($test:ident: $($page:literal),+;)+) => {
        /// The pages that are typed.
        const TYPED: &[&str] = &[$($($page),+),+];

        $(#[test]
        fn $test() {
            type_pages(&[$($page),+]);
        })+
    };
}

sessions! {
    the_readme_and_the_quickstart_print_what_they_show: "README.md", "docs/book/src/quickstart.md";
    the_page_of_esp_prints_what_it_shows: "docs/book/src/esp.md";
    the_page_of_switches_prints_what_it_shows: "docs/book/src/switches.md";
    the_page_of_strategies_prints_what_it_shows: "docs/book/src/strategy.md";
    the_page_of_bypass_prints_what_it_shows: "docs/book/src/card/bypass.md";
    the_page_of_the_copy_engine_prints_what_it_shows: "docs/book/src/card/copy-engine.md";
    the_page_of_lci_prints_what_it_shows: "docs/book/src/card/lci.md";
    the_page_of_marks_prints_what_it_shows: "docs/book/src/card/marks.md";
    the_page_of_multicast_prints_what_it_shows: "docs/book/src/card/multicast.md";
    the_page_of_queues_prints_what_it_shows: "docs/book/src/card/queues.md";
    the_page_of_cables_prints_what_it_shows: "docs/book/src/labs/cables.md";
    the_page_of_guests_prints_what_it_shows: "docs/book/src/labs/guests.md";
    the_page_of_traces_prints_what_it_shows: "docs/book/src/labs/observe.md";
    the_page_of_saving_prints_what_it_shows: "docs/book/src/labs/save.md";
    the_page_of_open_mx_prints_what_it_shows: "docs/book/src/open-mx.md";
    the_page_of_measuring_prints_what_it_shows: "docs/book/src/open-mx/measure.md";
    the_page_of_mpi_prints_what_it_shows: "docs/book/src/open-mx/mpi.md";
    the_page_of_metrics_prints_what_it_shows: "docs/book/src/operations/metrics.md";
    the_page_of_reloading_prints_what_it_shows: "docs/book/src/operations/reload.md";
}

/// A page that changes the sources.
const CHANGES_SOURCES: &str = "docs/book/src/strategy.md";

/// Types the sessions of pages in one shell. A session that an earlier page has word for word is not typed again.
fn type_pages(names: &[&str]) {
    let world = World::new(None);
    let mut shell = match names {
        [CHANGES_SOURCES] => Shell::in_copy_of_sources(&world, &root()),
        _ => Shell::start(&world, &root()),
    };
    let mut typed = Vec::new();
    for name in names {
        let text = fs::read_to_string(root().join(name)).unwrap();
        // Files that a page shows begin with their names.
        for block in blocks(&text, "toml") {
            let first = block.text.lines().next().unwrap_or_default();
            if let Some(file) = first.strip_prefix("# ").filter(|file| file.ends_with(".toml")) {
                world.file(file, block.text);
            }
        }
        for block in blocks(&text, "console") {
            let steps = steps(&block);
            if !typed.contains(&block.text.to_owned()) {
                type_session(&mut shell, name, &steps);
                typed.push(block.text.to_owned());
            }
        }
    }
}

/// Types the commands of a session and compares what each prints.
fn type_session(shell: &mut Shell, page: &str, steps: &[Step]) {
    let is_compared = steps.iter().any(|step| !step.shown.is_empty());
    for (index, step) in steps.iter().enumerate() {
        let Step { line, command, shown } = step;
        let place = format!("{page}, line {line}: {command}");
        let (printed, status) = shell
            .type_in(command)
            .unwrap_or_else(|said| panic!("{place}: does not end:\n{said}"));
        println!("$ {command}\n{printed}");
        let is_asked = steps.get(index + 1).is_some_and(|next| next.command == "echo $?");
        assert!(status == 0 || is_asked, "{place}: ends with {status}:\n{printed}");
        let is_left_out = shown.is_empty() && REPORTS.iter().any(|report| command.starts_with(report));
        if !is_compared || is_left_out {
            continue;
        }
        if command == "echo $?" {
            assert_eq!(shown.join("\n"), printed.trim_end(), "{place}");
            continue;
        }
        let lines: Vec<_> = printed.lines().map(str::to_owned).collect();
        if let Some(at) = shape::first_difference(shown, &lines) {
            let expected = shown.get(at).map_or("nothing more", String::as_str);
            panic!(
                "{place}: differs from what line {} shows: {expected}\nIt prints:\n{printed}",
                line + command.lines().count() + at
            );
        }
    }
}

#[test]
fn every_session_of_the_documents_is_typed_or_known_to_need_another_machine() {
    let (mut typed, mut shown) = (Vec::new(), Vec::new());
    for page in pages() {
        let name = page.path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        if !blocks(&page.text, "console").is_empty() {
            typed.push(name.clone());
        }
        for block in blocks(&page.text, "text").iter().chain(&blocks(&page.text, "")) {
            let first = block.text.lines().next().unwrap_or_default();
            if block.text.lines().any(|line| line.contains("$ ")) {
                shown.push((name.clone(), first.to_owned()));
            }
        }
    }
    typed.sort();
    let mut expected: Vec<_> = TYPED.iter().map(|&page| page.to_owned()).collect();
    expected.sort();
    assert_eq!(typed, expected, "a test types the sessions of each page");
    let known = |(page, first): &(String, String)| {
        NOT_TYPED
            .iter()
            .any(|(known, start, _)| page == known && first.starts_with(start))
    };
    let unknown: Vec<_> = shown.iter().filter(|session| !known(session)).collect();
    assert!(unknown.is_empty(), "sessions that nothing types: {unknown:#?}");
    assert_eq!(shown.len(), NOT_TYPED.len(), "{shown:#?}");
}

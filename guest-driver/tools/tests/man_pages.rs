//! The man pages that the package ships.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use clap::CommandFactory;

#[path = "../examples/man.rs"]
#[expect(dead_code, reason = "the example's own `main`")]
mod man;

/// Long options that a help text lists.
fn options_of(help: &str) -> BTreeSet<&str> {
    help.lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with('-'))
        .filter_map(|line| line.split([' ', ',', '=', '[']).find(|word| word.starts_with("--")))
        .collect()
}

/// Options of a help text that take a value, each by its last name, and the value's.
fn values_of(help: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    lines.filter_map(|line| {
        let (names, value) = line.split_once(" <")?;
        let name = names.rsplit([' ', ',']).next()?;
        Some((name, value.split_once('>')?.0))
    })
}

/// The synopsis as it is shown.
fn synopsis_of(page: &str) -> String {
    let (_, after) = page.split_once(".SH SYNOPSIS\n").unwrap();
    let synopsis = after.split_once(".SH DESCRIPTION\n").unwrap().0;
    let shown = ["\\fB", "\\fI", "\\fR"]
        .iter()
        .fold(synopsis.to_owned(), |text, font| text.replace(font, ""));
    shown.replace("\\ ", " ")
}

#[test]
fn every_program_has_a_man_page_with_every_option_of_its_help() {
    let folder = tempfile::tempdir().unwrap();
    man::write_pages(folder.path()).unwrap();
    let mut programs = 0;
    for source in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin")).unwrap() {
        let source = source.unwrap().path();
        let name = source.file_stem().unwrap().to_str().unwrap().to_owned();
        // All of them in one program, for guests.
        if name == "guest-tools" {
            continue;
        }
        let page = ["1", "8"].map(|section| folder.path().join(format!("{name}.{section}")));
        let page = page.iter().find(|page| page.exists());
        let page = fs::read_to_string(page.unwrap_or_else(|| panic!("{name} has no man page"))).unwrap();
        let page = page.replace("\\-", "-");
        assert!(page.contains("SYNOPSIS"), "{name}: {page}");
        let program = Path::new(env!("CARGO_BIN_EXE_omx_info")).with_file_name(&name);
        let help = Command::new(program).arg("--help").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        assert!(!options_of(&help).is_empty(), "{name}: {help}");
        for option in options_of(&help) {
            assert!(page.contains(option), "{name}: {option} is not in {page}");
        }
        let synopsis = synopsis_of(&page);
        for (option, value) in values_of(&help) {
            let how = format!("{option} {value}");
            assert!(synopsis.contains(&how), "{name}: {how} is not in {synopsis}");
        }
        programs += 1;
    }
    assert!(programs >= 10, "{programs} programs");
}

#[test]
fn every_command_of_nicctl_has_a_man_page() {
    let folder = tempfile::tempdir().unwrap();
    man::write_pages(folder.path()).unwrap();
    let help = Command::new(env!("CARGO_BIN_EXE_nicctl"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        // Deeper lines go on with a description.
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(!commands.is_empty(), "{help}");
    for name in commands {
        let page = folder.path().join(format!("nicctl-{name}.1"));
        assert!(page.exists(), "nicctl {name} has no man page");
    }
}

#[test]
fn lci_program_and_each_of_its_programs_have_a_man_page() {
    let folder = tempfile::tempdir().unwrap();
    man::write_pages(folder.path()).unwrap();
    let mut command = lci_programs::cli::Arguments::command();
    let help = command.render_long_help().to_string();
    let page = |name: &str| {
        let path = folder.path().join(format!("{name}.1"));
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let own = page("lci_program").replace("\\-", "-");
    assert!(options_of(&help).contains("--json"), "{help}");
    for option in options_of(&help) {
        assert!(own.contains(option), "{option} is not in {own}");
    }
    let programs = command.get_subcommands().map(clap::Command::get_name);
    let programs: Vec<_> = programs.filter(|name| *name != "help").collect();
    assert!(programs.len() >= 8, "{programs:?}");
    for program in programs {
        assert!(
            page(&format!("lci_program-{program}")).contains("SYNOPSIS"),
            "{program}"
        );
    }
}

#[test]
fn the_programs_of_esp_have_a_man_page_with_what_their_help_says() {
    let folder = tempfile::tempdir().unwrap();
    man::write_pages(folder.path()).unwrap();
    let page = |name: &str| {
        fs::read_to_string(folder.path().join(name))
            .unwrap()
            .replace("\\-", "-")
    };
    let run = page("esp-run.1");
    for said in [
        "--never-fall-back",
        "--spin-us US",
        "ESP_FALLBACK=never",
        "ESP_SPIN_US",
        "ESP_STATISTICS",
        "PROGRAM",
    ] {
        assert!(
            run.contains(said) || synopsis_of(&run).contains(said),
            "{said} is not in {run}"
        );
    }
    assert!(
        !run.contains("keep-connection"),
        "an option of the library's own: {run}"
    );
    // The line that `whatis` and `apropos` show.
    for program in ["esp-run", "esp_perf", "esp_ping", "esp_ss"] {
        let page = page(&format!("{program}.1"));
        let (_, after) = page.split_once(".SH NAME\n").unwrap();
        let name = after.split_once("\n.SH").unwrap().0;
        assert!(name.len() < 160 && name.lines().count() == 1, "{name}");
    }
    assert!(page("esp_perf.1").contains("SYNOPSIS"));
    assert!(page("esp_perf-server.1").contains("SYNOPSIS"));
    let client = page("esp_perf-client.1");
    for said in ["--test", "--size", "--count", "--json"] {
        assert!(client.contains(said), "{said} is not in {client}");
    }
}

#[test]
fn the_providers_man_page_has_every_variable_of_the_book() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = |path: &str| fs::read_to_string(sources.join(path)).unwrap();
    let book = text("docs/book/src/open-mx/mpi.md");
    let (_, table) = book.split_once("| variable | meaning |\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|')).skip(1);
    let variables: Vec<_> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2))
        .collect();
    assert!(variables.len() >= 6, "{variables:?}");
    let page = text("guest-driver/ofi/fi_mx.7");
    let (_, environment) = page.split_once(".SH ENVIRONMENT\n").unwrap();
    for variable in variables {
        assert!(environment.contains(variable), "{variable}");
    }
}

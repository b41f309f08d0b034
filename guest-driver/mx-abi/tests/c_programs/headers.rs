//! The symbols of the libraries and what the headers say of them.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::kit::Kit;

/// Every symbol of the interface, with its version where it has one.
const SYMBOLS: &str = include_str!("symbols.txt");

/// Functions that the interface has and no header declares.
const UNDECLARED: [&str; 5] = [
    "mx__regcache_clean",
    "omx__raw_next_event",
    "omx__raw_send",
    "omx_raw_close_endpoint",
    "omx_raw_open_endpoint",
];

/// The functions that this program declares or calls once its headers are included.
fn declared(kit: &Kit, program: &str, first: &str) -> BTreeSet<String> {
    let source = kit.at("declared.c");
    fs::write(&source, program).unwrap();
    let include = kit.at("include");
    let preprocessed = Command::new("gcc")
        .args(["-E", "-P", "-I"])
        .arg(include.join(first))
        .arg("-I")
        .arg(&include)
        .arg(&source)
        .output()
        .unwrap();
    assert!(preprocessed.status.success(), "{preprocessed:?}");
    let text = String::from_utf8(preprocessed.stdout).unwrap();
    let names = text.split('(').filter_map(|before| {
        let word = before
            .trim_end()
            .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
            .next()?;
        // Types come before pointers to functions; one function is inline and calls another one.
        let ours = word.starts_with("mx_") || word.starts_with("omx_");
        let ours = ours && !word.ends_with("_t") && word != "omx_init";
        ours.then(|| word.to_owned())
    });
    names.collect()
}

#[test]
fn the_libraries_have_exactly_the_symbols_of_the_headers_with_their_versions() {
    let kit = Kit::new();
    let nm = Command::new("nm")
        .args(["--dynamic", "--defined-only"])
        .arg(kit.at("lib/libopen-mx.so.0"))
        .output()
        .unwrap();
    let text = String::from_utf8(nm.stdout).unwrap();
    let exported: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next_back()).collect();
    let promised: BTreeSet<&str> = SYMBOLS.lines().collect();
    assert_eq!(exported, promised);
    let names = promised.iter().map(|symbol| symbol.split('@').next().unwrap_or(symbol));
    let functions = names.filter(|name| name.starts_with("mx_") || name.starts_with("omx_"));
    let mut functions: BTreeSet<String> = functions.map(str::to_owned).collect();
    let every_header = "#include <mx_raw.h>\n#include <mx_extensions.h>\n#include <open-mx.h>\n\
         #include <mx_internals/mx__fops.h>\n#include <mx_internals/mx__driver_interface.h>\n";
    let mut in_headers = declared(&kit, every_header, ".");
    in_headers.append(&mut declared(&kit, every_header, "translate"));
    for name in UNDECLARED {
        assert!(functions.remove(name), "{name}");
    }
    assert_eq!(in_headers, functions);
    let soname = Command::new("readelf")
        .arg("-d")
        .arg(kit.at("lib/libopen-mx.so"))
        .output()
        .unwrap();
    let soname = String::from_utf8(soname.stdout).unwrap();
    assert!(soname.contains("[libopen-mx.so.0]"), "{soname}");
}

#[test]
fn sizes_offsets_and_values_are_those_of_the_interface_and_the_headers_are_clean() {
    let kit = Kit::new();
    for source in ["layout_mx.c", "layout_omx.c"] {
        kit.compile(source, "layout", &[], &[]);
    }
    let cpp = kit.at("all.c");
    fs::write(
        &cpp,
        "#include <mx_raw.h>\n#include <mx_extensions.h>\n#include <open-mx.h>\nint main(void) { return 0; }\n",
    )
    .unwrap();
    let include = kit.at("include");
    for standard in ["-std=c89", "-std=c99", "-std=c11", "-std=gnu17"] {
        for first in [include.join("translate"), include.clone()] {
            let checked = Command::new("gcc")
                .args([standard, "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"])
                .arg("-I")
                .arg(&first)
                .arg("-I")
                .arg(&include)
                .arg(&cpp)
                .status();
            let first = first.display();
            assert!(
                checked.unwrap().success(),
                "the headers of {first} are not clean with {standard}"
            );
        }
    }
}

/// Languages that programs are written in: compiler, name of the language for it, and standards. Compilers learn new ones.
const LANGUAGES: [(&str, &str, &[&str]); 2] = [
    (
        "gcc",
        "c",
        &[
            "c89", "gnu89", "c99", "gnu99", "c11", "gnu11", "c17", "gnu17", "c2x", "gnu2x", "c23", "gnu23",
        ],
    ),
    (
        "g++",
        "c++",
        &[
            "c++98", "gnu++98", "c++11", "c++14", "gnu++17", "c++17", "c++20", "gnu++20", "c++2b", "c++23",
        ],
    ),
];

/// Standards without which nothing was tested, of each language.
const KNOWN_TO_ALL: [&str; 2] = ["c89", "c++98"];

#[test]
fn each_header_brings_what_programs_take_for_granted() {
    let kit = Kit::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/brought.c");
    let headers = [
        "open-mx.h",
        "myriexpress.h",
        "mx_extensions.h",
        "mx_io.h",
        "mx_raw.h",
        "mx_internals/mx__fops.h",
        "mx_internals/mx__driver_interface.h",
    ];
    let include = kit.at("include");
    let program = kit.at("brought");
    for ((compiler, language, standards), known_to_all) in LANGUAGES.into_iter().zip(KNOWN_TO_ALL) {
        let knows = |standard: &&&str| {
            Command::new(compiler)
                .args([
                    &format!("-std={standard}"),
                    "-x",
                    language,
                    "-fsyntax-only",
                    "/dev/null",
                ])
                .stderr(Stdio::null())
                .status()
                .expect(compiler)
                .success()
        };
        let known: Vec<&str> = standards.iter().filter(knows).copied().collect();
        assert!(known.contains(&known_to_all), "{compiler} knows {known:?} alone");
        for standard in known {
            for header in headers {
                for first in [&include.join("translate"), &include] {
                    let mut command = Command::new(compiler);
                    command
                        .arg(format!("-std={standard}"))
                        .args(["-Wall", "-Wextra", "-Werror"]);
                    if language == "c" {
                        command.arg("-Werror=implicit-function-declaration");
                    }
                    command.arg(format!("-DHEADER=<{header}>")).args(["-x", language]);
                    command.arg("-I").arg(first).arg("-I").arg(&include).arg(&source);
                    if standard == known_to_all {
                        command.arg("-o").arg(&program);
                    } else {
                        command.arg("-fsyntax-only");
                    }
                    let compiled = command.status().unwrap();
                    assert!(compiled.success(), "with {header} and -std={standard}: {command:?}");
                }
            }
        }
        Kit::finishes(&mut Command::new(&program));
    }
}

//! The linked libraries and programs that use them.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use weft_guest_driver_testkit::static_library;

/// The linked libraries, for one test.
pub struct Kit {
    pub dir: tempfile::TempDir,
}

impl Kit {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let link = Path::new(env!("CARGO_MANIFEST_DIR")).join("link");
        let linked = Command::new(link)
            .arg(static_library("libmx_abi"))
            .arg(dir.path())
            .status()
            .unwrap();
        assert!(linked.success(), "the libraries do not link");
        Self { dir }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Compiles a program of `tests/c`; its path.
    pub fn compile(&self, source: &str, as_name: &str, first: &[&str], last: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
        self.compile_file(&source, as_name, first, last)
    }

    /// Compiles any program; returns its path.
    pub fn compile_file(&self, source: &Path, as_name: &str, first: &[&str], last: &[&str]) -> PathBuf {
        let program = self.at(as_name);
        let include = self.at("include");
        let compiled = Command::new("gcc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"])
            .args(first.iter().map(|dir| format!("-I{}", include.join(dir).display())))
            .arg("-I")
            .arg(&include)
            .arg(source)
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(self.at("lib"))
            .args(last)
            .status()
            .expect("gcc");
        assert!(compiled.success(), "{} does not compile", source.display());
        program
    }

    /// A program, with the interfaces that are its boards.
    pub fn command(&self, program: &Path, boards: &str) -> Command {
        let mut command = Command::new(program);
        self.prepare(&mut command, boards);
        command
    }

    /// What such a program needs.
    pub fn prepare(&self, command: &mut Command, boards: &str) {
        command
            .env("LD_LIBRARY_PATH", self.at("lib"))
            .env("OMX_RUN_DIR", self.dir.path())
            .env("OMX_OMXD", omxd())
            .env("OMX_IFACES", boards)
            .stdin(Stdio::null());
    }

    pub fn run(&self, program: &Path, boards: &str, args: &[&str]) {
        Self::finishes(self.command(program, boards).args(args));
    }

    /// The program runs to its end.
    #[track_caller]
    pub fn finishes(command: &mut Command) {
        let output = command.output().unwrap();
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(
            output.status.success() && text.contains(" done\n"),
            "{command:?}: {}\n{text}",
            output.status
        );
    }
}

pub fn omxd() -> PathBuf {
    let own = env::current_exe().unwrap();
    let program = own.ancestors().nth(2).unwrap().join("omxd");
    assert!(
        program.is_file(),
        "these tests need the program omxd: `cargo build -p weft-omxd` in the same profile makes it"
    );
    program
}

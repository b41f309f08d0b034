//! The command line of `weft` as users see it: mistakes and their answers, without any guest.

#[test]
fn mistakes_on_the_command_line_and_in_lab_files_are_answered_as_written_here() {
    trycmd::TestCases::new()
        .env("XDG_RUNTIME_DIR", "/nonexistent")
        .case("tests/cli/*.trycmd");
}

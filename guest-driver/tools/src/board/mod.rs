//! The small tools around a board: counters, open endpoints, names, peers, the self-test, and advice.

pub mod binding;
pub mod check;
pub mod counters;
pub mod endpoints;
pub mod hostname;
pub mod init;
pub mod peers;
pub mod tune;

use omx::Board;

/// Boards of a host, as the reference has by default.
pub(crate) const BOARDS_MAX: usize = 32;

/// Returns the boards that are meant: one, or all that are switched on.
fn chosen(number: Option<u32>) -> anyhow::Result<Vec<Board>> {
    Ok(match number {
        Some(number) => vec![Board::number(number)?],
        None => Board::all()?.into_iter().filter(|board| board.interface().up).collect(),
    })
}

/// Returns the board that is meant: this one, or the first that is switched on, which is 0 unless that interface is no
/// board.
pub(crate) fn one(number: Option<u32>) -> Result<Board, omx::Error> {
    number.map_or_else(Board::first, Board::number)
}

/// Returns the numbers of the interrupts whose line in the table names an interface.
fn interrupts_of<'a>(interface: &str, table: &'a str) -> Vec<&'a str> {
    let names_it = |word: &str| {
        let rest = word.strip_prefix(interface);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let lines = table.lines().filter(|line| line.split_whitespace().any(names_it));
    lines.filter_map(|line| line.split(':').next()).map(str::trim).collect()
}

/// Describes a board in one line: name of the host, number, interface, address.
pub(crate) fn title(board: &Board, host: &str) -> String {
    let interface = board.interface();
    format!(
        "{host} (board #{} name {} addr {})",
        board.board_number(),
        interface.name,
        interface.mac
    )
}

//! The small tools around a board: counters, open endpoints, names, peers, the self-test, and advice.

pub mod check;
pub mod counters;
pub mod endpoints;
pub mod hostname;
pub mod peers;
pub mod tune;

use omx::Board;

/// The boards that are meant: one, or all that are switched on.
fn chosen(number: Option<u32>) -> anyhow::Result<Vec<Board>> {
    Ok(match number {
        Some(number) => vec![Board::number(number)?],
        None => Board::all()?.into_iter().filter(|board| board.interface().up).collect(),
    })
}

/// A board in one line: name of the host, number, interface, address.
pub(crate) fn title(board: &Board, host: &str) -> String {
    let interface = board.interface();
    format!(
        "{host} (board #{} name {} addr {})",
        board.board_number(),
        interface.name,
        interface.mac
    )
}

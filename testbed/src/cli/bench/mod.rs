//! `weft bench`: compares the speed of what a lab can do with that of its rivals.

mod card;
mod mpi;

use super::common::{CommonOptions, verb_list};

verb_list! {
    /// Compare speeds in guests.
    BenchVerb {
        Card(card::BenchCardArgs) => card::run,
        Mpi(mpi::BenchMpiArgs) => mpi::run,
    }
}

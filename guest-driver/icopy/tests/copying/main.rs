//! The engine of copies over a card in this process: what it copies, when it notifies, and what it refuses (M-CI1 … M-CI3).

mod bad;
mod copies;
mod lists;
mod model;
mod registrations;

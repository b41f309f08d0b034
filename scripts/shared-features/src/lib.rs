//! Nothing: this package only asks for features of dependencies, so that every program is built with the same ones. A
//! dependency that is compiled more than once by `scripts/build` is missing in its `Cargo.toml`; a test of `testbed` finds it.

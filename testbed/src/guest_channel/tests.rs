//! The client against an agent that is played by the test.

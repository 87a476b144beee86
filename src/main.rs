//! Starts things: argument parsing, logging, exit codes.

fn main() {}

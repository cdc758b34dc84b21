//! What is proven about the built binary, over the wire and by its command line. All suites are one program, so that what
//! they share is written, compiled and linked once: `cargo nextest run -p sb scale::` runs one of them.

mod acceptance;
mod attacks;
mod bench;
mod chaos;
mod cli;
mod grpc;
#[allow(dead_code, reason = "the suites of the server use the rest")]
mod harness;
mod hostile;
mod limits;
mod minds;
mod pages;
mod scale;
mod seeds;
mod serving;
mod verbs;

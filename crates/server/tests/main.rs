//! Tests of the HTTP server in this process.
//! All suites are one program, so that what they share is compiled and linked once.

mod decoders;
mod edge;
mod protocol;
mod queue;
mod seeds;

// The decoder of headers names it so.
use decoders::query;

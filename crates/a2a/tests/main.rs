//! Tests of the protocol's types: wire forms, dialects, signatures, gRPC, and bad input.
//! All suites are one program, so that what they share is compiled and linked once.

mod common;
mod decoders;
mod descriptor;
mod differential;
#[cfg(feature = "grpc")]
mod grpc;
mod protojson;
mod signature;
mod usage;
mod v03;

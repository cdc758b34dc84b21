//! Tests of the client: its calls, its streams, and the connector for outbound requests.
//! All suites are one program, so that what they share is compiled and linked once.

mod client;
mod egress;
mod sse;

//! Tests of the operations, turns, queue, deliveries and retention, on either store.
//! All suites are one program, so that what they share is compiled and linked once.

mod bad_times;
mod cost;
mod exchange;
mod handed_on;
mod own;
mod push;
mod queue;
mod retention;
mod rig;
mod simulation;
mod steps;
mod turn_memory;
mod wake_ups;

//! Tests of the kinds of agents: files, programs and models.
//! All suites are one program, so that what they share is compiled and linked once.

mod command;
mod examples;
mod files;
mod guard;
mod kinds;
mod models;
mod outside;
mod rig;
mod serve;

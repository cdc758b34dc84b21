//! Models: found by name, asked over real sockets of servers that say exactly what a test wants, and scripted.

mod rig;
mod scripted;

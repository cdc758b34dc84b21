//! Models: found by name, asked over real sockets of servers that say exactly what a test wants, and scripted.

mod anthropic;
mod attempts;
mod faults;
mod find;
mod openai;
mod rig;
mod scripted;

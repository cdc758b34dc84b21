//! Connections, heads and headers: who sends slowly, too much, wrongly or nothing at all, and who keeps places from others.

mod crowds;
mod frames;
mod heads;
mod pages;
mod rig;
mod stalled;

//! Attacks on the built binary. Each attempt is a row of a table: what is tried, and what must hold. After each of them another caller is
//! served as before.

mod archives;
mod connections;
mod credentials;
mod fairness;
mod memory;
mod programs;
mod start;

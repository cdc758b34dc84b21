//! Placeholder.
use crate::failure::Failure;
pub(crate) const EXAMPLES: &str = "";
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}
pub(crate) fn run(_args: Args, _log: Option<&str>) -> Result<(), Failure> {
    Ok(())
}

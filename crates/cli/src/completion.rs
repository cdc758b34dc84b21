//! `sb completion` and `sb man`: what a shell and `man` know about the commands, made from the commands themselves.

use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{Cli, failure::Failure, output};

/// `sb completion …`
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArgs {
    /// For which shell
    #[arg(value_enum)]
    shell: Shell,
}

/// `sb man …`
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Where to write one page for each command [default: print sb(1)]
    directory: Option<PathBuf>,
}

pub(crate) fn completion(args: &CompletionArgs) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sb", &mut script);
    output::print(&String::from_utf8_lossy(&script));
}

pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let Some(directory) = &args.directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command())
            .render(&mut page)
            .map_err(|error| Failure::failed("cannot make the manual page").caused_by(&error))?;
        output::print(&String::from_utf8_lossy(&page));
        return Ok(());
    };
    write_pages(directory).map_err(|error| {
        Failure::failed(format!("cannot write the manual pages to `{}`", directory.display()))
            .caused_by(&error)
            .hint("name a directory that can be written, such as ~/.local/share/man/man1")
    })
}

fn write_pages(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(Cli::command(), directory)
}

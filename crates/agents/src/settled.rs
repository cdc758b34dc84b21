//! Reading the files that decide what runs here and with which keys: only when nobody but their owner and group can change them.
//!
//! Who can write such a file, or replace it in its directory, runs programs as the server. A group may write: on many systems
//! everybody has a group of their own.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
};

/// That anybody can write.
const OTHERS_WRITE: u32 = 0o002;

/// That what is in a directory can only be replaced by its owner.
const STICKY: u32 = 0o1000;

/// The most that is read of such a file.
const LARGEST: u64 = 16 << 20;

/// The content of a regular file that no other user can change.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let (file, metadata) = store::open_regular(path)?;
    check(path, &metadata)?;
    store::read_opened(file, LARGEST)
}

/// The content of a file that is read once, at the start: it may also be a pipe that was opened for this process.
pub fn read_once(path: &Path) -> io::Result<Vec<u8>> {
    let (file, metadata) = store::open_given(path)?;
    check(path, &metadata)?;
    store::read_opened(file, LARGEST)
}

/// The text of a regular file that no other user can change.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    text(read(path)?)
}

/// The text of a file that is read once.
pub fn read_once_to_string(path: &Path) -> io::Result<String> {
    text(read_once(path)?)
}

fn text(content: Vec<u8>) -> io::Result<String> {
    String::from_utf8(content).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

fn check(path: &Path, metadata: &Metadata) -> io::Result<()> {
    // A pipe that somebody hands over is not changed by others.
    if metadata.is_file() && metadata.mode() & OTHERS_WRITE != 0 {
        return Err(refused("anybody can change it", path));
    }
    // Both where a link lies and where it leads to.
    for place in [std::path::absolute(path)?, fs::canonicalize(path)?] {
        if let Some(directory) = place.parent()
            && is_open(&fs::metadata(directory)?)
        {
            return Err(refused("anybody can put another file in its place", directory));
        }
    }
    Ok(())
}

/// Whether anybody can replace what is in a directory.
fn is_open(directory: &Metadata) -> bool {
    directory.mode() & OTHERS_WRITE != 0 && directory.mode() & STICKY == 0
}

fn refused(why: &str, what: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{why}: `chmod o-w {}`", what.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_anybody_can_change_is_not_read() {
        let home = tempfile::tempdir().unwrap();
        let (directory, elsewhere) = (home.path().join("d"), home.path().join("e"));
        for directory in [&directory, &elsewhere] {
            fs::create_dir(directory).unwrap();
        }
        let file = directory.join("f");
        fs::write(&file, "text").unwrap();
        let link = elsewhere.join("link");
        symlink(&file, &link).unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let refused = |path: &Path| read_to_string(path).unwrap_err().to_string();
        mode(&file, 0o664);
        assert_eq!(read_to_string(&link).unwrap(), "text", "a group may write");
        mode(&file, 0o646);
        assert!(refused(&file).contains(&format!("chmod o-w {}", file.display())));
        assert!(refused(&link).contains("chmod o-w"));
        mode(&file, 0o644);
        mode(&directory, 0o777);
        assert!(refused(&file).contains(&format!("chmod o-w {}`", directory.display())));
        assert!(refused(&link).contains("chmod o-w"), "where the link leads to");
        mode(&directory, 0o1777);
        assert_eq!(read_to_string(&file).unwrap(), "text", "what is sticky is replaced by its owner only");
        mode(&elsewhere, 0o777);
        assert!(refused(&link).contains("chmod o-w"), "where the link lies");
        assert_eq!(refused(&home.path().join("none")), fs::read(home.path().join("none")).unwrap_err().to_string());
    }
}

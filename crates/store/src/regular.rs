//! Reading files that somebody else may have put something else in the place of.
//!
//! Opening a named pipe waits for a writer, and a device may never end. So a file is opened without waiting, what was opened is
//! looked at, and no more than a bound is read.

use std::{
    fs::{File, Metadata, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::OFlags;

/// Opens a file for [`read_opened`] without waiting for anything, if it is a regular file.
pub fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok((file, metadata))
}

/// The same, or a pipe that whoever started this process has opened for it, as `<(…)` of a shell is.
pub fn open_given(path: &Path) -> io::Result<(File, Metadata)> {
    let is_given = path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd") || path == Path::new("/dev/stdin");
    if !is_given {
        return open_regular(path);
    }
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// The content of an opened file of at most that many bytes.
pub fn read_opened(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {most} bytes")));
    }
    Ok(content)
}

/// The content of a regular file of at most that many bytes.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_opened(open_regular(path)?.0, most)
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "12345").unwrap();
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        std::os::unix::fs::symlink(at("pipe"), at("link")).unwrap();
        assert_eq!(read_regular(&at("file"), 5).unwrap(), b"12345");
        let refused = |path: &Path| read_regular(path, 4).unwrap_err().to_string();
        assert_eq!(refused(&at("file")), "it has more than 4 bytes");
        for path in [&at("pipe"), &at("link"), Path::new("/dev/zero"), directory.path()] {
            assert_eq!(refused(path), "it is not a regular file", "{}", path.display());
        }
        assert_eq!(read_regular(&at("none"), 4).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

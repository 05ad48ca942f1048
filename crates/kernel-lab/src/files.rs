//! Files from the command line, of which some have no end (`/dev/zero`): no more is read than is needed.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

/// The most bytes of a kernel's text.
const MAX_TEXT: u64 = 16 << 20;

/// The bytes of a file, of which there must be `need`; `whose` says who has as many, such as "buffer 1 has".
///
/// # Errors
/// What is wrong with the file.
pub(crate) fn read(path: &Path, need: usize, whose: &str) -> Result<Vec<u8>, String> {
    let name = path.display();
    let failed = |error: io::Error| format!("can't read {name}: {error}");
    let file = File::open(path).map_err(failed)?;
    let known = file.metadata().ok().filter(Metadata::is_file).map(|file| file.len());
    let mut bytes = Vec::new();
    file.take((need as u64).saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() == need {
        return Ok(bytes);
    }
    let have = match known {
        Some(known) if bytes.len() > need => known.to_string(),
        None if bytes.len() > need => format!("more than {need}"),
        _ => bytes.len().to_string(),
    };
    Err(format!("{name} has {have} bytes, {whose} {need}"))
}

/// A kernel's text, from a file or, for `-`, from the standard input.
///
/// # Errors
/// What is wrong with the file.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    let name = path.display();
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().take(MAX_TEXT + 1).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(MAX_TEXT + 1).read_to_string(&mut text))
    };
    read.map_err(|error| format!("can't read {name}: {error}"))?;
    if text.len() as u64 > MAX_TEXT {
        return Err(format!("{name} has more than {MAX_TEXT} bytes, the most of a kernel's text"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_another_length_are_refused() {
        let path = std::env::temp_dir().join(format!("kernel-lab-{}", std::process::id()));
        std::fs::write(&path, [1, 2, 3, 4]).expect("a file");
        assert_eq!(read(&path, 4, "x has"), Ok(vec![1, 2, 3, 4]));
        for need in [0, 2, 3, 5] {
            let told = format!("has 4 bytes, x has {need}");
            assert!(read(&path, need, "x has").is_err_and(|error| error.ends_with(&told)), "{told}");
        }
        std::fs::remove_file(&path).expect("the file");
        assert!(read(&path, 4, "x has").is_err_and(|error| error.contains("can't read")));
    }

    #[cfg(unix)]
    #[test]
    fn files_without_an_end_are_refused() {
        let path = Path::new("/dev/zero");
        assert!(read(path, 8, "x has").is_err_and(|error| error.contains("more than 8 bytes, x has 8")));
        assert!(read_text(path).is_err_and(|error| error.contains("the most of a kernel's text")));
    }
}

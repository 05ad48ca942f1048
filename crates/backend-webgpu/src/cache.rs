//! A folder in which compiled pipelines and tuning outlive the process.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::device::{Gpu, compiling, guarded};
use crate::sync::Mutex;
use crate::unchecked;

/// The environment variable that names the folder where a program doesn't.
const CACHE_DIR: &str = "COMPUTE_CACHE_DIR";

/// What the file of pipelines begins with.
const MAGIC: [u8; 8] = *b"WGPIPES1";

/// Bytes before the pipelines: the magic number and the checksum of what follows.
const HEADER: usize = 16;

/// The files of one adapter, driver and version of this crate.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    name: String,
    pipelines: Option<wgpu::PipelineCache>,
    saved: Mutex<Saved>,
}

/// Checksums of what the files hold, where there are files that are whole.
#[derive(Debug, Default)]
struct Saved {
    pipelines: Option<u64>,
    tuning: Option<u64>,
}

impl Cache {
    /// Reads the files of a device. What is missing, damaged or another device's is begun anew.
    pub(crate) fn open(folder: PathBuf, gpu: &Gpu) -> Self {
        let name = file_name(gpu);
        let mut cache = Self { folder, name, pipelines: None, saved: Mutex::default() };
        let file = read(&cache.path("pipelines"));
        let known = file.as_deref().and_then(unpack);
        cache.saved.lock().pipelines = known.map(checksum);
        cache.pipelines = pipeline_cache(gpu, known).unwrap_or_else(|error| {
            tracing::warn!(%error, "the driver makes no pipeline cache");
            // It may have lost the device over the file, and would again.
            _ = fs::remove_file(cache.path("pipelines"));
            None
        });
        cache
    }

    /// What the driver is to keep pipelines in, where wgpu can ask it to.
    pub(crate) fn pipelines(&self) -> Option<&wgpu::PipelineCache> {
        self.pipelines.as_ref()
    }

    /// Reads the text of the file of tuning, if that is whole.
    pub(crate) fn tuning(&self) -> Option<String> {
        let file = read(&self.path("tuning")).and_then(|bytes| String::from_utf8(bytes).ok());
        let known = file.as_deref().and_then(|file| file.split_once('\n'));
        let text = known.filter(|(sum, text)| *sum == hex(checksum(text.as_bytes()))).map(|(_, text)| text);
        self.saved.lock().tuning = text.map(|text| checksum(text.as_bytes()));
        text.map(str::to_owned)
    }

    /// Writes what has changed since it was read or written last, and the text of tuning if there is one.
    ///
    /// # Errors
    /// What the file system says, with the path.
    pub(crate) fn save(&self, tuning: Option<&str>) -> io::Result<()> {
        let mut saved = self.saved.lock();
        let data = {
            let _compiling = compiling();
            self.pipelines.as_ref().and_then(wgpu::PipelineCache::get_data)
        };
        if let Some(data) = data {
            let sum = checksum(&data);
            if saved.pipelines != Some(sum) {
                self.replace("pipelines", &pack(&data))?;
                saved.pipelines = Some(sum);
            }
        }
        let Some(text) = tuning else { return Ok(()) };
        let sum = checksum(text.as_bytes());
        if saved.tuning != Some(sum) {
            self.replace("tuning", format!("{}\n{text}", hex(sum)).as_bytes())?;
            saved.tuning = Some(sum);
        }
        Ok(())
    }

    fn path(&self, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", self.name))
    }

    /// Replaces a file at once: whoever reads it meanwhile, or after a crash, has the old or the new one.
    fn replace(&self, extension: &str, bytes: &[u8]) -> io::Result<()> {
        // Not by the process's number, which is the same in many containers.
        let unfinished = self.path(&format!("{}.part", hex(RandomState::new().build_hasher().finish())));
        let write = || {
            let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&unfinished)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        let written = fs::create_dir_all(&self.folder)
            .and_then(|()| write())
            .and_then(|()| fs::rename(&unfinished, self.path(extension)));
        if written.is_err() {
            _ = fs::remove_file(&unfinished);
        }
        written.map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", self.path(extension).display()))
        })
    }
}

/// The folder that the environment names.
pub(crate) fn folder_by_environment() -> Option<PathBuf> {
    std::env::var_os(CACHE_DIR).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// The file's bytes; a file that can't be read is as good as none.
fn read(path: &Path) -> Option<Vec<u8>> {
    match fs::read(path) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "a cache can't be read");
            None
        }
    }
}

fn pipeline_cache(gpu: &Gpu, known: Option<&[u8]>) -> Result<Option<wgpu::PipelineCache>, wgpu::Error> {
    if !gpu.device.features().contains(wgpu::Features::PIPELINE_CACHE) {
        return Ok(None);
    }
    let _compiling = compiling();
    guarded(&gpu.device, || unchecked::pipeline_cache(&gpu.device, known)).map(Some)
}

/// Whose files these are: pipelines and measurements hold for one adapter, driver and set of kernels, and for what
/// the device was opened with.
fn file_name(gpu: &Gpu) -> String {
    let Gpu { cooperative_matrices, takes_spirv, subgroup, .. } = gpu;
    let info = gpu.adapter.get_info();
    let wgpu::AdapterInfo { name, vendor, device, driver, driver_info, backend, .. } = &info;
    let readable = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    let readable: String = readable.take(40).collect();
    let features = gpu.device.features();
    let opened = format!("{cooperative_matrices}|{takes_spirv}|{subgroup:?}|{features:?}");
    let version = env!("CARGO_PKG_VERSION");
    let whole = format!("{name}|{vendor}|{device}|{driver}|{driver_info}|{backend:?}|{version}|{opened}");
    format!("{readable}-{}", hex(checksum(whole.as_bytes())))
}

fn hex(number: u64) -> String {
    format!("{number:016x}")
}

fn pack(data: &[u8]) -> Vec<u8> {
    [&MAGIC[..], &checksum(data).to_le_bytes(), data].concat()
}

/// The pipelines in a file, if they are what was written.
fn unpack(file: &[u8]) -> Option<&[u8]> {
    let (header, data) = file.split_at_checked(HEADER)?;
    let expected = [&MAGIC[..], &checksum(data).to_le_bytes()].concat();
    (header == expected).then_some(data)
}

/// FNV-1a of 64 bits (G. Fowler, L. C. Noll, K.-P. Vo).
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_none() {
        let data: Vec<u8> = (0..200).collect();
        let file = pack(&data);
        assert_eq!(unpack(&file), Some(&data[..]));
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << (at % 8);
            assert_eq!(unpack(&damaged), None, "byte {at}");
            assert_eq!(unpack(&file[..at]), None, "cut at {at}");
        }
        assert_eq!(unpack(&[file, vec![0]].concat()), None, "longer than it was");
    }
}

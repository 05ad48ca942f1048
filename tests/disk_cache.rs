//! The folder that keeps compiled kernels and tuning, on every adapter: read by the next backend, harmless when
//! it is damaged or can't be written.

mod forced;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use backend_api::desc::{MatmulDesc, Matrix};
use backend_api::{ComputeBackend, DType};
use backend_webgpu::WebGpuBackend;
use forced::Device;
use libtest_mimic::{Failed, Trial};

/// Rows and columns of the product that is made.
const SIDE: usize = 24;

fn main() -> ExitCode {
    forced::run(trials)
}

fn trials(device: &Arc<Device>) -> Vec<Trial> {
    let test = |name: &'static str, test: fn(&Setup) -> Result<(), Failed>| {
        let opened = Arc::clone(device);
        device.trial(name, move |_| test(&Setup::new(opened.selector(), name)?))
    };
    vec![
        test("kept", what_was_found_is_known_again),
        test("damaged", damaged_files_are_begun_anew),
        test("unwritable", a_folder_that_cannot_be_written_is_told),
        test("shared", processes_may_share_a_folder),
    ]
}

/// A folder of its own for each test and adapter.
struct Setup {
    selector: String,
    folder: PathBuf,
}

impl Setup {
    fn new(selector: &str, test: &str) -> Result<Self, Failed> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("disk_cache-{test}-{selector}"));
        if folder.is_dir() {
            fs::remove_dir_all(&folder)?;
        } else if folder.exists() {
            fs::remove_file(&folder)?;
        }
        Ok(Self { selector: selector.to_owned(), folder })
    }

    fn open(&self) -> Result<WebGpuBackend, Failed> {
        let mut backend = WebGpuBackend::select(&self.selector).with_cache_dir(&self.folder);
        backend.init()?;
        Ok(backend)
    }

    fn files(&self, extension: &str) -> Result<Vec<PathBuf>, Failed> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|found| found == extension) {
                files.push(path);
            }
        }
        Ok(files)
    }
}

/// A matrix of ones by itself, tuned; every sum is exact.
fn multiply(backend: &WebGpuBackend) -> Result<(), Failed> {
    let bytes = SIDE * SIDE * size_of::<f32>();
    let [a, c] = [backend.alloc(bytes)?, backend.alloc(bytes)?];
    backend.copy_htod(a, &1f32.to_le_bytes().repeat(SIDE * SIDE))?;
    backend.copy_htod(c, &f32::NAN.to_le_bytes().repeat(SIDE * SIDE))?;
    let matrix = |ptr| Matrix::new(ptr, DType::F32, SIDE);
    let desc = MatmulDesc::new(SIDE, SIDE, SIDE, matrix(a), matrix(a), matrix(c));
    backend.tune_matmul(&desc, Duration::ZERO)?;
    backend.matmul(&desc)?;
    let mut read = vec![0; bytes];
    backend.copy_dtoh(&mut read, c)?;
    if read != (SIDE as f32).to_le_bytes().repeat(SIDE * SIDE) {
        return Err("the product is wrong".into());
    }
    backend.free(a)?;
    Ok(backend.free(c)?)
}

fn require(condition: bool, otherwise: &str) -> Result<(), Failed> {
    if condition { Ok(()) } else { Err(otherwise.into()) }
}

fn what_was_found_is_known_again(setup: &Setup) -> Result<(), Failed> {
    let first = setup.open()?;
    require(first.tuning()?.lines().count() == 1, "nothing is known at first")?;
    multiply(&first)?;
    let found = first.tuning()?;
    require(found.lines().count() == 2, "the product was measured")?;
    let has_pipelines = first.device().is_some_and(|d| d.features().contains(wgpu::Features::PIPELINE_CACHE));
    drop(first);
    require(setup.files("tuning")?.len() == 1, "one file of tuning")?;
    require(
        setup.files("pipelines")?.len() == usize::from(has_pipelines),
        "a file of pipelines where there can be",
    )?;
    require(setup.files("part")?.is_empty(), "nothing is left unfinished")?;
    let second = setup.open()?;
    require(second.tuning()? == found, "the second backend knows what the first has found")?;
    multiply(&second)
}

fn damaged_files_are_begun_anew(setup: &Setup) -> Result<(), Failed> {
    multiply(&setup.open()?)?;
    let intact = [setup.files("tuning")?, setup.files("pipelines")?].concat();
    for path in &intact {
        let whole = fs::read(path)?;
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 0x10;
        let longer = [&whole[..], &[0xff; 64]].concat();
        for damaged in [&flipped[..], &whole[..whole.len() / 2], &longer, &[0xff; 40], &[]] {
            fs::write(path, damaged)?;
            let backend = setup.open()?;
            multiply(&backend)?;
            backend.save_cache()?;
            require(fs::read(path)? != damaged, "a damaged file is replaced")?;
        }
    }
    Ok(())
}

fn a_folder_that_cannot_be_written_is_told(setup: &Setup) -> Result<(), Failed> {
    fs::write(&setup.folder, "a file where a folder should be")?;
    let backend = setup.open()?;
    multiply(&backend)?;
    let error = backend.save_cache().err().ok_or("the folder can't be made")?;
    let names_it = error.to_string().contains("disk_cache-unwritable");
    require(names_it, &format!("{error} doesn't name the file"))?;
    multiply(&backend)?;
    drop(backend);
    fs::remove_file(&setup.folder)?;
    Ok(())
}

fn processes_may_share_a_folder(setup: &Setup) -> Result<(), Failed> {
    let backends = [setup.open()?, setup.open()?];
    std::thread::scope(|scope| {
        let saves = backends.each_ref().map(|backend| {
            scope.spawn(move || -> Result<(), String> {
                multiply(backend).map_err(|failed| failed.message().unwrap_or_default().to_owned())?;
                (0..20).try_for_each(|_| backend.save_cache()).map_err(|error| error.to_string())
            })
        });
        saves
            .into_iter()
            .try_for_each(|save| save.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let found = backends[0].tuning()?;
    drop(backends);
    require(setup.files("part")?.is_empty(), "nothing is left unfinished")?;
    require(setup.open()?.tuning()? == found, "the file is whole")
}

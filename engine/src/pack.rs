//! Samples of days that are over as Parquet files, for other engines: `DIR/samples/day=2026-11-23/NAME.parquet`.
//!
//! A file appears whole or not at all and is never written again: a run that is in one of its day is left out of the next,
//! also when the archive no longer has it. Its name is that of its runs.

use crate::prelude::*;
use crate::trust::sha256;
use archive::Archive;
use model::RunId;
use report::parquet::{self, SamplesFile};
use report::sample_table::SamplesOf;
use report::words::utc;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufWriter;

/// A file that was written.
pub struct PackedFile {
    /// Where it is.
    pub path: PathBuf,
    /// Runs in it.
    pub runs: usize,
    /// Rows: one for each stream of each sample.
    pub rows: u64,
    /// Its size.
    pub bytes: u64,
}

const DAY: Nanos = Nanos::from_secs(86_400);

/// Writes the samples of all runs that ended and were started on a day (UTC) that ended before then, as far as no file of
/// that day has them: a file a day, passed to `each`.
///
/// # Errors
/// If the archive or a file there cannot be read, or one cannot be written; files of days before stay.
pub fn pack(
    archive: &Archive,
    before: Nanos,
    dir: &Path,
    mut each: impl FnMut(&PackedFile) -> Result<()>,
) -> Result<()> {
    let until = Nanos(before.0 / DAY.0 * DAY.0);
    let mut days: BTreeMap<u64, Vec<RunId>> = BTreeMap::new();
    for (id, started) in archive.ended_before(until)? {
        days.entry(started.0 / DAY.0).or_default().push(id);
    }
    for (day, mut ids) in days {
        let date = utc(Nanos(day * DAY.0));
        let date = date.split(' ').next().unwrap_or_default();
        let dir = dir.join("samples").join(format!("day={date}"));
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let packed = packed(&dir)?;
        ids.retain(|id| !packed.contains(id.as_str()));
        if !ids.is_empty() {
            each(&write(archive, &ids, &dir)?)?;
        }
    }
    Ok(())
}

/// The runs in the files of a day.
fn packed(dir: &Path) -> Result<BTreeSet<String>> {
    let mut packed = BTreeSet::new();
    let read = || format!("cannot read {}", dir.display());
    for entry in fs::read_dir(dir).with_context(read)? {
        let path = entry.with_context(read)?.path();
        if path.extension().is_some_and(|of| of == "parquet") {
            let failed = || format!("cannot read {}: move it elsewhere", path.display());
            let file = File::open(&path).with_context(failed)?;
            packed.extend(parquet::runs(file).with_context(failed)?);
        }
    }
    Ok(packed)
}

fn write(archive: &Archive, ids: &[RunId], dir: &Path) -> Result<PackedFile> {
    let mut sorted: Vec<&str> = ids.iter().map(RunId::as_str).collect();
    sorted.sort_unstable();
    let digest = sha256(sorted.join("\n").as_bytes());
    let name = &digest[..16];
    let path = dir.join(format!("{name}.parquet"));
    let part = dir.join(format!(".{name}.part"));
    let failed = || format!("cannot write {}", path.display());
    let write = || -> Result<u64> {
        let file = BufWriter::new(File::create(&part)?);
        let mut samples = SamplesFile::begin(file, &sorted)?;
        for id in ids {
            add(archive, id, &mut samples)?;
        }
        let (rows, file) = samples.finish()?;
        file.into_inner()?.sync_all()?;
        fs::rename(&part, &path)?;
        File::open(dir)?.sync_all()?;
        Ok(rows)
    };
    let rows = write().inspect_err(|_| {
        // It may not even have been made; the first failure is reported.
        let _ = fs::remove_file(&part);
    });
    let rows = rows.with_context(failed)?;
    Ok(PackedFile {
        runs: ids.len(),
        rows,
        bytes: fs::metadata(&path).with_context(failed)?.len(),
        path,
    })
}

fn add(archive: &Archive, id: &str, samples: &mut SamplesFile<BufWriter<File>>) -> Result<()> {
    let run = archive.get(id)?;
    for index in 0..run.legs.len() {
        let mesh = archive.mesh_leg(id, index)?;
        for side in [Side::Local, Side::Remote] {
            let of = SamplesOf {
                run: &run,
                index,
                side,
                mesh: mesh.as_ref(),
            };
            samples.add(of, |each| -> Result<()> {
                archive.each_sample(id, index, side, each)?;
                Ok(())
            })?;
        }
    }
    Ok(())
}

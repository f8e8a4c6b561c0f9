//! Samples of runs as a Parquet file, for other engines: the columns of the table in CSV.

use crate::sample_table::{self, NUMBERS, STARTED, SamplesOf, StreamRow, TEXTS};
use model::Sample;
use model::socket::FieldValue;
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Kind};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::io::Write;
use std::sync::Arc;

/// Rows that are in memory at a time, some 60 MB, and in a group of the file.
const GROUP: usize = 1 << 16;

/// Names in the metadata of a file: the version of its columns, to which others may be added at the end; and its runs.
const VERSION: &str = "linerate.samples";
const RUNS: &str = "linerate.runs";

/// Values of a column that are not written yet.
enum ColumnValues {
    Text(Vec<ByteArray>),
    /// Those that are there, and whether each is.
    Number(Vec<i64>, Vec<i16>),
}

/// Writes such a file.
pub struct SamplesFile<W: Write + Send> {
    file: SerializedFileWriter<W>,
    /// As in the file, and how many rows they have.
    columns: Vec<ColumnValues>,
    waiting: usize,
    rows: u64,
}

impl<W: Write + Send> SamplesFile<W> {
    /// One that will have the samples of these runs.
    pub fn begin(to: W, runs: &[impl AsRef<str>]) -> Result<SamplesFile<W>> {
        let runs: Vec<&str> = runs.iter().map(AsRef::as_ref).collect();
        let about = [(VERSION, "1".to_owned()), (RUNS, runs.join(","))];
        let about = about.map(|(key, value)| KeyValue::new(key.to_owned(), value));
        let properties = WriterProperties::builder()
            .set_created_by(format!("linerate {}", env!("CARGO_PKG_VERSION")))
            .set_compression(Compression::GZIP(Default::default()))
            .set_key_value_metadata(Some(about.to_vec()));
        let texts = TEXTS.iter().map(|_| ColumnValues::Text(Vec::new()));
        let numbers = sample_table::number_names();
        let numbers = numbers.map(|_| ColumnValues::Number(Vec::new(), Vec::new()));
        Ok(SamplesFile {
            file: SerializedFileWriter::new(to, Arc::new(schema()?), Arc::new(properties.build()))?,
            columns: texts.chain(numbers).collect(),
            waiting: 0,
            rows: 0,
        })
    }

    /// Adds the samples of one end of a leg that `each` passes on, in their order.
    pub fn add<E: From<ParquetError>>(
        &mut self,
        of: SamplesOf<'_>,
        each: impl FnOnce(&mut dyn FnMut(&Sample)) -> Result<(), E>,
    ) -> Result<(), E> {
        let texts = TEXTS.map(|(_, text)| ByteArray::from(text(&of).into_bytes()));
        let mut written = Ok(());
        each(&mut |sample| {
            for row in sample_table::rows(of, sample) {
                self.push(&texts, &row);
            }
            if self.waiting >= GROUP && written.is_ok() {
                written = self.write_group();
            }
        })?;
        Ok(written?)
    }

    fn push(&mut self, texts: &[ByteArray], row: &StreamRow<'_>) {
        let numbers = NUMBERS.iter().map(|(_, number)| number(row));
        let socket = sample_table::socket(row).map(|value| value.map(FieldValue::number));
        let mut numbers = numbers.chain(socket);
        let mut texts = texts.iter();
        for column in &mut self.columns {
            match column {
                ColumnValues::Text(values) => values.extend(texts.next().cloned()),
                ColumnValues::Number(values, there) => {
                    let number = numbers.next().flatten();
                    there.push(number.is_some().into());
                    values.extend(number.map(|n| i64::try_from(n).unwrap_or(i64::MAX)));
                }
            }
        }
        self.waiting += 1;
    }

    fn write_group(&mut self) -> Result<()> {
        let mut group = self.file.next_row_group()?;
        for values in &mut self.columns {
            let Some(mut column) = group.next_column()? else {
                break;
            };
            match values {
                ColumnValues::Text(values) => {
                    (column.typed::<ByteArrayType>()).write_batch(values, None, None)?;
                    values.clear();
                }
                ColumnValues::Number(values, there) => {
                    (column.typed::<Int64Type>()).write_batch(values, Some(there), None)?;
                    values.clear();
                    there.clear();
                }
            }
            column.close()?;
        }
        group.close()?;
        self.rows += std::mem::take(&mut self.waiting) as u64;
        Ok(())
    }

    /// Writes the rest; how many rows it has, and where they were written to.
    pub fn finish(mut self) -> Result<(u64, W)> {
        if self.waiting > 0 {
            self.write_group()?;
        }
        Ok((self.rows, self.file.into_inner()?))
    }
}

fn schema() -> Result<Type> {
    let texts = TEXTS.iter().map(|(name, _)| {
        Type::primitive_type_builder(name, Kind::BYTE_ARRAY)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(Some(LogicalType::String))
            .build()
    });
    let numbers = sample_table::number_names().map(|name| {
        let time = LogicalType::timestamp(true, TimeUnit::NANOS);
        Type::primitive_type_builder(&name, Kind::INT64)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type((name == STARTED).then_some(time))
            .build()
    });
    let columns: Result<Vec<Type>> = texts.chain(numbers).collect();
    let columns = columns?.into_iter().map(Arc::new).collect();
    Type::group_type_builder("samples")
        .with_fields(columns)
        .build()
}

/// The runs of such a file; none of any other Parquet file.
///
/// # Errors
/// If it is damaged, or no Parquet file.
pub fn runs(file: impl ChunkReader + 'static) -> Result<Vec<String>> {
    let reader = SerializedFileReader::new(file)?;
    let about = reader.metadata().file_metadata().key_value_metadata();
    let runs = about.into_iter().flatten().find(|about| about.key == RUNS);
    let runs = runs
        .and_then(|about| about.value.as_deref())
        .unwrap_or_default();
    Ok(runs
        .split(',')
        .filter(|run| !run.is_empty())
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csv;
    use crate::testing::{self, LAN};
    use model::{Direction, LegOutcome, MeshLeg, Run, Side};

    const BOTH: [Side; 2] = [Side::Local, Side::Remote];

    fn written(run: &Run, mesh: Option<&MeshLeg>, times: usize) -> (u64, Vec<u8>) {
        let mut file = SamplesFile::begin(Vec::new(), &[&run.id]).unwrap();
        for (index, leg) in run.legs.iter().enumerate() {
            for side in BOTH {
                let of = SamplesOf {
                    run,
                    index,
                    side,
                    mesh,
                };
                let samples = leg.end(side).samples.iter();
                for _ in 0..times {
                    let added = file.add(of, |each| {
                        samples.clone().for_each(each);
                        Ok::<_, ParquetError>(())
                    });
                    added.unwrap();
                }
            }
        }
        file.finish().unwrap()
    }

    #[test]
    fn it_has_what_the_csv_has() {
        let legs = vec![
            testing::leg(Direction::Down, LAN),
            testing::request_leg(100),
        ];
        let run = testing::run(testing::spec(), legs);
        let cell = ["db", "bulk", "web1", "db1"];
        let mesh = MeshLeg::bare(run.id.clone(), 0, cell, run.started, LegOutcome::Good);
        for mesh in [None, Some(&mesh)] {
            let mut text = csv::header();
            for (index, leg) in run.legs.iter().enumerate() {
                for side in BOTH {
                    let of = SamplesOf {
                        run: &run,
                        index,
                        side,
                        mesh,
                    };
                    let samples = leg.end(side).samples.iter();
                    text.extend(samples.map(|sample| csv::rows(of, sample)));
                }
            }
            let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
            let names = lines.next().unwrap();
            let (rows, file) = written(&run, mesh, 1);
            let file = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
            let mut count = 0;
            for (row, line) in file.get_row_iter(None).unwrap().zip(lines.by_ref()) {
                let row = row.unwrap();
                let cells: Vec<_> = row.get_column_iter().collect();
                assert_eq!(cells.len(), names.len());
                for (((name, value), header), cell) in cells.into_iter().zip(&names).zip(line) {
                    assert_eq!(name, header);
                    let value = value.to_string();
                    let value = value.trim_matches('"');
                    let expected = match cell {
                        "" if TEXTS.iter().all(|(text, _)| text != name) => "null",
                        "true" => "1",
                        "false" => "0",
                        cell => cell,
                    };
                    assert_eq!(value, expected, "{name}");
                }
                count += 1;
            }
            assert_eq!((count, lines.next()), (rows, None));
        }
    }

    #[test]
    fn long_files_have_groups_and_all_know_their_runs() {
        let run = testing::run(testing::spec(), vec![testing::leg(Direction::Up, LAN)]);
        let times = GROUP / 11 + 1;
        let (rows, file) = written(&run, None, times);
        assert_eq!(rows, 22 * times as u64);
        let file = bytes::Bytes::from(file);
        let reader = SerializedFileReader::new(file.clone()).unwrap();
        assert!(reader.num_row_groups() > 1);
        assert_eq!(reader.metadata().file_metadata().num_rows() as u64, rows);
        assert_eq!(runs(file.clone()).unwrap(), [run.id.to_string()]);
        assert!(runs(file.slice(..file.len() - 9)).is_err());
    }
}

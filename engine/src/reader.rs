//! Files of untrusted origin are read in a confined process.

use crate::exit::{Exit, exit_of};
use crate::log;
use crate::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sys::confine::{self, Cut, ReaderLimits};

/// Processor time of a reader: at least, and in addition for each MiB of its inputs.
const CPU_S: u64 = 60;
const CPU_S_PER_MIB: u64 = 1;

/// Its address space: at least, and in addition for each byte of its inputs, which may be compressed.
const MEMORY: u64 = 4 << 30;
const MEMORY_PER_BYTE: u64 = 32;

/// Times its processor time that it may take on the wall, where others use the processor too.
const WALL: u32 = 10;

/// For piped input, which may arrive at the pace of a live measurement.
const PIPED: Duration = Duration::from_secs(24 * 3600);

/// What a reader answers.
#[derive(Serialize, Deserialize)]
struct DecoderAnswer<T> {
    notes: Vec<String>,
    result: Result<T, (u8, String)>,
}

/// Has `work` done by a process that can only read `inputs` and answer; see [`confine::read`]. A reader does it itself.
///
/// # Errors
/// Those of `work`; and if it did not end in bounded time and memory.
pub fn confined<T: Serialize + DeserializeOwned>(
    inputs: &[&Path],
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if confine::is_reader() {
        return work();
    }
    let names: Vec<String> = inputs.iter().map(|p| p.display().to_string()).collect();
    let names = names.join(" and ");
    let doing = || format!("cannot read {names}");
    let limits = limits(inputs);
    let answer = confine::read(inputs, &limits, || {
        std::panic::set_hook(Box::new(|panic| log::note(&format!("linerate: {panic}"))));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let result = done.unwrap_or_else(|_| Err(anyhow!("the reader of {names} panicked")));
        let result = result.map_err(|error| (exit_of(&error) as u8, sentence(&error)));
        let notes = log::take_kept();
        serde_json::to_vec(&DecoderAnswer { notes, result })
            .expect("an answer has no keys but text")
    });
    let bytes = match answer.with_context(doing)? {
        Ok(bytes) => bytes,
        Err(cut) => bail!("{}: {}", doing(), sentence_of(cut)),
    };
    let answer: DecoderAnswer<T> = serde_json::from_slice(&bytes).with_context(doing)?;
    answer.notes.iter().for_each(|line| log::note(line));
    answer.result.map_err(|(code, sentence)| {
        let code = Exit::ALL.into_iter().find(|(exit, _)| *exit as u8 == code);
        let code = code.map_or(Exit::Failed, |(code, _)| code);
        Refusal { code, sentence }.into()
    })
}

fn limits(inputs: &[&Path]) -> ReaderLimits {
    let size = |path: &&Path| std::fs::metadata(path).map_or(0, |found| found.len());
    let bytes: u64 = inputs.iter().map(size).sum();
    let memory_bytes = MEMORY.saturating_add(bytes.saturating_mul(MEMORY_PER_BYTE));
    let cpu_s = CPU_S + (bytes >> 20) * CPU_S_PER_MIB;
    let within = match inputs.contains(&Path::new("-")) {
        true => PIPED,
        false => Duration::from_secs(cpu_s) * WALL,
    };
    ReaderLimits {
        memory_bytes,
        cpu_s,
        within,
        answer_bytes: memory_bytes,
    }
}

fn sentence_of(cut: Cut) -> String {
    match cut {
        Cut::Time => "cut, because it took more time than a file of its size needs".to_owned(),
        Cut::Memory => "cut, because it took more memory than a file of its size needs".to_owned(),
        Cut::Signal(signal) => format!("its reader was ended by signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_may_use_more_for_a_larger_input() {
        let file = std::env::temp_dir().join(format!("linerate-limits-{}", std::process::id()));
        let of = |bytes: u64| {
            let input = std::fs::File::create(&file).unwrap();
            input.set_len(bytes).unwrap();
            limits(&[&file])
        };
        let (none, large) = (of((1 << 20) - 1), of(100 << 20));
        std::fs::remove_file(&file).unwrap();
        assert_eq!([none.cpu_s, large.cpu_s], [60, 160]);
        assert_eq!(large.memory_bytes, (4 << 30) + 3200 * (1 << 20));
        assert_eq!(large.within, Duration::from_secs(1600));
        assert_eq!(limits(&[Path::new("-")]).within, PIPED);
    }

    #[test]
    fn answers_errors_and_panics_come_out_as_they_are() {
        assert_eq!(confined(&[], || Ok(7.25)).unwrap(), 7.25);
        let refused = confined(&[], || -> Result<()> { crate::refuse!("it is empty") });
        let error = refused.unwrap_err();
        assert_eq!(
            (exit_of(&error), sentence(&error).as_str()),
            (Exit::Usage, "it is empty")
        );
        let panicked = confined(&[Path::new("a.pcap")], || -> Result<()> { panic!() });
        assert_eq!(
            panicked.unwrap_err().to_string(),
            "the reader of a.pcap panicked"
        );
    }
}

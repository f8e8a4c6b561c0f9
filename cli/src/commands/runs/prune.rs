//! `linerate runs prune`: what the archive keeps, by age, number or size.

use crate::archive_list::{self, Listed};
use crate::lookup::{open_existing, refused};
use crate::prelude::*;
use clap::ArgGroup;
use engine::clock::unix_time;
use engine::histories;

/// Delete the oldest of what is kept for good, by age, number or size
#[derive(Args)]
#[command(override_usage = "linerate runs prune [OPTIONS] --keep-days N|--keep N|--max-bytes SIZE")]
#[command(group(ArgGroup::new("rule").required(true).multiple(true)))]
#[command(after_long_help = "EXAMPLES
  linerate runs prune --keep-days 90 --dry-run
  linerate runs prune --keep 200 -y
  linerate runs prune --max-bytes 2GiB -y      in a timer

An experiment goes with its runs, a run with its traces. What either --keep-days
or --keep keeps stays; --max-bytes is a limit above both. The newest stays.")]
pub struct Prune {
    /// Keep what was started in the last N days
    #[arg(long, value_name = "N", group = "rule")]
    keep_days: Option<u32>,
    /// Keep the newest N lines of 'runs list'
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), group = "rule")]
    keep: Option<u32>,
    /// Keep no more than fits into this on the disk, traces included
    #[arg(long, value_name = "SIZE", group = "rule")]
    max_bytes: Option<Bytes>,
    /// Print what would be deleted, and delete nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Nothing is recorded for longer: what is unfinished then was killed.
const LONGEST_RECORDING: Nanos = Nanos::from_secs(2 * 86_400);

/// Whether it may still be recorded.
fn is_recorded(one: &Listed) -> bool {
    let age = unix_time().since(one.row.started);
    one.row.ended == model::Ended::Unfinished.name() && age < LONGEST_RECORDING
}

impl Prune {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let mut archive = open_existing(global)?;
        let before = archive.size().map_err(refused)?;
        let chosen = self.chosen(&archive).map_err(refused)?;
        out::print(&super::table(&chosen))?;
        if self.dry_run || chosen.is_empty() {
            let count = chosen.len();
            return out::result(&format!("{count} would be deleted, of {before}\n"));
        }
        if !self.yes && std::io::stdin().is_terminal() && !super::confirmed()? {
            return out::result("nothing was deleted\n");
        }
        let mut count = 0;
        let mut next = chosen;
        // What a run takes of the file is estimated: the limit is compared with the file itself.
        while !next.is_empty() {
            for one in &next {
                let named = archive.named(&one.row.id).map_err(refused)?;
                archive.delete(&named).map_err(refused)?;
            }
            count += next.len();
            archive.compact().map_err(refused)?;
            next = self.chosen(&archive).map_err(refused)?;
        }
        histories::refresh(&mut archive, |_| true).map_err(refused)?;
        let after = archive.size().map_err(refused)?;
        out::result(&format!("{count} deleted: {before} before, {after} now\n"))
    }

    /// What is to go, the newest first.
    fn chosen(&self, archive: &Archive) -> Result<Vec<Listed>, archive::Error> {
        let mut all = archive_list::list(archive, &RunFilter::default())?;
        let oldest = |days: u32| unix_time().since(Nanos::from_secs(u64::from(days) * 86_400));
        let is_old = |one: &Listed| self.keep_days.is_none_or(|n| one.row.started < oldest(n));
        let stays = self.keep.map_or(0, |n| n as usize);
        let by_rule = self.keep.is_some() || self.keep_days.is_some();
        let first_old = all.iter().position(|one| by_rule && is_old(one));
        let mut kept = first_old.unwrap_or(all.len()).max(stays).max(1);
        if let Some(Bytes(most)) = self.max_bytes {
            let mut weights = Vec::new();
            for one in &all {
                weights.push(archive.weight(&archive.named(&one.row.id)?)?);
            }
            let whole: u64 = weights.iter().sum();
            let size = archive.size()?.0;
            let mut room = u128::from(most) * u128::from(whole);
            let fits = |weight: &&u64| {
                let share = u128::from(**weight) * u128::from(size);
                let fits = share <= room;
                room = room.saturating_sub(share);
                fits
            };
            let fitting = weights.iter().take_while(fits).count();
            kept = kept.min(fitting.max(1));
        }
        let mut chosen = all.split_off(kept.min(all.len()));
        chosen.retain(|one| !is_recorded(one));
        let chosen = chosen.into_iter();
        Ok(chosen.map(|one| one.named_in(archive)).collect())
    }
}

//! Programs that are executed when a cell gets worse.

use crate::prelude::*;
use mesh::MeshAlert;
use model::MeshLeg;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, SyncSender};

/// A program is ended after this.
const WITHIN: Duration = Duration::from_secs(10);

/// Of what it writes, so much is read.
const MOST_OUTPUT: u64 = 64 << 10;

/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(20);

/// So many wait for their turn, while one hangs.
const MOST_WAITING: usize = 64;

/// Alerts that are due: a thread of their own executes them, so that no leg waits for a program that hangs.
pub struct AlertQueue {
    due: SyncSender<(MeshAlert, MeshLeg)>,
    taken: Mutex<Receiver<(MeshAlert, MeshLeg)>>,
}

impl Default for AlertQueue {
    fn default() -> AlertQueue {
        let (due, taken) = mpsc::sync_channel(MOST_WAITING);
        AlertQueue {
            due,
            taken: Mutex::new(taken),
        }
    }
}

impl AlertQueue {
    /// Has the program of an alert executed soon; one more than may wait is left out.
    pub(super) fn push(&self, alert: &MeshAlert, leg: &MeshLeg, log: &(dyn Fn(&str) + Sync)) {
        if self.due.try_send((alert.clone(), leg.clone())).is_err() {
            let exec = alert.exec.join(" ");
            log(&format!(
                "alert {exec}: left out, {MOST_WAITING} wait for their turn"
            ));
        }
    }

    /// Executes one after the other. When the coordinator ends, those that wait have some seconds left.
    pub(super) fn work(&self, goes_on: &dyn Fn() -> bool, log: &(dyn Fn(&str) + Sync)) {
        let taken = sys::lock(&self.taken);
        let mut ends = None;
        while ends.is_none_or(|ends| Instant::now() < ends) {
            match taken.recv_timeout(LOOK) {
                Ok((alert, leg)) => execute(&alert, &leg, log),
                Err(_) if ends.is_some() => break,
                Err(_) => {}
            }
            if !goes_on() {
                ends.get_or_insert_with(|| Instant::now() + WITHIN);
            }
        }
    }
}

/// Executes the program of an alert with the leg as JSON on standard input, and waits for its end.
fn execute(alert: &MeshAlert, leg: &MeshLeg, log: &(dyn Fn(&str) + Sync)) {
    let input = serde_json::json!({
        "mesh": leg.mesh, "test": leg.test, "src": leg.src, "dst": leg.dst,
        "when": alert.when.to_string(), "times": alert.times,
        "outcome": leg.outcome, "why": leg.why, "run": leg.run,
        "starts_unix_ns": leg.starts, "goodput_bit_s": leg.goodput, "rtt_p50_ns": leg.rtt_p50,
        "loss_ppm": leg.loss_ppm, "mtu": leg.mtu, "limited_by": leg.limited_by,
    });
    if let Err(why) = finish(&alert.exec, &input.to_string()) {
        log(&format!("alert {}: {why}", alert.exec.join(" ")));
    }
}

/// Why it did not succeed, with the begin of what it wrote.
fn finish(exec: &[String], input: &str) -> Result<(), String> {
    let (program, arguments) = exec.split_first().ok_or("it has no program")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|e| format!("cannot be started: {e}"))?;
    let (mut stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let input = format!("{input}\n");
    // It fits into the pipe; who does not read it does not want it.
    let _ = stdin.as_mut().map(|pipe| pipe.write_all(input.as_bytes()));
    drop(stdin);
    let (done, output) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut pipe) = stderr {
            let _ = pipe.by_ref().take(MOST_OUTPUT).read_to_end(&mut text);
            // The rest is not kept, and its writer not stopped by a full pipe.
            let _ = done.send(text);
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        }
    });
    let until = Instant::now() + WITHIN;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            _ => {
                end(&mut child);
                return Err(format!("was ended after {} s", WITHIN.as_secs()));
            }
        }
    };
    if status.success() {
        return Ok(());
    }
    let output = output
        .recv_timeout(Duration::from_secs(1))
        .unwrap_or_default();
    let output = String::from_utf8_lossy(&output).into_owned();
    Err(format!(
        "{status}: {}",
        output.lines().next().unwrap_or_default()
    ))
}

/// With all that it started.
fn end(child: &mut Child) {
    let _ = sys::signal::end_group(child.id());
    let _ = child.wait();
}

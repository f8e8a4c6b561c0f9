//! `measure nfs://HOST/EXPORT`: reads and writes of blocks at any server of NFSv3.
//!
//! Nothing is mounted: the client is `wire::nfs`, whose calls go over sockets of this process. Each connection has a
//! file of its own in the export, which is made before and removed afterwards, whatever happens meanwhile.

use crate::exit::unreachable;
use crate::leg;
use crate::log;
use crate::prelude::*;
use crate::transport::{self, driver::Driver};
use measure::{Job, Role};
use model::{BlockClients, BlockOperation, BlockOrder, BlockServer, Blocks};
use std::fs;
use wire::Machine;
use wire::nfs::{
    self, DEFAULT_PORT, Handle, MOUNT_PORT, NfsBlockClient, PORT_MAPPER, RpcCall, RpcCalls,
    RpcCredentials, RpcFailure,
};

/// How long a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long the port mapper may: a firewall between often drops what is for it.
const MAPPER_WITHIN: Duration = Duration::from_secs(2);
/// How long a single call may: disks that sleep have to wake up.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The kernel takes a call bit by bit, so that the moment when it took the last is that of its leaving.
const UNSENT: Bytes = Bytes(16 << 10);
/// Bytes of a WRITE that fills a file.
const FILL: u64 = 256 << 10;

/// An NFS server and a folder that it exports.
#[derive(Clone)]
pub struct NfsServer {
    /// Name or address.
    pub name: String,
    /// Port of NFS, if the port mapper is not to be asked.
    pub port: Option<u16>,
    /// The folder.
    pub export: String,
}

/// Measures what `run` orders, and fills in its hosts, its leg and warnings. What was seen until it broke stays in
/// the run, with the reason.
///
/// # Errors
/// If the server could not be asked, or it refused what is needed before: then nothing of ours stays there.
pub fn play(
    server: &NfsServer,
    run: &mut Run,
    watcher: &mut dyn Watcher,
    stop: &AtomicBool,
) -> Result<()> {
    let Workload::Blocks(order) = run.spec.workload.clone() else {
        bail!("an NFS server is measured with blocks");
    };
    let BlockServer::Nfs { file_size, .. } = order.server else {
        bail!("these blocks are not those of an NFS server");
    };
    let began = Instant::now();
    let spec = run.spec.clone();
    let requester = Requester {
        spec: &spec,
        who: who(),
        stop,
    };
    let mut files = Files {
        at: requester.mount(server)?,
        requester: &requester,
        size: file_size,
        names: Vec::new(),
        handles: Vec::new(),
    };
    let what = "files to read and write are made at the server";
    watcher.event(&Event::Waiting { what });
    files.make(&order, &run.id)?;
    run.local = observe::fingerprint(transport::VERSION, Some(files.at.nfs.ip()));
    watcher.event(&Event::Hosts {
        local: &run.local,
        remote: None,
    });
    let outcome = requester.leg(&order, &files, Nanos::from(began.elapsed()), watcher);
    run.warnings.extend(files.remove());
    run.legs.push(outcome?);
    Ok(())
}

/// Who asks: the user of this process, as the server's rights have it.
fn who() -> RpcCredentials {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    RpcCredentials {
        // RFC 5531 gives it 255 bytes; what it is matters to nobody.
        machine: host.trim().chars().take(60).collect(),
        uid: sys::process::effective_user(),
        gid: sys::process::effective_group(),
    }
}

/// What every step needs.
struct Requester<'a> {
    spec: &'a Spec,
    who: RpcCredentials,
    stop: &'a AtomicBool,
}

/// What there is after the folder was mounted.
struct Mounted {
    mount: SocketAddr,
    nfs: SocketAddr,
    folder: Handle,
    export: String,
}

impl Requester<'_> {
    /// A connection for single calls.
    fn open(&self, to: SocketAddr, within: Duration) -> Result<NfsConnection> {
        let settings = SocketSettings {
            nodelay: Some(true),
            ..SocketSettings::default()
        };
        let stream = measure::connect_privileged(to, &settings, &self.spec.local, within)
            .map_err(unreachable)?;
        stream.set_nonblocking(true)?;
        Ok(NfsConnection {
            driver: Driver::new(RpcCalls::new(self.who.clone()), Box::new(stream)),
            to,
            silent: false,
        })
    }

    /// Finds the programs and mounts the folder.
    fn mount(&self, server: &NfsServer) -> Result<Mounted> {
        let addresses = transport::resolve(&server.name, PORT_MAPPER, self.spec.socket.ip_version)?;
        let answers = |address: &SocketAddr| {
            let open = self.open(*address, MAPPER_WITHIN).ok()?;
            Some((*address, open))
        };
        let mapper = addresses.iter().find_map(answers);
        let at = |address: SocketAddr, port| SocketAddr::new(address.ip(), port);
        let (mount, nfs) = match mapper {
            Some((address, mut mapper)) => {
                let mut port = |call: &RpcCall<u16>, name: &str| match mapper.ask(call)? {
                    0 => bail!(Refusal::unreachable(format!(
                        "{} has no {name} of version 3 over TCP, as its port mapper says; version 4 alone is not measured",
                        server.name
                    ))),
                    port => Ok(at(address, port)),
                };
                let nfs = match server.port {
                    Some(port) => at(address, port),
                    None => port(&nfs::nfs_port(), "NFS")?,
                };
                (port(&nfs::mount_port(), "MOUNT")?, nfs)
            }
            // No port mapper, or none that may be asked.
            None => {
                let nfs = server.port.unwrap_or(DEFAULT_PORT);
                (at(addresses[0], MOUNT_PORT), at(addresses[0], nfs))
            }
        };
        let mut requester = self.open(mount, CONNECT_WITHIN).with_context(|| {
            Refusal::unreachable(format!(
                "the MOUNT service of {} cannot be asked at {mount}",
                server.name
            ))
        })?;
        let mounted = requester.ask(&nfs::mount(&server.export));
        let folder = mounted.map_err(|error| {
            let mut why = sentence(&error);
            if !requester.silent
                && let Ok(exports) = requester.ask(&nfs::exports())
                && !exports.is_empty()
            {
                why += &format!("; it exports {}", exports.join(", "));
            }
            Refusal::unreachable(why)
        })?;
        Ok(Mounted {
            mount,
            nfs,
            folder,
            export: server.export.clone(),
        })
    }

    /// The measurement itself.
    fn leg(
        &self,
        order: &Blocks,
        files: &Files<'_>,
        started: Nanos,
        watcher: &mut dyn Watcher,
    ) -> Result<Leg> {
        let settings = SocketSettings {
            nodelay: self.spec.socket.nodelay.or(Some(true)),
            notsent_lowat: self.spec.socket.notsent_lowat.or(Some(UNSENT)),
            ..self.spec.socket.clone()
        };
        let (to, local) = (files.at.nfs, &self.spec.local);
        let connect = |_| measure::connect_privileged(to, &settings, local, CONNECT_WITHIN);
        let sockets: Result<Vec<_>, _> = files.handles.iter().map(connect).collect();
        let sockets = sockets?;
        let (states, warnings) = leg::inspect(&sockets, &self.spec.socket, "this host")?;
        let direction = Direction::Up;
        watcher.event(&Event::LegStarted {
            index: 0,
            direction,
        });
        let mut job = Job::new(Role::Ask, self.spec.workload.clone(), self.spec.limit);
        job.clients = Some(self.clients(order, files));
        job.cpus.clone_from(&self.spec.local.cpus);
        job.nodelay = self.spec.socket.nodelay;
        let mut local = EndRecord::default();
        let mut on_sample = |sample| {
            watcher.event(&Event::Sample {
                index: 0,
                side: direction.sender(),
                sample: &sample,
            });
            local.push(sample, self.spec.streams);
        };
        let interval = self.spec.interval;
        let played = leg::run_end(job, sockets, interval, self.stop, &|_| (), &mut on_sample)?;
        let leg = Leg {
            direction,
            started,
            local: EndRecord {
                sockets: states,
                samples: local.samples,
                thinned_from: local.thinned_from,
                warnings: [warnings, played.record.warnings].concat(),
                ..played.record
            },
            remote: EndRecord::default(),
            ended: match played.broke {
                Some(why) => Ended::Failed { why },
                None if self.stop.load(Ordering::Relaxed) => Ended::Interrupted,
                None => Ended::Complete,
            },
        };
        watcher.event(&Event::LegEnded {
            index: 0,
            leg: &leg,
        });
        Ok(leg)
    }

    fn clients(&self, order: &Blocks, files: &Files<'_>) -> Arc<BlockClients> {
        let (order, who, handles) = (order.clone(), self.who.clone(), files.handles.clone());
        let all = files.size.0 / order.block.0;
        // Nothing on the way or at the server makes it smaller.
        let block = measure::noise(order.block.0 as usize);
        Arc::new(move |stream: usize| {
            Box::new(NfsBlockClient::new(
                order.clone(),
                handles[stream].clone(),
                who.clone(),
                BlockOrder::new(&order, all, 0, 1),
                block.clone(),
            ))
        })
    }
}

/// A connection for one call after the other.
struct NfsConnection {
    driver: Driver<RpcCalls>,
    to: SocketAddr,
    /// Something was not answered in time.
    silent: bool,
}

impl NfsConnection {
    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// A connection that broke, a server that refuses or falls silent.
    fn ask<T>(&mut self, call: &RpcCall<T>) -> Result<T> {
        let number = self.driver.machine.call(call);
        let until = Instant::now() + ANSWER_WITHIN;
        let unreachable = |failure: RpcFailure| Refusal::unreachable(failure.to_string());
        while Instant::now() < until {
            let turned = self.driver.turn(None, Some(until));
            while let Some(reply) = self.driver.machine.poll_event() {
                let reply = reply.map_err(unreachable)?;
                if let Some(answer) = call.answer(number, &reply).map_err(unreachable)? {
                    return Ok(answer);
                }
            }
            turned.map_err(|broken| {
                Refusal::unreachable(format!(
                    "the connection with {} broke at {} ({broken}); see the server's log",
                    self.to,
                    call.name()
                ))
            })?;
        }
        self.silent = true;
        bail!(Refusal::unreachable(format!(
            "{} does not answer {} within {} s; see the server's log",
            self.to,
            call.name(),
            ANSWER_WITHIN.as_secs()
        )));
    }
}

/// The files that were made at the server, and are removed with this.
struct Files<'a> {
    requester: &'a Requester<'a>,
    at: Mounted,
    /// Bytes of each.
    size: Bytes,
    names: Vec<String>,
    handles: Vec<Handle>,
}

impl Files<'_> {
    /// A file for each connection; with all its blocks if they are to be read.
    fn make(&mut self, order: &Blocks, run: &str) -> Result<()> {
        let requester = self.requester;
        let mut server = requester.open(self.at.nfs, CONNECT_WITHIN)?;
        let folder = &self.at.folder;
        let sizes = server.ask(&nfs::fs_info(folder))?;
        let smallest = sizes.read.min(sizes.write);
        if order.block > smallest {
            bail!(Refusal::usage(format!(
                "--block {}: the server takes reads and writes of up to {smallest}",
                order.block
            )));
        }
        for stream in 0..requester.spec.streams {
            let name = format!(".linerate-{run}-{stream}");
            let handle = server.ask(&nfs::create(folder, &name))?;
            self.names.push(name);
            let name = &self.names[self.names.len() - 1];
            let handle = match handle {
                Some(handle) => handle,
                None => server.ask(&nfs::lookup(folder, name))?,
            };
            if order.mix.contains(&BlockOperation::Read) {
                fill(&mut server, &handle, self.size, sizes.write, requester.stop)?;
            }
            self.handles.push(handle);
        }
        Ok(())
    }

    /// Removes them and unmounts the folder; says so if any had to stay. A server that does not do it once is asked
    /// nothing more: it may have fallen silent.
    fn remove(&mut self) -> Option<Warning> {
        let mut left = std::mem::take(&mut self.names);
        if left.is_empty() {
            return None;
        }
        let folder = &self.at.folder;
        let mut removed = || -> Result<()> {
            // A server may have closed a connection on which nothing was asked meanwhile.
            let mut server = self.requester.open(self.at.nfs, CONNECT_WITHIN)?;
            while let Some(name) = left.last() {
                server.ask(&nfs::remove(folder, name))?;
                left.pop();
            }
            Ok(())
        };
        let Err(why) = removed() else {
            // For the server's list of who uses what; without consequence.
            let mount = self.requester.open(self.at.mount, CONNECT_WITHIN);
            let _ = mount.and_then(|mut mount| mount.ask(&nfs::unmount(&self.at.export)));
            return None;
        };
        Some(Warning {
            what: format!(
                "files of this run stay in {}: {} ({})",
                self.at.export,
                left.join(", "),
                sentence(&why)
            ),
            meaning: "they take space at the server; the figures are right".to_owned(),
            remedy: "remove them there".to_owned(),
        })
    }
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        if let Some(warning) = self.remove() {
            log::note(&format!("linerate: {}; {}", warning.what, warning.remedy));
        }
    }
}

/// Gives a file all its blocks.
fn fill(
    server: &mut NfsConnection,
    file: &Handle,
    size: Bytes,
    largest: Bytes,
    stop: &AtomicBool,
) -> Result<()> {
    let data = vec![0x5a; FILL.min(largest.0).max(1) as usize];
    let mut offset = 0;
    while offset < size.0 {
        if stop.load(Ordering::Relaxed) {
            bail!(Refusal::interrupted(
                "stopped before anything was measured; the files at the server are removed"
            ));
        }
        let left = usize::try_from(size.0 - offset).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(left)];
        let written = server.ask(&nfs::write(file, offset, data))?;
        if written == Bytes(0) {
            bail!("the server writes nothing to a new file, and does not say why");
        }
        offset += written.0;
    }
    server.ask(&nfs::commit(file))
}

//! The programs of NFS: their procedures by name, and what each is for.
//!
//! NFSv2 (RFC 1094), NFSv3 with MOUNT and NLM (RFC 1813), NFSv4.0 (RFC 7530), 4.1 (RFC 8881), 4.2 (RFC 7862),
//! extended attributes (RFC 8276), the port mapper (RFC 1833).

use super::{CallContent, CallDetail, range};
use std::borrow::Cow;
use wire::nfs::programs::{self, MOUNT, NFS};
use wire::nfs::xdr::Xdr;

/// What a call of a program asks.
pub(super) fn call(program: u32, version: u32, procedure: u32, arguments: Xdr<'_>) -> CallContent {
    if (program, version, procedure) == (NFS, 4, 1) {
        let (compound, detail) = Compound::of(arguments);
        let (operation, purpose) = compound.named();
        return CallContent {
            operation: operation.into(),
            purpose,
            detail,
            compound: Some(Box::new(compound)),
        };
    }
    let (name, procedures) = match (program, version) {
        // The server's calls to its client, on its client's connection.
        (0x4000_0000.., 1 | 4) if procedure == 1 => ("NFSv4", &[][..]),
        _ => programs::program(program, version).unwrap_or_default(),
    };
    let known = procedures.get(procedure as usize);
    let (operation, purpose): (Cow<'static, str>, _) = match (name, known) {
        (_, Some((name, purpose))) => ((*name).into(), *purpose),
        ("", None) => (format!("RPC {program}v{version} {procedure}").into(), ""),
        ("NFSv4", None) => ("NFSv4 callback".into(), "the server recalls or notifies"),
        (name, None) => (format!("{name} {procedure}").into(), ""),
    };
    CallContent {
        detail: match (program, version) {
            (NFS, 3) => detail(procedure, arguments).unwrap_or_default(),
            (MOUNT, _) if procedure == 1 => {
                file_name(&mut { arguments }).unwrap_or_default().into()
            }
            _ => CallDetail::default(),
        },
        operation,
        purpose,
        compound: None,
    }
}

/// The detail of a call of NFSv3: its file, range or size.
fn detail(procedure: u32, mut xdr: Xdr<'_>) -> Option<CallDetail> {
    // Each of them begins with the handle of a file or folder.
    xdr.opaque(usize::MAX)?;
    match procedure {
        // LOOKUP, CREATE to RENAME.
        3 | 8..=14 => Some(file_name(&mut xdr)?.into()),
        6 => Some(range(xdr.u64()?, xdr.u32()?)),
        21 => committed(&mut xdr),
        // WRITE.
        7 => Some(CallDetail::Range {
            offset: xdr.u64()?,
            bytes: xdr.u32()?,
            how: stable(xdr.u32()?),
        }),
        _ => None,
    }
}

/// A name that a peer chose.
fn file_name(xdr: &mut Xdr<'_>) -> Option<String> {
    Some(String::from_utf8_lossy(xdr.opaque(usize::MAX)?).into_owned())
}

/// Steps over values by their shapes: `w` 4 bytes, `d` 8, `s` 16, `o` opaque, `b` a list of words, `z` a list
/// that is empty, `f` attributes of NFSv4; anything else is not known.
pub(super) fn step(xdr: &mut Xdr<'_>, shapes: &str) -> Option<()> {
    for shape in shapes.chars() {
        match shape {
            'w' => xdr.skip(4)?,
            'd' => xdr.skip(8)?,
            's' => xdr.skip(16)?,
            'o' => xdr.opaque(usize::MAX)?,
            'z' if xdr.u32()? == 0 => &[],
            'b' => {
                let words = xdr.u32()? as usize;
                xdr.skip(words.checked_mul(4)?)?
            }
            'f' => {
                step(xdr, "b")?;
                xdr.opaque(usize::MAX)?
            }
            _ => return None,
        };
    }
    Some(())
}

/// An operation of NFSv4, by its number from 3 on: its name; the shapes of its arguments and of its results when it
/// succeeds, see [`step`] (`!`: not known, or not of one shape); and what it is for, empty where it
/// only serves others.
type NfsOperation = (&'static str, &'static str, &'static str, &'static str);

const V4: &[NfsOperation] = &[
    ("ACCESS", "w", "ww", "what may this user do with it?"),
    ("CLOSE", "ws", "s", "the file is not open any more"),
    ("COMMIT", "dw", "d", "puts written data on stable storage"),
    ("CREATE", "!", "wddb", "makes a folder, link, special file"),
    ("DELEGPURGE", "d", "", "gives delegations back"),
    ("DELEGRETURN", "s", "", "gives a delegation back"),
    ("GETATTR", "b", "f", "attributes: is the cache valid?"),
    ("GETFH", "", "o", ""),
    ("LINK", "o", "wdd", "makes a hard link"),
    ("LOCK", "!", "s", "locks a part of a file"),
    ("LOCKT", "wdddo", "", "could this be locked?"),
    ("LOCKU", "wwsdd", "s", "releases a lock"),
    ("LOOKUP", "o", "", "a name to the handle of its file"),
    ("LOOKUPP", "", "", "the handle of the folder above"),
    ("NVERIFY", "f", "", "has it changed?"),
    ("OPEN", "!", "!", "opens a file"),
    ("OPENATTR", "w", "", "named attributes of a file"),
    ("OPEN_CONFIRM", "sw", "s", "confirms the first open"),
    ("OPEN_DOWNGRADE", "swww", "s", "opens a file for less"),
    ("PUTFH", "o", "", ""),
    ("PUTPUBFH", "", "", ""),
    ("PUTROOTFH", "", "", ""),
    ("READ", "sdw", "wo", "reads data"),
    ("READDIR", "ddwwb", "!", "names in a folder"),
    ("READLINK", "", "o", "where a symbolic link points"),
    ("REMOVE", "o", "wdd", "removes a file"),
    ("RENAME", "oo", "wddwdd", "renames a file"),
    ("RENEW", "d", "", "the client is still there"),
    ("RESTOREFH", "", "", ""),
    ("SAVEFH", "", "", ""),
    ("SECINFO", "o", "!", "which security is asked for"),
    ("SETATTR", "sf", "b", "changes mode, owner, size or times"),
    ("SETCLIENTID", "dowoow", "dd", "the client says who it is"),
    ("SETCLIENTID_CONFIRM", "dd", "", "confirms the client"),
    ("VERIFY", "f", "", "is it still the same?"),
    ("WRITE", "sdwo", "wwd", "writes data"),
    ("RELEASE_LOCKOWNER", "do", "", "forgets the owner of locks"),
    ("BACKCHANNEL_CTL", "!", "", "how the server may call back"),
    ("BIND_CONN_TO_SESSION", "sww", "sww", "joins the session"),
    ("EXCHANGE_ID", "!", "!", "the client says who it is"),
    ("CREATE_SESSION", "!", "!", "begins a session"),
    ("DESTROY_SESSION", "s", "", "ends a session"),
    ("FREE_STATEID", "s", "", "forgets a state"),
    ("GET_DIR_DELEGATION", "!", "!", "a delegation of a folder"),
    ("GETDEVICEINFO", "swwb", "!", "where a pNFS device is"),
    ("GETDEVICELIST", "!", "!", "which pNFS devices there are"),
    ("LAYOUTCOMMIT", "!", "!", "commits data written by layout"),
    ("LAYOUTGET", "wwwdddsw", "!", "where the data lie (pNFS)"),
    ("LAYOUTRETURN", "!", "!", "gives a layout back"),
    ("SECINFO_NO_NAME", "w", "!", "which security is asked for"),
    ("SEQUENCE", "swwww", "swwwww", ""),
    ("SET_SSV", "!", "!", "a shared secret"),
    ("TEST_STATEID", "!", "!", "are these states still valid?"),
    ("WANT_DELEGATION", "!", "!", "requests a delegation"),
    ("DESTROY_CLIENTID", "d", "", "the client is gone"),
    ("RECLAIM_COMPLETE", "w", "", "all state is reclaimed"),
    ("ALLOCATE", "sdd", "", "reserves space"),
    ("COPY", "ssdddwwz", "zdwdww", "copies at the server"),
    ("COPY_NOTIFY", "!", "!", "prepares a copy to another server"),
    ("DEALLOCATE", "sdd", "", "punches a hole"),
    ("IO_ADVISE", "sddb", "b", "how a file will be used"),
    ("LAYOUTERROR", "!", "", "reports errors of a layout"),
    ("LAYOUTSTATS", "!", "", "reports how a layout was used"),
    ("OFFLOAD_CANCEL", "s", "", "ends a copy at the server"),
    ("OFFLOAD_STATUS", "s", "!", "progress of a server-side copy"),
    ("READ_PLUS", "sdw", "!", "reads data and holes"),
    ("SEEK", "sdw", "wd", "where is the next hole or data?"),
    ("WRITE_SAME", "swddddwdo", "zdwd", "writes a pattern"),
    ("CLONE", "ssddd", "", "shares blocks of another file"),
    ("GETXATTR", "o", "o", "an extended attribute"),
    ("SETXATTR", "woo", "wdd", "changes an extended attribute"),
    ("LISTXATTRS", "dw", "!", "names of extended attributes"),
    ("REMOVEXATTR", "o", "wdd", "removes an extended attribute"),
];

/// More operations than clients request at once.
const MOST_OPERATIONS: usize = 32;

fn operation(number: u32) -> Option<&'static NfsOperation> {
    V4.get((number as usize).checked_sub(3)?)
}

/// The operations of a compound, as far as they can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Compound {
    minor: u32,
    operations: Vec<u32>,
    /// None is missing.
    whole: bool,
}

impl Compound {
    /// The one that was asked for, and what of.
    fn of(mut xdr: Xdr<'_>) -> (Compound, CallDetail) {
        let mut compound = Compound {
            minor: 0,
            operations: Vec::new(),
            whole: false,
        };
        let mut detail = CallDetail::default();
        compound.whole = compound.walk(&mut xdr, &mut detail).is_some();
        (compound, detail)
    }

    fn walk(&mut self, xdr: &mut Xdr<'_>, detail: &mut CallDetail) -> Option<()> {
        xdr.opaque(usize::MAX)?;
        self.minor = xdr.u32()?;
        let count = xdr.u32()? as usize;
        for _ in 0..count.min(MOST_OPERATIONS) {
            let number = xdr.u32()?;
            let (name, arguments, ..) = operation(number)?;
            self.operations.push(number);
            if let Some(said) = asked(name, *xdr) {
                *detail = said;
            }
            match *name {
                "OPEN" => open(xdr)?,
                "CREATE" => create(xdr)?,
                "LOCK" => lock(xdr)?,
                _ => step(xdr, arguments)?,
            }
        }
        (count <= MOST_OPERATIONS).then_some(())
    }

    /// Learns from the results; says whether there was something to learn.
    pub fn answered(&mut self, mut xdr: Xdr<'_>) -> bool {
        if self.whole {
            return false;
        }
        let mut seen = Vec::new();
        let mut walk = || {
            let _status = xdr.u32()?;
            xdr.opaque(usize::MAX)?;
            let count = xdr.u32()? as usize;
            for _ in 0..count.min(MOST_OPERATIONS) {
                let number = xdr.u32()?;
                let (_, _, results, _) = operation(number)?;
                seen.push(number);
                if xdr.u32()? == 0 {
                    step(&mut xdr, results)?;
                }
            }
            Some(())
        };
        // What failed ends the compound: there may have been more in the call.
        let _ = walk();
        let more = seen.len() > self.operations.len();
        if more {
            self.operations = seen;
        }
        more
    }

    /// By the operations that it is there for: those that only serve others are left out, unless there are no
    /// others.
    pub fn named(&self) -> (String, &'static str) {
        let known: Vec<&NfsOperation> = self
            .operations
            .iter()
            .filter_map(|n| operation(*n))
            .collect();
        let serves = |o: &&&NfsOperation| o.3.is_empty();
        let looks = |o: &&&NfsOperation| matches!(o.0, "GETATTR" | "ACCESS");
        let main: Vec<_> = known.iter().filter(|o| !serves(o) && !looks(o)).collect();
        let looked: Vec<_> = known.iter().filter(looks).collect();
        let chosen = [main, looked, known.iter().collect()]
            .into_iter()
            .find(|some| !some.is_empty())
            .unwrap_or_default();
        let names: Vec<&str> = chosen.iter().map(|o| o.0).collect();
        let names = match names.is_empty() {
            true => "COMPOUND".to_owned(),
            false => names.join("+"),
        };
        let purpose = chosen.first().map_or("", |o| match o.0 {
            "SEQUENCE" => "the client is still there",
            _ => o.3,
        });
        (format!("NFSv4.{} {names}", self.minor), purpose)
    }
}

/// The detail of an operation, where its arguments have it.
fn asked(operation: &str, mut xdr: Xdr<'_>) -> Option<CallDetail> {
    match operation {
        "READ" | "READ_PLUS" => {
            step(&mut xdr, "s")?;
            Some(range(xdr.u64()?, xdr.u32()?))
        }
        "WRITE" => {
            step(&mut xdr, "s")?;
            let (offset, how) = (xdr.u64()?, stable(xdr.u32()?));
            let bytes = xdr.u32()?;
            Some(CallDetail::Range { offset, bytes, how })
        }
        "COMMIT" => committed(&mut xdr),
        "ALLOCATE" | "DEALLOCATE" => {
            step(&mut xdr, "s")?;
            let (offset, bytes) = (xdr.u64()?, xdr.u64()?);
            Some(format!("{bytes} bytes at {offset}").into())
        }
        "COPY" | "CLONE" => {
            step(&mut xdr, "ss")?;
            let [from, to, bytes] = [xdr.u64()?, xdr.u64()?, xdr.u64()?];
            Some(format!("{bytes} bytes at {from} to {to}").into())
        }
        "LOOKUP" | "REMOVE" | "RENAME" | "GETXATTR" | "REMOVEXATTR" => {
            Some(file_name(&mut xdr)?.into())
        }
        "SETXATTR" => {
            step(&mut xdr, "w")?;
            Some(file_name(&mut xdr)?.into())
        }
        "OPEN" => {
            step(&mut xdr, "wwwdo")?;
            made(&mut xdr)?;
            // CLAIM_NULL and those of delegations name the file.
            match xdr.u32()? {
                0 | 3 => {}
                2 => step(&mut xdr, "s")?,
                _ => return None,
            }
            Some(file_name(&mut xdr)?.into())
        }
        "CREATE" => {
            kind(&mut xdr)?;
            Some(file_name(&mut xdr)?.into())
        }
        _ => None,
    }
}

/// What is to be put on stable storage; a length of 0 means all (RFC 1813, 3.3.21; RFC 8881, 18.3.3).
fn committed(xdr: &mut Xdr<'_>) -> Option<CallDetail> {
    let offset = xdr.u64()?;
    Some(match xdr.u32()? {
        0 => CallDetail::From(offset),
        bytes => range(offset, bytes),
    })
}

/// Whether data that were written may stay in memory (`stable_how`).
fn stable(how: u32) -> &'static str {
    match how {
        0 => ", may stay in memory",
        1 => ", data to stable storage",
        _ => ", all to stable storage",
    }
}

/// Steps over the arguments of CREATE (RFC 8881, 18.4.1).
fn create(xdr: &mut Xdr<'_>) -> Option<()> {
    kind(xdr)?;
    step(xdr, "of")
}

/// Steps over what is to be made (`createtype4`).
fn kind(xdr: &mut Xdr<'_>) -> Option<()> {
    match xdr.u32()? {
        // Devices, and a symbolic link.
        3 | 4 => step(xdr, "ww"),
        5 => step(xdr, "o"),
        _ => Some(()),
    }
}

/// Steps over the arguments of LOCK (RFC 8881, 18.10.1).
fn lock(xdr: &mut Xdr<'_>) -> Option<()> {
    step(xdr, "wwdd")?;
    match xdr.u32()? {
        0 => step(xdr, "sw"),
        _ => step(xdr, "wswdo"),
    }
}

/// Steps over how OPEN is to make the file, if it is (`openflag4`).
fn made(xdr: &mut Xdr<'_>) -> Option<()> {
    if xdr.u32()? != 1 {
        return Some(());
    }
    let how = match xdr.u32()? {
        0 | 1 => "f",
        2 => "d",
        3 => "df",
        _ => "!",
    };
    step(xdr, how)
}

/// Steps over the arguments of OPEN (RFC 8881, 18.16.1).
fn open(xdr: &mut Xdr<'_>) -> Option<()> {
    step(xdr, "wwwdo")?;
    made(xdr)?;
    let claim = match xdr.u32()? {
        0 | 3 => "o",
        1 => "w",
        2 => "so",
        4 | 6 => "",
        5 => "s",
        _ => "!",
    };
    step(xdr, claim)
}

//! The programs of NFS: their procedures by name, and what each is for.
//!
//! NFSv2 (RFC 1094), NFSv3 with MOUNT and NLM (RFC 1813), NFSv4.0 (RFC 7530), 4.1 (RFC 8881), 4.2 (RFC 7862),
//! extended attributes (RFC 8276), the port mapper (RFC 1833).

use super::xdr::Xdr;
use super::{Detail, What, range};
use std::borrow::Cow;

/// A procedure: its name behind that of its program, and what it is for.
type Procedure = (&'static str, &'static str);

const PORTMAP: &[Procedure] = &[
    ("PORTMAP NULL", "is the server there?"),
    ("PORTMAP SET", "registers a service"),
    ("PORTMAP UNSET", "takes a service off the list"),
    ("PORTMAP GETPORT", "which port has this service?"),
    ("PORTMAP DUMP", "all services and their ports"),
];

const MOUNT: &[Procedure] = &[
    ("MOUNT NULL", "is the server there?"),
    ("MOUNT MNT", "the handle of an exported folder"),
    ("MOUNT DUMP", "who has mounted what"),
    ("MOUNT UMNT", "the folder is not used any more"),
    ("MOUNT UMNTALL", "no folder is used any more"),
    ("MOUNT EXPORT", "which folders are exported"),
];

const V2: &[Procedure] = &[
    ("NFSv2 NULL", "is the server there?"),
    (
        "NFSv2 GETATTR",
        "attributes of a file: does the cache still hold?",
    ),
    (
        "NFSv2 SETATTR",
        "changes attributes: mode, owner, size or times",
    ),
    ("NFSv2 ROOT", ""),
    ("NFSv2 LOOKUP", "a name to the handle of its file"),
    ("NFSv2 READLINK", "where a symbolic link points"),
    ("NFSv2 READ", "reads data"),
    ("NFSv2 WRITECACHE", ""),
    ("NFSv2 WRITE", "writes data"),
    ("NFSv2 CREATE", "makes a file"),
    ("NFSv2 REMOVE", "removes a file"),
    ("NFSv2 RENAME", "renames a file"),
    ("NFSv2 LINK", "makes a hard link"),
    ("NFSv2 SYMLINK", "makes a symbolic link"),
    ("NFSv2 MKDIR", "makes a folder"),
    ("NFSv2 RMDIR", "removes a folder"),
    ("NFSv2 READDIR", "names in a folder"),
    ("NFSv2 STATFS", "space of the file system"),
];

const V3: &[Procedure] = &[
    ("NFSv3 NULL", "is the server there?"),
    (
        "NFSv3 GETATTR",
        "attributes of a file: does the cache still hold?",
    ),
    (
        "NFSv3 SETATTR",
        "changes attributes: mode, owner, size or times",
    ),
    ("NFSv3 LOOKUP", "a name to the handle of its file"),
    ("NFSv3 ACCESS", "what may this user do with it?"),
    ("NFSv3 READLINK", "where a symbolic link points"),
    ("NFSv3 READ", "reads data"),
    ("NFSv3 WRITE", "writes data"),
    ("NFSv3 CREATE", "makes a file"),
    ("NFSv3 MKDIR", "makes a folder"),
    ("NFSv3 SYMLINK", "makes a symbolic link"),
    ("NFSv3 MKNOD", "makes a special file"),
    ("NFSv3 REMOVE", "removes a file"),
    ("NFSv3 RMDIR", "removes a folder"),
    ("NFSv3 RENAME", "renames a file"),
    ("NFSv3 LINK", "makes a hard link"),
    ("NFSv3 READDIR", "names in a folder"),
    (
        "NFSv3 READDIRPLUS",
        "names in a folder, with their attributes",
    ),
    ("NFSv3 FSSTAT", "space of the file system"),
    (
        "NFSv3 FSINFO",
        "the largest read and write that the server takes",
    ),
    ("NFSv3 PATHCONF", "limits of names and links"),
    ("NFSv3 COMMIT", "has what was written put on stable storage"),
];

/// All else is a compound.
const V4_NULL: &[Procedure] = &[("NFSv4 NULL", "is the server there?")];

const NLM: &[Procedure] = &[
    ("NLM NULL", "is the server there?"),
    ("NLM TEST", "could this be locked?"),
    ("NLM LOCK", "locks a part of a file"),
    ("NLM CANCEL", "gives up waiting for a lock"),
    ("NLM UNLOCK", "releases a lock"),
    ("NLM GRANTED", "a lock that was waited for is held now"),
];

const ACL: &[Procedure] = &[
    ("NFSACL NULL", "is the server there?"),
    ("NFSACL GETACL", "the access list of a file"),
    ("NFSACL SETACL", "changes the access list of a file"),
];

/// What a call of a program asks.
pub(super) fn call(program: u32, version: u32, procedure: u32, arguments: Xdr<'_>) -> What {
    let (name, procedures): (&str, &[Procedure]) = match (program, version) {
        (100_000, _) => ("PORTMAP", PORTMAP),
        (100_003, 2) => ("NFSv2", V2),
        (100_003, 3) => ("NFSv3", V3),
        (100_003, 4) if procedure == 1 => {
            let (compound, detail) = Compound::of(arguments);
            let (operation, purpose) = compound.named();
            return What {
                operation: operation.into(),
                purpose,
                detail,
                compound: Some(Box::new(compound)),
            };
        }
        (100_003, 4) => ("NFSv4", V4_NULL),
        (100_005, _) => ("MOUNT", MOUNT),
        (100_011, _) => ("RQUOTA", &[]),
        (100_021, _) => ("NLM", NLM),
        (100_024, _) => ("NSM", &[]),
        (100_227, _) => ("NFSACL", ACL),
        // The server's calls to its client, on its client's connection.
        (0x4000_0000.., 1 | 4) if procedure == 1 => ("NFSv4", &[]),
        _ => ("", &[]),
    };
    let known = procedures.get(procedure as usize);
    let (operation, purpose): (Cow<'static, str>, _) = match (name, known) {
        (_, Some((name, purpose))) => ((*name).into(), *purpose),
        ("", None) => (format!("RPC {program}v{version} {procedure}").into(), ""),
        ("NFSv4", None) => (
            "NFSv4 callback".into(),
            "the server takes something back, or tells",
        ),
        (name, None) => (format!("{name} {procedure}").into(), ""),
    };
    What {
        detail: match (program, version) {
            (100_003, 3) => detail(procedure, arguments).unwrap_or_default(),
            (100_005, _) if procedure == 1 => { arguments }.name().unwrap_or_default().into(),
            _ => Detail::default(),
        },
        operation,
        purpose,
        compound: None,
    }
}

/// What a call of NFSv3 asks for.
fn detail(procedure: u32, mut xdr: Xdr<'_>) -> Option<Detail> {
    // Each of them begins with the handle of a file or folder.
    xdr.opaque()?;
    match procedure {
        // LOOKUP, CREATE to RENAME.
        3 | 8..=14 => Some(xdr.name()?.into()),
        6 => Some(range(xdr.u64()?, xdr.u32()?)),
        21 => committed(&mut xdr),
        // WRITE.
        7 => Some(Detail::Range {
            offset: xdr.u64()?,
            bytes: xdr.u32()?,
            how: stable(xdr.u32()?),
        }),
        _ => None,
    }
}

/// An operation of NFSv4, by its number from 3 on: its name; the shapes of its arguments and of its results when it
/// succeeds, see [`Xdr::step`] (`!`: not known, or not of one shape); and what it is for, empty where it
/// only serves others.
type Operation = (&'static str, &'static str, &'static str, &'static str);

const V4: &[Operation] = &[
    ("ACCESS", "w", "ww", "what may this user do with it?"),
    ("CLOSE", "ws", "s", "the file is not open any more"),
    (
        "COMMIT",
        "dw",
        "d",
        "has what was written put on stable storage",
    ),
    (
        "CREATE",
        "!",
        "wddb",
        "makes a folder, a link or a special file",
    ),
    ("DELEGPURGE", "d", "", "gives delegations back"),
    ("DELEGRETURN", "s", "", "gives a delegation back"),
    (
        "GETATTR",
        "b",
        "f",
        "attributes of a file: does the cache still hold?",
    ),
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
    (
        "SETATTR",
        "sf",
        "b",
        "changes attributes: mode, owner, size or times",
    ),
    ("SETCLIENTID", "dowoow", "dd", "the client says who it is"),
    (
        "SETCLIENTID_CONFIRM",
        "dd",
        "",
        "confirms who the client is",
    ),
    ("VERIFY", "f", "", "is it still the same?"),
    ("WRITE", "sdwo", "wwd", "writes data"),
    ("RELEASE_LOCKOWNER", "do", "", "forgets the owner of locks"),
    ("BACKCHANNEL_CTL", "!", "", "how the server may call back"),
    (
        "BIND_CONN_TO_SESSION",
        "sww",
        "sww",
        "adds this connection to a session",
    ),
    ("EXCHANGE_ID", "!", "!", "the client says who it is"),
    ("CREATE_SESSION", "!", "!", "begins a session"),
    ("DESTROY_SESSION", "s", "", "ends a session"),
    ("FREE_STATEID", "s", "", "forgets a state"),
    (
        "GET_DIR_DELEGATION",
        "!",
        "!",
        "asks for a delegation of a folder",
    ),
    ("GETDEVICEINFO", "swwb", "!", "where a pNFS device is"),
    ("GETDEVICELIST", "!", "!", "which pNFS devices there are"),
    (
        "LAYOUTCOMMIT",
        "!",
        "!",
        "what was written past the server is valid",
    ),
    (
        "LAYOUTGET",
        "wwwdddsw",
        "!",
        "where the data of a file lie (pNFS)",
    ),
    ("LAYOUTRETURN", "!", "!", "gives a layout back"),
    ("SECINFO_NO_NAME", "w", "!", "which security is asked for"),
    ("SEQUENCE", "swwww", "swwwww", ""),
    ("SET_SSV", "!", "!", "a shared secret"),
    ("TEST_STATEID", "!", "!", "are these states still valid?"),
    ("WANT_DELEGATION", "!", "!", "asks for a delegation"),
    ("DESTROY_CLIENTID", "d", "", "the client is gone"),
    (
        "RECLAIM_COMPLETE",
        "w",
        "",
        "all was claimed again after a restart",
    ),
    ("ALLOCATE", "sdd", "", "reserves space"),
    ("COPY", "ssdddwwz", "zdwdww", "copies at the server"),
    ("COPY_NOTIFY", "!", "!", "prepares a copy to another server"),
    ("DEALLOCATE", "sdd", "", "punches a hole"),
    ("IO_ADVISE", "sddb", "b", "how a file will be used"),
    ("LAYOUTERROR", "!", "", "tells errors of a layout"),
    ("LAYOUTSTATS", "!", "", "tells how a layout was used"),
    ("OFFLOAD_CANCEL", "s", "", "ends a copy at the server"),
    (
        "OFFLOAD_STATUS",
        "s",
        "!",
        "how far is a copy at the server?",
    ),
    ("READ_PLUS", "sdw", "!", "reads data and holes"),
    (
        "SEEK",
        "sdw",
        "wd",
        "where is the next hole, the next data?",
    ),
    ("WRITE_SAME", "swddddwdo", "zdwd", "writes a pattern"),
    ("CLONE", "ssddd", "", "shares blocks of another file"),
    ("GETXATTR", "o", "o", "an extended attribute"),
    ("SETXATTR", "woo", "wdd", "changes an extended attribute"),
    ("LISTXATTRS", "dw", "!", "names of extended attributes"),
    ("REMOVEXATTR", "o", "wdd", "removes an extended attribute"),
];

/// More operations than clients ask for at once.
const MOST_OPERATIONS: usize = 32;

fn operation(number: u32) -> Option<&'static Operation> {
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
    fn of(mut xdr: Xdr<'_>) -> (Compound, Detail) {
        let mut compound = Compound {
            minor: 0,
            operations: Vec::new(),
            whole: false,
        };
        let mut detail = Detail::default();
        compound.whole = compound.walk(&mut xdr, &mut detail).is_some();
        (compound, detail)
    }

    fn walk(&mut self, xdr: &mut Xdr<'_>, detail: &mut Detail) -> Option<()> {
        xdr.opaque()?;
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
                _ => xdr.step(arguments)?,
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
            xdr.opaque()?;
            let count = xdr.u32()? as usize;
            for _ in 0..count.min(MOST_OPERATIONS) {
                let number = xdr.u32()?;
                let (_, _, results, _) = operation(number)?;
                seen.push(number);
                if xdr.u32()? == 0 {
                    xdr.step(results)?;
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
        let known: Vec<&Operation> = self
            .operations
            .iter()
            .filter_map(|n| operation(*n))
            .collect();
        let serves = |o: &&&Operation| o.3.is_empty();
        let looks = |o: &&&Operation| matches!(o.0, "GETATTR" | "ACCESS");
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

/// What an operation asks for, where its arguments say it.
fn asked(operation: &str, mut xdr: Xdr<'_>) -> Option<Detail> {
    match operation {
        "READ" | "READ_PLUS" => {
            xdr.step("s")?;
            Some(range(xdr.u64()?, xdr.u32()?))
        }
        "WRITE" => {
            xdr.step("s")?;
            let (offset, how) = (xdr.u64()?, stable(xdr.u32()?));
            let bytes = xdr.u32()?;
            Some(Detail::Range { offset, bytes, how })
        }
        "COMMIT" => committed(&mut xdr),
        "ALLOCATE" | "DEALLOCATE" => {
            xdr.step("s")?;
            let (offset, bytes) = (xdr.u64()?, xdr.u64()?);
            Some(format!("{bytes} bytes at {offset}").into())
        }
        "COPY" | "CLONE" => {
            xdr.step("ss")?;
            let [from, to, bytes] = [xdr.u64()?, xdr.u64()?, xdr.u64()?];
            Some(format!("{bytes} bytes at {from} to {to}").into())
        }
        "LOOKUP" | "REMOVE" | "RENAME" | "GETXATTR" | "REMOVEXATTR" => Some(xdr.name()?.into()),
        "SETXATTR" => {
            xdr.step("w")?;
            Some(xdr.name()?.into())
        }
        "OPEN" => {
            xdr.step("wwwdo")?;
            made(&mut xdr)?;
            // CLAIM_NULL and those of delegations name the file.
            match xdr.u32()? {
                0 | 3 => {}
                2 => xdr.step("s")?,
                _ => return None,
            }
            Some(xdr.name()?.into())
        }
        "CREATE" => {
            kind(&mut xdr)?;
            Some(xdr.name()?.into())
        }
        _ => None,
    }
}

/// What is to be put on stable storage; a length of 0 means all (RFC 1813, 3.3.21; RFC 8881, 18.3.3).
fn committed(xdr: &mut Xdr<'_>) -> Option<Detail> {
    let offset = xdr.u64()?;
    Some(match xdr.u32()? {
        0 => Detail::From(offset),
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
    xdr.step("of")
}

/// Steps over what is to be made (`createtype4`).
fn kind(xdr: &mut Xdr<'_>) -> Option<()> {
    match xdr.u32()? {
        // Devices, and a symbolic link.
        3 | 4 => xdr.step("ww"),
        5 => xdr.step("o"),
        _ => Some(()),
    }
}

/// Steps over the arguments of LOCK (RFC 8881, 18.10.1).
fn lock(xdr: &mut Xdr<'_>) -> Option<()> {
    xdr.step("wwdd")?;
    match xdr.u32()? {
        0 => xdr.step("sw"),
        _ => xdr.step("wswdo"),
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
    xdr.step(how)
}

/// Steps over the arguments of OPEN (RFC 8881, 18.16.1).
fn open(xdr: &mut Xdr<'_>) -> Option<()> {
    xdr.step("wwwdo")?;
    made(xdr)?;
    let claim = match xdr.u32()? {
        0 | 3 => "o",
        1 => "w",
        2 => "so",
        4 | 6 => "",
        5 => "s",
        _ => "!",
    };
    xdr.step(claim)
}

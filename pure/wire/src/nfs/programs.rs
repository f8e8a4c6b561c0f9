//! The programs of ONC RPC around NFS: their numbers, and their procedures by name and purpose.
//!
//! NFSv2 (RFC 1094), NFSv3 with MOUNT and NLM (RFC 1813), NFSv4 (RFC 7530), the port mapper (RFC 1833).

/// The port mapper.
pub const PORTMAP: u32 = 100_000;
/// NFS.
pub const NFS: u32 = 100_003;
/// MOUNT.
pub const MOUNT: u32 = 100_005;

/// A procedure: its name behind that of its program, and what it is for.
pub type ProcedureName = (&'static str, &'static str);

const PORTMAP_PROCEDURES: &[ProcedureName] = &[
    ("PORTMAP NULL", "is the server there?"),
    ("PORTMAP SET", "registers a service"),
    ("PORTMAP UNSET", "takes a service off the list"),
    ("PORTMAP GETPORT", "which port has this service?"),
    ("PORTMAP DUMP", "all services and their ports"),
];

const MOUNT_PROCEDURES: &[ProcedureName] = &[
    ("MOUNT NULL", "is the server there?"),
    ("MOUNT MNT", "the handle of an exported folder"),
    ("MOUNT DUMP", "who has mounted what"),
    ("MOUNT UMNT", "the folder is not used any more"),
    ("MOUNT UMNTALL", "no folder is used any more"),
    ("MOUNT EXPORT", "which folders are exported"),
];

const V2: &[ProcedureName] = &[
    ("NFSv2 NULL", "is the server there?"),
    ("NFSv2 GETATTR", "attributes: is the cache valid?"),
    ("NFSv2 SETATTR", "changes mode, owner, size or times"),
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

const V3: &[ProcedureName] = &[
    ("NFSv3 NULL", "is the server there?"),
    ("NFSv3 GETATTR", "attributes: is the cache valid?"),
    ("NFSv3 SETATTR", "changes mode, owner, size or times"),
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
    ("NFSv3 READDIRPLUS", "names and attributes in a folder"),
    ("NFSv3 FSSTAT", "space of the file system"),
    ("NFSv3 FSINFO", "the largest read and write"),
    ("NFSv3 PATHCONF", "limits of names and links"),
    ("NFSv3 COMMIT", "puts written data on stable storage"),
];

/// All others are in a compound.
const V4_NULL: &[ProcedureName] = &[("NFSv4 NULL", "is the server there?")];

const NLM: &[ProcedureName] = &[
    ("NLM NULL", "is the server there?"),
    ("NLM TEST", "could this be locked?"),
    ("NLM LOCK", "locks a part of a file"),
    ("NLM CANCEL", "gives up waiting for a lock"),
    ("NLM UNLOCK", "releases a lock"),
    ("NLM GRANTED", "a lock that was waited for is held now"),
];

const ACL: &[ProcedureName] = &[
    ("NFSACL NULL", "is the server there?"),
    ("NFSACL GETACL", "the access list of a file"),
    ("NFSACL SETACL", "changes the access list of a file"),
];

/// A program's name and its procedures by number; `None`: not known here.
pub const fn program(
    program: u32,
    version: u32,
) -> Option<(&'static str, &'static [ProcedureName])> {
    Some(match (program, version) {
        (PORTMAP, _) => ("PORTMAP", PORTMAP_PROCEDURES),
        (NFS, 2) => ("NFSv2", V2),
        (NFS, 3) => ("NFSv3", V3),
        (NFS, 4) => ("NFSv4", V4_NULL),
        (MOUNT, _) => ("MOUNT", MOUNT_PROCEDURES),
        (100_011, _) => ("RQUOTA", &[]),
        (100_021, _) => ("NLM", NLM),
        (100_024, _) => ("NSM", &[]),
        (100_227, _) => ("NFSACL", ACL),
        _ => return None,
    })
}

/// The name of a procedure of a program that is known here.
pub(super) fn name([number, version, procedure]: [u32; 3]) -> &'static str {
    match program(number, version) {
        Some((_, procedures)) => procedures[procedure as usize].0,
        None => panic!("the client calls programs of the table only"),
    }
}

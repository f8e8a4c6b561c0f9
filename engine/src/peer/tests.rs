use super::*;
use model::{BlockServer, BlockStore, Blocks, Bulk, WaitMode};

const HOSTS: [&str; 6] = [
    "db2",
    "ssh:db2",
    "lab:wan",
    "local",
    "iperf3:db2",
    "nfs://nas/x",
];

/// Why each of the hosts cannot do this; empty where it can.
fn refusals(operation: PeerOperation<'_>) -> [String; 6] {
    HOSTS.map(|host| {
        let host: Host = host.parse().unwrap();
        let supports = host.supports(operation);
        supports.err().map_or(String::new(), |why| why.to_string())
    })
}

fn can(operation: PeerOperation<'_>) -> [bool; 6] {
    refusals(operation).map(|why| why.is_empty())
}

#[test]
fn each_kind_of_host_does_what_it_can() {
    let blocks = Workload::Blocks(Blocks {
        server: BlockServer::Peer(BlockStore::default()),
        block: Bytes(4096),
        depth: 1,
        mix: Vec::new(),
        random: false,
        seed: 0,
        wait: WaitMode::Block,
    });
    let spec = |workload, trace| Spec {
        workload,
        trace,
        ..Spec::default()
    };
    let bulk = || Workload::Bulk(Bulk::default());
    let agents = [true, true, true, true, false, false];
    assert_eq!(can(PeerOperation::Measure(&spec(bulk(), true))), agents);
    let all_but_nfs = [true, true, true, true, true, false];
    assert_eq!(
        can(PeerOperation::Measure(&spec(bulk(), false))),
        all_but_nfs
    );
    let not_by_iperf3 = [true, true, true, true, false, true];
    assert_eq!(
        can(PeerOperation::Measure(&spec(blocks, false))),
        not_by_iperf3
    );
    assert_eq!(can(PeerOperation::ProbeMtu), agents);
    assert_eq!(can(PeerOperation::Audit), agents);
    assert_eq!(can(PeerOperation::Restore), agents);
    let remote_agents = [true, true, false, false, false, false];
    assert_eq!(can(PeerOperation::ChangeMtu), remote_agents);
    let not_in_labs = [true, true, false, true, true, false];
    assert_eq!(can(PeerOperation::Persist), not_in_labs);
}

#[test]
fn a_refusal_says_what_to_do_instead() {
    let says = |operation, host: usize, part: &str| {
        let said = &refusals(operation)[host];
        assert!(said.contains(part), "{said}");
    };
    let traced = Spec {
        trace: true,
        ..Spec::default()
    };
    says(
        PeerOperation::Measure(&traced),
        4,
        "linerate trace --host HOST",
    );
    says(
        PeerOperation::Measure(&traced),
        5,
        "linerate trace --host HOST",
    );
    says(PeerOperation::ProbeMtu, 4, "linerate mtu http://HOST/PAGE");
    says(PeerOperation::Audit, 4, "linerate tune audit --run last");
    says(
        PeerOperation::Restore,
        4,
        "which changes nothing for anybody",
    );
    says(PeerOperation::Persist, 2, "leave out --persist");
    says(PeerOperation::ChangeMtu, 3, "local is no remote host");
    for operation in [PeerOperation::Audit, PeerOperation::Persist] {
        says(
            operation,
            5,
            "nfs://nas/x is an NFS server: it has no agent",
        );
    }
}

#[test]
fn hosts_without_an_agent_are_not_connected_to() {
    for (host, part) in [
        ("iperf3:db2", "it has no agent"),
        ("nfs://nas/x", "'linerate measure nfs://nas/x' measures it"),
        ("lab:wan", "from inside its lab only"),
    ] {
        let host: Host = host.parse().unwrap();
        let why = host.connect(&How::default()).err().unwrap().to_string();
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn labs_and_exports_are_those_of_their_hosts_alone() {
    let hosts = HOSTS.map(|host| host.parse::<Host>().unwrap());
    let labs: Vec<_> = hosts
        .iter()
        .map(|host| host.lab().map(|lab| lab.name))
        .collect();
    assert_eq!(labs, [None, None, Some("wan"), None, None, None]);
    let both: Host = "lab:wan/a-b".parse().unwrap();
    assert_eq!(both.lab().unwrap().hosts, Some("a-b"));
    let exports: Vec<_> = hosts.iter().map(Host::export).collect();
    assert_eq!(exports, [None, None, None, None, None, Some("/x")]);
    use ConfigFiles::{Both, Local, None as Nobody};
    let files: Vec<_> = hosts.iter().map(Host::config_files).collect();
    assert_eq!(files, [Both, Both, Nobody, Local, Both, Both]);
}

#[test]
fn a_server_without_sessions_is_gone_when_it_cannot_be_reached() {
    let session = Iperf3Session {
        name: "db2".to_owned(),
        port: 1,
        options: client::ClientOptions::default(),
        answered: false,
    };
    let booked = Booked {
        session,
        unit: SessionUnit::new(None, String::new()),
        local_id: None,
    };
    let nfs = NfsServer {
        name: "nas".to_owned(),
        port: None,
        export: "/x".to_owned(),
    };
    let unreachable = anyhow::Error::from(Refusal::unreachable("x"));
    let usage = anyhow::Error::from(Refusal::usage("x"));
    assert!(booked.is_gone(&unreachable) && !booked.is_gone(&usage));
    assert!(!nfs.is_gone(&unreachable));
    let mut booked = booked;
    assert_eq!(
        [booked.kind(), nfs.kind()],
        ["an iperf3 server", "an NFS server"]
    );
    assert!(booked.agent().is_none() && booked.address().is_none());
    assert!(!booked.is_lost());
}

#[test]
fn an_agent_is_one_at_its_address_and_an_iperf3_server_is_gone_when_it_cannot_be_reached() {
    let mut link = crate::testing::directed("db1", |_| None);
    let agent: &mut dyn PeerSession = &mut link;
    assert_eq!(agent.kind(), "an agent");
    assert_eq!(agent.address(), Some([127, 0, 0, 1].into()));
    assert!(agent.agent().is_some() && !agent.is_lost());
    assert!(!agent.is_gone(&Refusal::unreachable("x").into()));
    let server = Booked {
        session: Iperf3Session {
            name: "db2".to_owned(),
            port: 1,
            options: client::ClientOptions::default(),
            answered: false,
        },
        unit: SessionUnit::new(None, String::new()),
        local_id: None,
    };
    assert_eq!(server.kind(), "an iperf3 server");
    assert!(server.is_gone(&Refusal::unreachable("x").into()));
    assert!(!server.is_gone(&Refusal::usage("x").into()));
    assert!(server.address().is_none() && !server.is_lost());
}

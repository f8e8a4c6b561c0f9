#![expect(missing_docs, reason = "tests")]

use super::*;
use std::os::unix::fs::PermissionsExt;

/// A new identity that is nowhere kept.
pub fn fresh() -> Identity {
    Identity::generate().unwrap()
}

#[test]
fn the_key_is_made_once_and_for_its_owner_only() {
    let dir = crate::testing::TempDir::new();
    let inside = dir.path().join("a/b");
    let first = Identity::open(&inside).unwrap();
    assert_eq!(Identity::open(&inside).unwrap().id(), first.id());
    let path = inside.join(FILE);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);

    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let error = Identity::open(&inside).err().unwrap().to_string();
    assert!(error.contains("chmod 600"), "{error}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&path, b"nonsense").unwrap();
    let error = Identity::open(&inside).err().unwrap().to_string();
    assert!(error.contains("not an Ed25519 key"), "{error}");
}

#[test]
fn many_at_once_agree_on_one_key() {
    let dir = crate::testing::TempDir::new();
    let ids: Vec<NodeId> = std::thread::scope(|scope| {
        let open = || scope.spawn(|| Identity::open(dir.path()).unwrap().id());
        let all: Vec<_> = (0..8).map(|_| open()).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(ids.windows(2).all(|two| two[0] == two[1]));
}

#[test]
fn only_the_one_form_of_the_key_has_an_id() {
    let spki = fresh().spki().to_vec();
    assert!(id_of_spki(&spki).is_some());
    assert!(id_of_spki(&spki[..43]).is_none());
    assert!(id_of_spki(&[&spki[..], &[0]].concat()).is_none());
    assert!(id_of_spki(&spki[12..]).is_none());
}

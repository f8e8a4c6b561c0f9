//! What a browser, or somebody who is none, sends.

use wire::http::{LONGEST_HEAD, request};

/// The head alone decides on a request: what comes behind it changes nothing, and no part of it is a request.
pub fn http_request(bytes: &[u8]) {
    let Ok(Some(asked)) = request(bytes) else {
        return;
    };
    assert!(asked.path.starts_with('/'));
    let _ = (asked.names_no_name(), asked.value("host"));
    let end = (1..bytes.len()).find(|&end| !matches!(request(&bytes[..end]), Ok(None)));
    let head = &bytes[..end.unwrap_or(bytes.len())];
    assert!(head.len() <= LONGEST_HEAD);
    assert_eq!(request(head), Ok(Some(asked)));
}

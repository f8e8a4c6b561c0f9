//! The requests that the archive's pages take from a browser: HTTP/1.1 (RFC 9110, RFC 9112), GET and HEAD without a
//! body, and PUT of a capture; one a connection. httparse reads the head; what it means is decided here.

use std::net::IpAddr;

/// Longest head of a request that is read, in bytes; no browser sends half as much without cookies.
pub const LONGEST_HEAD: usize = 8 << 10;

/// Longest capture that is taken, in bytes.
pub const LONGEST_FILE: u64 = 256 << 20;

/// The only path that a file may be put to. No page of another origin can: a browser asks before it puts across origins
/// (Fetch, 4.10), and that question is refused.
pub const CAPTURE: &str = "/capture.html";

/// Header fields of a request, at most.
const MOST_FIELDS: usize = 64;

/// Names and values in a query, at most.
const MOST_QUERIES: usize = 32;

/// A request that may be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// HEAD: the answer has no body.
    pub head_only: bool,
    /// The path, decoded; begins with `/`.
    pub path: String,
    /// Names and values of the query, decoded, in their order.
    pub query: Vec<(String, String)>,
    /// Whom it was sent to: the Host field, port included.
    pub host: String,
    /// Bytes of the head.
    pub head: usize,
    /// Bytes of the file that follows it, which PUT has alone.
    pub file: Option<u64>,
}

impl HttpRequest {
    /// The value of the first of this name, if it says anything.
    pub fn value(&self, name: &str) -> Option<&str> {
        let mut of_name = self.query.iter().filter(|(key, _)| key == name);
        let value = of_name.next()?.1.trim();
        (!value.is_empty()).then_some(value)
    }

    /// The client called this machine by an address or as localhost. Any other name may be one that a foreign
    /// page made to lead here (DNS rebinding), and then that page would read the answer.
    pub fn names_no_name(&self) -> bool {
        let host = match self.host.rsplit_once(':') {
            Some((host, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
                host
            }
            _ => &self.host,
        };
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        host.eq_ignore_ascii_case("localhost") || bare.unwrap_or(host).parse::<IpAddr>().is_ok()
    }
}

/// How an answer begins (RFC 9110, 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Here it is.
    Ok,
    /// Not a request by the rules.
    BadRequest,
    /// There is no such page.
    NotFound,
    /// Neither GET nor HEAD, nor PUT where a file may be.
    MethodNotAllowed,
    /// It took too long to come.
    Timeout,
    /// It has a body, or one that is too long.
    ContentTooLarge,
    /// It was meant for somebody else.
    Misdirected,
    /// Its head is longer than [`LONGEST_HEAD`].
    FieldsTooLarge,
    /// The page could not be made.
    Failed,
    /// Too many at once.
    Busy,
    /// Not version 1.0 or 1.1.
    VersionNotSupported,
}

impl Status {
    /// Code and phrase, as in the first line of an answer.
    pub fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::Timeout => "408 Request Timeout",
            Status::ContentTooLarge => "413 Content Too Large",
            Status::Misdirected => "421 Misdirected Request",
            Status::FieldsTooLarge => "431 Request Header Fields Too Large",
            Status::Failed => "500 Internal Server Error",
            Status::Busy => "503 Service Unavailable",
            Status::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// The request that these bytes begin with; `None`: more must come.
///
/// # Errors
/// What to answer instead.
pub fn request(bytes: &[u8]) -> Result<Option<HttpRequest>, Status> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= LONGEST_HEAD => length,
        Ok(httparse::Status::Partial) if bytes.len() < LONGEST_HEAD => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Status::FieldsTooLarge),
        Err(httparse::Error::Version) => return Err(Status::VersionNotSupported),
        Err(_) => return Err(Status::BadRequest),
    };
    let target = head.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (head_only, puts) = match head.method {
        Some("GET") => (false, false),
        Some("HEAD") => (true, false),
        Some("PUT") if path == CAPTURE => (false, true),
        _ => return Err(Status::MethodNotAllowed),
    };
    let values = |name: &'static str| {
        let named = head.headers.iter();
        let named = named.filter(move |field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value)
    };
    if values("transfer-encoding").next().is_some() {
        return Err(Status::ContentTooLarge);
    }
    let mut lengths = values("content-length").map(|length| {
        let length = std::str::from_utf8(length).ok()?;
        length.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
        length.parse().ok()
    });
    let file = match (puts, lengths.next(), lengths.next()) {
        (true, Some(Some(length)), None) if length <= LONGEST_FILE => Some(length),
        (true, None, _) => return Err(Status::BadRequest),
        (false, None | Some(Some(0)), None) => None,
        _ => return Err(Status::ContentTooLarge),
    };
    // RFC 9112, 3.2: one, no more and no less.
    let mut hosts = values("host");
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Status::BadRequest);
    };
    let host = std::str::from_utf8(host).map_err(|_| Status::BadRequest)?;
    if !path.starts_with('/') {
        return Err(Status::BadRequest);
    }
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.take(MOST_QUERIES + 1).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        // A space in a form (URL Standard, application/x-www-form-urlencoded).
        let plain = |text: &str| decoded(&text.replace('+', " "));
        Some((plain(name)?, plain(value)?))
    });
    let query: Option<Vec<_>> = pairs.collect();
    let query = query.filter(|query| query.len() <= MOST_QUERIES);
    Ok(Some(HttpRequest {
        head_only,
        path: decoded(path).ok_or(Status::BadRequest)?,
        query: query.ok_or(Status::BadRequest)?,
        host: host.trim().to_owned(),
        head: length,
        file,
    }))
}

/// Percent-encoding undone (RFC 3986, 2.1); `None` if it is not text.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        rest = more;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, more @ ..] = rest else {
            return None;
        };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
        rest = more;
    }
    String::from_utf8(bytes).ok()
}

/// A name or value as a part of an address (RFC 3986, 2.3).
pub fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The head of an answer with a body of this kind and length, after which the connection is closed. Nothing keeps,
/// guesses at, frames or scripts it: `policy` is its Content Security Policy.
pub fn answer(status: Status, kind: &str, length: usize, policy: &str) -> String {
    let allow = match status {
        Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
        _ => "",
    };
    format!(
        "HTTP/1.1 {}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\
        Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
        Cross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\n\
        Content-Security-Policy: {policy}\r\n\r\n",
        status.line()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Option<HttpRequest>, Status> {
        request(text.as_bytes())
    }

    #[test]
    fn a_head_at_the_bound_is_read_and_one_byte_above_is_not() {
        let head = |length: usize| {
            let end = " HTTP/1.1\r\nHost: [::1]\r\n\r\n";
            format!("GET /{}{end}", "x".repeat(length - 5 - end.len()))
        };
        assert!(read(&head(LONGEST_HEAD)).unwrap().is_some());
        assert_eq!(read(&head(LONGEST_HEAD + 1)), Err(Status::FieldsTooLarge));
        let unended = head(LONGEST_HEAD + 1);
        assert_eq!(read(&unended[..LONGEST_HEAD - 1]), Ok(None));
        assert_eq!(read(&unended[..LONGEST_HEAD]), Err(Status::FieldsTooLarge));
    }

    #[test]
    fn what_a_browser_sends() {
        let text = "GET /3f.html?host=db+2&note=%22%C3%BC%26 HTTP/1.1\r\nHost: 127.0.0.1:5220\r\n\
            Accept: text/html\r\n\r\n";
        let asked = read(text).unwrap().unwrap();
        assert_eq!((asked.path.as_str(), asked.head_only), ("/3f.html", false));
        assert_eq!(asked.value("host"), Some("db 2"));
        assert_eq!(asked.value("note"), Some("\"\u{fc}&"));
        assert_eq!(asked.value("other"), None);
        for cut in 0..text.len() {
            assert_eq!(read(&text[..cut]), Ok(None), "{cut}");
        }
        let put = format!("PUT {CAPTURE}?name=a.pcap HTTP/1.1\r\nHost: [::1]\r\nContent-Length: ");
        let put = |length: u64| format!("{put}{length}\r\n\r\n");
        let taken = read(&(put(LONGEST_FILE) + "rest")).unwrap().unwrap();
        assert_eq!(taken.file, Some(LONGEST_FILE));
        assert_eq!(taken.head, put(LONGEST_FILE).len());
        assert_eq!(read(&put(LONGEST_FILE + 1)), Err(Status::ContentTooLarge));
        let head = read("HEAD / HTTP/1.0\r\nHost: [::1]\r\nContent-Length: 0\r\n\r\n");
        assert!(head.unwrap().unwrap().head_only);
    }

    #[test]
    fn what_is_refused() {
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(LONGEST_HEAD));
        let fields = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "a: b\r\n".repeat(64));
        let queries = format!("GET /?{} HTTP/1.1\r\nHost: a\r\n\r\n", "a&".repeat(33));
        for (text, status) in [
            (
                "POST / HTTP/1.1\r\nHost: a\r\n\r\n",
                Status::MethodNotAllowed,
            ),
            (
                "PUT /3f.html HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
                Status::MethodNotAllowed,
            ),
            (
                "PUT /capture.html HTTP/1.1\r\nHost: a\r\n\r\n",
                Status::BadRequest,
            ),
            (
                "PUT /capture.html HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
                Status::ContentTooLarge,
            ),
            (
                "DELETE /3f HTTP/1.1\r\nHost: a\r\n\r\n",
                Status::MethodNotAllowed,
            ),
            ("GET / HTTP/1.1\r\n\r\n", Status::BadRequest),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
                Status::BadRequest,
            ),
            (
                "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
                Status::BadRequest,
            ),
            ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", Status::BadRequest),
            ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", Status::BadRequest),
            ("GET /%f HTTP/1.1\r\nHost: a\r\n\r\n", Status::BadRequest),
            ("GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n", Status::BadRequest),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nb : c\r\n\r\n",
                Status::BadRequest,
            ),
            (
                "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
                Status::VersionNotSupported,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
                Status::ContentTooLarge,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
                Status::ContentTooLarge,
            ),
            ("\u{16}\u{3}\u{1}\0", Status::BadRequest),
            (&long, Status::FieldsTooLarge),
            (&fields, Status::FieldsTooLarge),
            (&queries, Status::BadRequest),
        ] {
            assert_eq!(read(text), Err(status), "{text:?}");
        }
    }

    #[test]
    fn names_of_untrusted_origin_are_distinguished_from_addresses() {
        let names_no_name = |host: &str| {
            let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            read(&text).unwrap().unwrap().names_no_name()
        };
        for own in [
            "127.0.0.1",
            "127.0.0.1:5220",
            "[::1]:5220",
            "[::1]",
            "LocalHost:1",
        ] {
            assert!(names_no_name(own), "{own}");
        }
        for other in [
            "evil.example",
            "evil.example:5220",
            "localhost.evil.example",
            "",
            ":80",
        ] {
            assert!(!names_no_name(other), "{other}");
        }
    }

    #[test]
    fn an_answer_ends_its_head_and_names_the_methods_that_are_taken() {
        let head = answer(
            Status::MethodNotAllowed,
            "text/plain",
            3,
            "default-src 'none'",
        );
        assert!(head.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"));
        assert!(head.contains("\r\nAllow: GET, HEAD\r\n"));
        assert!(head.ends_with("\r\n\r\n"));
    }

    proptest! {
        #[test]
        fn any_name_comes_back(text in ".*") {
            prop_assert_eq!(decoded(&encoded(&text)), Some(text));
        }
    }
}

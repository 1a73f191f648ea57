//! Addresses of services: `http://host:port/path` and `https://host/path`.

use std::fmt::{self, Write};

use ebb_types::{Result, bail, err};

/// Longest address.
const URL_BYTES_MAX: usize = 2_048;

/// The address of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    is_secure: bool,
    host: String,
    port: u16,
    path: String,
}

impl Url {
    /// `Invalid` for anything but an http or https address without a user and without a fragment.
    pub fn parse(text: &str) -> Result<Self> {
        let refuse = |why: &str| err!(Invalid, "{text:?} is no address of a service: {why}");
        if text.len() > URL_BYTES_MAX || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!(
                Invalid,
                "an address of a service has at most {URL_BYTES_MAX} visible ASCII characters, and no blanks"
            );
        }
        let (is_secure, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(refuse("it begins with https:// or http://")),
        };
        let path_at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(path_at);
        if authority.contains('@') || path.contains('#') {
            return Err(refuse("no user and no fragment belong in it"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| refuse("its port is no number"))?)
            }
            _ => (authority, if is_secure { 443 } else { 80 }),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match bare {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)),
        };
        if !is_host {
            return Err(refuse("its host is no name and no address"));
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { is_secure, host: host.to_owned(), port, path })
    }

    /// Whether it is asked over TLS.
    #[must_use]
    pub const fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// `host:port`, to connect to.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The name in the certificate of the server.
    #[must_use]
    pub fn name(&self) -> &str {
        self.host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&self.host)
    }

    /// Path, with the query.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The path of a resource below it. `more` begins with a slash.
    #[must_use]
    pub fn path_below(&self, more: &str) -> String {
        format!("{}{more}", self.path.trim_end_matches('/'))
    }
}

impl std::str::FromStr for Url {
    type Err = ebb_types::Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

/// Without the query, which may contain a key.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}{}", self.host, self.port, without_query(&self.path))
    }
}

/// A path without its query.
pub(crate) fn without_query(path: &str) -> &str {
    path.split_once('?').map_or(path, |(path, _)| path)
}

/// Names and values as `application/x-www-form-urlencoded`, which a query has too.
pub(crate) fn encode(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        if !text.is_empty() {
            text.push('&');
        }
        push_encoded(&mut text, name);
        text.push('=');
        push_encoded(&mut text, value);
    }
    text
}

/// Everything but the unreserved characters (RFC 3986, Sec. 2.3) as bytes in hexadecimal.
fn push_encoded(text: &mut String, plain: &str) {
    for byte in plain.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").expect("a text takes all");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let parts = |text: &str| {
            let url = Url::parse(text).unwrap();
            (url.is_secure(), url.address(), url.name().to_owned(), url.path().to_owned())
        };
        let owned = |is_secure, address: &str, name: &str, path: &str| {
            (is_secure, address.to_owned(), name.to_owned(), path.to_owned())
        };
        assert_eq!(parts("https://a.b-c.org"), owned(true, "a.b-c.org:443", "a.b-c.org", "/"));
        assert_eq!(parts("http://127.0.0.1:80/x?y=1"), owned(false, "127.0.0.1:80", "127.0.0.1", "/x?y=1"));
        assert_eq!(parts("https://[::1]:8443?q"), owned(true, "[::1]:8443", "::1", "/?q"));
        assert_eq!(parts("http://[::1]/"), owned(false, "[::1]:80", "::1", "/"));
        let url = Url::parse("https://vtn/openadr3/3.1.0/").unwrap();
        assert_eq!(url.path_below("/events"), "/openadr3/3.1.0/events");
        assert_eq!(Url::parse("https://h/a?key=secret").unwrap().to_string(), "https://h:443/a");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "h",
            "ftp://h/",
            "http://",
            "http:///x",
            "http://u:p@h/",
            "http://h/#x",
            "http://h:x/",
            "http://h:70000/",
            "http://a b/",
            "http://h/\r\nx: y",
            "http://[1]/",
            "http://h[/",
            "http://ü/",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn forms_are_encoded() {
        assert_eq!(encode(&[("a", "b c&d=é"), ("x-y", "1")]), "a=b%20c%26d%3D%C3%A9&x-y=1");
    }
}

//! The little of Redis's protocol (RESP2) that an index needs: commands in, numbers and lists of texts out.
//!
//! Plain TCP with short timeouts, on one connection. A crate for Redis would bring its own pools, reconnects and a dozen
//! crates for seven commands; what is asked here is small enough to be read.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long a Redis may take to answer before it counts as away.
const PATIENCE: Duration = Duration::from_millis(1000);

/// The largest text, list or line that is read: more is not an answer to what is asked here.
const LARGEST: usize = 16 * 1024 * 1024;

/// Where a Redis is, and as whom it is asked.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisAddress {
    host: String,
    port: u16,
    user: Option<String>,
    password: Option<String>,
    number: u32,
}

impl fmt::Display for RedisAddress {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl RedisAddress {
    /// Reads `redis://[user:password@]host[:port][/number]`.
    pub fn parse(url: &str) -> Result<RedisAddress, String> {
        if url.starts_with("rediss://") {
            return Err("Redis over TLS is not supported; put a tunnel in between".into());
        }
        let rest = url.strip_prefix("redis://").ok_or("it does not begin with redis://")?;
        let (place, number) = rest.split_once('/').unwrap_or((rest, ""));
        let (who, place) = place.rsplit_once('@').map_or((None, place), |(who, place)| (Some(who), place));
        let (user, password) = match who.map(|who| who.split_once(':').unwrap_or((who, ""))) {
            Some((user, password)) => (decoded(user)?, decoded(password)?),
            None => (None, None),
        };
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| format!("`{port}` is not a port"))?)
            }
            Some(_) | None => (place, 6379),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err("it names no host".into());
        }
        let number = match number {
            "" => 0,
            number => number.parse().map_err(|_| format!("`{number}` is not the number of a database"))?,
        };
        Ok(RedisAddress { host, port, user, password, number })
    }
}

/// A part of a URL without its percent signs; none when it is empty.
fn decoded(text: &str) -> Result<Option<String>, String> {
    let bad = || "its user or password is not written as a URL wants it".to_owned();
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit().ok_or_else(bad)?, digit().ok_or_else(bad)?);
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| bad())?);
    }
    let text = String::from_utf8(bytes).map_err(|_| bad())?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Why a Redis did not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum RedisError {
    #[error("{0}")]
    Network(#[from] io::Error),
    #[error("it says: {0}")]
    Refused(String),
    #[error("it does not answer as a Redis does")]
    Nonsense,
}

/// An answer.
#[derive(Debug)]
enum Reply {
    Text(String),
    Number,
    List(Vec<Reply>),
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(super) fn open(address: &RedisAddress) -> Result<Connection, RedisError> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for one in (address.host.as_str(), address.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&one, PATIENCE) {
                Ok(stream) => return Connection::greeted(stream, address),
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    fn greeted(stream: TcpStream, address: &RedisAddress) -> Result<Connection, RedisError> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut connection = Connection { stream: BufReader::new(stream) };
        if let Some(password) = &address.password {
            let words: Vec<String> = ["AUTH".to_owned()]
                .into_iter()
                .chain(address.user.clone())
                .chain([password.clone()])
                .collect();
            connection.ask(&[words])?;
        }
        if address.number != 0 {
            connection.ask(&[vec!["SELECT".into(), address.number.to_string()]])?;
        }
        connection.ask(&[vec!["PING".into()]])?;
        Ok(connection)
    }

    /// Sends commands together and waits until all were carried out.
    pub(super) fn ask(&mut self, commands: &[Vec<String>]) -> Result<(), RedisError> {
        self.send(commands)?;
        for _ in commands {
            self.reply(0)?;
        }
        Ok(())
    }

    /// The members of a set.
    pub(super) fn members(&mut self, key: &str) -> Result<Vec<String>, RedisError> {
        self.send(&[vec!["SMEMBERS".into(), key.to_owned()]])?;
        texts(self.reply(0)?)
    }

    /// Deletes every key that begins like this.
    pub(super) fn delete_below(&mut self, start: &str) -> Result<(), RedisError> {
        let escaped: String = start
            .chars()
            .flat_map(|one| if "*?[]\\^".contains(one) { vec!['\\', one] } else { vec![one] })
            .collect();
        let mut cursor = "0".to_owned();
        loop {
            let scan = ["SCAN", &cursor, "MATCH", &format!("{escaped}*"), "COUNT", "1000"];
            self.send(&[scan.map(str::to_owned).to_vec()])?;
            let Reply::List(parts) = self.reply(0)? else { return Err(RedisError::Nonsense) };
            let Ok([Reply::Text(next), keys]) = <[Reply; 2]>::try_from(parts) else {
                return Err(RedisError::Nonsense);
            };
            let keys = texts(keys)?;
            if !keys.is_empty() {
                let delete: Vec<String> = ["DEL".to_owned()].into_iter().chain(keys).collect();
                self.ask(&[delete])?;
            }
            if next == "0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    fn send(&mut self, commands: &[Vec<String>]) -> Result<(), RedisError> {
        let mut bytes = Vec::new();
        for command in commands {
            write!(bytes, "*{}\r\n", command.len())?;
            for word in command {
                write!(bytes, "${}\r\n{word}\r\n", word.len())?;
            }
        }
        Ok(self.stream.get_mut().write_all(&bytes)?)
    }

    fn reply(&mut self, depth: usize) -> Result<Reply, RedisError> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or(RedisError::Nonsense)?;
        let length =
            || rest.parse::<usize>().ok().filter(|length| *length <= LARGEST).ok_or(RedisError::Nonsense);
        match kind {
            "+" => Ok(Reply::Text(rest.to_owned())),
            ":" => Ok(Reply::Number),
            "-" => Err(RedisError::Refused(rest.to_owned())),
            "$" if rest == "-1" => Ok(Reply::Text(String::new())),
            "$" => {
                let mut bytes = vec![0; length()? + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
            }
            "*" if depth < 2 => {
                let mut list = Vec::new();
                for _ in 0..length()? {
                    list.push(self.reply(depth + 1)?);
                }
                Ok(Reply::List(list))
            }
            _ => Err(RedisError::Nonsense),
        }
    }

    fn line(&mut self) -> Result<String, RedisError> {
        let mut bytes = Vec::new();
        self.stream.by_ref().take(64 * 1024).read_until(b'\n', &mut bytes)?;
        let line = bytes.strip_suffix(b"\r\n").ok_or(RedisError::Nonsense)?;
        String::from_utf8(line.to_vec()).map_err(|_| RedisError::Nonsense)
    }
}

fn texts(reply: Reply) -> Result<Vec<String>, RedisError> {
    let Reply::List(list) = reply else { return Err(RedisError::Nonsense) };
    let text = |reply| match reply {
        Reply::Text(text) => Ok(text),
        Reply::Number | Reply::List(_) => Err(RedisError::Nonsense),
    };
    list.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_their_parts() {
        let all = RedisAddress::parse("redis://me:p%40ss@cache.example:7000/3").unwrap();
        assert_eq!(all.to_string(), "cache.example:7000");
        assert_eq!((all.user.as_deref(), all.password.as_deref(), all.number), (Some("me"), Some("p@ss"), 3));
        let plain = RedisAddress::parse("redis://localhost").unwrap();
        assert_eq!((plain.port, plain.number, plain.password.is_none()), (6379, 0, true));
        let sixth = RedisAddress::parse("redis://:secret@[::1]:6380").unwrap();
        assert_eq!((sixth.host.as_str(), sixth.port), ("::1", 6380));
        assert!(!format!("{sixth:?}").contains("secret"));
        for bad in ["", "http://localhost", "rediss://localhost", "redis://", "redis://h:x", "redis://h/x"] {
            assert!(RedisAddress::parse(bad).is_err(), "{bad}");
        }
    }
}

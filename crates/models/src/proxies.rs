//! Proxies on the way to a provider: those that the environment names, as other programs read it.
//!
//! `HTTPS_PROXY` and `HTTP_PROXY` (or `ALL_PROXY`) for addresses of that kind, except what `NO_PROXY` lists, in capital
//! letters or small ones. What runs on this machine is asked directly whatever they say.

use reqwest::{ClientBuilder, NoProxy, Proxy};

/// Always asked directly.
const HERE: &str = "localhost,127.0.0.0/8,::1";

/// A client that goes through what the variables name; an error names the variable, never its value: it may have a
/// password.
pub(super) fn through(
    client: ClientBuilder,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<ClientBuilder, String> {
    let read = |name: &str| {
        let found = variable(name).or_else(|| variable(&name.to_ascii_lowercase()));
        found.filter(|value| !value.trim().is_empty())
    };
    let direct = match read("NO_PROXY") {
        Some(hosts) => format!("{hosts},{HERE}"),
        None => HERE.to_owned(),
    };
    // Without this the client would read the environment by itself, in a way of its own.
    let mut client = client.no_proxy();
    for (scheme, name) in [("https", "HTTPS_PROXY"), ("http", "HTTP_PROXY")] {
        let Some((name, address)) =
            [name, "ALL_PROXY"].into_iter().find_map(|name| read(name).map(|address| (name, address)))
        else {
            continue;
        };
        let proxy = match scheme {
            "https" => Proxy::https(&address),
            _ => Proxy::http(&address),
        };
        let proxy = proxy.map_err(|_| format!("the variable {name} is not a proxy URL"))?;
        client = client.proxy(proxy.no_proxy(NoProxy::from_string(&direct)));
    }
    Ok(client)
}

#[cfg(test)]
mod tests {
    use reqwest::Client;

    use super::*;

    #[test]
    fn a_variable_that_is_no_address_is_named_without_its_value() {
        let why =
            through(Client::builder(), |name| (name == "https_proxy").then(|| "://ann:secret@".to_owned()));
        let why = why.err().unwrap();
        assert!(why.contains("HTTPS_PROXY") && !why.contains("secret"), "{why}");
        assert!(through(Client::builder(), |_| Some(" ".into())).is_ok());
    }
}

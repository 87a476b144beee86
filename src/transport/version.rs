//! Version negotiation: the JSON text of VERSION in both directions.
//!
//! Rules, as QEMU 11.1.3 keeps them: major and minor are 0; the reply must not be longer than the request (214
//! bytes); the data is NUL-terminated JSON; numbers beyond the client's own limits end the connection. The
//! server announces only what differs from the protocol's defaults, so that the reply stays well below that. A request without data is legal and means the defaults.

use serde_json::Value;

use super::message::{MAX_DATA, MAX_VERSION_DATA, u16_at};
use crate::dma::map::MAX_MAPS;

/// Bytes of major and minor before the JSON text.
pub const FIXED: usize = 4;

/// What the client told about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Minor version.
    pub minor: u16,
    /// Descriptors that it takes with one message.
    pub max_msg_fds: u64,
    /// Bytes that it takes in one DMA_READ or DMA_WRITE request.
    pub max_data_xfer_size: u64,
    /// It sends REGION_WRITE_MULTI if the server does.
    pub write_multiple: bool,
}

/// Why a VERSION request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not even a version number.
    #[error("too short")]
    Short,
    /// Only major version 0 exists.
    #[error("major version {0}")]
    Major(u16),
    /// Longer than [`MAX_VERSION_DATA`].
    #[error("{0} bytes of capabilities")]
    Long(usize),
    /// The text is not terminated, or has a NUL inside.
    #[error("capabilities are not a NUL-terminated text")]
    Text,
    /// The text is not a JSON object.
    #[error("capabilities are not a JSON object")]
    Json,
    /// A known capability has a value of the wrong type or out of range.
    #[error("capability {0} has an unusable value")]
    Value(&'static str),
}

/// Parses the payload of a VERSION request.
pub fn parse(payload: &[u8]) -> Result<Client, Refused> {
    let major = u16_at(payload, 0).ok_or(Refused::Short)?;
    let minor = u16_at(payload, 2).ok_or(Refused::Short)?;
    if major != 0 {
        return Err(Refused::Major(major));
    }
    let mut client = Client { minor, max_msg_fds: 1, max_data_xfer_size: 1 << 20, write_multiple: false };
    let data = &payload[FIXED..];
    if data.is_empty() {
        return Ok(client);
    }
    if data.len() > MAX_VERSION_DATA {
        return Err(Refused::Long(data.len()));
    }
    let text = data.strip_suffix(&[0]).filter(|text| !text.contains(&0)).ok_or(Refused::Text)?;
    let json: Value = serde_json::from_slice(text).map_err(|_| Refused::Json)?;
    let json = json.as_object().ok_or(Refused::Json)?;
    let Some(capabilities) = json.get("capabilities") else { return Ok(client) };
    let capabilities = capabilities.as_object().ok_or(Refused::Value("capabilities"))?;
    let number = |key: &'static str, or: u64| match capabilities.get(key) {
        None => Ok(or),
        Some(value) => value.as_u64().ok_or(Refused::Value(key)),
    };
    client.max_msg_fds = number("max_msg_fds", client.max_msg_fds)?;
    client.max_data_xfer_size = number("max_data_xfer_size", client.max_data_xfer_size)?;
    // Both describe the client's own limits for things that this server never does; the type still has to fit.
    number("pgsizes", 0)?;
    number("max_dma_maps", 0)?;
    if let Some(value) = capabilities.get("write_multiple") {
        client.write_multiple = value.as_bool().ok_or(Refused::Value("write_multiple"))?;
    }
    if capabilities.get("migration").is_some_and(|value| !value.is_object()) {
        return Err(Refused::Value("migration"));
    }
    Ok(client)
}

/// The payload of the reply: version 0.0 and what differs from the defaults.
pub fn reply() -> Vec<u8> {
    let fds = crate::sys::MAX_FDS;
    let text = format!(
        "{{\"capabilities\":{{\"max_msg_fds\":{fds},\"max_dma_maps\":{MAX_MAPS},\
         \"max_data_xfer_size\":{MAX_DATA},\"write_multiple\":true}}}}"
    );
    let mut payload = vec![0; FIXED];
    payload.extend_from_slice(text.as_bytes());
    payload.push(0);
    payload
}

#[cfg(test)]
mod tests {
    use super::super::message::HEADER_SIZE;
    use super::*;

    fn request(major: u16, minor: u16, data: &[u8]) -> Vec<u8> {
        let mut payload = major.to_ne_bytes().to_vec();
        payload.extend_from_slice(&minor.to_ne_bytes());
        payload.extend_from_slice(data);
        payload
    }

    fn json(text: &str) -> Result<Client, Refused> {
        let mut data = text.as_bytes().to_vec();
        data.push(0);
        parse(&request(0, 0, &data))
    }

    #[test]
    fn what_qemu_sends_is_understood() {
        let client = json(
            r#"{"capabilities": {"pgsizes": 4096, "max_msg_fds": 16, "max_dma_maps": 65535, "max_data_xfer_size": 1048576,
                "migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "write_multiple": true}}"#,
        );
        let want = Client { minor: 0, max_msg_fds: 16, max_data_xfer_size: 1 << 20, write_multiple: true };
        assert_eq!(client, Ok(want));
    }

    #[test]
    fn no_data_and_empty_objects_mean_the_defaults() {
        let defaults = Client { minor: 0, max_msg_fds: 1, max_data_xfer_size: 1 << 20, write_multiple: false };
        assert_eq!(parse(&request(0, 0, &[])), Ok(defaults));
        assert_eq!(json("{}"), Ok(defaults));
        assert_eq!(json(r#"{"capabilities":{}}"#), Ok(defaults));
        assert_eq!(json(r#"{"capabilities":{"twin_socket":{"supported":true},"x":1}}"#), Ok(defaults));
        assert_eq!(parse(&request(0, 7, &[])), Ok(Client { minor: 7, ..defaults }));
    }

    #[test]
    fn malformed_requests_are_refused() {
        assert_eq!(parse(&[0; 3]), Err(Refused::Short));
        assert_eq!(parse(&request(1, 0, b"{}\0")), Err(Refused::Major(1)));
        assert_eq!(parse(&request(0, 0, b"{}")), Err(Refused::Text));
        assert_eq!(parse(&request(0, 0, b"{}\0 \0")), Err(Refused::Text));
        assert_eq!(parse(&request(0, 0, &[b' '; MAX_VERSION_DATA + 1])), Err(Refused::Long(MAX_VERSION_DATA + 1)));
        assert_eq!(json(""), Err(Refused::Json));
        assert_eq!(json("[]"), Err(Refused::Json));
        assert_eq!(json("{"), Err(Refused::Json));
        assert_eq!(parse(&request(0, 0, b"\"\xff\"\0")), Err(Refused::Json));
        assert_eq!(json(r#"{"capabilities":4}"#), Err(Refused::Value("capabilities")));
        assert_eq!(json(r#"{"capabilities":{"max_msg_fds":-1}}"#), Err(Refused::Value("max_msg_fds")));
        assert_eq!(json(r#"{"capabilities":{"max_data_xfer_size":"1"}}"#), Err(Refused::Value("max_data_xfer_size")));
        assert_eq!(json(r#"{"capabilities":{"write_multiple":1}}"#), Err(Refused::Value("write_multiple")));
        assert_eq!(json(r#"{"capabilities":{"migration":true}}"#), Err(Refused::Value("migration")));
        assert_eq!(json(&"[".repeat(4000)), Err(Refused::Json), "deep nesting neither overflows nor passes");
    }

    #[test]
    fn the_reply_fits_into_the_buffer_of_qemu() {
        let size = HEADER_SIZE + reply().len();
        assert!(size <= 214, "{size} bytes are more than QEMU's request");
        assert_eq!(reply().last(), Some(&0));
        let parsed = parse(&reply()).unwrap();
        assert_eq!(parsed, Client { minor: 0, max_msg_fds: 16, max_data_xfer_size: 65536, write_multiple: true });
    }
}

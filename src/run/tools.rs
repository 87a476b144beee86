//! What the guest's own tools say of the device, cut to the lines that a person looks for first. The JSON report has
//! their whole output.

use serde_json::Value;

/// Fields that `ibv_devinfo` prints without `-v`.
const DEVINFO: &[&str] = &[
    "hca_id",
    "transport",
    "fw_ver",
    "node_guid",
    "sys_image_guid",
    "vendor_id",
    "vendor_part_id",
    "hw_ver",
    "board_id",
    "phys_port_cnt",
    "port",
    "state",
    "max_mtu",
    "active_mtu",
    "link_layer",
];

/// `lspci -nn`, and from `-vv` the link and whether the function may relax the order of its requests.
pub fn lspci(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().next().map(str::to_string).into_iter().collect();
    let find = |label: &str| text.lines().map(str::trim).find_map(|line| line.strip_prefix(label)).map(str::trim);
    let product = find("Product Name:").map(|name| format!("product {name}"));
    let link = find("LnkSta:").map(|link| link.split_once('\t').map_or(link, |(link, _)| link).to_string());
    let relaxed = ["RlxdOrd+", "RlxdOrd-"].into_iter().find(|flag| text.contains(flag)).map(str::to_string);
    let details: Vec<String> = [product, link, relaxed].into_iter().flatten().collect();
    if !details.is_empty() {
        lines.push(details.join(", "));
    }
    lines
}

/// `ibv_devinfo`.
pub fn devinfo(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim(), value.trim()))
        .filter(|(name, _)| DEVINFO.contains(name))
        .map(|(name, value)| format!("{name}: {value}"))
        .collect()
}

/// `rdma link`.
pub fn rdma_link(links: &Value) -> Vec<String> {
    let text = |link: &Value, key: &str| match &link[key] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let line = |link: &Value| {
        let names = ["state", "physical_state", "netdev"];
        let fields: Vec<String> = names.iter().map(|name| format!("{name} {}", text(link, name))).collect();
        format!("{}/{} {}", text(link, "ifname"), text(link, "port"), fields.join(" "))
    };
    links.as_array().map(|links| links.iter().map(line).collect()).unwrap_or_default()
}

/// `devlink dev info`: each device with its driver and versions.
pub fn devlink(info: &Value) -> Vec<String> {
    let Some(devices) = info["info"].as_object() else { return Vec::new() };
    let mut lines = Vec::new();
    for (name, device) in devices {
        let mut line = name.clone();
        leaves(device, &mut |key, value| line.push_str(&format!(" {key} {value}")));
        lines.push(line);
    }
    lines
}

fn leaves(value: &Value, found: &mut impl FnMut(&str, &str)) {
    let Some(object) = value.as_object() else { return };
    for (key, value) in object {
        match value {
            Value::String(text) => found(key, text),
            _ => leaves(value, found),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lspci_is_cut_to_the_name_the_link_and_the_ordering_bit() {
        let text = "0000:01:00.0 Ethernet controller [0200]: Mellanox Technologies Device [15b3:2101]\n\
                    \t\tDevCtl:\tCorrErr+ NonFatalErr+\n\t\t\tRlxdOrd+ ExtTag+\n\
                    \t\tLnkSta:\tSpeed 64GT/s, Width x16\n\t\t\tTrErr-\n\
                    \tCapabilities: [48] Vital Product Data\n\t\tProduct Name: ConnectX\n";
        assert_eq!(
            lspci(text),
            [
                "0000:01:00.0 Ethernet controller [0200]: Mellanox Technologies Device [15b3:2101]",
                "product ConnectX, Speed 64GT/s, Width x16, RlxdOrd+",
            ]
        );
        assert!(lspci("").is_empty());
    }

    #[test]
    fn devinfo_is_what_the_tool_prints_without_v() {
        let text = "hca_id:\tmlx5_0\n\tmax_mr_size:\t0xffff\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n";
        assert_eq!(devinfo(text), ["hca_id: mlx5_0", "port: 1", "state: PORT_ACTIVE (4)"]);
    }

    #[test]
    fn links_and_versions_are_one_line_each() {
        let links =
            json!([{"ifname": "mlx5_0", "port": 1, "state": "ACTIVE", "physical_state": "LINK_UP", "netdev": "eth0"}]);
        assert_eq!(rdma_link(&links), ["mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eth0"]);
        let info = json!({"info": {"pci/0000:01:00.0": {"driver": "mlx5_core",
            "versions": {"fixed": {"fw.psid": "CX10"}, "running": {"fw.version": "50.48.1000"}}}}});
        assert_eq!(devlink(&info), ["pci/0000:01:00.0 driver mlx5_core fw.psid CX10 fw.version 50.48.1000"]);
        assert!(devlink(&Value::Null).is_empty() && rdma_link(&Value::Null).is_empty());
    }
}

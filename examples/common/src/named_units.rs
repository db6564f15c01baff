//! Checks that the names of numbers in JSON objects end with their units. The tests of each program call this.

use serde_json::Value;

/// Words that must not end a name, because the unit is missing: `block_size` is wrong, `block_size_bytes` is
/// right.
const QUANTITIES: [&str; 15] = [
    "buffer",
    "capacity",
    "chunk",
    "delay",
    "latency",
    "memory",
    "milliseconds",
    "mss",
    "mtu",
    "product",
    "rtt",
    "size",
    "time",
    "transfer",
    "water",
];

/// Returns the names in an object whose numbers lack their unit: single numbers, lists, and the `value` of an
/// object.
#[must_use]
pub fn missing(object: &Value) -> Vec<String> {
    match object {
        Value::Object(members) => members
            .iter()
            .flat_map(|(name, value)| {
                let own = (is_quantity(name) && is_number(value)).then(|| name.clone());
                own.into_iter().chain(missing(value))
            })
            .collect(),
        Value::Array(values) => values.iter().flat_map(missing).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

fn is_quantity(name: &str) -> bool {
    name.rsplit('_').next().is_some_and(|last| QUANTITIES.contains(&last))
}

fn is_number(value: &Value) -> bool {
    match value {
        Value::Number(_) => true,
        Value::Array(values) => values.iter().any(is_number),
        Value::Object(members) => members.get("value").is_some_and(is_number),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_say_their_units() {
        let good = json!({
            "block_size_bytes": 512, "queue_depth": 4, "no_delay": true, "rtt": { "min_ms": 1.5 }, "size": null,
            "units": [{ "capacity_bytes": 1 }],
        });
        assert_eq!(missing(&good), [""; 0]);
        let bad = json!({
            "units": [{ "block_size": 512 }], "plan": { "io_size": { "value": 1, "reason": "" } },
            "pings_rtt": [1, 2],
        });
        let mut found = missing(&bad);
        found.sort_unstable();
        assert_eq!(found, ["block_size", "io_size", "pings_rtt"]);
    }
}

//! The parsers of this crate, for answers of controllers and programs, as functions of bytes alone, with samples, for
//! `ebb-fuzz`.

use serde_json::{Value, json};

use crate::{Powered, http, ipmi, redfish};

/// An answer of a Redfish service, first its status by its last digit.
#[must_use]
pub fn redfish(bytes: &[u8]) -> bool {
    let Some((first, body)) = bytes.split_first() else { return false };
    let status = if first % 2 == 0 { 200 } else { 404 };
    let Ok(system) = http::parse(body, status) else { return false };
    for kinds in [redfish::SOFT, redfish::HARD, redfish::ON] {
        let _ = redfish::choose_kind(&system, kinds, Powered::On);
    }
    let _ = system.pointer("/Links/Chassis/0/@odata.id").and_then(Value::as_str);
    redfish::powered(&system).is_ok()
}

/// Answers.
#[must_use]
pub fn answers() -> Vec<Vec<u8>> {
    let system = json!({
        "PowerState": "On",
        "Links": { "Chassis": [{ "@odata.id": "/chassis/1" }] },
        "Actions": { "#ComputerSystem.Reset": {
            "target": "/systems/2/reset",
            "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown"],
        } },
    });
    let refusal = json!({ "error": { "message": "no" } });
    [format!("0{system}"), format!("1{refusal}")].map(String::into_bytes).to_vec()
}

/// The output of ipmitool.
#[must_use]
pub fn ipmitool(bytes: &[u8]) -> bool {
    ipmi::parse_status(&String::from_utf8_lossy(bytes)).is_ok()
}

/// Its output when all is well.
#[must_use]
pub fn states() -> Vec<Vec<u8>> {
    vec![b"Chassis Power is on\n".to_vec(), b"Chassis Power is off\n".to_vec()]
}

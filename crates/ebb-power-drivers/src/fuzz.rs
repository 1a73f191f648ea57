//! The parsers of this crate, for answers of controllers and programs, as functions of bytes alone, with samples, for
//! `ebb-fuzz`.

use serde_json::{Value, json};

use ebb_power::Supply;
use ebb_power::signal::carbon::Pointers;
use ebb_power::signal::openadr::{Calendar, Rule};

use crate::{Powered, http, ipmi, openadr, redfish};

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

/// An answer of a carbon service.
#[must_use]
pub fn carbon(bytes: &[u8]) -> bool {
    let Ok(answer) = http::parse(bytes, 200) else { return false };
    Pointers::default().read(&answer).is_ok_and(|intensity| intensity.grams_per_kwh >= 0.0)
}

/// Answers of the UK Carbon Intensity API and of Electricity Maps.
#[must_use]
pub fn intensities() -> Vec<Vec<u8>> {
    let uk = json!({ "data": [{ "from": "2018-01-20T12:00Z", "intensity": { "forecast": 266, "actual": 263 } }] });
    let maps = json!({ "carbonIntensity": 302, "datetime": "2018-04-25T18:07:00.350Z" });
    [uk, maps].map(|answer| answer.to_string().into_bytes()).to_vec()
}

/// An answer of an OpenADR server: events, or a token.
#[must_use]
pub fn openadr(bytes: &[u8]) -> bool {
    const MOST_WATTS: f64 = 265.0;
    let Ok(answer) = http::parse(bytes, 200) else { return false };
    let Value::Array(events) = answer else { return openadr::parse_token(&answer).is_ok() };
    let Ok(calendar) = Calendar::parse(&events, &["group-1".to_owned()]) else { return false };
    let rule = Rule {
        normal_watts: None,
        level_shares: [1.0, 0.75, 0.5, 0.0],
        money_per_hour: Some(1.0),
        grams_per_hour: Some(1.0),
    };
    for at_ms in [0, 1_800_000_000_000, u64::MAX] {
        let Supply::Watts(watts) = rule.supply_at(&calendar, at_ms, MOST_WATTS) else { return false };
        assert!((0.0..=MOST_WATTS).contains(&watts), "{watts} W");
        assert!(calendar.holds_for(at_ms).is_none_or(|left| !left.is_zero()), "at {at_ms}");
    }
    true
}

/// Answers with events and with a token.
#[must_use]
pub fn openadr_answers() -> Vec<Vec<u8>> {
    let events = json!([{
        "id": "1", "programID": "44", "eventName": "e", "createdDateTime": "2027-01-15T08:00:00Z", "priority": 0,
        "duration": "P9999Y", "targets": ["group-1", { "type": "GROUP", "values": ["group-1"] }],
        "payloadDescriptors": [{ "payloadType": "PRICE", "units": "KWH", "currency": "USD" }],
        "intervalPeriod": { "start": "2027-01-15T08:00:00Z", "duration": "PT1H" },
        "intervals": [
            { "id": 0, "payloads": [{ "type": "PRICE", "values": [0.17, 0.03] }, { "type": "GHG", "values": [300] }] },
            { "id": 1, "intervalPeriod": { "start": "0001-01-01", "duration": "PT2H" },
              "payloads": [{ "type": "SIMPLE", "values": [2] }, { "type": "IMPORT_CAPACITY_LIMIT", "values": [0.1] }] },
        ],
    }]);
    let token = json!({ "access_token": "abc", "token_type": "Bearer", "expires_in": 3600 });
    [events, token].map(|answer| answer.to_string().into_bytes()).to_vec()
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

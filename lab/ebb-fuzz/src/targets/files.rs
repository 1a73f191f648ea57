//! What people hand to the planners.

use ebb_plan::power::signal::{Scale, Signal};
use ebb_plan::raid::sizes::{MAX_FILES, Sizes};

use crate::target::{Cap, Shape, Target, nothing};

pub(super) const SIGNAL: Target = Target {
    name: "plan/signal",
    source: "an operator's CSV file",
    cap: Cap { base: 16 << 10, times: 64 },
    shape: Shape::Text,
    cases: 3_000,
    decode: |bytes| {
        let scale = Scale { nodes_watts: 225.0, fixed_watts: 40.0 };
        let Ok(signal) = Signal::parse("t.csv", &String::from_utf8_lossy(bytes), scale) else { return false };
        assert!(signal.mean_watts() >= 0.0, "{signal:?}");
        true
    },
    samples: || {
        vec![b"seconds,fraction\n0,0.5\n30,0.2\n100,1\n105,0\n".to_vec(), b"seconds,watts\n0,5\n9,6\n".to_vec()]
    },
    repair: nothing,
};

/// As many sizes as a histogram may count, eight bytes each, in a list that grows, and dealt to directories.
pub(super) const HISTOGRAM: Target = Target {
    name: "plan/histogram",
    source: "an operator's CSV file",
    cap: Cap { base: 32 * MAX_FILES as usize, times: 64 },
    shape: Shape::Text,
    cases: 1_000,
    decode: |bytes| Sizes::parse_histogram("h.csv", &String::from_utf8_lossy(bytes), 1000).is_ok(),
    samples: || vec![b"bytes,count\n1000,5\n2000000,7\n64000000,2\n".to_vec()],
    repair: nothing,
};

pub(super) const FIND: Target = Target {
    name: "plan/find",
    source: "an operator's list of files",
    cap: Cap { base: 64 << 10, times: 64 },
    shape: Shape::Text,
    cases: 3_000,
    decode: |bytes| Sizes::parse_find("f.txt", &String::from_utf8_lossy(bytes)).is_ok(),
    samples: || vec![b"120 a/b\n77 a/c\n9000000 d/e f\n".to_vec()],
    repair: nothing,
};

//! Applications: bytes that they read, shuffle and write, number of tasks, and cost of a byte.

use ebb_types::{Result, bail, err};
use serde::{Deserialize, Serialize};

use crate::cluster::MIB;

/// A MapReduce job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct App {
    /// Its name.
    pub name: String,
    /// Bytes read from files.
    pub map_input_bytes: f64,
    /// Bytes from maps to reducers; to files, if there are no reducers.
    pub map_output_bytes: f64,
    /// Bytes that reducers write to files.
    pub reduce_output_bytes: f64,
    /// Map tasks.
    pub mappers: usize,
    /// Reduce tasks; 0: the maps write files.
    pub reducers: usize,
    /// Cycles for a byte of map input; of map output, if there is no input.
    pub map_cycles_per_byte: f64,
    /// Cycles for a byte that comes to a reducer.
    pub reduce_cycles_per_byte: f64,
}

/// MRPerf's cost of a byte in a sort's maps (`init_Terasort`): the lightest work.
const LIGHT: f64 = 40.0;
/// Cost of a byte for programs that look at records: the paper's rule of thumb says that a task uses a disk for 5 % of
/// its time, so the work on a byte takes 19 times as long as reading it: 19 / (280 MiB/s) at 2.5 GHz.
const SCAN: f64 = 160.0;
/// One of the two inputs of a join is only tagged, the other is scanned: the mean of both costs.
const JOIN: f64 = f64::midpoint(LIGHT, SCAN);
/// Ten bytes put out for each that is read, each at the cost of light work.
const TENFOLD: f64 = 400.0;
/// MRPerf's higher cost for programs that compute (`app_list`: 400 and 4000).
const COMPUTE: f64 = 4000.0;
/// MRPerf's cost of a byte in reducers.
const REDUCE: f64 = 90.0;

const KIB: f64 = 1024.0;
const GIB: f64 = 1024.0 * MIB;

impl App {
    /// The ten applications of Table II. Sizes and tasks are the paper's. It prints no costs of bytes: see the
    /// constants of this file.
    #[must_use]
    pub fn table_ii() -> Vec<Self> {
        let app = |name: &str, bytes: [f64; 3], tasks: [usize; 2], map_cycles_per_byte: f64| Self {
            name: name.to_owned(),
            map_input_bytes: bytes[0],
            map_output_bytes: bytes[1],
            reduce_output_bytes: bytes[2],
            mappers: tasks[0],
            reducers: tasks[1],
            map_cycles_per_byte,
            reduce_cycles_per_byte: REDUCE,
        };
        vec![
            app("Grep", [10.0 * GIB, MIB, MIB], [160, 1], SCAN),
            app("TeraGen", [0.0, 10.0 * GIB, 0.0], [40, 0], LIGHT),
            app("TeraSort", [10.0 * GIB, 10.0 * GIB, 15.0 * GIB], [160, 40], LIGHT),
            app("Join", [10.0 * GIB, GIB, 10.0 * MIB], [160, 40], JOIN),
            app("Aggregate", [10.0 * GIB, 100.0 * MIB, 10.0 * MIB], [160, 10], SCAN),
            app("Inverted Index", [GIB, 10.0 * GIB, 100.0 * MIB], [40, 40], TENFOLD),
            app("PageRank", [GIB, 10.0 * GIB, GIB], [40, 40], TENFOLD),
            app("Small", [100.0 * KIB, MIB, 10.0 * KIB], [4, 1], SCAN),
            app("Summary", [10.0 * GIB, 10.0 * MIB, 10.0 * KIB], [160, 1], SCAN),
            app("Compute", [GIB, 10.0 * GIB, 100.0 * MIB], [40, 40], COMPUTE),
        ]
    }

    /// One of them, by its name in any case, spaces or not.
    ///
    /// # Errors
    /// Invalid: there is no such application; lists the known ones.
    pub fn by_name(name: &str) -> Result<Self> {
        let plain = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
        let apps = Self::table_ii();
        let names: Vec<String> = apps.iter().map(|app| app.name.clone()).collect();
        apps.into_iter()
            .find(|app| plain(&app.name) == plain(name))
            .ok_or_else(|| err!(Invalid, "application {name:?} is not known; known are {}", names.join(", ")))
    }

    /// The job with bytes and tasks multiplied by `factor`.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        let tasks = |count: usize| if count == 0 { 0 } else { ((count as f64 * factor).round() as usize).max(1) };
        Self {
            map_input_bytes: self.map_input_bytes * factor,
            map_output_bytes: self.map_output_bytes * factor,
            reduce_output_bytes: self.reduce_output_bytes * factor,
            mappers: tasks(self.mappers),
            reducers: tasks(self.reducers),
            ..self.clone()
        }
    }

    /// Refuses an impossible job.
    ///
    /// # Errors
    /// Invalid: names the application, the value and the nearest possible value.
    pub fn check(&self) -> Result<()> {
        let name = &self.name;
        for (field, value, most) in [
            ("map_input_bytes", self.map_input_bytes, 1e18),
            ("map_output_bytes", self.map_output_bytes, 1e18),
            ("reduce_output_bytes", self.reduce_output_bytes, 1e18),
            ("map_cycles_per_byte", self.map_cycles_per_byte, 1e9),
            ("reduce_cycles_per_byte", self.reduce_cycles_per_byte, 1e9),
        ] {
            if !(0.0..=most).contains(&value) {
                let nearest = if value > most { most } else { 0.0 };
                bail!(
                    Invalid,
                    "{name}: {field} = {value}: goes from 0 to {most:e}; the nearest possible value is {nearest:e}"
                );
            }
        }
        if self.mappers == 0 {
            bail!(Invalid, "{name}: mappers = 0: a job has at least one map; the nearest possible value is 1");
        }
        for (field, count) in [("mappers", self.mappers), ("reducers", self.reducers)] {
            if count > 1_000_000 {
                bail!(Invalid, "{name}: {field} = {count}: too many; the nearest possible value is 1000000");
            }
        }
        if self.reducers == 0 && self.reduce_output_bytes > 0.0 {
            bail!(
                Invalid,
                "{name}: reduce_output_bytes = {} without reducers; the nearest possible value is 0",
                self.reduce_output_bytes
            );
        }
        Ok(())
    }
}

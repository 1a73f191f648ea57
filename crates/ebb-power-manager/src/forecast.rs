//! The forecast of the supply: what an operator wants it to be made of, and the file of predicted watts.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use ebb_power::Hardware;
use ebb_power::manager::Expected;
use ebb_power::signal::source::{Origin, Sample};
use ebb_power::signal::{Forecast, ForecastKind, Prediction};
use ebb_runtime::{Moment, OpenMode, Runtime};
use ebb_types::{Result, bail};

use crate::feed::Reader;

/// How far ahead a forecast goes.
pub const SPAN: Duration = Duration::from_secs(3_600);
/// A file is read again after this, so that a new prediction is seen.
const REREAD: Duration = Duration::from_secs(5);
/// Longest time to read it.
const READ: Duration = Duration::from_secs(2);
/// Largest file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Makes forecasts.
#[derive(Debug, Default)]
pub struct Forecaster {
    kind: ForecastKind,
    read: Option<Moment>,
    /// What the file contained last, or why it is not used.
    file: Option<std::result::Result<(Bytes, Prediction), String>>,
}

/// A forecast, and what it is made of, for people.
#[derive(Clone, PartialEq, Debug)]
pub struct Foreseen {
    /// Its beginning, in milliseconds since the Unix epoch.
    pub from_ms: u64,
    /// Watts of the whole cluster from then on.
    pub forecast: Forecast,
    /// What it is made of.
    pub origin: String,
    /// Whether anything is known of the coming supply, beside that of now.
    pub is_known: bool,
}

/// What is known of the supply now.
#[derive(Clone, Copy, Debug)]
pub struct Present<'a> {
    /// The wall clock, in milliseconds since the Unix epoch.
    pub wall_ms: u64,
    /// The supply that counts now.
    pub sample: Sample,
    /// The cluster's draw.
    pub hardware: &'a Hardware,
    /// A reading above it would not be believed, and no step of a forecast is above it.
    pub plausible_watts: f64,
}

impl Foreseen {
    /// The forecast as the core wants it. A forecast that only says that nothing is known is none.
    #[must_use]
    pub fn expected(&self) -> Expected<'_> {
        Expected { from_ms: self.from_ms, forecast: self.is_known.then_some(&self.forecast) }
    }
}

impl Forecaster {
    /// Of this kind. A file is not read yet.
    #[must_use]
    pub const fn new(kind: ForecastKind) -> Self {
        Self { kind, read: None, file: None }
    }

    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> &ForecastKind {
        &self.kind
    }

    /// Reads the file for the first time. An operator who names a file wants an error at once if it cannot be used.
    pub async fn try_once(&mut self, runtime: &Runtime) -> Result<()> {
        let ForecastKind::File(path) = &self.kind else { return Ok(()) };
        self.read = Some(runtime.now());
        self.file = Some(Ok(read(runtime, path, None).await?));
        Ok(())
    }

    /// Reads the file again if it is time.
    pub async fn refresh(&mut self, runtime: &Runtime) {
        let ForecastKind::File(path) = &self.kind else { return };
        let now = runtime.now();
        if self.read.is_some_and(|read| now.since(read) < REREAD) {
            return;
        }
        self.read = Some(now);
        let before = self.file.take();
        let was_good = !matches!(before, Some(Err(_)));
        let outcome = read(runtime, path, before.and_then(std::result::Result::ok)).await;
        if let (Err(error), true) = (&outcome, was_good) {
            tracing::warn!(%error, "the forecast is not used until it can be read");
        }
        self.file = Some(outcome.map_err(|error| error.to_string()));
    }

    /// The forecast for now. Where an operator overrides the source, or the source is not believed, the present watts
    /// hold: what the source would say next does not count then either.
    #[must_use]
    pub fn forecast(&self, present: &Present<'_>, reader: Option<&Reader>) -> Foreseen {
        let Present { wall_ms, sample, hardware, plausible_watts } = *present;
        let held_watts = hardware.cluster_watts(sample.supply);
        let persistence = |why: &str| {
            let origin = if why.is_empty() { "persistence".to_owned() } else { format!("persistence: {why}") };
            Foreseen { from_ms: wall_ms, forecast: Forecast::persistence(held_watts), origin, is_known: false }
        };
        if self.kind == ForecastKind::Persistence {
            return persistence("");
        }
        match sample.origin {
            Origin::Source => {}
            Origin::Override => return persistence("an operator has set the supply"),
            Origin::Fallback(_) => return persistence("the source is not believed"),
        }
        match (&self.kind, &self.file) {
            (ForecastKind::File(path), Some(Ok((_, prediction)))) => {
                let now = Duration::from_millis(wall_ms);
                let forecast = prediction.forecast(now, held_watts, SPAN, plausible_watts);
                Foreseen { from_ms: wall_ms, forecast, origin: path.clone(), is_known: true }
            }
            (ForecastKind::File(_), Some(Err(error))) => persistence(error),
            (ForecastKind::File(path), None) => persistence(&format!("{path} has not been read yet")),
            _ => match reader.and_then(|reader| reader.look_ahead(wall_ms, SPAN, hardware, plausible_watts)) {
                Some(forecast) => Foreseen { from_ms: wall_ms, forecast, origin: "signal".to_owned(), is_known: true },
                None if reader.is_some_and(Reader::is_even) => {
                    Foreseen { is_known: true, ..persistence("the UPS spends its battery evenly") }
                }
                None => persistence("the source is not known ahead"),
            },
        }
    }
}

/// Reads a file of predicted watts. `before` is what it had before: the same bytes are not parsed again.
async fn read(runtime: &Runtime, path: &str, before: Option<(Bytes, Prediction)>) -> Result<(Bytes, Prediction)> {
    let disk = runtime.disk();
    let reading = async {
        let file = disk.open(Path::new(path), OpenMode::ReadOnly).await?;
        let len = file.len().await?;
        if len > FILE_BYTES_MAX {
            bail!(Invalid, "{path}: {len} bytes; a prediction may have {FILE_BYTES_MAX}");
        }
        file.read_at(0, usize::try_from(len).unwrap_or(0)).await
    };
    let bytes = runtime.timeout(READ, &format!("reading {path}"), reading).await?;
    if let Some(before) = before.filter(|(seen, _)| *seen == bytes) {
        return Ok(before);
    }
    let prediction = Prediction::parse(path, &String::from_utf8_lossy(&bytes))?;
    Ok((bytes, prediction))
}

#[cfg(test)]
mod tests {
    use ebb_power::signal::source::Doubt;
    use ebb_power::{NodePower, Supply};
    use ebb_wire::pb;

    use super::*;
    use crate::feed::Feed;

    const MINUTE: Duration = Duration::from_secs(60);

    fn hardware() -> Hardware {
        Hardware::uniform(40.0, 9, NodePower::REFERENCE).unwrap()
    }

    fn minutes(forecaster: &Forecaster, wall_ms: u64, sample: Sample, reader: Option<&Reader>) -> (Vec<f64>, String) {
        let present = Present { wall_ms, sample, hardware: &hardware(), plausible_watts: 2_650.0 };
        let foreseen = forecaster.forecast(&present, reader);
        (foreseen.forecast.watts_per_step(MINUTE, 4), foreseen.origin)
    }

    fn source(watts: f64) -> Sample {
        Sample { supply: Supply::Watts(watts), origin: Origin::Source }
    }

    fn reader(csv: &str, per_hour: Option<f64>) -> Reader {
        let trace =
            pb::TraceSource { name: "t".into(), csv: csv.into(), compress: 1.0, per_hour, ..Default::default() };
        let call = pb::FollowSource { source: Some(pb::follow_source::Source::Trace(trace)), ..Default::default() };
        Feed::from_call(call, 1_000_000).unwrap().open(&Runtime::real()).unwrap()
    }

    #[tokio::test]
    async fn a_signal_is_looked_up_ahead_and_nothing_else_is() {
        let forecaster = Forecaster::new(ForecastKind::Signal);
        let trace = reader("seconds,watts\n0,100\n60,80\n120,60\n", None);
        let at_start = minutes(&forecaster, 1_000_000, source(100.0), Some(&trace));
        assert_eq!(at_start, (vec![100.0, 80.0, 60.0, 100.0], "signal".to_owned()));
        let later = minutes(&forecaster, 1_060_000, source(80.0), Some(&trace)).0;
        assert_eq!(later, [80.0, 60.0, 100.0, 80.0]);
        let prices = reader("seconds,price\n0,4.5\n60,1\n", Some(1.0));
        let bought = minutes(&forecaster, 1_000_000, source(222.0), Some(&prices)).0;
        assert_eq!(bought[1], 265.0, "no more than the cluster can draw is bought");
        let mad = reader("seconds,watts\n0,100\n60,1e9\n", None);
        assert_eq!(minutes(&forecaster, 1_000_000, source(100.0), Some(&mad)).0[1], 2_650.0);

        let forced = Sample { supply: Supply::Watts(50.0), origin: Origin::Override };
        assert_eq!(minutes(&forecaster, 1_000_000, forced, Some(&trace)).0, [50.0; 4]);
        let doubted = Sample { supply: Supply::Watts(70.0), origin: Origin::Fallback(Doubt::Unheard) };
        assert_eq!(minutes(&forecaster, 1_000_000, doubted, Some(&trace)).0, [70.0; 4]);
        let (watts, origin) = minutes(&forecaster, 1_000_000, source(90.0), None);
        assert_eq!((watts, origin.as_str()), (vec![90.0; 4], "persistence: the source is not known ahead"));
        let persistent = minutes(&Forecaster::new(ForecastKind::Persistence), 1_000_000, source(90.0), Some(&trace));
        assert_eq!(persistent, (vec![90.0; 4], "persistence".to_owned()));
    }

    #[tokio::test]
    #[allow(clippy::disallowed_methods, reason = "the test is the program that writes predictions")]
    async fn a_file_is_read_again_when_it_changes() {
        let runtime = Runtime::real();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tomorrow.csv");
        let text = path.to_str().unwrap().to_owned();
        let mut forecaster = Forecaster::new(ForecastKind::File(text.clone()));
        assert!(forecaster.try_once(&runtime).await.unwrap_err().to_string().contains("tomorrow.csv"));
        let shown = |forecaster: &Forecaster| minutes(forecaster, 1_700_000_000_000, source(90.0), None);
        std::fs::write(&path, "unix_seconds,watts\n1700000000,10\n1700000060,20\n").unwrap();
        forecaster.try_once(&runtime).await.unwrap();
        assert_eq!(shown(&forecaster), (vec![10.0, 20.0, 90.0, 90.0], text.clone()));
        // As if the time to read it again had come.
        let renew = async |forecaster: &mut Forecaster, csv: &str| {
            std::fs::write(&path, csv).unwrap();
            forecaster.read = None;
            forecaster.refresh(&runtime).await;
        };
        renew(&mut forecaster, "unix_seconds,watts\n1700000000,30\n1700000060,1e9\n").await;
        assert_eq!(shown(&forecaster).0, [30.0, 2_650.0, 90.0, 90.0]);
        renew(&mut forecaster, "unix_seconds,watts\n1700000000,-1\n").await;
        let (watts, origin) = shown(&forecaster);
        assert!(watts == [90.0; 4] && origin.contains("line 2"), "{origin}");
        renew(&mut forecaster, &"x".repeat(2 << 20)).await;
        assert!(shown(&forecaster).1.contains("a prediction may have"));
        renew(&mut forecaster, "unix_seconds,watts\n1700000000,40\n").await;
        assert_eq!(shown(&forecaster).0[0], 40.0);
    }
}

//! Asks upsd (Network UPS Tools) for the state of a UPS. The protocol is `ebb_power::signal::nut`.

use std::time::Duration;

use ebb_power::signal::nut::{LINE_MAX, LOGOUT, Listing, list_variables};
use ebb_power::signal::ups::UpsReading;
use ebb_runtime::Runtime;
use ebb_types::{Error, Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

/// A UPS behind an upsd.
#[derive(Clone, Debug)]
pub struct Nut {
    runtime: Runtime,
    address: String,
    ups: String,
    deadline: Duration,
}

impl Nut {
    /// The UPS of this name at `address` (`host:port`; upsd's port is `ebb_power::signal::nut::PORT`).
    pub fn new(runtime: Runtime, address: &str, ups: &str, deadline: Duration) -> Result<Self> {
        list_variables(ups)?;
        Ok(Self { runtime, address: address.into(), ups: ups.into(), deadline })
    }

    /// The state of the UPS now. Each question is a connection of its own: upsd may be restarted in between.
    pub async fn read(&self) -> Result<UpsReading> {
        let purpose = format!("asking upsd at {} for {}", self.address, self.ups);
        let asked = self.runtime.timeout(self.deadline, &purpose, self.ask()).await;
        asked.map_err(|error| if error.detail().starts_with(&purpose) { error } else { error.context(&purpose) })
    }

    async fn ask(&self) -> Result<UpsReading> {
        let mut stream = self.runtime.connect(&self.address).await?;
        let question = list_variables(&self.ups)?;
        stream.write.write_all(question.as_bytes()).await.map_err(|error| Error::from_io(&error, "sending"))?;
        stream.write.flush().await.map_err(|error| Error::from_io(&error, "sending"))?;
        let mut lines = BufReader::new(stream.read);
        let mut listing = Listing::default();
        loop {
            let mut line = Vec::new();
            let most = LINE_MAX as u64 + 2;
            let read = (&mut lines).take(most).read_until(b'\n', &mut line).await;
            read.map_err(|error| Error::from_io(&error, "reading"))?;
            if line.pop() != Some(b'\n') {
                bail!(Disconnected, "the answer ends in the middle");
            }
            let line = String::from_utf8_lossy(&line);
            if let Some(variables) = listing.on_line(line.trim_end_matches('\r'))? {
                // Manners: whether the farewell arrives changes nothing.
                let _ = stream.write.write_all(LOGOUT.as_bytes()).await;
                return UpsReading::from_variables(&variables);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;

    use super::*;

    /// Answers one question with these bytes, and hangs up.
    async fn answer(bytes: &'static [u8]) -> Result<UpsReading> {
        let runtime = Runtime::real();
        let listener = runtime.listen("127.0.0.1:0").await.unwrap();
        let client = Nut::new(runtime.clone(), &listener.address(), "ups", Duration::from_secs(60)).unwrap();
        let server = runtime.spawn("upsd", async move {
            let mut stream = listener.accept().await.unwrap();
            let mut question = [0; 13];
            stream.read.read_exact(&mut question).await.unwrap();
            assert_eq!(&question, b"LIST VAR ups\n");
            stream.write.write_all(bytes).await.unwrap();
            stream.write.flush().await.unwrap();
        });
        let read = client.read().await;
        server.join().await.unwrap();
        read
    }

    #[tokio::test]
    async fn a_reading_comes_back() {
        let lines =
            b"BEGIN LIST VAR ups\nVAR ups ups.status \"OB\"\r\nVAR ups battery.charge \"40\"\nEND LIST VAR ups\n";
        let reading = answer(lines).await.unwrap();
        assert_eq!((reading.on_battery, reading.charge), (true, Some(0.4)));
    }

    #[tokio::test]
    async fn broken_answers_are_distinguished() {
        assert_eq!(answer(b"ERR UNKNOWN-UPS\n").await.unwrap_err().kind(), ErrorKind::NotFound);
        let cut = answer(b"BEGIN LIST VAR ups\nVAR ups ups.st").await.unwrap_err();
        assert_eq!(cut.kind(), ErrorKind::Disconnected);
        assert!(cut.to_string().starts_with("asking upsd at 127.0.0.1:"), "{cut}");
        assert_eq!(answer(&[b'x'; 3_000]).await.unwrap_err().kind(), ErrorKind::Disconnected);
    }
}

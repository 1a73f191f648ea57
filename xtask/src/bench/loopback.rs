//! Speed of TCP over loopback, without Ebb: the ceiling of every remote call on one machine.

use std::io::{Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

const BYTES: usize = 256 << 20;
const TURNS: u32 = 2000;

/// GiB per second, one sender, one receiver.
pub fn throughput() -> Result<f64> {
    let (mut sender, mut receiver) = pair()?;
    let started = Instant::now();
    let reader = thread::spawn(move || -> Result<usize> {
        let mut buffer = vec![0; 1 << 20];
        let mut seen = 0;
        loop {
            match receiver.read(&mut buffer)? {
                0 => return Ok(seen),
                count => seen += count,
            }
        }
    });
    let block = vec![7; 1 << 20];
    for _ in 0..BYTES / block.len() {
        sender.write_all(&block)?;
    }
    drop(sender);
    let seen = reader.join().expect("the reader does not panic")?;
    Ok(seen as f64 / f64::from(1 << 30) / started.elapsed().as_secs_f64())
}

/// Microseconds for 64 bytes there and back.
pub fn round_trip() -> Result<f64> {
    let (mut near, mut far) = pair()?;
    let echo = thread::spawn(move || -> Result<()> {
        let mut buffer = [0; 64];
        for _ in 0..TURNS {
            far.read_exact(&mut buffer)?;
            far.write_all(&buffer)?;
        }
        Ok(())
    });
    let mut buffer = [7; 64];
    let started = Instant::now();
    for _ in 0..TURNS {
        near.write_all(&buffer)?;
        near.read_exact(&mut buffer)?;
    }
    let elapsed = started.elapsed();
    echo.join().expect("the echo does not panic")?;
    Ok(elapsed.as_secs_f64() * 1e6 / f64::from(TURNS))
}

fn pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

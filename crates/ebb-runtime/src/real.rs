//! The real world: Linux.

use std::time::Duration;

use ebb_types::{Result, WallTime};

use crate::backend::{Backend, Work};
use crate::{Disk, Listener, Moment, Stream};

/// Linux.
#[derive(Debug, Default)]
pub struct RealBackend;

impl RealBackend {
    /// A door to Linux.
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}

impl Backend for RealBackend {
    fn name(&self) -> &str {
        "real"
    }
    fn now(&self) -> Moment {
        unreachable!()
    }
    fn wall(&self) -> WallTime {
        unreachable!()
    }
    fn sleep(&self, _span: Duration) -> Work<'static, ()> {
        unreachable!()
    }
    fn spawn(&self, _name: &'static str, _work: Work<'static, ()>) -> Box<dyn Fn() + Send + Sync> {
        unreachable!()
    }
    fn compute(&self, _work: Box<dyn FnOnce() + Send>) {
        unreachable!()
    }
    fn fill_random(&self, _out: &mut [u8]) {
        unreachable!()
    }
    fn listen<'a>(&'a self, _address: &'a str) -> Work<'a, Result<Listener>> {
        unreachable!()
    }
    fn connect<'a>(&'a self, _address: &'a str) -> Work<'a, Result<Stream>> {
        unreachable!()
    }
    fn disk(&self) -> Disk {
        unreachable!()
    }
}

//! The ends of connections that programs hold.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use ebb_types::{Error, Result, err};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::{Item, Network, PipeId, Wakes};
use crate::backend::Work;
use crate::disk::File;
use crate::net::{ReadHalf, Stream, StreamWrite, WriteHalf};

/// The connection whose outgoing direction is `outgoing`, as a program holds it.
pub(super) fn stream(network: &Arc<Network>, outgoing: PipeId, peer: String) -> Stream {
    Stream {
        read: ReadHalf::new(ReadEnd { network: network.clone(), id: outgoing.back() }),
        write: WriteHalf::new(WriteEnd { network: network.clone(), id: outgoing }),
        peer,
    }
}

struct ReadEnd {
    network: Arc<Network>,
    id: PipeId,
}

impl AsyncRead for ReadEnd {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut wakes = Wakes::default();
        let mut state = self.network.state.lock();
        let short_transfer = self.network.options.short_transfer;
        let Some(pipe) = state.pipes.get(&self.id).filter(|pipe| !pipe.reader.gone) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        };
        let (source, target) = (pipe.writer.host, pipe.reader.host);
        let mut want = buf.remaining();
        if want > 1 && !pipe.buffer.is_empty() {
            let dice = &mut state.link(&self.network, source, target).dice;
            if dice.chance(short_transfer) {
                want = 1 + dice.index(want);
            }
        }
        let Some(pipe) = state.pipes.get_mut(&self.id) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        };
        if want == 0 {
            return Poll::Ready(Ok(()));
        }
        let data = pipe.take_bytes(want);
        if !data.is_empty() {
            buf.put_slice(&data);
            // The window opens for the writer at once: the latency of acknowledgements is not modelled.
            wakes.add(&mut pipe.writer.waker);
            return Poll::Ready(Ok(()));
        }
        // Bytes that had arrived are read before the error is reported, as Linux does.
        if let Some(error) = pipe.reader.error {
            return Poll::Ready(Err(error.into()));
        }
        if pipe.ended {
            return Poll::Ready(Ok(()));
        }
        wakes.add(&mut pipe.reader.waker.replace(cx.waker().clone()).filter(|old| !old.will_wake(cx.waker())));
        Poll::Pending
    }
}

impl Drop for ReadEnd {
    fn drop(&mut self) {
        self.network.drop_reader(self.id);
    }
}

struct WriteEnd {
    network: Arc<Network>,
    id: PipeId,
}

impl WriteEnd {
    /// Sends the part of `bufs` that fits.
    fn send(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut wakes = Wakes::default();
        let mut state = self.network.state.lock();
        let options = &self.network.options;
        let want: usize = bufs.iter().map(|buf| buf.len()).sum();
        let Some(pipe) = state.pipes.get_mut(&self.id).filter(|pipe| !pipe.writer.gone) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        if let Some(error) = pipe.writer.error {
            return Poll::Ready(Err(error.into()));
        }
        if pipe.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if want == 0 {
            return Poll::Ready(Ok(0));
        }
        let room = options.window_bytes.saturating_sub(pipe.bytes).min(options.segment_bytes_max);
        if room == 0 {
            let old = pipe.writer.waker.replace(cx.waker().clone());
            wakes.add(&mut old.filter(|old| !old.will_wake(cx.waker())));
            return Poll::Pending;
        }
        let (source, target) = (pipe.writer.host, pipe.reader.host);
        let mut count = want.min(room);
        let dice = &mut state.link(&self.network, source, target).dice;
        if count > 1 && dice.chance(options.short_transfer) {
            count = 1 + dice.index(count);
        }
        state.push(&self.network, self.id, Item::Data(gather(bufs, count)));
        Poll::Ready(Ok(count))
    }
}

/// The first `count` bytes of some buffers.
fn gather(bufs: &[IoSlice<'_>], count: usize) -> Bytes {
    let mut data = BytesMut::with_capacity(count);
    for buf in bufs {
        let rest = count - data.len();
        data.extend_from_slice(&buf[..rest.min(buf.len())]);
    }
    data.freeze()
}

impl AsyncWrite for WriteEnd {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.send(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.send(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.network.state.lock();
        match state.pipes.get(&self.id) {
            Some(pipe) if pipe.writer.error.is_some() => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
            Some(pipe) if !pipe.closed => {
                state.push(&self.network, self.id, Item::End);
                Poll::Ready(Ok(()))
            }
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl StreamWrite for WriteEnd {
    fn send_file<'a>(&'a mut self, file: &'a File, offset: u64, len: u64) -> Work<'a, Result<()>> {
        Box::pin(async move {
            let end = offset
                .checked_add(len)
                .ok_or_else(|| err!(Invalid, "{}: no file has {len} bytes from {offset}", file.path().display()))?;
            let mut at = offset;
            while at < end {
                let want = (end - at).min(1 << 20) as usize;
                let data = file.read_at(at, want).await?;
                if data.is_empty() {
                    return Err(err!(Io, "{} ended before byte {end}, which was to be sent", file.path().display()));
                }
                let sent = self.write_all(&data).await;
                sent.map_err(|error| Error::from_io(&error, format_args!("sending {}", file.path().display())))?;
                at += data.len() as u64;
            }
            Ok(())
        })
    }
}

impl Drop for WriteEnd {
    fn drop(&mut self) {
        self.network.drop_writer(self.id);
    }
}

impl Network {
    fn drop_reader(self: &Arc<Self>, id: PipeId) {
        let mut state = self.state.lock();
        let Some(pipe) = state.pipes.get_mut(&id) else { return };
        pipe.reader.gone = true;
        let waker = pipe.reader.waker.take();
        self.close_if_done(&mut state, id.back());
        drop(state);
        drop(waker);
    }

    fn drop_writer(self: &Arc<Self>, id: PipeId) {
        let mut state = self.state.lock();
        let Some(pipe) = state.pipes.get_mut(&id) else { return };
        let was_gone = std::mem::replace(&mut pipe.writer.gone, true);
        let waker = pipe.writer.waker.take();
        if !was_gone && !pipe.closed && pipe.writer.error.is_none() {
            state.push(self, id, Item::End);
        }
        self.close_if_done(&mut state, id);
        drop(state);
        drop(waker);
    }

    /// When the program has dropped both ends, its kernel closes the connection: with a reset if bytes were left
    /// unread (RFC 2525, 2.17).
    fn close_if_done(self: &Arc<Self>, state: &mut super::State, outgoing: PipeId) {
        let writer_gone = state.pipes.get(&outgoing).is_some_and(|pipe| pipe.writer.gone);
        let unread = match state.pipes.get(&outgoing.back()) {
            Some(back) if back.reader.gone => back.unread_bytes(),
            _ => return,
        };
        if writer_gone && unread > 0 {
            if let Some(back) = state.pipes.get_mut(&outgoing.back()) {
                back.bytes -= unread;
                back.buffer.clear();
            }
            state.push(self, outgoing, Item::Reset);
        }
        state.collect(outgoing);
    }
}

//! The scenes: a few threads, and the conditions that must hold when they have ended. Each function is one run; a test
//! has loom repeat it in every order.

use std::sync::Arc;
use std::task::{Poll, Waker};

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use crate::Mutex;

/// Work that begins in its caller.
pub mod begun {
    use super::{Arc, AtomicBool, AtomicUsize, Mutex, Ordering, Poll, Waker, thread};
    use crate::begun::run_or_spawn;
    use crate::runtime::Handle;

    /// Something that happens once, and the task that waits for it.
    struct Event {
        has_come: AtomicBool,
        waiting: Mutex<Vec<Waker>>,
    }

    impl Event {
        fn come(&self) {
            self.has_come.store(true, Ordering::Release);
            let waiting = std::mem::take(&mut *self.waiting.lock());
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// Work waits for an event that others bring while it is being polled, and so many of them wake it at once: it is done
    /// once, where it was begun or as one task.
    pub fn wakes_while_it_is_polled(wakers: usize) {
        let event = Arc::new(Event { has_come: AtomicBool::new(false), waiting: Mutex::new(Vec::new()) });
        let (done, tokio) = (Arc::new(AtomicUsize::new(0)), Handle::default());
        let bringing: Vec<_> = (0..wakers)
            .map(|_| {
                let event = Arc::clone(&event);
                thread::spawn(move || event.come())
            })
            .collect();
        let (own, waited_for) = (Arc::clone(&done), Arc::clone(&event));
        let work = async move {
            std::future::poll_fn(|context| {
                // Twice: two that come may each find a waker.
                waited_for.waiting.lock().extend([context.waker().clone(), context.waker().clone()]);
                match waited_for.has_come.load(Ordering::Acquire) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
            own.fetch_add(1, Ordering::Relaxed);
        };
        run_or_spawn(tokio.clone(), Box::pin(work));
        bringing.into_iter().for_each(|thread| thread.join().expect("nothing panics"));
        let tasks = tokio.take_tasks();
        assert!(tasks.len() <= 1, "one piece of work is {} tasks", tasks.len());
        tasks.into_iter().for_each(loom::future::block_on);
        assert_eq!(done.load(Ordering::Relaxed), 1, "the event came, and the work was not done, or twice");
        assert!(tokio.take_tasks().is_empty(), "finished work is started again");
    }
}

/// The writing side of a connection.
pub mod outbox {
    use ebb_types::{Result, err};

    use super::{Arc, Mutex, Poll, thread};
    use crate::outbox::{Outbox, Outgoing};
    use crate::writer::{Frame, FrameWriter, Written};

    struct Numbered {
        number: Frame,
        is_large: bool,
    }

    impl Outgoing for Numbered {
        type Resources = ();

        fn len(&self) -> u64 {
            if self.is_large { 1 << 20 } else { 1 }
        }

        fn unpack(self) -> Option<(Frame, ())> {
            Some((self.number, ()))
        }
    }

    /// Frames of thread `from`.
    fn put(outbox: &Outbox<Numbered>, from: u64, count: u64, is_large: bool) -> Result<()> {
        (0..count).try_for_each(|number| outbox.put(Numbered { number: from * 10 + number, is_large }))
    }

    /// Several threads put frames in, `count` each, while the connection's task runs. Each frame goes out once, in its
    /// thread's order, also after the last put.
    pub fn every_frame_goes_out(threads: u64, count: u64, is_large: bool) {
        let written = Arc::new(Mutex::new(Written::default()));
        let outbox = Outbox::new(FrameWriter::to(Arc::clone(&written)));
        let putting: Vec<_> = (1..=threads)
            .map(|from| {
                let outbox = outbox.clone();
                thread::spawn(move || put(&outbox, from, count, is_large).expect("the connection stands"))
            })
            .collect();
        // Ends when all are out. If a frame is left behind, nothing wakes it, and loom reports a deadlock.
        let mut run = Box::pin(outbox.clone().run());
        let total = usize::try_from(threads * count).expect("few");
        let all = Arc::clone(&written);
        loom::future::block_on(std::future::poll_fn(|context| {
            assert!(run.as_mut().poll(context).is_pending(), "nothing ends the connection");
            let mut written = all.lock();
            if written.frames.len() == total {
                return Poll::Ready(());
            }
            written.waiting = Some(context.waker().clone());
            Poll::Pending
        }));
        putting.into_iter().for_each(|thread| thread.join().expect("nothing panics"));
        let written = &written.lock().frames;
        for from in 1..=threads {
            let own: Vec<u64> = written.iter().copied().filter(|frame| frame / 10 == from).collect();
            assert_eq!(own, (0..count).map(|number| from * 10 + number).collect::<Vec<_>>(), "of {written:?}");
        }
    }

    /// A connection ends while a frame is put in: the task ends with the error, and every later put gets it.
    pub fn all_waiters_learn_of_an_end() {
        let outbox = Outbox::new(FrameWriter::to(Arc::default()));
        let own = outbox.clone();
        let putting = thread::spawn(move || put(&own, 1, 1, false));
        let own = outbox.clone();
        let closing = thread::spawn(move || own.close(&err!(Disconnected, "the peer has gone")));
        let error = loom::future::block_on(outbox.clone().run());
        assert_eq!(error.kind(), ebb_types::ErrorKind::Disconnected);
        // Whether it was in time is open; the error of a later put is not.
        let put_in_time = putting.join().expect("nothing panics");
        assert!(put_in_time.is_ok() || put(&outbox, 2, 1, false).is_err());
        closing.join().expect("nothing panics");
        assert!(put(&outbox, 3, 1, false).is_err(), "a connection that has ended takes a frame");
    }
}

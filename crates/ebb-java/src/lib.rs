//! The native half of the Hadoop connector: each method of `ebb.hadoop.Native` is one call of `ebb-api`.
//!
//! | module | contents |
//! |---|---|
//! | `natives` | the methods, in the order of `Native.java` |
//! | `library` | what a process has once: threads, sessions, callers, open files |
//! | `sessions` | one session for each cluster, however many file systems a program makes |
//! | `table` | numbers for Java, each checked when it comes back |
//! | `reads` | reads that go on while no thread waits for them |
//! | `answer` | structured answers as bytes |
//! | `call` | from a native method to a result or an exception; panics, too, are exceptions |
//! | `memory` | Java's memory as slices: all unsafe code but the methods' names |
//!
//! What it never does:
//! - end the process: no panic leaves a method;
//! - trust a number from Java, or a byte range;
//! - hold Java's memory across a wait, but for direct buffers, which it keeps alive;
//! - free a session in a hook at the end of the process: other threads may be inside a call.

mod answer;
mod call;
mod library;
mod memory;
mod natives;
mod reads;
mod sessions;
mod table;

//! Every order of the scenes' steps; of the larger ones, every order in which threads are interrupted a few times (Musuvathi and
//! Qadeer, "Iterative Context Bounding", PLDI 2007: few interruptions find most mistakes).

use ebb_threads::scenes::{begun, outbox};

fn bounded(interruptions: usize, scene: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(interruptions);
    model.check(scene);
}

#[test]
fn work_that_is_woken_while_it_is_polled_is_done_once() {
    loom::model(|| begun::wakes_while_it_is_polled(1));
}

#[test]
fn work_that_two_wake_at_once_is_one_task() {
    bounded(3, || begun::wakes_while_it_is_polled(2));
}

#[test]
fn frames_of_two_threads_go_out_once_and_in_order() {
    bounded(2, || outbox::every_frame_goes_out(2, 2, false));
}

#[test]
fn large_frames_go_out_by_the_connections_task() {
    bounded(2, || outbox::every_frame_goes_out(2, 1, true));
}

#[test]
fn all_waiters_learn_of_the_end_of_a_connection() {
    bounded(3, outbox::all_waiters_learn_of_an_end);
}

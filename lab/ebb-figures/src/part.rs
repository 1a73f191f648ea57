//! A part of a paper: figures and tables that come from the same runs.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebb_plan::Section;
use ebb_types::Result;
use parking_lot::Mutex;

/// Figures and tables of a paper that are made together.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Where they stand in the paper: `Fig. 6`, `Table 2`. Each row of the section has one of them as its source.
    pub sources: &'static [&'static str],
    /// Makes the rows and draws the figures. A figure's title begins with its source.
    pub make: fn(&Lab<'_>) -> Result<Section>,
}

/// A planners' section without the rows of one source, which is run instead. Its figures are named by where they stand
/// in the paper, in their order.
#[must_use]
pub fn computed(mut section: Section, run_instead: &str, figures: &[&str]) -> Section {
    section.intro.clear();
    section.rows.retain(|row| row.source != run_instead);
    for (figure, source) in section.figures.iter_mut().zip(figures) {
        figure.title = format!("{source}: {}", figure.title);
    }
    section
}

/// How long is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// For the numbers.
    Full,
    /// For a look at the shape: fewer points, fewer blocks, shorter.
    Quick,
}

impl Effort {
    /// One of two values.
    #[must_use]
    pub fn of<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

/// The means that a part is made with.
pub struct Lab<'a> {
    /// Everything that is left to chance follows from it.
    pub seed: u64,
    /// How long is measured.
    pub effort: Effort,
    /// Worlds that run at a time.
    pub jobs: NonZeroUsize,
    /// Called for each world that begins and for each that ends.
    pub on_world: &'a (dyn Fn(Step) + Sync),
}

/// The argument of [`Lab::on_world`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// So many more worlds are to be run.
    More(usize),
    /// One is done.
    Done,
}

impl Lab<'_> {
    /// `work` on every item, several at a time, answered in the order of the items; the first item's error if any fails.
    #[expect(clippy::disallowed_methods, reason = "a world is a thread of its own, outside of any runtime")]
    pub fn map<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
        (self.on_world)(Step::More(items.len()));
        let next = AtomicUsize::new(0);
        let done: Mutex<Vec<(usize, Result<R>)>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.get().min(items.len()) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(item) = items.get(index) else { return };
                        let result = work(item);
                        done.lock().push((index, result));
                        (self.on_world)(Step::Done);
                    }
                });
            }
        });
        let mut done = done.into_inner();
        done.sort_by_key(|pair| pair.0);
        done.into_iter().map(|pair| pair.1).collect()
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::bail;

    use super::*;

    #[test]
    fn answers_come_in_the_order_of_the_items() {
        let lab = Lab { seed: 1, effort: Effort::Quick, jobs: NonZeroUsize::new(3).unwrap(), on_world: &|_| () };
        let items: Vec<u32> = (0..50).collect();
        assert_eq!(lab.map(&items, |item| Ok(item * 2)).unwrap(), (0..50).map(|item| item * 2).collect::<Vec<_>>());
        let failed = lab.map(&items, |item| if *item > 6 { bail!(Invalid, "item {item}") } else { Ok(()) });
        assert_eq!(failed.unwrap_err().to_string(), "item 7");
    }
}

//! A task as a list of steps. The order and the costs are those of MRPerf (`map.tcl`, `reduce.tcl`).

use crate::app::App;
use crate::cluster::Hardware;

/// One thing that takes time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Work {
    /// Cycles of one core.
    Cycles(f64),
    /// Bytes of the task's input file.
    ReadInput(f64),
    /// Bytes of shuffle data, to its disk.
    Spill(f64),
    /// Bytes of shuffle data, back from its disk.
    ReadSpill(f64),
    /// Bytes of a file, to as many copies as it has.
    Output(f64),
}

/// One or two works side by side. The next step waits for both.
pub type Step = (Work, Option<Work>);

/// A map: start; read a piece, work on it, and when the sort buffer is full sort and spill it; merge the spills. A map
/// of a job without reducers writes files block by block while it works.
pub fn map(app: &App, hardware: &Hardware, spread: f64) -> Vec<Step> {
    let mappers = app.mappers as f64;
    let (input, output) = (app.map_input_bytes / mappers, app.map_output_bytes / mappers);
    let mut steps = vec![(Work::Cycles(hardware.start_cycles * spread), None)];
    let cycles = app.map_cycles_per_byte * spread;
    if input == 0.0 {
        for block in pieces(output, hardware.block_bytes) {
            let target = if app.reducers == 0 { Work::Output(block) } else { Work::Spill(block) };
            steps.push((Work::Cycles(cycles * block), Some(target)));
        }
        steps.push((Work::Cycles(hardware.wrap_up_cycles * spread), None));
        return steps;
    }
    let ratio = output / input;
    let (full, write_at_once) =
        if app.reducers == 0 { (hardware.block_bytes, true) } else { (hardware.sort_buffer_bytes, false) };
    let piece = if ratio > 0.0 { hardware.read_piece_bytes.min(full / ratio) } else { hardware.read_piece_bytes };
    let (mut held, mut spills) = (0.0, 0);
    let mut flush = |held: &mut f64, steps: &mut Vec<Step>| {
        if *held > 0.0 {
            if write_at_once {
                steps.push((Work::Output(*held), None));
            } else {
                steps.push((Work::Cycles(hardware.sort_cycles_per_byte * spread * *held), None));
                steps.push((Work::Spill(*held), None));
                spills += 1;
            }
            *held = 0.0;
        }
    };
    for bytes in pieces(input, piece) {
        steps.push((Work::ReadInput(bytes), None));
        steps.push((Work::Cycles(cycles * bytes), None));
        held += bytes * ratio;
        if held >= full * (1.0 - 1e-9) {
            flush(&mut held, &mut steps);
        }
    }
    flush(&mut held, &mut steps);
    if spills > 1 {
        steps.push((Work::ReadSpill(output), None));
        steps.push((Work::Spill(output), None));
    }
    steps.push((Work::Cycles(hardware.wrap_up_cycles * spread), None));
    steps
}

/// A reducer before it fetches.
pub fn reduce_start(hardware: &Hardware, spread: f64) -> Vec<Step> {
    vec![(Work::Cycles(hardware.start_cycles * spread), None)]
}

/// A merge of `bytes` fetched ones to disk.
pub fn merge(hardware: &Hardware, bytes: f64, spread: f64) -> Vec<Step> {
    vec![(Work::Cycles(hardware.merge_cycles * spread), None), (Work::Spill(bytes), None)]
}

/// A reducer that has everything on disk: last sort; read a block, work on it while its output is written.
pub fn reduce_end(app: &App, hardware: &Hardware, spread: f64) -> Vec<Step> {
    let reducers = app.reducers as f64;
    let (input, output) = (app.map_output_bytes / reducers, app.reduce_output_bytes / reducers);
    let mut steps = vec![(Work::Cycles(hardware.reduce_sort_cycles * spread), None)];
    let count = (input.max(output) / hardware.block_bytes).ceil().max(1.0);
    // As many pieces of input as of output, and none of either larger than a block.
    for _ in 0..count as usize {
        let (bytes, written) = (input / count, output / count);
        if bytes > 0.0 {
            steps.push((Work::ReadSpill(bytes), None));
        }
        let write = (written > 0.0).then_some(Work::Output(written));
        steps.push((Work::Cycles(app.reduce_cycles_per_byte * spread * bytes), write));
    }
    steps
}

/// `total` cut into equal pieces of at most `most`.
fn pieces(total: f64, most: f64) -> impl Iterator<Item = f64> {
    let count = (total / most - 1e-9).ceil().max(if total > 0.0 { 1.0 } else { 0.0 });
    (0..count as usize).map(move |_| total / count)
}

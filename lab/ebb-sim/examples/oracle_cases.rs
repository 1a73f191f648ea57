//! Prints the oracle's cases as JSON; `oracle/record.sh` gives them to SimGrid.

fn main() {
    println!("{}", serde_json::to_string(&ebb_sim::oracle::cases()).expect("plain values"));
}

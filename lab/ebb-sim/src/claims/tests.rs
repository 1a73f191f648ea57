use super::*;
use crate::measure::Serial;

#[test]
fn the_studies_agree_with_the_paper() {
    let claims = all(&Serial, &[1, 2, 3]).unwrap();
    for claim in &claims {
        eprintln!(
            "{:8} {:60} paper {:6.3} ours {:6.3} {} {}",
            claim.figure, claim.quantity, claim.paper, claim.ours, claim.same_direction, claim.close
        );
    }
    let wrong: Vec<&Claim> =
        claims.iter().filter(|claim| claim.binding && !(claim.same_direction && claim.close)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let unexplained = claims.iter().filter(|claim| !claim.binding && claim.remark.is_empty());
    assert_eq!(unexplained.count(), 0);
}

use ebb_types::Redundancy;

use super::super::tests::{even_view, shape};
use super::*;
use crate::LayoutKind;

/// What is said of a redundancy on so many hosts in so many racks.
fn said(layout: LayoutKind, hosts: u64, racks: u64, redundancy: &str, wish: Wish) -> Option<String> {
    let view = even_view(hosts, racks);
    let primaries = u32::try_from(hosts / 3).unwrap().max(1);
    let shape = shape(layout, hosts, primaries, 3).unwrap();
    explain_unfit(&Sites::of(&view), &shape, redundancy.parse().unwrap(), 3, wish)
}

fn random(hosts: u64, racks: u64, redundancy: &str, wish: Wish) -> Option<String> {
    said(LayoutKind::Random, hosts, racks, redundancy, wish)
}

#[test]
fn each_scheme_fits_where_the_table_says() {
    for (name, hold, racks) in
        [("copies", 3, 2), ("raid5", 6, 2), ("8+2", 10, 5), ("4+2", 6, 3), ("6+3", 9, 3), ("10+4", 14, 4)]
    {
        assert_eq!(random(hold, 1, name, Wish::Hold), None, "{name}");
        assert!(random(hold - 1, 1, name, Wish::Hold).is_some(), "{name}");
        assert_eq!(random(hold + 1, 1, name, Wish::Heal), None, "{name}");
        assert!(random(hold, 1, name, Wish::Heal).is_some(), "{name}");
        assert_eq!(random(hold + 10, racks, name, Wish::SurviveRack), None, "{name}");
        assert!(random(hold + 10, racks - 1, name, Wish::SurviveRack).is_some(), "{name}");
    }
    assert!(random(6, 2, "raid5", Wish::SurviveRack).is_some(), "six hosts have six pairs over racks beside the row");
    assert_eq!(random(7, 2, "raid5", Wish::SurviveRack), None);
}

#[test]
fn a_refusal_names_the_nearest_that_fits() {
    for (layout, hosts, racks, name, wish, sentence) in [
        (
            LayoutKind::Random,
            6,
            1,
            "8+2",
            Wish::Hold,
            "8+2 needs 10 hosts, and there are 6 hosts; the nearest possible redundancy is 4+2",
        ),
        (
            LayoutKind::Random,
            10,
            1,
            "8+2",
            Wish::Heal,
            "8+2 heals with 11 hosts or more, and there are 10 hosts; the nearest possible redundancy is 7+2",
        ),
        (
            LayoutKind::Striped,
            20,
            2,
            "8+2",
            Wish::SurviveRack,
            "8+2 survives the loss of a rack with 5 racks or more, and there are 2 racks; the nearest possible redundancy \
             is 2+2",
        ),
        (
            LayoutKind::Random,
            6,
            2,
            "raid5",
            Wish::SurviveRack,
            "raid5 survives the loss of a rack with 7 hosts dealt to racks evenly, and there are 6 hosts; the nearest \
             possible redundancy is raid5(6)",
        ),
        (
            LayoutKind::EqualWork,
            12,
            1,
            "8+2",
            Wish::Hold,
            "slots stay with primaries, so 8+2 on the layout equal-work needs 8 primaries, and there are 4; the nearest \
             possible redundancy is 4+2",
        ),
        (
            LayoutKind::Simple,
            30,
            1,
            "6+3",
            Wish::Hold,
            "rows lie where further copies would, so 6+3 on the layout simple needs 4 copies, and the dataset has 3; the \
             nearest possible redundancy is 4+2",
        ),
        (
            LayoutKind::PowerBalanced,
            9,
            1,
            "8+2",
            Wish::Hold,
            "8+2 needs 10 nodes on the circle, and there are 9; the nearest possible redundancy is 7+2",
        ),
    ] {
        assert_eq!(said(layout, hosts, racks, name, wish).as_deref(), Some(sentence));
    }
    let none = random(2, 1, "8+2", Wish::Hold).unwrap();
    assert!(none.ends_with("no redundancy does so here"), "{none}");
}

#[test]
fn racks_on_a_circle_have_to_alternate() {
    assert_eq!(said(LayoutKind::PowerBalanced, 20, 5, "8+2", Wish::SurviveRack), None);
    let mut view = even_view(20, 5);
    view.volumes
        .iter_mut()
        .for_each(|volume| volume.rack = ebb_types::RackName::new(format!("r{}", (volume.node.raw() - 1) / 4)));
    let shape = shape(LayoutKind::PowerBalanced, 20, 1, 3).unwrap();
    let of =
        |redundancy: &str| explain_unfit(&Sites::of(&view), &shape, redundancy.parse().unwrap(), 3, Wish::SurviveRack);
    assert_eq!(of("8+2"), None, "four neighbours have two places of a turn");
    view.volumes[4].rack = view.volumes[0].rack.clone();
    assert!(Redundancy::Raid(RaidCode::RAID6).code().is_some());
    let of =
        |redundancy: &str| explain_unfit(&Sites::of(&view), &shape, redundancy.parse().unwrap(), 3, Wish::SurviveRack);
    let refused = of("8+2").unwrap();
    assert!(refused.starts_with("the layout power-balanced does not put 8+2 into racks"), "{refused}");
}

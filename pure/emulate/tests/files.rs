//! Scenario files, good and bad.

use linerate_emulate::Scenario;

#[test]
fn every_shipped_scenario_parses_and_says_why() {
    for (name, text) in Scenario::shipped() {
        let scenario = Scenario::parse(text, name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(scenario.name, *name);
        assert!(
            scenario.why.len() > 80 && scenario.why.ends_with('.'),
            "{name}"
        );
        assert!(
            scenario.links.iter().any(|l| !scenario.is_plain(l)),
            "{name}"
        );
        let json = serde_json::to_string(&scenario).unwrap();
        assert_eq!(
            serde_json::from_str::<Scenario>(&json).unwrap(),
            scenario,
            "{name}"
        );
    }
}

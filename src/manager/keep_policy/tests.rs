//! Every policy, over histories of saves and over any steps.

use super::best::best_step;
use super::*;
use proptest::prelude::*;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

/// That many seconds after the epoch.
pub(in super::super) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A step that was saved at as many seconds as its number.
pub(in super::super) fn info(step: u64) -> StepInfo {
    StepInfo {
        step,
        committed_at: at(step),
        metrics: BTreeMap::new(),
        custom_metadata: None,
        pinned: false,
        leaf_count: 0,
        logical_bytes: 0,
        stored_bytes: 0,
        digest: [0; 16],
    }
}

fn scored(step: u64, accuracy: f64) -> StepInfo {
    StepInfo { metrics: BTreeMap::from([("accuracy".to_owned(), accuracy)]), ..info(step) }
}

/// What is left after each of the `saved` steps, one after the other.
fn history(policy: &dyn KeepPolicy, saved: impl IntoIterator<Item = StepInfo>) -> Vec<Vec<u64>> {
    let mut steps: Vec<StepInfo> = Vec::new();
    let mut history = Vec::new();
    for info in saved {
        let now = info.committed_at;
        steps.push(info);
        let victims = victims(policy, &steps, now);
        steps.retain(|info| !victims.contains(&info.step));
        history.push(steps.iter().map(|info| info.step).collect());
    }
    history
}

fn left(policy: &dyn KeepPolicy, saved: impl IntoIterator<Item = StepInfo>) -> Vec<u64> {
    history(policy, saved).pop().unwrap()
}

#[test]
fn each_policy_keeps_its_steps() {
    let ten = || (1..=10).map(info);
    assert_eq!(left(&All, ten()).len(), 10);
    assert_eq!(left(&LatestN(3), ten()), [8, 9, 10]);
    assert_eq!(left(&LatestN(0), ten()), [10]);
    assert_eq!(left(&EveryNSteps::new(4).unwrap(), ten()), [4, 8, 10]);
    assert_eq!(left(&Every(Duration::from_secs(4)), ten()), [1, 5, 9, 10]);
    assert_eq!(left(&OnSteps::new([2, 7, 99]), ten()), [2, 7, 10]);
    assert_eq!(left(&LatestDuration(Duration::from_secs(2)), ten()), [8, 9, 10]);
    assert_eq!(left(&Predicate::new(|info: &StepInfo| info.step % 5 == 1), ten()), [1, 6, 10]);
    assert_eq!(left(&AnyOf::new([]), ten()), [10]);
    assert_eq!(left(&LatestN(2).or(OnSteps::new([1])), ten()), [1, 9, 10]);
    assert!(EveryNSteps::new(0).is_err());
}

#[test]
fn after_each_save_the_newest_stays_and_what_the_policy_keeps() {
    let six = || (1..=6).map(info);
    let multiples = EveryNSteps::new(2).unwrap();
    assert_eq!(history(&LatestN(2), six())[..4], [vec![1], vec![1, 2], vec![2, 3], vec![3, 4]]);
    assert_eq!(history(&multiples, six())[..4], [vec![1], vec![2], vec![2, 3], vec![2, 4]]);
    assert_eq!(history(&OnSteps::new([2]), six())[..4], [vec![1], vec![2], vec![2, 3], vec![2, 4]]);
    assert_eq!(
        history(&LatestDuration(Duration::from_secs(2)), [1, 2, 4, 9].map(info)),
        [vec![1], vec![1, 2], vec![2, 4], vec![9]]
    );
    assert_eq!(
        history(&LatestN(2).or(multiples), six()),
        [vec![1], vec![1, 2], vec![2, 3], vec![2, 3, 4], vec![2, 4, 5], vec![2, 4, 5, 6]]
    );
}

#[test]
fn the_best_stay_and_the_newest_too_however_bad() {
    let saved = [(1, 0.5), (2, 0.9), (3, 0.1), (4, 0.9), (5, 0.2)];
    let steps = || saved.iter().map(|(step, accuracy)| scored(*step, *accuracy));
    assert_eq!(
        history(&BestN::max("accuracy", 1), steps()),
        [vec![1], vec![2], vec![2, 3], vec![4], vec![4, 5]]
    );
    assert_eq!(left(&BestN::min("accuracy", 2), steps()), [3, 5]);
    assert_eq!(left(&LatestN(3).or(BestN::max("accuracy", 1)), steps()), [3, 4, 5]);
}

#[test]
fn a_nan_is_worse_than_any_number_and_steps_without_the_metric_stay() {
    let steps =
        [scored(1, f64::NAN), scored(2, f64::NEG_INFINITY), info(3), scored(4, f64::NAN), info(5)];
    assert_eq!(best_step(&steps, "accuracy", BestMode::Max), Some(2));
    assert_eq!(best_step(&steps, "accuracy", BestMode::Min), Some(2));
    assert_eq!(best_step(&steps[3..], "accuracy", BestMode::Max), Some(4));
    assert_eq!(best_step(&steps, "loss", BestMode::Max), None);
    let kept = BestN::max("accuracy", 1).keep(&steps, at(9));
    assert_eq!(kept, BTreeSet::from([2, 3, 5]));
    let measured = BestN::max("accuracy", 1).unmeasured(Unmeasured::Drop);
    assert_eq!(measured.keep(&steps, at(9)), BTreeSet::from([2]));
    // The newest stays without the metric too.
    assert_eq!(victims(&measured, &steps, at(9)), [1, 3, 4]);
}

/// A trainer that measured every tenth save kept nearly all of them for good.
#[test]
fn steps_without_the_metric_go_where_that_is_asked_for() {
    let saved = || {
        (1..=50u32).map(|number| {
            let (step, accuracy) = (u64::from(number), 1.0 / f64::from(number));
            if number % 10 == 0 { scored(step, accuracy) } else { info(step) }
        })
    };
    let best = || BestN::max("accuracy", 1);
    assert_eq!(left(&LatestN(3).or(best()), saved()).len(), 47);
    let measured = best().unmeasured(Unmeasured::Drop);
    assert_eq!(left(&LatestN(3).or(measured), saved()), [10, 48, 49, 50]);
}

#[test]
fn a_pinned_step_stays() {
    let steps = [StepInfo { pinned: true, ..info(1) }, info(2), info(3)];
    assert_eq!(left(&LatestN(1), steps), [1, 3]);
}

#[test]
fn keeping_by_time_goes_by_the_clocks_of_the_saves() {
    let clock = |times: &[u64]| -> Vec<StepInfo> {
        let build =
            |(step, seconds): (u64, &u64)| StepInfo { committed_at: at(*seconds), ..info(step) };
        (1..).zip(times).map(build).collect()
    };
    let every = Every(Duration::from_secs(10));
    assert_eq!(
        history(&every, clock(&[0, 4, 10, 13, 27])),
        [vec![1], vec![1, 2], vec![1, 3], vec![1, 3, 4], vec![1, 3, 5]]
    );
    // Set back after step 2: nothing but the newest joins until the clock is at 20 again.
    assert_eq!(left(&every, clock(&[0, 10, 2, 15, 20, 21])), [1, 2, 5, 6]);
    // Saved once with a clock far ahead: the history goes on by the clock that is right.
    let ahead = 4_000_000_000;
    let times = [0, 10, ahead, 20, 25, 30, 31];
    assert_eq!(left(&every, clock(&times)), [1, 2, 3, 4, 6, 7]);
    let latest = LatestDuration(Duration::from_secs(3));
    assert_eq!(latest.keep(&clock(&[1, 2, 5, 9]), at(5)), [2, 3, 4].into());
}

#[test]
fn a_policy_shows_what_it_is() {
    let policy = LatestN(3).or(Predicate::new(|info: &StepInfo| info.step == 7));
    assert_eq!(format!("{policy:?}"), "AnyOf([LatestN(3), Predicate])");
}

/// Seconds of a clock that is about right, or centuries ahead.
fn any_clock() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..100, 1 => 10_000_000_000u64..10_000_000_100]
}

fn any_steps() -> impl Strategy<Value = Vec<StepInfo>> {
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0];
    let value = prop_oneof![prop::sample::select(special.to_vec()), -2.0f64..2.0];
    let step = (prop::option::of(value), any::<bool>(), any_clock());
    prop::collection::btree_map(0u64..50, step, 0..12).prop_map(|steps| {
        let build = |(step, (accuracy, pinned, seconds)): (u64, (Option<f64>, bool, u64))| {
            let scored = accuracy.map_or_else(|| info(step), |value| scored(step, value));
            StepInfo { pinned, committed_at: at(seconds), ..scored }
        };
        steps.into_iter().map(build).collect()
    })
}

fn policies() -> Vec<Box<dyn KeepPolicy>> {
    vec![
        Box::new(All),
        Box::new(LatestN(0)),
        Box::new(LatestN(2)),
        Box::new(OnSteps::new([3, 7, 99])),
        Box::new(Predicate::new(|info: &StepInfo| info.step % 2 == 1)),
        Box::new(EveryNSteps::new(3).unwrap()),
        Box::new(Every(Duration::from_secs(10))),
        Box::new(BestN::max("accuracy", 2)),
        Box::new(BestN::min("accuracy", 1)),
        Box::new(BestN::max("accuracy", 2).unmeasured(Unmeasured::Drop)),
        Box::new(LatestDuration(Duration::from_secs(30))),
        Box::new(LatestN(1).or(BestN::max("accuracy", 1))),
    ]
}

proptest! {
    #[test]
    fn retention_is_safe_and_stable(steps in any_steps(), now in any_clock()) {
        for policy in policies() {
            let gone = victims(&*policy, &steps, at(now));
            prop_assert!(steps.last().is_none_or(|newest| !gone.contains(&newest.step)));
            for info in &steps {
                prop_assert!(!(info.pinned && gone.contains(&info.step)));
            }
            let rest: Vec<_> =
                steps.iter().filter(|info| !gone.contains(&info.step)).cloned().collect();
            prop_assert_eq!(rest.len() + gone.len(), steps.len());
            let again = victims(&*policy, &rest, at(now));
            prop_assert!(again.is_empty(), "{:?} {:?}", policy, again);
        }
    }

    #[test]
    fn a_policy_keeps_only_steps_that_are_there(steps in any_steps()) {
        let there: BTreeSet<u64> = steps.iter().map(|info| info.step).collect();
        for policy in policies() {
            let kept = policy.keep(&steps, at(100));
            prop_assert!(kept.is_subset(&there), "{:?} {:?}", policy, kept);
        }
    }

    // In pairs: the union over all policies would be every step.
    #[test]
    fn any_of_keeps_the_union(steps in any_steps()) {
        for (a, b) in policies().into_iter().zip(policies().into_iter().skip(1)) {
            let union = &a.keep(&steps, at(100)) | &b.keep(&steps, at(100));
            prop_assert_eq!(AnyOf::new([a, b]).keep(&steps, at(100)), union);
        }
    }

    #[test]
    fn no_step_that_goes_is_better_than_one_that_stays(steps in any_steps(), count in 0usize..4) {
        let scored: Vec<(u64, f64)> = steps
            .iter()
            .filter_map(|info| Some((info.step, *info.metrics.get("accuracy")?)))
            .collect();
        for (mode, policy) in [
            (BestMode::Max, BestN::max("accuracy", count)),
            (BestMode::Min, BestN::min("accuracy", count)),
        ] {
            let kept = policy.keep(&steps, at(100));
            let (stay, go): (Vec<_>, Vec<_>) =
                scored.iter().copied().partition(|(step, _)| kept.contains(step));
            prop_assert_eq!(stay.len(), count.min(scored.len()));
            prop_assert_eq!(kept.len() - stay.len(), steps.len() - scored.len());
            for stays in &stay {
                prop_assert!(go.iter().all(|goes| is_better(*stays, *goes, mode)));
            }
            let best = best_step(&steps, "accuracy", mode);
            prop_assert_eq!(best.is_none(), scored.is_empty());
            let best = scored.iter().copied().find(|(step, _)| Some(*step) == best);
            let others = || scored.iter().filter(|(step, _)| best.is_some_and(|best| best.0 != *step));
            prop_assert!(others().all(|other| best.is_some_and(|best| is_better(best, *other, mode))));
        }
    }
}

/// Whether step `a` is better than step `b`, as the documentation of [`BestN`] says it.
fn is_better(a: (u64, f64), b: (u64, f64), mode: BestMode) -> bool {
    match a.1.partial_cmp(&b.1) {
        Some(Ordering::Greater) => mode == BestMode::Max,
        Some(Ordering::Less) => mode == BestMode::Min,
        None if a.1.is_nan() != b.1.is_nan() => b.1.is_nan(),
        Some(Ordering::Equal) | None => a.0 > b.0,
    }
}

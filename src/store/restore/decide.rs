//! Which sharding each array of a step gets.

use std::collections::HashMap;
use std::fmt::Write;

use crate::error::{Error, ErrorKind, Result};
use crate::limits::MAX_REFUSALS_SHOWN;
use crate::path::KeyPath;
use crate::sharding::{
    DeviceInfo, DeviceRegistry, Sharding, ShardingPolicies, ShardingPolicy, ShardingReason,
    device_names,
};

/// Decides for one array after the other. Each case is looked at once.
pub(super) struct Decider<'p> {
    registry: &'p DeviceRegistry,
    policies: &'p ShardingPolicies,
    /// By the policy, what the target names and what was saved.
    decided: HashMap<Case<'p>, Result<(Sharding, ShardingReason)>>,
    refusals: Refusals,
}

type Case<'p> = (*const ShardingPolicy, Option<&'p Sharding>, Option<&'p Sharding>);

/// Arrays that can't be restored as asked, by the reason.
#[derive(Default)]
struct Refusals {
    kind: Option<ErrorKind>,
    groups: Vec<(String, Vec<KeyPath>)>,
}

impl<'p> Decider<'p> {
    pub(super) fn new(registry: &'p DeviceRegistry, policies: &'p ShardingPolicies) -> Self {
        Self { registry, policies, decided: HashMap::new(), refusals: Refusals::default() }
    }

    /// The sharding of the array at `path`; `None` if it is refused.
    pub(super) fn decide(
        &mut self,
        path: &KeyPath,
        target: Option<&'p Sharding>,
        saved: Option<&'p Sharding>,
    ) -> Option<(Sharding, ShardingReason)> {
        let policy = self.policies.of(path);
        let case = (std::ptr::from_ref(policy), target, saved);
        let decision = self
            .decided
            .entry(case)
            .or_insert_with(|| policy.resolve(target, saved, self.registry));
        match decision {
            Ok(decision) => Some(decision.clone()),
            Err(error) => {
                self.refusals.add(path, error);
                None
            }
        }
    }

    /// Refuses the array at `path` for another reason.
    pub(super) fn refuse(&mut self, path: &KeyPath, error: &Error) {
        self.refusals.add(path, error);
    }

    /// # Errors
    /// One that names all arrays that were refused, if there are any.
    pub(super) fn finish(self) -> Result<()> {
        let Refusals { kind: Some(kind), groups } = self.refusals else { return Ok(()) };
        let count: usize = groups.iter().map(|(_, paths)| paths.len()).sum();
        let mut message = format!("{count} arrays can't be restored as asked:");
        let mut room = MAX_REFUSALS_SHOWN;
        for (reason, paths) in &groups {
            // Writing to a string can't fail.
            let _ = write!(message, "\n  {reason}:");
            for path in paths.iter().take(room) {
                let _ = write!(message, "\n    {path}");
            }
            if paths.len() > room {
                let _ = write!(message, "\n    and {} more", paths.len() - room);
            }
            room -= room.min(paths.len());
        }
        let here = device_names(self.registry.devices().iter().map(DeviceInfo::device));
        Err(Error::new(kind, message).advise(format!(
            "nothing was restored; the devices here are {here}; restore with \
             ShardingPolicy::Automatic, which falls back to the default device, or put other devices \
             in the place of the saved ones with ShardingPolicy::MapDevices, or name a sharding or mesh \
             of the devices here with ShardingPolicy::Sharding or OntoMesh"
        )))
    }
}

impl Refusals {
    fn add(&mut self, path: &KeyPath, error: &Error) {
        if self.kind != Some(ErrorKind::DevicesMissing) {
            self.kind = Some(error.kind());
        }
        let reason = error.to_string();
        match self.groups.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, paths)) => paths.push(path.clone()),
            None => self.groups.push((reason, vec![path.clone()])),
        }
    }
}

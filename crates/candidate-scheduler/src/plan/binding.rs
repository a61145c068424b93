//! Storage before the pod: claims and volumes are bound, then the pod is.

use std::sync::Arc;

use scheduling::{Progress, Queued, VolumePlan, VolumeWrite};

use crate::observe::Name;
use crate::plan::pods::Pod;
use crate::plan::{Action, Key, Model, Outcome};

/// The claims and volumes that a pod waits for, which counts on its node already.
pub(super) struct Binding {
    uid: Arc<str>,
    plan: VolumePlan,
    /// When it is given up, once all is written.
    deadline: Option<u64>,
}

impl Model {
    /// Sees to it that a pod has its storage on `node` before it is bound there.
    pub(super) fn bind_storage(&mut self, name: &Name, plan: VolumePlan, queued: Queued<Key>, now: u64) {
        let uid = Arc::clone(&queued.pod.uid);
        if !self.snapshot.volumes_mut().assume(&plan) {
            // The plan was made just now from what is assumed just now.
            *self.counts.storage_errors.entry("assume").or_default() += 1;
            return self.storage_failed(name, queued, "claims or volumes have changed", now);
        }
        *self.counts.storage_plans.entry("add").or_default() += 1;
        self.under_way(name, queued);
        self.bindings.insert(name.clone(), Binding { uid, plan, deadline: None });
        self.write_storage(name, now);
    }

    /// Makes the next write, or waits for the controllers if all is written.
    fn write_storage(&mut self, name: &Name, now: u64) {
        let Some(binding) = self.bindings.get_mut(name) else { return };
        if let Some(write) = binding.plan.writes().into_iter().next() {
            let (pod, uid) = (name.clone(), Arc::clone(&binding.uid));
            return self.actions.push(Action::BindStorage { pod, uid, write });
        }
        let timeout = self.pods.get(name).map_or(0, |pod| self.bind_timeout(pod.scheduler()));
        if let Some(binding) = self.bindings.get_mut(name) {
            binding.deadline = Some(now + timeout);
        }
        self.check_binding(name, now);
    }

    pub(super) fn storage_written(
        &mut self,
        (name, uid): (&Name, &str),
        write: &VolumeWrite,
        outcome: Outcome,
        now: u64,
    ) {
        let Some(binding) = self.bindings.get_mut(name).filter(|binding| *binding.uid == *uid) else {
            return;
        };
        if binding.plan.writes().first() != Some(write) {
            return;
        }
        let problem = match outcome {
            Outcome::Done { version } => {
                binding.plan.written(version.as_deref().unwrap_or_default());
                return self.write_storage(name, now);
            }
            Outcome::Denied(answer) => answer,
            Outcome::NotFound => "the claim or volume is gone".to_owned(),
            Outcome::Conflict => "the claim or volume has been modified".to_owned(),
            Outcome::Unknown | Outcome::Admitted(_) => "no answer".to_owned(),
        };
        self.give_up_storage(name, &problem, now);
    }

    /// Looks at everything that waits for controllers.
    pub(super) fn check_bindings(&mut self, now: u64) {
        let names: Vec<_> = self.bindings.keys().cloned().collect();
        for name in names {
            self.check_binding(&name, now);
        }
    }

    fn check_binding(&mut self, name: &Name, now: u64) {
        let Some(Binding { plan, deadline: Some(deadline), .. }) = self.bindings.get(name) else { return };
        let progress = match self.snapshot.node(plan.node()) {
            Some(node) => self.snapshot.volumes().progress(plan, &node.info),
            None => Progress::Failed(format!("failed to get node \"{}\"", plan.node())),
        };
        match progress {
            Progress::Waiting if *deadline > now => {}
            Progress::Waiting => {
                self.give_up_storage(name, "binding volumes: context deadline exceeded", now);
            }
            Progress::Failed(problem) => {
                self.give_up_storage(name, &format!("binding volumes: {problem}"), now);
            }
            Progress::Bound => {
                let node = Arc::clone(plan.node());
                self.forget_storage(name);
                self.bind_under_way(name, node);
            }
        }
    }

    /// When the next of them is given up.
    pub(super) fn next_binding(&self) -> Option<u64> {
        self.bindings.values().filter_map(|binding| binding.deadline).min()
    }

    /// Counts no longer on what is not seen yet of a pod's storage. What was written stays.
    pub(super) fn forget_storage(&mut self, name: &Name) {
        if let Some(binding) = self.bindings.remove(name) {
            *self.counts.storage_plans.entry("delete").or_default() += 1;
            self.snapshot.volumes_mut().forget(&binding.plan);
            self.memo.clear();
        }
    }

    fn give_up_storage(&mut self, name: &Name, problem: &str, now: u64) {
        *self.counts.storage_errors.entry("bind").or_default() += 1;
        self.forget_storage(name);
        if let Some(queued) = self.pods.get_mut(name).and_then(Pod::taken_back) {
            self.storage_failed(name, queued, problem, now);
        }
    }

    fn storage_failed(&mut self, name: &Name, queued: Queued<Key>, problem: &str, now: u64) {
        self.give_up_claims(&queued.pod.uid, now);
        self.unplace(&queued.pod.uid, now);
        let message = format!("running PreBind plugin \"VolumeBinding\": {problem}");
        self.pod_failed(name, queued, message, now);
    }

    /// How long controllers may take, in milliseconds.
    fn bind_timeout(&self, scheduler: &str) -> u64 {
        let profile =
            self.settings.config.profiles.iter().find(|profile| profile.scheduler_name == scheduler);
        let seconds = profile.map(|profile| profile.args.volumes.bind_timeout_seconds);
        let seconds =
            seconds.unwrap_or_else(|| scheduling::config::VolumeArgs::default().bind_timeout_seconds);
        u64::try_from(seconds).unwrap_or_default().saturating_mul(1000)
    }
}

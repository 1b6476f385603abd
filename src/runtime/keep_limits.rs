//! Keeps the limits of a run (`throttle`) between its records, and while a write waits for its reader.

use std::time::Duration;

use super::SessionCx;
use super::attach::Links;
use super::context::RunContext;
use super::poll::MAX_WAIT;
use super::replaced_files::Files;
use crate::host::Host;
use crate::output::Output;
use crate::system::TargetInfo;

/// The attached programs, and what it takes to attach one again.
pub(super) struct Attached<'a> {
    pub cx: &'a SessionCx<'a>,
    pub links: &'a mut Links,
    pub sys: &'a dyn TargetInfo,
    pub files: &'a Files,
}

impl RunContext<'_> {
    /// Takes a step if it is time to, and prints it. Returns the longest wait for the next time, unless a program tells of a run before.
    pub(super) fn keep_limits(&mut self) -> Duration {
        let Some(mut throttle) = self.throttle.take() else { return MAX_WAIT };
        let Attached { cx, links, sys, files } = &mut self.attached;
        let mut steps = throttle.update(cx, links, *sys, files);
        if let Some(estimates) = &self.estimates {
            estimates.publish_used(&throttle.used_maps());
            estimates.publish_detached(&throttle.detached_maps());
            steps.extend(throttle.follow_others(cx, links, estimates));
        }
        let wait = throttle.max_wait().unwrap_or(MAX_WAIT);
        self.throttle = Some(throttle);
        self.publish_weights();
        for step in steps {
            if let Some(estimates) = &self.estimates {
                estimates.publish_step(&step);
            }
            self.say(Output::Limited(step));
        }
        wait
    }

    /// Stops the programs if the run is to end, which is the result. What they have sent is still printed.
    pub(super) fn stop_if_over(&mut self) -> bool {
        let is_over = self.signals.end().is_some();
        if is_over && self.throttle.as_ref().is_none_or(|throttle| !throttle.has_ended()) {
            self.loaded.state.stop();
            self.attached.links.detach_all();
            if let Some(throttle) = &mut self.throttle {
                throttle.end();
            }
        }
        is_over
    }
}

//! The settings with which a script was compiled, as stored in a bundle.

use serde::{Deserialize, Serialize};

use super::{Invocation, Mode, SETTINGS, Settings, UNDECIDED};

/// Settings that a run of a compiled script needs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Built {
    /// Values of settings, by name.
    rows: Vec<(String, String)>,
    follow: bool,
    warning_level: u8,
    mode: Mode,
    counts_unread: bool,
    stamps: bool,
    sends_origin: bool,
    max_events: u64,
    debug_dirs: Vec<String>,
}

impl Built {
    /// The settings of a compiled script.
    pub fn of(settings: &Settings, invocation: &Invocation) -> Self {
        let decided = SETTINGS.iter().map(|row| (row.name.to_string(), (row.get)(settings))).filter(|(_, value)| value != UNDECIDED);
        Self {
            rows: decided.collect(),
            follow: settings.follow,
            warning_level: settings.warning_level,
            mode: settings.mode,
            counts_unread: invocation.counts_unread,
            stamps: invocation.stamps,
            sends_origin: invocation.sends_origin,
            max_events: settings.max_events,
            debug_dirs: settings.debug_dirs.clone(),
        }
    }

    /// Was it compiled with `--follow`?
    pub fn follows(&self) -> bool {
        self.follow
    }

    /// Do records contain their time?
    pub fn has_times(&self) -> bool {
        self.stamps || self.sends_origin
    }

    /// Do records contain their origin?
    pub fn has_origins(&self) -> bool {
        self.sends_origin
    }

    /// The settings of a run. `given` has the flags of the runner, which take precedence if a setting allows it.
    ///
    /// # Errors
    /// An unknown setting or value.
    pub fn settings(&self, given: &Settings) -> Result<Settings, String> {
        let mut settings = given.clone();
        for (name, value) in &self.rows {
            let row = SETTINGS.iter().find(|row| row.name == name).ok_or_else(|| format!("there is no setting `{name}`"))?;
            (row.set)(&mut settings, value).map_err(|e| format!("the setting {name} is not valid: {e}"))?;
        }
        settings.follow |= self.follow;
        settings.warning_level = self.warning_level.min(settings.warning_level);
        settings.mode = self.mode;
        settings.max_events = self.max_events;
        settings.debug_dirs.extend(self.debug_dirs.iter().cloned());
        settings.flags_again();
        Ok(settings)
    }

    /// The other facts of a run.
    pub fn invocation(&self, given: &Invocation) -> Invocation {
        Invocation { counts_unread: self.counts_unread, stamps: self.stamps, sends_origin: self.sends_origin, ..given.clone() }
    }
}

/// Flags and environment variables that do not affect compiled scripts.
impl Settings {
    /// Applies environment variables to a compiled script, whose code they can no longer change: warnings name those
    /// that have no effect.
    pub fn apply_env_at_run(&mut self, vars: impl IntoIterator<Item = (String, String)>) -> Result<Vec<String>, String> {
        let is_of_code = |name: &str| SETTINGS.iter().any(|row| !row.at_run && row.name == name);
        let (code, rest): (Vec<_>, Vec<_>) = vars.into_iter().partition(|(var, _)| {
            ["BPFTRACE_", "RBT_"].iter().filter_map(|prefix| var.strip_prefix(prefix)).any(|name| is_of_code(&name.to_ascii_lowercase()))
        });
        let mut warnings = super::apply_env(self, rest)?;
        warnings.extend(code.iter().map(|(var, _)| format!("{var} has no effect on a compiled script")));
        Ok(warnings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_loader_and_the_output_apply_to_runs() {
        let mut settings = Built::of(&Settings::default(), &Invocation::default()).settings(&Settings::default()).unwrap();
        let vars = [
            ("RBT_PERF_RB_PAGES", "32"),
            ("BPFTRACE_UNWIND_MEMORY", "8388608"),
            ("RBT_PRINT_MAPS_ON_EXIT", "false"),
            ("RBT_SHOW_DEBUG_INFO", "true"),
            ("RBT_MAX_MAP_KEYS", "7"),
        ];
        let vars = vars.map(|(name, value)| (name.to_string(), value.to_string()));
        let warnings = settings.apply_env_at_run(vars).unwrap();
        assert_eq!((settings.perf_rb_pages, settings.unwind_memory), (32, 8 << 20));
        assert!(!settings.print_maps_on_exit && settings.show_debug_info);
        assert_eq!(warnings, ["RBT_MAX_MAP_KEYS has no effect on a compiled script"]);
    }
}

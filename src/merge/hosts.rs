//! Which of the hosts of `--hosts` have sent a state.

use std::collections::BTreeSet;

use super::add::NotSummable;
use crate::state::RunId;

/// The machines of a sum.
#[derive(Default)]
pub(super) struct Machines {
    all: Vec<Machine>,
    /// That of the last document.
    last: usize,
}

struct Machine {
    /// The host and its boot; none for a sum of several machines, which the user may know by one name.
    id: Option<(String, u64)>,
    /// The names by which the user may know it.
    names: BTreeSet<String>,
}

/// Hosts of which one or more have sent no state.
pub struct MissingHosts {
    /// One, or those that cannot be told apart.
    pub names: Vec<String>,
    /// The number of them that sent no state.
    missing: usize,
    /// The names of the machines that can be any of them.
    machines: Vec<String>,
}

impl Machine {
    /// Its own name, or a name of the user's for a sum.
    fn name(&self) -> Option<&String> {
        self.id.as_ref().map(|(host, _)| host).or(self.names.first())
    }
}

impl MissingHosts {
    /// The message, and the remedy if there is one.
    pub fn message(&self) -> NotSummable {
        if let [name] = self.names.as_slice() {
            return format!("there is no state of the host {name}").into();
        }
        let (names, machines) = (self.names.join(", "), self.machines.join(", "));
        NotSummable {
            what: format!("there is no state of {} of the hosts {names}: that of {machines} can belong to any of them", self.missing),
            help: Some("put the name of the host before each state, as in `name: {…}`, or name the files by hosts"),
        }
    }
}

impl Machines {
    /// Adds the machines of a document.
    pub fn add(&mut self, runs: &[RunId]) {
        let hosts = runs.iter().flat_map(|run| run.host.split(',').map(|host| (host.to_string(), run.boot_ns)));
        let ids: BTreeSet<(String, u64)> = hosts.collect();
        for id in &ids {
            let known = self.all.iter().position(|machine| machine.id.as_ref() == Some(id));
            self.last = known.unwrap_or_else(|| {
                self.all.push(Machine { id: Some(id.clone()), names: BTreeSet::from([id.0.clone()]) });
                self.all.len() - 1
            });
        }
        if ids.len() > 1 {
            self.last = self.all.len();
            self.all.push(Machine { id: None, names: BTreeSet::new() });
        }
    }

    /// Adds a name to the machine of the last document.
    pub fn add_name(&mut self, name: String) {
        if let Some(machine) = self.all.get_mut(self.last) {
            machine.names.insert(name);
        }
    }

    /// The hosts that have sent no state. Each machine stands for at most one of these hosts: for one of its own names if
    /// possible, or else for a name that differs by the domain.
    pub fn missing(&self, hosts: &[String]) -> Vec<MissingHosts> {
        let mut known = BTreeSet::new();
        let hosts: Vec<&String> = hosts.iter().filter(|host| known.insert(host.to_ascii_lowercase())).collect();
        let mut matching = Matching { machines: &self.all, hosts: &hosts, host_of: vec![None; self.all.len()] };
        for exactly in [true, false] {
            for host in 0..hosts.len() {
                if !matching.host_of.contains(&Some(host)) {
                    matching.assign(host, exactly, &mut BTreeSet::new());
                }
            }
        }
        let mut missing: Vec<MissingHosts> = Vec::new();
        let name = |host: usize| hosts.get(host).map(ToString::to_string).unwrap_or_default();
        for host in (0..hosts.len()).filter(|host| !matching.host_of.contains(&Some(*host))) {
            if let Some(group) = missing.iter_mut().find(|group| group.names.contains(&name(host))) {
                group.missing += 1;
                continue;
            }
            let (rivals, machines) = matching.rivals(host);
            let machines = machines.into_iter().filter_map(|machine| self.all.get(machine)?.name().cloned()).collect();
            missing.push(MissingHosts { names: rivals.into_iter().map(name).collect(), missing: 1, machines });
        }
        missing
    }
}

/// An assignment of machines to hosts.
struct Matching<'a> {
    machines: &'a [Machine],
    hosts: &'a [&'a String],
    /// The host for which each machine stands.
    host_of: Vec<Option<usize>>,
}

impl Matching<'_> {
    fn compare(&self, machine: usize, host: usize, is_same: fn(&str, &str) -> bool) -> bool {
        let (Some(machine), Some(host)) = (self.machines.get(machine), self.hosts.get(host)) else { return false };
        machine.names.iter().any(|name| is_same(name, host))
    }

    fn is_exact(&self, machine: usize, host: usize) -> bool {
        self.compare(machine, host, str::eq_ignore_ascii_case)
    }

    /// Can the machine stand for the host? One that has the name of another host cannot, unless it has this name too.
    fn is_candidate(&self, machine: usize, host: usize) -> bool {
        let stands_for = self.host_of.get(machine).copied().flatten();
        self.is_exact(machine, host)
            || !stands_for.is_some_and(|other| self.is_exact(machine, other)) && self.compare(machine, host, is_same_host)
    }

    /// Assigns a machine to the host, `exactly` one with its name; other hosts may get other machines instead.
    fn assign(&mut self, host: usize, exactly: bool, tried: &mut BTreeSet<usize>) -> bool {
        for machine in 0..self.machines.len() {
            let can = if exactly { self.is_exact(machine, host) } else { self.is_candidate(machine, host) };
            if !can || !tried.insert(machine) {
                continue;
            }
            let before = self.host_of.get(machine).copied().flatten();
            if before.is_none_or(|before| self.assign(before, exactly, tried)) {
                if let Some(place) = self.host_of.get_mut(machine) {
                    *place = Some(host);
                }
                return true;
            }
        }
        false
    }

    /// The host with all others that could be meant by the same machines, and these machines.
    fn rivals(&self, host: usize) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let (mut hosts, mut machines, mut next) = (BTreeSet::from([host]), BTreeSet::new(), vec![host]);
        while let Some(host) = next.pop() {
            for machine in (0..self.machines.len()).filter(|machine| self.is_candidate(*machine, host)) {
                machines.insert(machine);
                let has_none = |other: &usize| !self.host_of.contains(&Some(*other)) && self.is_candidate(machine, *other);
                let others = self.host_of.get(machine).copied().flatten().into_iter().chain((0..self.hosts.len()).filter(has_none));
                next.extend(others.filter(|other| hosts.insert(*other)));
            }
        }
        (hosts, machines)
    }
}

/// Are two names equal, or is one the other without its domain?
fn is_same_host(a: &str, b: &str) -> bool {
    let (a, b) = (a.to_ascii_lowercase(), b.to_ascii_lowercase());
    let begins = |long: &str, short: &str| long.strip_prefix(short).is_some_and(|domain| domain.is_empty() || domain.starts_with('.'));
    begins(&a, &b) || begins(&b, &a)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hosts that are missing, given the host of each state and its other name.
    fn missing(hosts: &str, states: &[(&str, &str)]) -> Vec<String> {
        let mut machines = Machines::default();
        for (boot_ns, (host, name)) in (1..).zip(states) {
            machines.add(&[RunId { host: (*host).into(), boot_ns, start_ns: 1 }]);
            machines.add_name((*name).into());
        }
        let hosts: Vec<String> = hosts.split(',').map(String::from).collect();
        machines.missing(&hosts).iter().map(|group| format!("{} of {}", group.missing, group.names.join(" "))).collect()
    }

    #[test]
    fn each_machine_stands_for_one_host() {
        let none: [&str; 0] = [];
        assert_eq!(missing("a,b.eu,C", &[("a.eu", "-"), ("b", "-"), ("x", "c")]), none);
        assert_eq!(missing("web.eu,web.us", &[("web", "-")]), ["1 of web.eu web.us"]);
        assert_eq!(missing("web.eu,web.us", &[("web", "web.us")]), ["1 of web.eu"]);
        assert_eq!(missing("web.us,web.eu", &[("web", "web.us")]), ["1 of web.eu"]);
        assert_eq!(missing("web.eu,web.us", &[("web", "-"), ("web", "-")]), none);
        assert_eq!(missing("web.eu,web.us", &[("web", "-"), ("web", "web.eu")]), none);
        assert_eq!(missing("web.eu,web", &[("web", "-")]), ["1 of web.eu"]);
        assert_eq!(missing("web.eu,web", &[("web", "web.eu")]), ["1 of web.eu web"]);
        assert_eq!(missing("w.a,w.b,w.c,x", &[("w", "-")]), ["2 of w.a w.b w.c", "1 of x"]);
        assert_eq!(missing("a,a", &[("a", "-")]), none);
        assert_eq!(missing("w.a,w.b", &[("w", "-"), ("w.a", "-")]), none);
        // the first host gets another machine instead
        assert_eq!(missing("a,b", &[("a", "b"), ("a", "-")]), none);
    }

    #[test]
    fn runs_on_one_machine_are_one_host() {
        let run = |host: &str, start_ns| RunId { host: host.into(), boot_ns: 1, start_ns };
        let hosts = ["web.eu".to_string(), "web.us".to_string()];
        let mut machines = Machines::default();
        machines.add(&[run("web", 1)]);
        machines.add(&[run("web", 2)]);
        assert_eq!(machines.missing(&hosts).len(), 1);
        // a sum has the hosts of its parts, and a name of its own
        let mut machines = Machines::default();
        machines.add(&[run("web.eu", 1), run("web.us", 1)]);
        machines.add_name("all".into());
        assert!(machines.missing(&hosts).is_empty() && machines.missing(&["all".to_string()]).is_empty());
    }
}

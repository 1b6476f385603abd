//! Which of the hosts of `--hosts` have sent a state.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::add::NotSummable;
use crate::state::RunId;

/// The machines of a sum.
#[derive(Default)]
pub(super) struct Machines {
    all: Vec<Machine>,
    /// The place of each host and its boot.
    known: HashMap<(String, u64), usize>,
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
            let all = &mut self.all;
            self.last = *self.known.entry(id.clone()).or_insert_with(|| {
                all.push(Machine { id: Some(id.clone()), names: BTreeSet::from([id.0.clone()]) });
                all.len() - 1
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
        let mut matching = Matching::new(&self.all, &hosts);
        matching.assign_all(true);
        matching.lock();
        matching.assign_all(false);
        let mut missing: Vec<MissingHosts> = Vec::new();
        let mut group_of = BTreeMap::new();
        let name = |host: usize| hosts.get(host).map(ToString::to_string).unwrap_or_default();
        for host in (0..hosts.len()).filter(|host| !matching.has_machine(*host)) {
            if let Some(group) = group_of.get(&host).and_then(|group: &usize| missing.get_mut(*group)) {
                group.missing += 1;
                continue;
            }
            let (rivals, machines) = matching.rivals(host);
            group_of.extend(rivals.iter().map(|rival| (*rival, missing.len())));
            let machines = machines.into_iter().filter_map(|machine| self.all.get(machine)?.name().cloned()).collect();
            missing.push(MissingHosts { names: rivals.into_iter().map(name).collect(), missing: 1, machines });
        }
        missing
    }
}

/// An assignment of machines to hosts.
///
/// Machines and hosts meet at the names of machines, so that many hosts that may be any of many machines are no product of both.
#[derive(Default)]
struct Matching {
    names: Vec<Name>,
    /// The names of each machine.
    names_of: Vec<Vec<usize>>,
    hosts: Vec<Candidates>,
    /// The host for which each machine stands.
    host_of: Vec<Option<usize>>,
    /// The machine of each host.
    machine_of: Vec<Option<usize>>,
    /// Machines that stand for a host with their own name, and so for no other.
    locked: Vec<bool>,
}

/// A name of machines.
#[derive(Default)]
struct Name {
    machines: Vec<usize>,
    /// The host of this name.
    host: Option<usize>,
    /// Hosts whose names differ by the domain.
    near: Vec<usize>,
}

/// The names of the machines that can be a host.
#[derive(Default)]
struct Candidates {
    same: Option<usize>,
    near: Vec<usize>,
}

/// Which machines with a name a search has seen: all, or those that are not locked.
#[derive(Default)]
struct Seen {
    all: BTreeSet<usize>,
    near: BTreeSet<usize>,
}

impl Matching {
    fn new(machines: &[Machine], hosts: &[&String]) -> Self {
        let mut matching = Self {
            host_of: vec![None; machines.len()],
            machine_of: vec![None; hosts.len()],
            locked: vec![false; machines.len()],
            ..Self::default()
        };
        let mut ids: BTreeMap<String, usize> = BTreeMap::new();
        for (id, machine) in machines.iter().enumerate() {
            let lower: BTreeSet<String> = machine.names.iter().map(|name| name.to_ascii_lowercase()).collect();
            let mut names_of = Vec::new();
            for name in lower {
                let name = *ids.entry(name).or_insert_with(|| {
                    matching.names.push(Name::default());
                    matching.names.len() - 1
                });
                names_of.push(name);
                matching.names.get_mut(name).into_iter().for_each(|name| name.machines.push(id));
            }
            matching.names_of.push(names_of);
        }
        let lower: Vec<String> = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        let by_name: HashMap<&str, usize> = (0..).zip(&lower).map(|(id, host)| (host.as_str(), id)).collect();
        for host in &lower {
            let near = without_domains(host).filter_map(|name| ids.get(name).copied()).collect();
            matching.hosts.push(Candidates { same: ids.get(host).copied(), near });
        }
        let longest = lower.iter().map(String::len).max().unwrap_or(0);
        for (name, id) in &ids {
            for host in without_domains(name).take_while(|name| name.len() <= longest).filter_map(|name| by_name.get(name)) {
                matching.hosts.get_mut(*host).into_iter().for_each(|host| host.near.push(*id));
            }
        }
        for (id, host) in matching.hosts.iter().enumerate() {
            for (name, is_same) in host.same.iter().map(|name| (name, true)).chain(host.near.iter().map(|name| (name, false))) {
                let Some(name) = matching.names.get_mut(*name) else { continue };
                if is_same { name.host = Some(id) } else { name.near.push(id) }
            }
        }
        matching
    }

    fn has_machine(&self, host: usize) -> bool {
        self.machine_of.get(host).copied().flatten().is_some()
    }

    fn is_locked(&self, machine: usize) -> bool {
        self.locked.get(machine).copied().unwrap_or_default()
    }

    /// Keeps the machines that have the names of their hosts from standing for hosts with other names.
    fn lock(&mut self) {
        self.locked = self.host_of.iter().map(Option::is_some).collect();
    }

    /// The machines that can be the host, except for those behind names that were `seen`; `exactly` those with its name.
    fn candidates(&self, host: usize, exactly: bool, seen: &mut Seen) -> Vec<usize> {
        let Some(Candidates { same, near }) = self.hosts.get(host) else { return Vec::new() };
        let machines = |name: &usize| self.names.get(*name).map(|name| name.machines.as_slice()).unwrap_or_default();
        let same = same.iter().filter(|name| seen.all.insert(**name)).flat_map(machines).copied();
        let mut all: Vec<usize> = same.collect();
        if !exactly {
            let near = near.iter().filter(|name| seen.near.insert(**name)).flat_map(machines);
            all.extend(near.filter(|machine| !self.is_locked(**machine)));
        }
        all
    }

    /// Assigns machines to as many hosts as possible, `exactly` those with their names; hosts with a machine may get another one.
    fn assign_all(&mut self, exactly: bool) {
        // where a search has failed, later ones fail too
        let mut failed = vec![false; self.host_of.len()];
        for host in 0..self.hosts.len() {
            if !self.has_machine(host) {
                self.assign(host, exactly, &mut failed);
            }
        }
    }

    fn assign(&mut self, host: usize, exactly: bool, failed: &mut [bool]) {
        let (mut seen, mut next) = (Seen::default(), VecDeque::from([host]));
        // for which host each machine was tried
        let mut tried: BTreeMap<usize, usize> = BTreeMap::new();
        while let Some(host) = next.pop_front() {
            for machine in self.candidates(host, exactly, &mut seen) {
                if failed.get(machine).copied().unwrap_or_default() || tried.contains_key(&machine) {
                    continue;
                }
                tried.insert(machine, host);
                match self.host_of.get(machine).copied().flatten() {
                    Some(other) => next.push_back(other),
                    None => return self.reassign(machine, &tried),
                }
            }
        }
        for machine in tried.into_keys() {
            failed.get_mut(machine).into_iter().for_each(|failed| *failed = true);
        }
    }

    /// Assigns the machine to the host for which it was `tried`, the machine that this host had to another one, and so on.
    fn reassign(&mut self, machine: usize, tried: &BTreeMap<usize, usize>) {
        let mut free = Some(machine);
        while let Some((machine, host)) = free.and_then(|machine| Some((machine, *tried.get(&machine)?))) {
            if let (Some(host_of), Some(machine_of)) = (self.host_of.get_mut(machine), self.machine_of.get_mut(host)) {
                *host_of = Some(host);
                free = machine_of.replace(machine);
            }
        }
    }

    /// The host with all others that could be meant by the same machines, and these machines.
    fn rivals(&self, host: usize) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let (mut hosts, mut machines, mut next) = (BTreeSet::from([host]), BTreeSet::new(), vec![host]);
        let (mut seen, mut seen_from_machines) = (Seen::default(), Seen::default());
        while let Some(host) = next.pop() {
            for machine in self.candidates(host, false, &mut seen) {
                if !machines.insert(machine) {
                    continue;
                }
                let mut others: Vec<usize> = self.host_of.get(machine).copied().flatten().into_iter().collect();
                for id in self.names_of.get(machine).into_iter().flatten() {
                    let Some(name) = self.names.get(*id) else { continue };
                    let same = name.host.filter(|_| seen_from_machines.all.insert(*id));
                    let is_near = !self.is_locked(machine) && seen_from_machines.near.insert(*id);
                    let near = name.near.iter().filter(|_| is_near);
                    others.extend(same.iter().chain(near).filter(|other| !self.has_machine(**other)));
                }
                next.extend(others.into_iter().filter(|other| hosts.insert(*other)));
            }
        }
        (hosts, machines)
    }
}

/// The name without its domain, at each of the points; the shortest first.
fn without_domains(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('.').filter_map(|(at, _)| name.get(..at))
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

    /// Compares with the best of all assignments.
    #[test]
    fn as_few_as_possible_are_missing() {
        let names = ["w", "w.a", "w.b", "w.a.c", "v", "V.a", "w.a.c.d"];
        let mut random = 7u32;
        let mut pick = |from: &[&'static str]| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            from[(random >> 16) as usize % from.len()]
        };
        for _ in 0..3000 {
            let states: Vec<&str> = (0..4).map(|_| pick(&names)).collect();
            let hosts: BTreeSet<String> = (0..5).map(|_| pick(&names).to_ascii_lowercase()).collect();
            let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
            let near = |a: &str, b: &str| a == b || a.starts_with(&format!("{b}.")) || b.starts_with(&format!("{a}."));
            /// The most hosts with their own names, and with these the most hosts.
            fn best(hosts: &[&str], used: u32, fits: &dyn Fn(usize, &str) -> Option<bool>) -> (u32, u32) {
                let Some((host, rest)) = hosts.split_first() else { return (0, 0) };
                let with = (0..4).filter(|m| used & (1 << m) == 0).filter_map(|m| {
                    let exact = fits(m, host)?;
                    let (a, b) = best(rest, used | 1 << m, fits);
                    Some((a + u32::from(exact), b + 1))
                });
                with.chain([best(rest, used, fits)]).max().unwrap()
            }
            let fits = |m: usize, host: &str| {
                let name = states[m].to_ascii_lowercase();
                near(&name, host).then_some(name == host)
            };
            let (_, found) = best(&hosts, 0, &fits);
            let mut machines = Machines::default();
            for (boot_ns, host) in (1..).zip(&states) {
                machines.add(&[RunId { host: (*host).into(), boot_ns, start_ns: 1 }]);
            }
            let asked: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            let all = machines.missing(&asked);
            assert!(all.iter().all(|group| group.missing <= group.names.len()));
            assert_eq!(all.iter().map(|group| group.missing).sum::<usize>(), hosts.len() - found as usize, "{states:?} {hosts:?}");
        }
    }

    /// So many names that a search over all pairs of names for each host would not end.
    #[test]
    fn hundreds_of_names() {
        let run = |host: String, boot_ns| RunId { host, boot_ns, start_ns: 1 };
        let (mut alike, mut short) = (Machines::default(), Machines::default());
        for i in 0..800 {
            alike.add(&[run("web".into(), i)]);
            alike.add_name(format!("n{i}"));
            short.add(&[run(format!("web.{i}.eu"), i)]);
        }
        let hosts = |n: usize| (0..n).map(|i| format!("Web.{i}")).collect::<Vec<_>>();
        assert!(alike.missing(&hosts(800)).is_empty() && short.missing(&hosts(800)).is_empty());
        let missing = alike.missing(&hosts(805));
        assert_eq!((missing.len(), missing[0].missing, missing[0].names.len()), (1, 5, 805));
        assert_eq!(short.missing(&hosts(805)).len(), 5);
        assert_eq!(Machines::default().missing(&hosts(800)).len(), 800);
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

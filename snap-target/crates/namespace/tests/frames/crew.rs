//! Several engines over one set of namespaces, on the test's own thread: what happens when is the test's choice.

use std::sync::Arc;
use std::time::Instant;

use namespace::{
    Asked, Done, Engine, EngineConfig, Io, Namespace, NamespaceCounters, NamespaceError,
    NamespaceKey, NamespaceSet,
};
use reactor::{Ring, RingConfig, Wait};

/// Turns of every engine after which a test counts as hanging: some ten seconds.
const TURNS_MAX: u64 = 10_000_000;

/// An engine and its ring.
pub struct Member {
    pub ring: Ring,
    pub engine: Engine,
}

impl Member {
    pub fn new(set: &NamespaceSet, config: &EngineConfig) -> Member {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let engine = Engine::new(&ring, set, config).unwrap();
        Member { ring, engine }
    }
}

pub struct Crew {
    /// By NSID.
    keys: Vec<NamespaceKey>,
    pub members: Vec<Member>,
    done: Vec<Done>,
}

impl Crew {
    pub fn new(count: u16, namespace: Namespace, config: &EngineConfig) -> Crew {
        Crew::over(count, &NamespaceSet::new(vec![Arc::new(namespace)]), config)
    }

    pub fn over(count: u16, set: &NamespaceSet, config: &EngineConfig) -> Crew {
        let mut members: Vec<_> = (0..count).map(|_| Member::new(set, config)).collect();
        let peers: Vec<_> = members.iter().map(|member| member.engine.peer()).collect();
        for (member, index) in members.iter_mut().zip(0..) {
            member.engine.meet(index, &peers);
        }
        Crew {
            members,
            keys: set.all().iter().map(|namespace| namespace.key).collect(),
            done: Vec::new(),
        }
    }

    pub fn submit(&mut self, member: usize, lba: u64, blocks: u32, token: u64) {
        self.submit_to(1, member, lba, blocks, token);
    }

    pub fn submit_to(&mut self, nsid: u32, member: usize, lba: u64, blocks: u32, token: u64) {
        self.submit_by(nsid, member, lba, blocks, token, None);
    }

    /// As [`Crew::submit_to`], with so much time.
    pub fn submit_by(
        &mut self,
        nsid: u32,
        member: usize,
        lba: u64,
        blocks: u32,
        token: u64,
        deadline: Option<Instant>,
    ) {
        let key = self.keys[nsid as usize - 1];
        let engine = &mut self.members[member].engine;
        let done = engine.submit(
            key,
            Io::Read {
                lba,
                blocks,
                into: None,
            },
            Asked {
                deadline,
                ..Asked::with(token)
            },
        );
        self.done.extend(done);
    }

    /// One turn of each; what is answered by then.
    pub fn turn(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        self.turn_into(&mut done);
        done
    }

    /// The same into memory that is there.
    pub fn turn_into(&mut self, done: &mut Vec<Done>) {
        for member in 0..self.members.len() {
            self.turn_one(member);
        }
        done.append(&mut self.done);
    }

    /// A turn of one engine; what it answers comes with the next turn of all.
    pub fn turn_one(&mut self, member: usize) {
        let member = &mut self.members[member];
        member.ring.turn(Wait::Poll).unwrap();
        while member.ring.next_ready().is_some() {}
        member.engine.poll(&mut self.done);
    }

    /// Turns until `count` requests are answered; in the order of their tokens.
    pub fn wait(&mut self, count: usize) -> Vec<Done> {
        let mut done = Vec::new();
        let mut turns = 0;
        while done.len() < count {
            turns += 1;
            assert!(turns < TURNS_MAX, "{} of {count} answered", done.len());
            done.extend(self.turn());
        }
        done.sort_by_key(|done| done.token);
        assert_eq!(done.len(), count, "each is answered once");
        done
    }

    pub fn read(
        &mut self,
        member: usize,
        lba: u64,
        blocks: u32,
    ) -> Result<Vec<u8>, NamespaceError> {
        self.submit(member, lba, blocks, 0);
        let done = self.wait(1).pop().unwrap();
        done.result.map(|()| done.buf.unwrap().to_vec())
    }

    /// One counter, of all engines together.
    pub fn sum(&self, counter: impl Fn(NamespaceCounters) -> u64) -> u64 {
        let counters = self.members.iter().map(|member| member.engine.counters());
        counters.map(counter).sum()
    }

    pub fn is_idle(&self) -> bool {
        self.members
            .iter()
            .all(|member| !member.engine.is_busy() && !member.engine.has_work())
    }
}

package progress

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/archive"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// Streams know what clients have acknowledged: an *xds.Server.
type Streams interface {
	// Progress says how far clients are with a revision or, with upto, with all revisions up to it. It lists at most most
	// proxies that owe something.
	Progress(revision uint64, upto bool, most int) xds.Progress
	// Connected returns the proxies of the list that are connected. Names are as of xds.Owing.Name.
	Connected(names []string) []string
	// Departed returns the names of proxies that have left: the first ones in order that are greater than after, and
	// not more than most.
	Departed(after string, most int) []string
	// Forget forgets proxies that left before a time, because they are connected elsewhere.
	Forget(names []string, before time.Time)
	// Expect records the proxies that Pods run and that are not connected. It is called when a replica has ended to
	// which they may have been connected.
	Expect()
	// Missing returns the number of proxies that Expect recorded and that have not connected since. list has some of
	// them, and not more than most.
	Missing(most int) (list []xds.Owing, n int)
	// Later returns the number of connected proxies that connected after a revision was published. newest is the
	// highest revision that was published when a connected proxy connected.
	Later(revision uint64) (n int, newest uint64)
}

// World has the objects: an *ingest.World.
type World interface {
	// Stored returns the committed version of an object of the sources, or nil, whether the filter accepts it, and whether
	// a newer change is not committed yet.
	Stored(k kinds.Key) (o *kinds.Object, accepted, pending bool)
	// Origin returns the object that a derived object was made of, or else the object with that key, or nil.
	Origin(k kinds.Key) *kinds.Object
	// Selections returns the number of commits that selected or unselected namespaces.
	Selections() uint64
}

// Judge knows what is wrong with objects.
type Judge interface {
	// Unusable returns the generation of an object whose last version is not in force as it is written, and reports
	// whether there is one.
	Unusable(k kinds.Key) (generation int64, is bool)
	// FindingsAbout returns the findings about an object.
	FindingsAbout(k kinds.Key) []diag.Diagnostic
	// Unread returns why objects with such a key are not read at all, or an empty string.
	Unread(k kinds.Key) string
	// Unneeded returns why an object with such a key is not read now although others are, or an empty string.
	Unneeded(k kinds.Key) string
	// Idle returns the objects that reach no proxy according to a finding, by kinds.Key.String.
	Idle() map[string]bool
}

// Options configure a Tracker.
type Options struct {
	Streams  Streams
	Archive  *archive.Archive
	World    World
	Judge    Judge
	Replicas Replicas // nil if there are no other replicas
	Name     string   // of this replica
	// Stopping is how long a replica may serve on after it is no member any more.
	Stopping time.Duration
	Clock    Clock // nil for the time of the system
}

// Clock has the time.
type Clock interface{ Now() time.Time }

type systemClock struct{}

// Now implements Clock.
func (systemClock) Now() time.Time { return time.Now() }

// Bounds.
const (
	maxOwing = 4096 // proxies that one answer of a replica counts
	maxShown = 100  // proxies that it lists
	maxOpen  = 64   // revisions whose outcome is awaited
	maxKeys  = 256  // objects of one such revision
)

// Tracker answers questions about versions of objects. Its methods are safe for concurrent use, except that one
// goroutine at a time calls Begin and Commit.
type Tracker struct {
	o       Options
	started time.Time
	wake    chan struct{} // capacity 1; wakes Run

	mu         sync.Mutex
	last       uint64                      // revision of the last commit; 0 before the first
	selections uint64                      // number of selections of namespaces at the last commit
	reselected uint64                      // revision of the last commit that selected or unselected namespaces; 0 if none did
	committing []kinds.Key                 // objects of the batch that is being committed
	before     map[kinds.Key]*kinds.Object // objects of that batch that have no versions, as they were before it
	open       []open                      // the next one to look at comes first
	members    members
	expected   time.Time // when the proxies of Pods became expected; zero before the first commit
	asked      bool      // the other replicas are asked for them
}

// open is a revision whose outcome is not known yet.
type open struct {
	revision uint64
	keys     []kinds.Key // objects that it changed; at most maxKeys
}

// New returns a Tracker.
func New(o Options) *Tracker {
	if o.Clock == nil {
		o.Clock = systemClock{}
	}
	return &Tracker{o: o, started: o.Clock.Now(), wake: make(chan struct{}, 1), members: newMembers()}
}

// Begin records that a batch is being applied. Commit must follow.
func (t *Tracker) Begin(batch []kinds.Change) {
	t.mu.Lock()
	first := t.last == 0
	t.mu.Unlock()
	if first {
		return // there are no answers before the first load
	}
	var before map[kinds.Key]*kinds.Object
	keys := make([]kinds.Key, 0, len(batch))
	for _, c := range batch {
		keys = append(keys, c.Key)
		if c.Kind.IsWorkload() || !archive.IsKept(c.Key) || t.o.Archive.Has(c.Key) {
			continue
		}
		if o, _, _ := t.o.World.Stored(c.Key); o != nil {
			if before == nil {
				before = map[kinds.Key]*kinds.Object{}
			}
			before[c.Key] = o
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committing, t.before = keys, before
}

// Commit records an applied batch and its snapshot. It must be called before the snapshot is published. If the batch
// changed nothing, the snapshot has the revision of the snapshot before it. The first call is for the first load.
func (t *Tracker) Commit(snap *snapshot.Snapshot, batch []kinds.Change, at time.Time) {
	defer t.expect()
	t.mu.Lock()
	defer t.mu.Unlock()
	selections := t.o.World.Selections()
	if t.last == 0 {
		t.selections, t.expected = selections, t.o.Clock.Now()
	}
	now := open{revision: snap.Revision}
	for i := range batch {
		c := &batch[i]
		if t.last == 0 {
			break
		}
		added := t.o.Archive.Add(archive.Change{Key: c.Key, Object: c.Object, Before: t.before[c.Key], Revision: snap.Revision,
			Unchanged: snap.Revision == t.last, Time: at})
		if added && !c.Kind.IsWorkload() && snap.Revision != t.last && len(now.keys) < maxKeys {
			now.keys = append(now.keys, c.Key)
		}
	}
	if selections != t.selections {
		t.reselected, t.selections = snap.Revision, selections
	}
	t.last, t.committing, t.before = snap.Revision, nil, nil
	if t.o.Replicas != nil && t.o.Replicas.Affected(snap) {
		t.members.update(t.o.Replicas.Members(), at)
	}
	if len(now.keys) == 0 {
		return
	}
	if len(t.open) >= maxOpen {
		t.open = slices.Delete(t.open, 0, 1)
	}
	t.open = append(t.open, now)
	t.awake()
}

// awake wakes Run.
func (t *Tracker) awake() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Own returns the answer of this replica.
func (t *Tracker) Own(q Question) Answer { return t.explain(t.answer(q, nil)) }

// OwnOf returns the answer of this replica for another one.
func (t *Tracker) OwnOf(q Question, by Asker) Answer {
	a := t.answer(q, by.Proxies)
	if t.o.Replicas != nil {
		a.Gone = t.gone([]part{{name: by.Name, Answer: Answer{Uptime: by.Uptime.Seconds()}}})
	}
	return t.explain(a)
}

// explain adds the findings about an object, if they may say why the answer is what it is.
func (t *Tracker) explain(a Answer) Answer {
	if a.State != Behind && a.State != Superseded {
		a.Findings = t.o.Judge.FindingsAbout(a.key)
	}
	return a
}

// subject is what is known of an object at one moment.
type subject struct {
	key               kinds.Key
	versions          []archive.Version // oldest first
	object            *kinds.Object     // committed version; nil if there is none
	accepted, pending bool
	committing        bool   // its batch is being committed: object may be the old or the new version
	floor             uint64 // an object without versions has not changed after this revision
	reselected        uint64 // revision of the last commit that selected or unselected namespaces; 0 if none did
	loaded            bool   // there was a first commit
	many              *many  // nil if the question is about one object
}

func (t *Tracker) subject(k kinds.Key) subject {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := subject{key: k, reselected: t.reselected, loaded: t.last != 0, committing: slices.Contains(t.committing, k)}
	s.versions, s.floor = t.o.Archive.Versions(k)
	s.object, s.accepted, s.pending = t.o.World.Stored(k)
	if o := s.object; len(s.versions) == 0 && o != nil && !s.committing {
		s.versions = []archive.Version{{Revision: max(1, s.floor), AsOld: true, UID: o.UID, Generation: o.Generation, Position: o.Position}}
	}
	return s
}

// hash returns the hash of a version's content, or an empty string for a deletion. The archive does not keep all.
func (s *subject) hash(i int) string {
	v := &s.versions[i]
	h := v.Hash()
	if h == "" && !v.Gone && i == len(s.versions)-1 && s.object != nil && !s.committing {
		h = archive.Content(s.object)
	}
	return h
}

// find returns the index of the newest version that a question names, or -1.
func (s *subject) find(q Question) int {
	for i := len(s.versions) - 1; i >= 0; i-- {
		v := &s.versions[i]
		switch {
		case q.Deleted != v.Gone, q.Generation != 0 && q.Generation != v.Generation, !v.Gone && q.UID != "" && q.UID != v.UID,
			q.Version != "" && q.Version != s.hash(i):
		default:
			return i
		}
	}
	return -1
}

// had reports whether one of the versions is of the object with a UID. An object that was deleted and written again has
// another UID, and its generations begin again.
func (s *subject) had(uid string) bool {
	return uid == "" || slices.ContainsFunc(s.versions, func(v archive.Version) bool { return v.UID == uid })
}

// answer is Own without findings. It says first which of the proxies are connected to this replica.
func (t *Tracker) answer(q Question, proxies []string) Answer {
	a := Answer{Owing: []Owing{}, Uptime: t.o.Clock.Now().Sub(t.started).Seconds()}
	if len(proxies) > maxMoved {
		proxies = proxies[:maxMoved]
	}
	if len(proxies) > 0 {
		a.Connected = t.o.Streams.Connected(proxies)
	}
	s := t.subject(q.Key)
	if s.object == nil && len(s.versions) == 0 {
		if from := t.o.World.Origin(q.Key); from != nil && from.Key != q.Key { // a derived object is as far as its origin
			q.Key = from.Key
			s = t.subject(q.Key)
		}
	}
	a.Object, a.key = objectOf(q.Key), q.Key
	a.Generation, a.UID, a.content, a.Deleted = q.Generation, q.UID, q.Version, q.Deleted
	t.decide(&a, q, &s)
	if q.Key.Kind != kinds.Secret {
		a.Version = a.content
	}
	return a
}

// decide sets the state, and what follows from it.
func (t *Tracker) decide(a *Answer, q Question, s *subject) {
	newest := len(s.versions) - 1
	refused, unusable := t.o.Judge.Unusable(s.key)
	i := newest
	if q.exact() {
		i = s.find(q)
	}
	if q.Deleted && newest < 0 && s.loaded && s.object == nil && !s.committing && !unusable {
		s.versions = []archive.Version{{Revision: max(1, s.floor), AsOld: true, Gone: true}} // deleted before all that is known
		i, newest = 0, 0
	}
	switch {
	case !s.loaded:
		a.State, a.Why = NotSeen, "the configuration is not read yet"
		return
	case s.object == nil && !q.Deleted && !s.committing && !s.pending:
		if why := t.o.Judge.Unneeded(s.key); why != "" {
			t.measureUnneeded(a, why)
			return
		}
	}
	switch {
	case unusable && s.isRefused(q, i, refused):
		a.State, a.Generation, a.Why = Invalid, refused, "the control plane does not use it as it is written"
		if s.object != nil {
			a.Position = s.object.Position
		}
		return
	case !q.exact() && (s.pending || s.committing):
		a.State, a.Why = Behind, "a newer change of the object is not committed yet"
		return
	case i < 0 && newest >= 0 && q.Generation != 0 && q.Generation < s.versions[newest].Generation && s.had(q.UID):
		t.supersede(a, s)
		return
	case i < 0:
		a.State, a.Why = NotSeen, t.o.Judge.Unread(s.key)
		switch {
		case a.Why != "":
			a.State, a.unread = WithoutEffect, true
		case newest < 0 && (s.key.Kind == kinds.Secret || s.key.Kind == kinds.ConfigMap):
			a.Why = "such an object is read only while a proxy asks for it"
		}
		return
	}
	v := &s.versions[i]
	a.UID, a.Position = v.UID, v.Position
	if a.Generation, a.content, a.Deleted = v.Generation, "", v.Gone; v.Generation == 0 && s.many == nil {
		a.content = s.hash(i)
	}
	if !v.Time.IsZero() {
		a.Since = &v.Time
	}
	if i < newest {
		t.supersede(a, s)
		return
	}
	t.measure(a, s, v)
}

// isRefused reports whether a question is about the version that the control plane does not use. i is the index of the
// version, and refused the generation of the one that is not used.
func (s *subject) isRefused(q Question, i int, refused int64) bool {
	newest := len(s.versions) - 1
	switch {
	case !q.exact():
		return true
	case q.Generation != 0:
		return q.Generation <= refused && (i < 0 || s.versions[i].Generation == refused) &&
			(newest < 0 || q.Generation >= s.versions[newest].Generation)
	}
	// A Secret with an error is read as it is, because what it must hold depends on the objects that name it.
	return s.key.Kind == kinds.Secret && q.Version != "" && i >= 0 && i == newest
}

// supersede says which version replaced the one that is asked for.
func (t *Tracker) supersede(a *Answer, s *subject) {
	by := &s.versions[len(s.versions)-1]
	a.State, a.SupersededBy = Superseded, by.Generation
	if a.Why = "a newer version replaced it"; by.Gone {
		a.Why = "the object was deleted"
	}
}

// measure sets the state of the newest version from what streams owe.
func (t *Tracker) measure(a *Answer, s *subject, v *archive.Version) {
	revision, upto := v.Revision, v.AsOld
	if s.reselected > revision {
		revision, upto = s.reselected, true
	}
	var p owed
	if s.many != nil {
		p = s.many.owed(v, revision, upto)
	} else {
		p = t.owed(revision, upto)
	}
	a.Counted, a.Proxies, a.Owing, a.More = p.Counted && !upto, p.proxies, p.owing, p.more
	a.Lost, a.Resumed = p.Unknown, p.Resumed
	t.shorten(a)
	switch {
	case a.Proxies.Rejected > 0:
		a.State = Rejected
	case !p.Published:
		a.State, a.Why = Behind, "it is not offered to proxies yet"
	case p.onlySilent():
		a.State, a.Why, a.Silent = Unknown, p.whySilent(), true
	case a.Proxies.Behind > 0:
		a.State = Behind
	case p.Unknown:
		a.State, a.Why = Unknown, manyDeparted
	case !p.InForce():
		a.State, a.Why = Behind, "not all proxies have acknowledged it"
	case !v.Gone && !s.accepted:
		a.State, a.Why = WithoutEffect, "it is for another revision of the control plane, or its namespace is not selected"
	case p.Connected == 0:
		a.State, a.Why = WithoutEffect, NoProxy
	case !upto && (p.Concerned > 0 || v.Proxies > 0):
		if a.State = InForce; p.Concerned == 0 && p.Counted && !v.Gone && s.many == nil { // the proxies have left
			a.Proxies.Later, _ = t.o.Streams.Later(revision)
			a.Counted = a.Proxies.Later == 0
		}
	default:
		t.measureOthers(a, s, v, revision, p.Counted && !upto)
	}
}

// Reasons for WithoutEffect that may not hold for proxies that connect later.
const (
	NoProxy   = "no proxy is connected"
	NoChanges = "it changed nothing that a connected proxy is sent"
	Unreached = "a finding says that it reaches no proxy"
)

// Reasons why the number of proxies that a version in force concerns is not known.
const (
	uncounted      = "how many proxies it concerns is not known"
	connectedLater = "the proxies that it may concern connected later, and got it before they were ready"
)

// measureOthers sets the state of a version that no proxy lacks, and that no push is known to have brought to a proxy.
// counted is true if no push concerned a proxy for certain. Proxies that connected later have the version, and it is
// not known which of them it concerns.
func (t *Tracker) measureOthers(a *Answer, s *subject, v *archive.Version, revision uint64, counted bool) {
	if v.Gone {
		if a.State = InForce; counted {
			a.State, a.Why = WithoutEffect, NoChanges
		}
		return
	}
	idle, later := false, 0
	if s.many != nil {
		idle, later = s.many.others(s.key, revision)
	} else {
		idle = t.o.Judge.Idle()[s.key.String()]
		later, _ = t.o.Streams.Later(revision)
	}
	switch {
	case idle:
		a.State, a.Why = WithoutEffect, Unreached
	case !counted:
		a.State, a.Why = InForce, uncounted
	case later > 0:
		a.State, a.Why, a.Counted, a.Proxies.Later = InForce, connectedLater, false, later
	default:
		a.State, a.Why = WithoutEffect, NoChanges
	}
}

// measureUnneeded sets the state of an object that is not read because no proxy needs it. Proxies that have left lately
// may have an older version.
func (t *Tracker) measureUnneeded(a *Answer, why string) {
	p := t.owed(math.MaxUint64, true)
	a.unneeded = true
	a.Owing = slices.DeleteFunc(p.owing, func(o Owing) bool { return o.State != departed })
	a.More = p.more
	n := len(a.Owing) + a.More
	a.Proxies, a.Counted = Proxies{Connected: p.Connected, Concerned: n, Behind: n}, n == 0
	switch {
	case n > 0 && n == len(p.silent):
		a.State, a.Why, a.Silent = Unknown, p.whySilent(), true
	case n > 0:
		a.State = Behind
	case p.Unknown:
		a.State, a.Why = Unknown, manyDeparted
	default:
		a.State, a.Why = WithoutEffect, why
	}
	t.shorten(a)
}

// manyDeparted says why an answer is Unknown.
const manyDeparted = "so many proxies have left lately that it is not known which of them lack it"

// shorten limits the listed proxies. Rejections are listed first.
func (t *Tracker) shorten(a *Answer) {
	slices.SortStableFunc(a.Owing, func(x, y Owing) int { return cmp.Compare(rank(x.State), rank(y.State)) })
	if n := len(a.Owing) - maxShown; n > 0 {
		a.Owing, a.More = a.Owing[:maxShown], a.More+n
	}
}

// rank orders proxies in a list.
func rank(state string) int { return slices.Index([]string{rejected, departed, behind}, state) }

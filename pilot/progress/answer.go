package progress

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// State is the state of one version of an object.
type State string

// States: see the package comment.
const (
	InForce       State = "in force"
	Behind        State = "behind"
	Rejected      State = "rejected"
	Superseded    State = "superseded"
	NotSeen       State = "not seen"
	WithoutEffect State = "without effect"
	Invalid       State = "invalid"
	Unknown       State = "unknown"
)

// Final reports whether waiting changes nothing about the state of a version.
func (s State) Final() bool { return !slices.Contains([]State{Behind, NotSeen, Unknown}, s) }

// Question asks about an object in one version. Without a version, it is about the newest one that has been read.
type Question struct {
	Key        kinds.Key
	Generation int64  // 0 if it is not asked for
	UID        string // of the object with that generation or content; empty for any
	Version    string // archive.Content of the object; empty if it is not asked for
	Deleted    bool   // whether the object's deletion is in force
}

func (q Question) exact() bool { return q.Generation != 0 || q.Version != "" || q.Deleted }

// Object names an object.
type Object struct {
	Kind      string `json:"kind"`
	Group     string `json:"group,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Cluster   string `json:"cluster,omitempty"` // ID of the remote cluster that has it
}

func objectOf(k kinds.Key) Object {
	return Object{Kind: k.Kind.Name, Group: k.Kind.Group, Namespace: k.Namespace, Name: k.Name, Cluster: k.Cluster}
}

// Answer says whether a version of an object is in force.
type Answer struct {
	Object     Object `json:"object"`
	Generation int64  `json:"generation,omitempty"`
	UID        string `json:"uid,omitempty"`
	Version    string `json:"version,omitempty"`  // hash of the content, if there is no generation
	Deleted    bool   `json:"deleted,omitempty"`  // the version is a deletion
	Position   string `json:"position,omitempty"` // file:line:column of a version in a file
	State      State  `json:"state"`
	Why        string `json:"why,omitempty"`
	// SupersededBy is the generation that replaced the version; 0 for a deletion or without generations.
	SupersededBy int64             `json:"supersededBy,omitempty"`
	Proxies      Proxies           `json:"proxies"`
	Counted      bool              `json:"counted"` // false if the number of concerned proxies is a lower bound
	Owing        []Owing           `json:"owing"`   // proxies that do not have it, the longest first
	More         int               `json:"more,omitempty"`
	Findings     []diag.Diagnostic `json:"findings,omitempty"` // about the object
	Replicas     []Replica         `json:"replicas,omitempty"` // other replicas, if the answer is of all
	Since        *time.Time        `json:"since,omitempty"`    // when the version was committed, if that is known

	// Connected are the proxies of the parameter connected that are connected to this replica.
	Connected []string `json:"connected,omitempty"`
	// Lost is true if more proxies have left this replica lately than it knows.
	Lost bool `json:"lost,omitempty"`
	// Silent is true if the state of a replica is Unknown because of proxies that left it long ago. Why names the
	// proxies.
	Silent bool    `json:"silent,omitempty"`
	Uptime float64 `json:"uptime,omitempty"` // seconds since this replica has started
	// Gone names the replicas that ended or started again lately, and the seconds since then.
	Gone map[string]float64 `json:"gone,omitempty"`
	// Resumed is true if a proxy of an earlier process, or of another replica, has connected to this one.
	Resumed bool `json:"resumed,omitempty"`

	key     kinds.Key // the origin if the object is derived
	content string    // hash of the content, which is not shown for a Secret
	unread  bool      // no source reads such objects
	// unneeded is true if no proxy of this replica needs the object, so that only other replicas may have read it.
	unneeded bool
}

// Proxies are numbers of proxies.
type Proxies struct {
	Connected int `json:"connected"`
	Concerned int `json:"concerned"`
	InForce   int `json:"inForce"`
	Rejected  int `json:"rejected"`
	Behind    int `json:"behind"`
	// Later is the number of proxies that connected after the version was committed, if it concerns none of the others.
	// These proxies got the version before they were ready. It is not known which of them it concerns.
	Later int `json:"later,omitempty"`
}

// Numbers returns a text that says how many proxies have the version.
func (a *Answer) Numbers() string {
	p := &a.Proxies
	lack := p.Behind + p.Rejected
	switch {
	case a.Counted:
		return fmt.Sprintf("%d of %d proxies", p.InForce, p.Concerned)
	case lack > 0:
		return fmt.Sprintf("%d of %d connected proxies lack it, or may", lack, p.Connected)
	case a.State == InForce:
		return fmt.Sprintf("all that it concerns of %d connected proxies", p.Connected)
	}
	return fmt.Sprintf("%d proxies are connected", p.Connected)
}

// Owing is a proxy that does not have a version in force.
type Owing struct {
	Proxy   string    `json:"proxy"`
	Cluster string    `json:"cluster,omitempty"`
	Replica string    `json:"replica,omitempty"`
	State   string    `json:"state"` // behind, rejected or departed
	Since   time.Time `json:"since"`
	Type    string    `json:"type,omitempty"` // short name of the type that is rejected or awaited
	Message string    `json:"message,omitempty"`
	// Together is true if the proxy was sent several changes at once, so that another one may be what it rejects.
	Together bool `json:"together,omitempty"`
}

// States of a proxy that does not have a version in force.
const (
	behind   = "behind"   // it has not acknowledged everything
	rejected = "rejected" // it has rejected something
	departed = "departed" // its stream ended before, and it has not come back
)

// name returns a name of the proxy that no proxy of another cluster has.
func (o *Owing) name() string {
	x := xds.Owing{Proxy: o.Proxy, Cluster: o.Cluster}
	return x.Name()
}

func owingState(s xds.OwingState) string {
	switch s {
	case xds.Rejected:
		return rejected
	case xds.Departed, xds.Silent:
		return departed
	}
	return behind
}

// Replica is what another replica contributes to an answer.
type Replica struct {
	Name  string `json:"name"`
	State State  `json:"state,omitempty"`
	Why   string `json:"why,omitempty"`
	Error string `json:"error,omitempty"` // why its proxies are unknown
}

// Open returns the answer about an object of which nothing is known but the reason.
func Open(k kinds.Key, s State, why string) Answer {
	return Answer{Object: objectOf(k), State: s, Why: why, Owing: []Owing{}, key: k}
}

// For returns the answer as readers of a namespace may see it: without proxies of other namespaces. The
// empty namespace stands for readers that may see all.
func (a Answer) For(namespace string) Answer {
	if namespace == "" {
		return a
	}
	if a.Silent {
		a.Why = whySilent
	}
	all := len(a.Owing)
	a.Owing = slices.DeleteFunc(slices.Clone(a.Owing), func(o Owing) bool { return !strings.HasSuffix(o.Proxy, "."+namespace) })
	a.More += all - len(a.Owing)
	a.Connected = nil
	return a
}

// exactly returns the question for the version that an answer is about.
func (a *Answer) exactly() Question {
	return Question{Key: a.key, Generation: a.Generation, UID: a.UID, Version: a.content, Deleted: a.Deleted}
}

// Name returns KIND.GROUP/NAME.NAMESPACE.
func Name(k kinds.Key) string {
	text := k.Kind.Name
	if k.Kind.Group != "" {
		text += "." + k.Kind.Group
	}
	text += "/" + k.Name
	if k.Namespace != "" {
		text += "." + k.Namespace
	}
	return text
}

// values returns the query for an object.
func values(k kinds.Key) url.Values {
	v := url.Values{"object": {Name(k)}, "scope": {"self"}}
	if k.Cluster != "" {
		v.Set("cluster", k.Cluster)
	}
	return v
}

// Asker is the replica that asks.
type Asker struct {
	Name    string
	Uptime  time.Duration
	Proxies []string // proxies about which it wants to know whether they are connected
}

// AskerOf returns who asks with a query.
func AskerOf(query url.Values) Asker {
	seconds, _ := strconv.ParseFloat(query.Get("uptime"), 64)
	return Asker{Name: query.Get("asker"), Uptime: time.Duration(seconds * float64(time.Second)), Proxies: query["connected"]}
}

// query returns the question as the query of a page.
func (q Question) query(by Asker) string {
	v := values(q.Key)
	if q.Generation != 0 {
		v.Set("generation", strconv.FormatInt(q.Generation, 10))
	}
	if q.UID != "" {
		v.Set("uid", q.UID)
	}
	if q.Version != "" {
		v.Set("version", q.Version)
	}
	if q.Deleted {
		v.Set("deleted", "true")
	}
	v.Set("asker", by.Name)
	v.Set("uptime", strconv.FormatFloat(by.Uptime.Seconds(), 'f', 3, 64))
	v["connected"] = by.Proxies
	return v.Encode()
}

// Find returns the object that KIND/NAME.NAMESPACE names. If several groups have the kind, it is the one that exists.
func (t *Tracker) Find(text, cluster string) (kinds.Key, error) {
	list, err := kinds.Parse(text)
	if err != nil {
		return kinds.Key{}, fmt.Errorf("object=%.200q: %w", text, err)
	}
	var known []kinds.Key
	for i := range list {
		list[i].Cluster = cluster
		k := list[i]
		if t.o.Archive.Has(k) || t.o.World.Origin(k) != nil {
			known = append(known, k)
		} else if o, _, _ := t.o.World.Stored(k); o != nil { // hidden
			known = append(known, k)
		}
	}
	switch len(known) {
	case 0:
		return list[0], nil
	case 1:
		return known[0], nil
	}
	return kinds.Key{}, fmt.Errorf("object=%.200q: several groups have the kind: write %s or %s", text, Name(known[0]), Name(known[1]))
}

// states orders states by what they mean for an answer of several replicas: the first one that a replica has is the
// answer.
func states() []State {
	return []State{Superseded, Invalid, Rejected, Behind, NotSeen, Unknown, InForce, WithoutEffect}
}

// worse returns the state of two replicas together. A version that only one of them has read is behind.
func worse(a, b State) State {
	if a == b {
		return a
	}
	order := states()
	first := order[min(slices.Index(order, a), slices.Index(order, b))]
	if first == NotSeen {
		return Behind
	}
	return first
}

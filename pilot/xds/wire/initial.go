package wire

import (
	"cmp"
	"hash/maphash"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
	"weak"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/diff"
)

// InitialVersions are the resources, without bodies, that a client has from an earlier stream. Clients of one cohort
// share most of them.
type InitialVersions struct {
	Shared *SharedVersions // nil if nothing is shared
	Own    []*envoy.Resource
}

// Empty reports whether there are no versions.
func (v InitialVersions) Empty() bool { return v.Shared == nil && len(v.Own) == 0 }

// Cost returns the approximate memory in bytes that a stream needs until a Session has compared the versions: what it
// shares, and what it has alone.
func (v InitialVersions) Cost() (shared, own int) {
	for _, r := range v.Own {
		own += costOf(r)
	}
	if v.Shared != nil {
		shared = v.Shared.cost
		if v.HasGenerations() { // each session makes its own versions without generations
			own += entryCost * len(v.Shared.List)
		}
	}
	return shared, own
}

// entryCost is the approximate memory in bytes of a version, besides its text: a Resource, and entries in lists and
// indexes. sharedCost is the part of it for a Resource that is in another list, too.
const entryCost, sharedCost = 256, 96

func costOf(r *envoy.Resource) int { return entryCost + len(r.Name) + len(r.Version) }

// Union returns all versions. The halves have no name in common.
func (v InitialVersions) Union() envoy.Union {
	if v.Shared == nil {
		return envoy.Union{Shared: SetOf(v.Own)}
	}
	return envoy.Union{Shared: v.Shared.set, Own: SetOf(v.Own)}
}

// HasGenerations reports whether a version has a generation.
func (v InitialVersions) HasGenerations() bool {
	return v.Shared != nil && v.Shared.HasGenerations ||
		slices.ContainsFunc(v.Own, func(r *envoy.Resource) bool { return strings.Contains(r.Version, generationMark) })
}

// SharedVersions are initial versions of several clients.
type SharedVersions struct {
	set            *envoy.Set
	List           []*envoy.Resource
	names          []string // names of List
	index          index
	HasGenerations bool // see InitialVersions
	cost           int  // approximate memory in bytes
	used           bool // used since Forget; guarded by Interner.mu

	Compared *diff.Cache // differences from the resources that clients should have

	mu    sync.Mutex
	views map[view]weak.Pointer[envoy.Set]
}

// view identifies the part of shared versions that is in force for streams that subscribe by name.
type view struct {
	names    weak.Pointer[envoy.Names]
	clusters weak.Pointer[envoy.Set]
}

// Bounds of shared versions.
const (
	maxShared      = 4096    // shared versions that are looked up
	maxSharedBytes = 8 << 20 // bytes of shared versions that the Interner keeps although no stream may have them
	maxOwnVersions = 64      // of one client, besides the shared ones
	maxViews       = 256     // of one SharedVersions
)

// versions returns the versions in a request. It compares them with an earlier request's. The common part is shared
// from then on, unless it is too small.
func (l *Interner) versions(typeURL string, list []entry) (InitialVersions, error) {
	if len(list) == 0 {
		return InitialVersions{}, nil
	}
	kind := maphash.String(l.seed, typeURL)
	keys := versionKeys{like: l.hash(list) ^ kind, equal: kind}
	for i := range list {
		keys.equal += list[i].hash ^ bits.RotateLeft64(maphash.Bytes(l.seed, list[i].version), 1)
	}
	l.mu.Lock()
	c := cmp.Or(l.shared[keys.equal].Value(), l.shared[keys.like].Value())
	if c != nil {
		c.used = true
	}
	l.mu.Unlock()
	if c != nil {
		own, lost, ok := c.match(list)
		if !ok {
			return l.lastVersions(typeURL, list)
		}
		if len(own) <= min(len(list)/8+1, maxOwnVersions) && lost <= len(c.List)/8+1 {
			if lost > 0 {
				left := c.without(list)
				c = l.share(keys, left, sharedCost*len(left))
			}
			slices.Reverse(own) // the last of several versions of a name takes effect
			made, err := resources(own)
			return InitialVersions{c, made}, err
		}
	}
	made, err := resources(list)
	if err != nil {
		return InitialVersions{}, err
	}
	if !slices.IsSortedFunc(made, diff.ByName) {
		slices.SortFunc(made, diff.ByName)
	}
	for i := 1; i < len(made); i++ {
		if made[i].Name == made[i-1].Name {
			return l.lastVersions(typeURL, list)
		}
	}
	if len(list) < l.Few {
		return InitialVersions{Own: made}, nil
	}
	cost := 0
	for _, r := range made {
		cost += costOf(r)
	}
	return InitialVersions{Shared: l.share(keys, made, cost)}, nil
}

// match returns the entries that are not in c, and the number of resources in c without an entry. It sets the position
// of each entry in c. It returns false if a name occurs twice.
func (c *SharedVersions) match(list []entry) (own []entry, lost int, ok bool) {
	found := make([]bool, len(c.List))
	same := 0
	for i := range list {
		e := &list[i]
		p := c.index.find(c.names, e)
		if p >= 0 {
			if found[p] {
				return nil, 0, false
			}
			found[p] = true
			if c.List[p].Version != string(e.version) {
				p = -1
			}
		}
		if e.position = p; p >= 0 {
			same++
		} else {
			own = append(own, *e)
		}
	}
	return own, len(c.List) - same, true
}

// without returns the resources of c that were matched by entries.
func (c *SharedVersions) without(list []entry) []*envoy.Resource {
	left := make([]*envoy.Resource, 0, len(list))
	for i := range list {
		if p := list[i].position; p >= 0 {
			left = append(left, c.List[p])
		}
	}
	slices.SortFunc(left, diff.ByName)
	return left
}

// versionKeys are the keys under which a request looks for shared versions. They do not depend on the order.
type versionKeys struct {
	equal uint64 // of all names and versions
	like  uint64 // see Interner.hash
}

// share makes shared versions, which take cost bytes. Later requests find them as long as a stream has them, or they
// are recent.
func (l *Interner) share(keys versionKeys, list []*envoy.Resource, cost int) *SharedVersions {
	c := &SharedVersions{
		set: envoy.NewSet(slices.Clone(list)), List: list, names: make([]string, len(list)), cost: cost, Compared: &diff.Cache{}, used: true,
	}
	for i, r := range list {
		c.names[i] = r.Name
		c.HasGenerations = c.HasGenerations || strings.Contains(r.Version, generationMark)
	}
	c.index = l.index(c.names)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.shared) >= maxShared {
		maps.DeleteFunc(l.shared, func(_ uint64, c weak.Pointer[SharedVersions]) bool { return c.Value() == nil })
		for k := range l.shared {
			if len(l.shared) < maxShared/8*7 {
				break
			}
			delete(l.shared, k)
		}
	}
	if l.shared == nil {
		l.shared = map[uint64]weak.Pointer[SharedVersions]{}
	}
	l.shared[keys.like], l.shared[keys.equal] = weak.Make(c), weak.Make(c)
	if c.cost > maxSharedBytes {
		return c
	}
	for k := range l.recent {
		if l.cost+c.cost <= maxSharedBytes {
			break
		}
		l.evict(k)
	}
	l.recent[c] = struct{}{}
	l.cost += c.cost
	return c
}

// evict drops shared versions from the recent ones. The caller holds mu.
func (l *Interner) evict(c *SharedVersions) {
	delete(l.recent, c)
	l.cost -= c.cost
	c.Compared.Forget()
}

// lastVersions returns the versions in a request that has several of one name. The last one takes effect.
func (l *Interner) lastVersions(typeURL string, list []entry) (InitialVersions, error) {
	if err := validate(list); err != nil {
		return InitialVersions{}, err
	}
	return l.versions(typeURL, lastOfEach(list))
}

// lastOfEach returns the last entry of each name.
func lastOfEach(list []entry) []entry {
	seen := map[string]struct{}{}
	var last []entry
	for _, e := range slices.Backward(list) {
		if _, ok := seen[string(e.name)]; !ok {
			seen[string(e.name)] = struct{}{}
			last = append(last, e)
		}
	}
	return last
}

// resources converts entries to resources.
func resources(list []entry) ([]*envoy.Resource, error) {
	if len(list) == 0 {
		return nil, nil
	}
	if err := validate(list); err != nil {
		return nil, err
	}
	size := 0
	for i := range list {
		size += len(list[i].name) + len(list[i].version)
	}
	var b strings.Builder
	b.Grow(size)
	for i := range list {
		b.Write(list[i].name)
		b.Write(list[i].version)
	}
	all, text := make([]envoy.Resource, len(list)), b.String()
	made := make([]*envoy.Resource, len(list))
	for i := range list {
		n, v := len(list[i].name), len(list[i].version)
		all[i].Name, all[i].Version = text[:n], text[n:n+v]
		made[i], text = &all[i], text[n+v:]
	}
	return made, nil
}

// validate returns an error if a name or a version is not valid UTF-8.
func validate(list []entry) error {
	for i := range list {
		if !utf8.Valid(list[i].name) || !utf8.Valid(list[i].version) {
			return errMalformed
		}
	}
	return nil
}

// SetOf returns a Set of resources, or nil if there are none.
func SetOf(list []*envoy.Resource) *envoy.Set {
	if len(list) == 0 {
		return nil
	}
	return envoy.NewSet(list)
}

// View returns the part of c that is in force for streams with the same names and clusters. It calls inForce if it is
// not cached.
func (c *SharedVersions) View(
	names *envoy.Names, clusters *envoy.Set, inForce func([]*envoy.Resource) *envoy.Set,
) *envoy.Set {
	from := view{weak.Make(names), weak.Make(clusters)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if set := c.views[from].Value(); set != nil {
		return set
	}
	set := inForce(c.List)
	if c.views == nil || len(c.views) >= maxViews {
		c.views = map[view]weak.Pointer[envoy.Set]{}
	}
	c.views[from] = weak.Make(set)
	return set
}

// generationMark precedes the generation in a version, which is the number of earlier times that the client was sent
// the resource.
const generationMark = "~"

// WithGeneration appends a generation to a version. Generation 0 appends nothing.
func WithGeneration(version string, generation uint32) string {
	if generation == 0 {
		return version
	}
	return version + generationMark + strconv.FormatUint(uint64(generation), 36)
}

// SplitGeneration reverses WithGeneration.
func SplitGeneration(version string) (own string, generation uint32) {
	own, count, _ := strings.Cut(version, generationMark)
	n, err := strconv.ParseUint(count, 36, 32)
	if err != nil { // not a version of this server
		n = 0
	}
	return own, uint32(n)
}

package load

// subscription is what a proxy wants of a type that other resources name. Clusters name assignments, and listeners name
// routes and secrets.
type subscription struct {
	kind  Type
	named map[string][]string // by the name of the naming resource
	count map[string]int      // how many resources name it
	// awaited are names that were asked for and not answered yet.
	awaited map[string]struct{}
}

func newSubscription(kind Type) *subscription {
	return &subscription{kind: kind, named: map[string][]string{}, count: map[string]int{}, awaited: map[string]struct{}{}}
}

// update applies a response of the naming type. whole means that resources that are absent from the response are gone.
// It returns the names that are wanted from now on, and the names that are no longer wanted.
func (s *subscription) update(r response, whole bool) (added, gone []string) {
	if whole {
		there := make(map[string]struct{}, len(r.resources))
		for _, x := range r.resources {
			there[x.name] = struct{}{}
		}
		for name := range s.named {
			if _, ok := there[name]; !ok {
				r.removed = append(r.removed, name)
			}
		}
	}
	if n := len(r.resources); len(s.named) == 0 && n > 0 { // growing maps are most of a proxy's cost for the client
		s.named, s.count, s.awaited = make(map[string][]string, n), make(map[string]int, n), make(map[string]struct{}, n)
	}
	before := make(map[string]bool, len(r.resources)) // the names in this response
	touch := func(name string, by int) {
		if _, ok := before[name]; !ok {
			before[name] = s.count[name] > 0
		}
		s.count[name] += by
	}
	for _, name := range r.removed {
		for _, child := range s.named[name] {
			touch(child, -1)
		}
		delete(s.named, name)
	}
	for _, x := range r.resources {
		name, children := x.name, x.children(s.kind)
		for _, child := range s.named[name] {
			touch(child, -1)
		}
		for _, child := range children {
			touch(child, 1)
		}
		s.named[name] = children
	}
	for name, was := range before {
		switch is := s.count[name] > 0; {
		case is && !was:
			added = append(added, name)
			s.awaited[name] = struct{}{}
		case was && !is:
			gone = append(gone, name)
			delete(s.awaited, name)
		}
		if s.count[name] == 0 {
			delete(s.count, name)
		}
	}
	return added, gone
}

// answer applies a response of the type itself.
func (s *subscription) answer(r response) {
	if len(s.awaited) == 0 {
		return
	}
	for _, x := range r.resources {
		delete(s.awaited, x.name)
	}
	for _, name := range r.removed {
		delete(s.awaited, name)
	}
}

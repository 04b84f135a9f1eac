package translate

import "github.com/istiod-lite/istiod-lite/pilot/scope"

// Changes gives what the newest Snapshot changed, as everything that is kept will learn of it: a test may hide some.
func (t *Translator) Changes() *scope.Changes { return &t.newest.Index.Changes }

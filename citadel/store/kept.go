package store

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"
)

// Kept is a Store that is written again when it was emptied while a server runs: a CA that workloads trust is not
// replaced by a new one because somebody deleted it.
type Kept struct {
	Store
	Lead func() bool // whether this server writes it again
	Now  func() time.Time

	mu   sync.Mutex
	last map[string][]byte // a State that could be read
}

// errEmptied is what servers report that do not lead.
var errEmptied = errors.New("the stored CA was deleted: the server that leads writes it again")

// Load returns the State's files and their version.
func (k *Kept) Load(ctx context.Context) (map[string][]byte, string, error) {
	files, version, err := k.Store.Load(ctx)
	if err != nil {
		return files, version, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case files != nil:
		if _, _, err := decode(files, k.Now()); err == nil {
			k.last = maps.Clone(files)
		}
		return files, version, nil
	case k.last == nil:
		return nil, version, nil
	case !k.Lead():
		return nil, "", errEmptied
	}
	if err := k.Store.Save(ctx, k.last, ""); err != nil && !errors.Is(err, ErrConflict) {
		return nil, "", err
	}
	return k.Store.Load(ctx)
}

// Save writes files over those of a version.
func (k *Kept) Save(ctx context.Context, files map[string][]byte, version string) error {
	err := k.Store.Save(ctx, files, version)
	if err == nil {
		k.mu.Lock()
		k.last = maps.Clone(files)
		k.mu.Unlock()
	}
	return err
}

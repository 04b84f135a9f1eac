package store

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"
)

// Kept is a Store whose State is written again if it is deleted while a server runs, so that the deletion does not
// replace a CA that workloads trust by a new one.
type Kept struct {
	Store
	// Lease is the right to write the State again.
	Lease Lease

	mu   sync.Mutex
	last map[string][]byte // the last State that could be read
}

// Lease is the right to lead. A server with a nil Lease always leads.
type Lease interface {
	Valid() bool
}

// Leads reports whether the server with a Lease leads.
func Leads(l Lease) bool { return l == nil || l.Valid() }

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
		if _, _, err := decode(files, time.Now()); err == nil {
			k.last = maps.Clone(files)
		}
		return files, version, nil
	case k.last == nil:
		return nil, version, nil
	case !Leads(k.Lease):
		return nil, "", ErrDeleted
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

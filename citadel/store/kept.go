package store

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"
)

// Kept is a Store that writes its State again if it is deleted while a server runs, so that a deletion does not replace
// a CA that workloads trust with a new one.
type Kept struct {
	Store
	// Lease is the right to write the State again.
	Lease Lease

	mu       sync.Mutex
	lastGood map[string][]byte // the last State that could be read
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
			k.lastGood = maps.Clone(files)
		}
		return files, version, nil
	case k.lastGood == nil:
		return nil, version, nil
	case !Leads(k.Lease):
		return nil, "", ErrDeleted
	}
	if err := k.Store.Save(ctx, k.lastGood, ""); err != nil && !errors.Is(err, ErrConflict) {
		return nil, "", err
	}
	return k.Store.Load(ctx)
}

// Save replaces the files of a version.
func (k *Kept) Save(ctx context.Context, files map[string][]byte, version string) error {
	err := k.Store.Save(ctx, files, version)
	if err == nil {
		k.mu.Lock()
		k.lastGood = maps.Clone(files)
		k.mu.Unlock()
	}
	return err
}

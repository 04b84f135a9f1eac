package autoregistration

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"
)

// Store is where entries are written. The result of Get belongs to the caller, but for its spec. All methods may be
// called from any goroutine.
type Store interface {
	Get(context.Context, types.NamespacedName) (*Entry, error)

	// Create, Update and UpdateStatus set the entry to what is stored then, as Get would return it.
	Create(context.Context, *Entry) error

	// Update writes the annotations of this package, UpdateStatus the health, Delete removes; each only if the entry is
	// still the version that was read, or for one of no version the object that was.
	Update(context.Context, *Entry) error
	UpdateStatus(context.Context, *Entry) error
	Delete(context.Context, *Entry) error
}

// Errors of a Store. Any other is worth another try.
var (
	ErrNotFound = errors.New("no such entry")
	ErrConflict = errors.New("the entry has changed meanwhile") // or is there already
	ErrRefused  = errors.New("the entry was refused")           // it will be again
)

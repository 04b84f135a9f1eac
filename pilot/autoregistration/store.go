package autoregistration

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"
)

// Store is where entries are written. What Get gives is the caller's, but for its spec. All methods may be called from any goroutine.
type Store interface {
	Get(context.Context, types.NamespacedName) (*Entry, error)
	Create(context.Context, *Entry) error

	// Update writes the annotations of this package, UpdateStatus the health, Delete removes; each only if the entry is still the version that was read.
	Update(context.Context, *Entry) error
	UpdateStatus(context.Context, *Entry) error
	Delete(context.Context, *Entry) error
}

// Errors of a Store. Any other is worth another try.
var (
	ErrNotFound = errors.New("no such entry")
	ErrConflict = errors.New("the entry has changed meanwhile")
	ErrRefused  = errors.New("the entry was refused") // it will be again
)

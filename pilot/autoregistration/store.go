package autoregistration

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"
)

// Store reads and writes entries. The result of Get belongs to the caller, except for its spec. All methods may be
// called from any goroutine.
type Store interface {
	Get(context.Context, types.NamespacedName) (*Entry, error)

	// Create creates the entry. Create, Update and UpdateStatus set the entry to what is stored afterwards, in the form
	// of Get.
	Create(context.Context, *Entry) error

	// Update writes the annotations of this package, UpdateStatus the health, and Delete deletes the entry. They return
	// ErrConflict if the stored version differs from the entry's or, for an entry without a version, if the object is
	// not the same one.
	Update(context.Context, *Entry) error
	UpdateStatus(context.Context, *Entry) error
	Delete(context.Context, *Entry) error
}

// Errors of a Store. A write that fails with any other error may be retried.
var (
	ErrNotFound = errors.New("no such entry")
	// ErrConflict also means that the entry to create exists.
	ErrConflict = errors.New("the entry was changed by another writer")
	// ErrRefused means that a retry would fail too.
	ErrRefused = errors.New("the entry was refused")
)

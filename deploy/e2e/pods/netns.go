package pods

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace, which lives as long as its open descriptor.
type namespace struct{ f *os.File }

// current returns the namespace of the calling thread. The thread resolves the path itself, so it is right in any PID
// namespace.
func current() (namespace, error) {
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return namespace{}, fmt.Errorf("open network namespace: %w", err)
	}
	return namespace{f}, nil
}

// create creates an empty network namespace.
func create(home namespace) (namespace, error) {
	var made namespace
	err := locked(home, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make network namespace: %w", err)
		}
		var err error
		made, err = current()
		return err
	})
	return made, err
}

// within calls fn on a thread in the namespace. Sockets and processes that fn creates stay in it.
func (n namespace) within(home namespace, fn func() error) error {
	return locked(home, func() error {
		if err := unix.Setns(int(n.f.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return fn()
	})
}

// locked calls fn, which may change the thread's namespace, and returns the thread to home. A thread that cannot return
// is never used again.
func locked(home namespace, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := fn()
		if back := unix.Setns(int(home.f.Fd()), unix.CLONE_NEWNET); back != nil {
			// The thread ends, because it is still locked.
			done <- fmt.Errorf("leave network namespace: %w", back)
			return
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

func (n namespace) close() error { return n.f.Close() }

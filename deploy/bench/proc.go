package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// usage is what a process has used so far.
type usage struct {
	cpu time.Duration // user and system time of all threads
	// The resident memory in bytes: now, at its peak, and the part that maps files, mostly the program itself.
	rss, peak, files int64
}

func usageOf(pid int) (u usage, err error) {
	// The clock CPUCLOCK_SCHED of a process counts nanoseconds, and /proc counts ticks of 10 ms. Its number is made from
	// the process ID.
	var ran unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ran); err != nil {
		return u, fmt.Errorf("read the CPU time of a process: %w", err)
	}
	u.cpu = time.Duration(ran.Nano())
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, fmt.Errorf("read the memory of a process: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			u.rss = kib << 10
		}
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			u.peak = kib << 10
		}
		if _, err := fmt.Sscanf(line, "RssFile: %d kB", &kib); err == nil {
			u.files = kib << 10
		}
	}
	return u, nil
}

// cores say how the CPUs of this machine are shared.
type cores struct{ server, rest unix.CPUSet }

// shareCores reserves the last CPU for the server and leaves the others to all other processes, once confine is called.
// With one CPU all share it.
func shareCores() (c cores, err error) {
	if err := unix.SchedGetaffinity(0, &c.rest); err != nil {
		return c, fmt.Errorf("ask for CPUs: %w", err)
	}
	c.server = c.rest
	if c.rest.Count() < 2 {
		return c, nil
	}
	last := 0
	for cpu := range len(c.rest) * 64 {
		if c.rest.IsSet(cpu) {
			last = cpu
		}
	}
	c.rest.Clear(last)
	c.server.Zero()
	c.server.Set(last)
	return c, nil
}

// confine moves all threads of this process and of its children. Threads that start later inherit the cores of their
// creator.
func (c cores) confine() error {
	for range 3 { // a thread may start another while the list is read
		if err := c.move(os.Getpid()); err != nil {
			return err
		}
	}
	runtime.GOMAXPROCS(c.rest.Count())
	return nil
}

func (c cores) move(pid int) error {
	tasks := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return fmt.Errorf("list threads: %w", err)
		}
		if err := unix.SchedSetaffinity(id, &c.rest); err != nil && err != unix.ESRCH {
			return fmt.Errorf("move a thread: %w", err)
		}
		children, err := os.ReadFile(filepath.Join(tasks, t.Name(), "children"))
		if errors.Is(err, fs.ErrNotExist) { // the thread has ended
			continue
		}
		if err != nil {
			return fmt.Errorf("list children: %w", err)
		}
		for _, child := range strings.Fields(string(children)) {
			id, err := strconv.Atoi(child)
			if err != nil {
				return fmt.Errorf("list children: %w", err)
			}
			if err := c.move(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// onServerCore calls start on a thread of the server's core, which the processes that it starts inherit, and then wait.
// The thread lives until wait returns, because the kernel takes its end for the end of the parent.
func (c cores) onServerCore(start func() error, wait func()) error { return on(&c.server, start, wait) }

// onOtherCores does the same on all other cores.
func (c cores) onOtherCores(start func() error, wait func()) error { return on(&c.rest, start, wait) }

func on(set *unix.CPUSet, start func() error, wait func()) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		err := unix.SchedSetaffinity(0, set)
		if err == nil {
			err = start()
		}
		started <- err
		if err == nil {
			wait()
		}
	}()
	return <-started
}

package main

import (
	"bytes"
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

// usage is what a process has used up to now.
type usage struct {
	cpu time.Duration // user and system
	// Resident memory now and the most there was, and what of it is of files, above all the program's own, in bytes.
	rss, peak, files int64
}

// tick is the kernel's unit of time in /proc, which is the same on every architecture that Go knows.
const tick = 10 * time.Millisecond

func usageOf(pid int) (u usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, fmt.Errorf("read the CPU time of a process: %w", err)
	}
	// proc(5): the name, in parentheses, may hold anything; utime and stime are fields 14 and 15, the state after the name is field 3.
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, text := range f[11:13] {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return u, fmt.Errorf("read the CPU time of a process: %w", err)
		}
		u.cpu += time.Duration(n) * tick
	}
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

// cores are how the CPUs of this machine are shared out.
type cores struct{ server, rest unix.CPUSet }

// shareCores gives the last CPU to the server and the others to everybody else, once confine is called. With one CPU all share it.
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

// confine moves all threads of this process and of those that it has started; what is started later stays where its maker is.
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

// onServerCore calls start on a thread of the server's core, which the processes that it starts inherit, and then wait. The thread lives as long, for the kernel
// takes its end for that of the parent.
func (c cores) onServerCore(start func() error, wait func()) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread goes with the goroutine
		err := unix.SchedSetaffinity(0, &c.server)
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

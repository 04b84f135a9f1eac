package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// releasePages returns the pages of the program's file that are mapped into memory to the kernel. Those that are used
// again are mapped again, from the page cache. The start uses most of a large program once, such as the registration of
// every message type, and the kernel maps the neighbours of each page that is used. See madvise(2), proc_pid_maps(5).
func releasePages() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find the program's file: %w", err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("read the mapped files: %w", err)
	}
	for line := range bytes.Lines(maps) { // from-to permissions offset device inode path
		part := bytes.Fields(line)
		if len(part) < 6 || string(bytes.Join(part[5:], []byte(" "))) != program || part[1][1] == 'w' {
			continue
		}
		from, to, _ := bytes.Cut(part[0], []byte("-"))
		start, err1 := strconv.ParseUint(string(from), 16, 64)
		end, err2 := strconv.ParseUint(string(to), 16, 64)
		if err1 != nil || err2 != nil {
			return fmt.Errorf("read the mapped files: %q is no range of addresses", part[0])
		}
		if _, _, failed := syscall.Syscall(syscall.SYS_MADVISE, uintptr(start), uintptr(end-start), syscall.MADV_DONTNEED); failed != 0 {
			return fmt.Errorf("release pages: %w", failed)
		}
	}
	return nil
}

package pages

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// Release unmaps the pages of the program's file from memory. Those that are used again are mapped again, from the
// page cache. The start uses most of a large program once, such as the registration of every message type, and the
// kernel maps the neighbours of each page that is used. Mappings that the program wrote to stay as they are. The error
// says what could not be read or unmapped. See madvise(2), proc_pid_smaps(5).
func Release() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find the program's file: %w", err)
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("read the mapped files: %w", err)
	}
	var addresses []byte // from-to of a mapping of the program's file; nil in any other mapping
	for line := range bytes.Lines(maps) {
		part := bytes.Fields(line)
		switch {
		case len(part) >= 5 && !bytes.HasSuffix(part[0], []byte(":")): // from-to permissions offset device inode path
			addresses = nil
			if string(bytes.Join(part[5:], []byte(" "))) == program && part[1][1] != 'w' {
				addresses = part[0]
			}
		case addresses != nil && string(part[0]) == "Anonymous:" && string(part[1]) == "0":
			if err := unmap(addresses); err != nil {
				return err
			}
		}
	}
	return nil
}

// unmap unmaps the pages between two addresses, written as from-to.
func unmap(addresses []byte) error {
	from, to, _ := bytes.Cut(addresses, []byte("-"))
	start, err1 := strconv.ParseUint(string(from), 16, 64)
	end, err2 := strconv.ParseUint(string(to), 16, 64)
	if err1 != nil || err2 != nil {
		return fmt.Errorf("read the mapped files: %q is no range of addresses", addresses)
	}
	if _, _, failed := syscall.Syscall(syscall.SYS_MADVISE, uintptr(start), uintptr(end-start), syscall.MADV_DONTNEED); failed != 0 {
		return fmt.Errorf("release pages: %w", failed)
	}
	return nil
}

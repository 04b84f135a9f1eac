package discovery

import (
	"io/fs"
	"math"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory sets the Go memory limit to nine tenths of the limit of the process's cgroup. The rest is for memory that
// Go does not account for, such as kernel stacks, and for pages that are being returned. It returns the limit in bytes,
// or 0 if there is none or GOMEMLIMIT has set one.
func limitMemory(root fs.FS, getenv func(string) string) int64 {
	if getenv("GOMEMLIMIT") != "" {
		return 0 // the runtime has applied it
	}
	allowed := cgroupMemory(root)
	if allowed == math.MaxInt64 {
		return 0
	}
	limit := allowed / 10 * 9
	debug.SetMemoryLimit(limit)
	return limit
}

// cgroupMemory returns the lowest memory limit of the cgroup of this process and its parents, in bytes, or MaxInt64 if
// there is none. root is the root of the file system. See cgroups(7), and the kernel's documentation of cgroup v2
// (memory.max) and v1 (memory.limit_in_bytes).
func cgroupMemory(root fs.FS) int64 {
	least := int64(math.MaxInt64)
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return least
	}
	for line := range strings.Lines(string(text)) { // hierarchy:controllers:path
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		dir, file := "sys/fs/cgroup", "memory.max"
		switch {
		case part[0] == "0" && part[1] == "":
		case strings.Contains(","+part[1]+",", ",memory,"):
			dir, file = dir+"/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// In a container the path may be a path of the host that is not mounted here. Then the root of the mount is the
		// container's own cgroup.
		for at := path.Clean("/" + part[2]); ; at = path.Dir(at) {
			if text, err := fs.ReadFile(root, path.Join(dir, at, file)); err == nil {
				// v1 writes "no limit" as a number near 1<<63
				if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 && n < 1<<60 {
					least = min(least, n)
				}
			}
			if at == "/" {
				break
			}
		}
	}
	return least
}

package discovery

import (
	"io/fs"
	"math"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory has the garbage collector keep the process within nine tenths of what its cgroup allows: the rest is for
// what Go does not count, stacks of the kernel and pages that are on their way back. It returns the limit; 0: there is
// none, or GOMEMLIMIT has set one.
func limitMemory(root fs.FS, getenv func(string) string) int64 {
	if getenv("GOMEMLIMIT") != "" {
		return 0 // the runtime has read it
	}
	allowed := cgroupMemory(root)
	if allowed == math.MaxInt64 {
		return 0
	}
	limit := allowed / 10 * 9
	debug.SetMemoryLimit(limit)
	return limit
}

// cgroupMemory is the least memory that the cgroup of this process or one above it allows, in bytes; MaxInt64: as much
// as there is. root is the root of the file system. See cgroups(7), and the kernel's documentation of cgroup v2
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
		// In a container the path may be that of the host, where nothing is mounted here; then the mount's own root is
		// the container's.
		for at := path.Clean("/" + part[2]); ; at = path.Dir(at) {
			if text, err := fs.ReadFile(root, path.Join(dir, at, file)); err == nil {
				if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 && n < 1<<60 { // v1 writes "none" as a number near 1<<63
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

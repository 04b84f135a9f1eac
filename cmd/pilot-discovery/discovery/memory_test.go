package discovery

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for _, x := range []struct {
		name  string
		files map[string]string
		env   string
		want  int64
	}{
		{"no cgroups", nil, "", 0},
		{"a container with a namespace of cgroup v2", map[string]string{"proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "1000000000\n"}, "", 900000000},
		{"no limit", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, "", 0},
		{"the least of those above", map[string]string{
			"proc/self/cgroup":             "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "2000\n", "sys/fs/cgroup/memory.max": "3000\n",
		}, "", 1800},
		{"cgroup v1 with the path of the host", map[string]string{
			"proc/self/cgroup":                           "5:cpu,cpuacct:/kubepods/x\n3:memory:/kubepods/x\n0::/kubepods/x\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
		}, "", 1073741824 / 10 * 9},
		{"cgroup v1 without a limit", map[string]string{
			"proc/self/cgroup": "3:hugetlb,memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, "", 0},
		{"another controller's", map[string]string{"proc/self/cgroup": "3:memoryless:/\nnonsense\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "1000\n"}, "", 0},
		{"a number that is none", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1G\n"}, "", 0},
		{"GOMEMLIMIT wins", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1000000000\n"}, "2GiB", 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			debug.SetMemoryLimit(math.MaxInt64)
			root := fstest.MapFS{}
			for name, text := range x.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			got := limitMemory(root, func(string) string { return x.env })
			inForce := debug.SetMemoryLimit(-1)
			if got != x.want || x.want != 0 && inForce != x.want || x.want == 0 && inForce != math.MaxInt64 {
				t.Errorf("limit %d, in force %d, want %d", got, inForce, x.want)
			}
		})
	}
}

package samples_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/deploy/samples"
)

// The addresses of Services are distinct, and in the range that the samples document.
func TestClusterIPs(t *testing.T) {
	written := regexp.MustCompile(`(?m)clusterIP: *([0-9.]+)`)
	within := netip.MustParsePrefix("10.96.0.0/12")
	for _, name := range []string{samples.Bookinfo, samples.GatewayAPI} {
		dir := t.TempDir()
		must.Succeed(t, samples.Copy(name, dir))
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		must.Succeed(t, err)
		seen := map[netip.Addr]string{}
		for _, file := range files {
			text, err := os.ReadFile(file)
			must.Succeed(t, err)
			for _, m := range written.FindAllStringSubmatch(string(text), -1) {
				ip, err := netip.ParseAddr(m[1])
				if err != nil || !within.Contains(ip) || seen[ip] != "" {
					t.Errorf("%s: %s: %v; in %s, and also in %q", file, m[1], err, within, seen[ip])
				}
				seen[ip] = file
			}
		}
		if len(seen) == 0 {
			t.Errorf("%s: no Service has a clusterIP", name)
		}
	}
}

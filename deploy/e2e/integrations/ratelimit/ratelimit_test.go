package ratelimit

import (
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/compat"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// The URLs of the workload: by both gateways, and without one.
const (
	first  = "http://web.example"
	second = "http://web.example:8080"
	direct = "http://web"
)

// TestLimits sends requests up to the limits and over them.
func TestLimits(t *testing.T) {
	m := start(t, filters("true", "true"))
	m.Fine(t)

	t.Run("gateways share a limit", func(t *testing.T) {
		for i, url := range []string{first + "/cart", second + "/cart", first + "/cart"} {
			status, header := m.get(url)
			if status != http.StatusOK || header.Get("X-Ratelimit-Remaining") != strconv.Itoa(2-i) {
				t.Errorf("request %d: %d, %v", i, status, header)
			}
		}
		for _, url := range []string{first + "/cart", second + "/cart"} {
			status, header := m.get(url)
			reset, err := strconv.Atoi(header.Get("X-Ratelimit-Reset"))
			if status != http.StatusTooManyRequests || header.Get("X-Envoy-Ratelimited") != "true" ||
				!strings.HasPrefix(header.Get("X-Ratelimit-Limit"), "3, 3;w=86400") || header.Get("X-Ratelimit-Remaining") != "0" ||
				err != nil || reset < 0 || reset > 86400 {
				t.Errorf("%s over the limit: %d, %v", url, status, header)
			}
		}
		if status, header := m.get(first + "/other"); status != http.StatusOK || header.Get("X-Ratelimit-Remaining") != "99" {
			t.Errorf("another path: %d, %v", status, header)
		}
	})

	t.Run("each value of a header has a limit", func(t *testing.T) {
		for tenant, limit := range map[string]int{"blue": 2, "green": 2, "gold": 4} {
			for i := range limit + 2 {
				want := http.StatusOK
				if i >= limit {
					want = http.StatusTooManyRequests
				}
				if status, header := m.get(first+"/orders", "x-tenant", tenant); status != want {
					t.Errorf("request %d of %s: %d, %v", i, tenant, status, header)
				}
			}
		}
		for range 6 {
			if status, header := m.get(first + "/orders"); status != http.StatusOK || header.Get("X-Ratelimit-Limit") != "" {
				t.Errorf("without a tenant: %d, %v", status, header)
			}
		}
	})

	t.Run("a sidecar limits", func(t *testing.T) {
		for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			if status, header := m.get(direct, "x-caller", "batch"); status != want {
				t.Errorf("request %d: %d, %v", i, status, header)
			}
		}
		if status, header := m.get(first+"/by-a-gateway", "x-caller", "batch"); status != http.StatusTooManyRequests {
			t.Errorf("by a gateway: %d, %v", status, header)
		}
		if status, header := m.get(direct, "x-caller", "person"); status != http.StatusOK {
			t.Errorf("a caller without a limit: %d, %v", status, header)
		}
	})
	if !t.Failed() {
		must.Succeed(t, compat.CheckProject("Envoy's rate limit service", binaries.Version("ratelimit"),
			"EnvoyFilters at gateways and at a sidecar; limits in total, of a path, of each value of a header", "works"))
	}
}

// TestWithoutTheService ends the rate limit service, with each value of failure_mode_deny at gateways and at sidecars.
func TestWithoutTheService(t *testing.T) {
	m := start(t, filters("true", "false"))
	statuses := func() [2]int {
		gateway, _ := m.get(first + "/")
		sidecar, _ := m.get(direct, "x-caller", "person")
		return [2]int{gateway, sidecar}
	}
	if got := statuses(); got != [2]int{http.StatusOK, http.StatusOK} {
		t.Fatalf("with the service: %v", got)
	}
	m.service.Kill()
	if got := statuses(); got != [2]int{http.StatusInternalServerError, http.StatusOK} {
		t.Errorf("without the service, denied at gateways: %v", got)
	}
	suite.Write(t, filepath.Join(m.Dir, "filters.yaml"), filters("false", "true"))
	suite.Eventually(t, "denied at sidecars", func() bool {
		status, _ := m.get(direct, "x-caller", "person")
		return status == http.StatusInternalServerError
	})
	// The gateway lets requests pass, and the sidecar behind it denies.
	suite.Eventually(t, "not denied at gateways", func() bool {
		free, _ := m.get(first + "/")
		limited, _ := m.get(first+"/", "x-caller", "person")
		return free == http.StatusOK && limited == http.StatusInternalServerError
	})
	m.startService()
	suite.Eventually(t, "asked again", func() bool { return statuses() == [2]int{http.StatusOK, http.StatusOK} })
	m.Fine(t)
}

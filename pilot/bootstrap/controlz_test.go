package bootstrap

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/ctrlz"
)

type oneScope struct{}

func (oneScope) List() []ctrlz.Scope   { return []ctrlz.Scope{{Name: "ads", OutputLevel: "info"}} }
func (oneScope) Set(ctrlz.Scope) error { return nil }

// TestControlZ: its port answers this host, a wrong token is refused, and a port that is taken stops the server only
// where somebody asked for that port.
func TestControlZ(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	for _, c := range []struct {
		address          string
		required, serves bool
	}{{"127.0.0.1:0", true, true}, {taken.Addr().String(), false, false}} {
		o := certificateOptions(t)
		o.ControlZ = ControlZ{Address: c.address, Required: c.required, Scopes: oneScope{}}
		s, stop := running(t, o)
		bound := s.Addresses().ControlZ
		if (bound != "") != c.serves {
			t.Errorf("%v: listens on %q", c, bound)
		}
		if c.serves {
			if code, body := fetch(t, bound, "/scopej/ads"); code != http.StatusOK || !strings.Contains(body, `"output_level":"info"`) {
				t.Errorf("%d %s", code, body)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+bound+"/scopej/", nil)
			must.Succeed(t, err)
			r.Header.Set("Authorization", "Bearer x.y.z")
			resp, err := http.DefaultClient.Do(r)
			must.Succeed(t, err)
			if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("a wrong token: %s, %v", resp.Status, err)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	o := certificateOptions(t)
	o.ControlZ = ControlZ{Address: taken.Addr().String(), Required: true, Scopes: oneScope{}}
	s, err := New(o)
	must.Succeed(t, err)
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "controlz") {
		t.Errorf("the port is taken: %v", err)
	}
}

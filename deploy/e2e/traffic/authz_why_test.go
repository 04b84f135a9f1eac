package traffic

import (
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

// explain returns a function that compares the command why with the Envoys' result of a call, for the current
// directory. If an authorizer decides, or a rule depends on another filter, the command only says so.
func (m *authzMesh) explain(t *testing.T) func(call, int) {
	t.Helper()
	i := m.inspection()
	return func(c call, status int) {
		t.Helper()
		if c.want != 0 {
			status = c.want
		}
		q := inspect.Query{Source: or(c.from, "client"), Host: "echo.a", Port: 80, Method: c.method, Path: c.path,
			Headers: map[string]string{"host": or(c.host, "echo.a")}}
		if c.port != 0 {
			q.Port = uint32(c.port)
		}
		if c.to != "" {
			host, port, _ := net.SplitHostPort(c.to)
			n, _ := strconv.Atoi(port)
			q.Host, q.Port = host, uint32(n)
		}
		for k, v := range c.headers {
			q.Headers[k] = v
		}
		q.Source += "." + m.Pod(q.Source).Node.Namespace
		way, err := i.Why(q)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			return
		}
		for _, a := range way.Arrivals {
			if a.Answer != nil && a.Answer.Asked {
				return
			}
		}
		got := way.Status
		if got == 0 || got == http.StatusServiceUnavailable && c.port == 90 { // the client sees a closed connection
			got = http.StatusForbidden
		}
		if got != status {
			t.Errorf("%+v is answered with %d, and why says %d: %s", c, status, got, way.Reason)
		}
	}
}

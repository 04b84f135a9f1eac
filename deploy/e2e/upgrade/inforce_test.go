package upgrade

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/install"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// set is a set of applications, and the Deployment of the control plane that its proxies belong to.
type set struct{ name, controlPlane string }

// inForce changes the routes, and waits until the proxies of all sets are connected to their control planes, each to
// one replica, have acknowledged all that they were sent, and answer with the change. No request has failed.
func (w *world) inForce(after string, sets ...set) {
	w.t.Helper()
	w.step++
	w.apply(fmt.Sprintf(routes, w.step))
	for _, c := range w.clients {
		suite.Eventually(w.t, fmt.Sprintf("%s: %s has change %d", after, c.name, w.step), func() bool {
			step, err := c.ask(w.t.Context())
			return err == nil && step == fmt.Sprint(w.step)
		})
	}
	want := map[string][]string{} // proxies by control plane
	for _, s := range sets {
		for _, app := range []string{"client", "gateway", "server"} {
			for _, p := range w.pods("shop", app+"-"+s.name) {
				want[s.controlPlane] = append(want[s.controlPlane], p.Name+".shop")
			}
		}
	}
	var problem error
	w.t.Cleanup(func() {
		if w.t.Failed() && problem != nil {
			w.t.Logf("%s: %v", after, problem)
		}
	})
	suite.Eventually(w.t, after+": no stream stays behind", func() bool {
		problem = w.synced(want)
		return problem == nil
	})
	w.whole(after)
}

// stream is what a control plane says of a proxy's stream.
type stream struct {
	Proxy         string `json:"proxy"`
	ClusterSent   string `json:"cluster_sent"`
	ClusterAcked  string `json:"cluster_acked"`
	ListenerSent  string `json:"listener_sent"`
	ListenerAcked string `json:"listener_acked"`
	RouteSent     string `json:"route_sent"`
	RouteAcked    string `json:"route_acked"`
	EndpointSent  string `json:"endpoint_sent"`
	EndpointAcked string `json:"endpoint_acked"`
}

func (s stream) behind() bool {
	return s.ClusterSent == "" || s.ListenerSent == "" || s.ClusterSent != s.ClusterAcked || s.ListenerSent != s.ListenerAcked ||
		s.RouteSent != s.RouteAcked || s.EndpointSent != s.EndpointAcked
}

// synced asks each replica for its streams.
func (w *world) synced(want map[string][]string) error {
	for controlPlane, proxies := range want {
		seen := map[string]int{}
		for _, replica := range w.pods(install.Namespace, controlPlane) {
			text, err := w.get(install.Namespace, replica.Name, 15014, "/debug/syncz")
			if err != nil {
				return fmt.Errorf("%s: %w", replica.Name, err)
			}
			list, err := streams(text)
			if err != nil {
				return fmt.Errorf("%s: %w: %s", replica.Name, err, text)
			}
			for _, s := range list {
				if s.behind() {
					return fmt.Errorf("%s: %+v", replica.Name, s)
				}
				seen[s.Proxy]++
			}
		}
		slices.Sort(proxies)
		if now := slices.Sorted(maps.Keys(seen)); !slices.Equal(now, proxies) {
			return fmt.Errorf("%s serves %v, want %v", controlPlane, now, proxies)
		}
		for proxy, n := range seen {
			if n != 1 {
				return fmt.Errorf("%s has %d streams", proxy, n)
			}
		}
	}
	return nil
}

// streams decodes a page syncz.
func streams(text string) (list []stream, err error) {
	if strings.TrimSpace(text) == "null" {
		return nil, nil
	}
	return list, json.Unmarshal([]byte(text), &list)
}

// TestStreams: what makes a stream behind is found.
func TestStreams(t *testing.T) {
	for text, behind := range map[string]bool{
		`[{"proxy": "a.b", "cluster_sent": "1", "cluster_acked": "1", "listener_sent": "2", "listener_acked": "2"}]`:                       false,
		`[{"proxy": "a.b", "cluster_sent": "2", "cluster_acked": "1", "listener_sent": "2", "listener_acked": "2"}]`:                       true,
		`[{"proxy": "a.b", "cluster_sent": "1", "cluster_acked": "1"}]`:                                                                    true,
		`[{"proxy": "a.b", "cluster_sent": "1", "cluster_acked": "1", "listener_sent": "2", "listener_acked": "2", "endpoint_sent": "3"}]`: true,
	} {
		if list, err := streams(text); err != nil || len(list) != 1 || list[0].behind() != behind {
			t.Errorf("%s: %v, %v", text, list, err)
		}
	}
}

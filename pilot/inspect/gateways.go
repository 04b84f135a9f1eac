package inspect

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
)

// atGateway follows a request that comes to a gateway: the port that its client called is one of the gateway's Service,
// which leads to ports of the gateway's own.
func (h *hops) atGateway(sent trace.Config, r trace.Request, p *node.Proxy) (*trace.Answer, error) {
	called := r.Port
	if _, err := netip.ParseAddr(r.Host); err != nil { // the host may be any that its servers have
		r.Address = first(p.IPs)
	}
	var answer *trace.Answer
	for _, port := range h.translator.GatewayPorts(h.Snapshot, p, called, r.HTTP3) {
		r.Port = port
		a, err := trace.Follow(sent, r)
		if err != nil {
			return nil, err
		}
		if port != called {
			step := trace.Step{What: "port", Name: strconv.Itoa(int(port)), Reason: fmt.Sprintf("a Service leads port %d there", called)}
			a.Steps = append([]trace.Step{step}, a.Steps...)
		}
		if answer == nil {
			answer = a
		} else if a.Status != answer.Status || a.Answered != answer.Answered || clustersOf(a) != clustersOf(answer) {
			answer.Depends = append(answer.Depends, fmt.Sprintf("one Service leads port %d to port %d, and another one to port %d, "+
				"where the answer is another one", called, answer.Forwarded.Port, port))
		}
	}
	return answer, nil
}

// clustersOf returns the names of the clusters to which a request is passed on.
func clustersOf(a *trace.Answer) string {
	var text strings.Builder
	for _, t := range a.Targets {
		text.WriteString(t.Cluster + "\n")
	}
	return text.String()
}

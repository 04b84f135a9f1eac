package check

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
)

// ProxyOf checks one proxy, named POD.NAMESPACE, with the replica that serves it. It fails if the server does not
// answer.
func (r *Report) ProxyOf(ctx context.Context, s Server, name string) error {
	list, all, err := s.proxies(ctx)
	if err != nil {
		return err
	}
	r.begin("proxy")
	r.answering(list)
	// A proxy that has just connected to another replica may still have its old stream, so the newest stream is used.
	var p debug.ProxyStatus
	for _, x := range all {
		if x.ProxyID == name && !x.Connected.Before(p.Connected) {
			p = x
		}
	}
	if p.ProxyID == "" {
		r.wrong("connected", "pilot-discovery proxy-status"+s.address(), "%s is not connected to a replica that answers", name)
		return nil
	}
	to := ""
	if p.Replica != "" {
		to = " to " + p.Replica
	}
	r.ok("connected", "for %s, from %s%s, version %s", span(s.Now.Sub(p.Connected)), p.Address, to, p.Version)
	if says := skew(s.version(ctx), p.Version); says != "" {
		r.warn("version", restart(name), "%s", says)
	}
	standing := standingOf(p, s.Now)
	for _, t := range standing.rejected {
		r.wrong(strings.ToUpper(t.Type), mends(s.rejections(ctx), name, t.Type, "pilot-discovery pushes"+s.address()),
			"the proxy rejects its configuration: %s",
			strings.TrimSpace(t.LastError))
	}
	for _, t := range standing.stale {
		r.wrong(strings.ToUpper(t.Type), "pilot-discovery proxy-status "+name+s.address(),
			"the proxy has not acknowledged its configuration for %s",
			span(s.Now.Sub(*t.SentTime)))
	}
	if p.Waits != "" {
		r.warn("start", "pilot-discovery proxy-status "+name+s.address(), "the proxy waits: %s", p.Waits)
	}
	var synced []string
	for _, t := range slices.SortedFunc(maps.Values(p.Resources), func(a, b debug.TypeStatus) int { return strings.Compare(a.Type, b.Type) }) {
		if t.State == debug.Synced {
			synced = append(synced, strings.ToUpper(t.Type))
		}
	}
	if len(synced) > 0 {
		r.ok("in sync", "%s", strings.Join(synced, ", "))
	}
	r.begin("objects")
	return r.objectsOf(ctx, s, p)
}

// objectsOf adds the findings about objects that concern a proxy. These are the objects of its namespace and of the
// root namespace, except objects that select other workloads only.
func (r *Report) objectsOf(ctx context.Context, s Server, p debug.ProxyStatus) error {
	namespace := p.ProxyID[strings.LastIndexByte(p.ProxyID, '.')+1:]
	var policies struct {
		Policies struct {
			RootNamespace string `json:"root_namespace"`
		} `json:"authorization_policies"`
		Proxies map[string][]string `json:"proxies"`
	}
	if err := s.getOf(ctx, p.Replica, "authorizationz?proxyID="+url.QueryEscape(p.ProxyID), &policies); err != nil {
		return err
	}
	var clients struct {
		Clients []struct {
			Address string            `json:"address"`
			Labels  map[string]string `json:"labels"`
		} `json:"clients"`
	}
	if err := s.getOf(ctx, p.Replica, "adsz?namespace="+url.QueryEscape(namespace), &clients); err != nil {
		return err
	}
	var labels map[string]string
	for _, c := range clients.Clients {
		if c.Address == p.Address {
			labels = c.Labels
		}
	}
	var objects []selecting
	if err := s.get(ctx, "/debug/configz", &objects); err != nil {
		return err
	}
	otherWorkloads := map[string]bool{} // objects that select other workloads
	for _, o := range objects {
		if selector := o.selector(); len(selector) > 0 && !kinds.Selects(selector, labels) {
			otherWorkloads[o.Kind+" "+o.Metadata.Namespace+"/"+o.Metadata.Name] = true
		}
	}
	list, err := s.findings(ctx)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(d diag.Diagnostic) bool {
		_, name, _ := strings.Cut(d.Object, " ")
		ns, _, _ := strings.Cut(name, "/")
		return otherWorkloads[d.Object] || ns != namespace && ns != policies.Policies.RootNamespace
	})
	if applied := policies.Proxies[p.ProxyID]; len(applied) > 0 {
		r.ok("policies", "%s", strings.Join(applied, ", "))
	}
	r.judge(s, list)
	return nil
}

// selecting holds the fields of an object that say which workloads it applies to.
type selecting struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec json.RawMessage `json:"spec"`
}

// selector returns the labels by which an object of Istio's API selects workloads.
func (o selecting) selector() map[string]string {
	var spec struct {
		Selector         json.RawMessage `json:"selector"`
		WorkloadSelector struct {
			Labels map[string]string `json:"labels"`
		} `json:"workloadSelector"`
	}
	if json.Unmarshal(o.Spec, &spec) != nil {
		return nil
	}
	if len(spec.WorkloadSelector.Labels) > 0 {
		return spec.WorkloadSelector.Labels
	}
	var nested struct {
		MatchLabels map[string]string `json:"matchLabels"`
	}
	if len(spec.Selector) > 0 && json.Unmarshal(spec.Selector, &nested) == nil && len(nested.MatchLabels) > 0 {
		return nested.MatchLabels
	}
	return nil
}

// Envoy checks a proxy through its admin API: whether it is live, and when its certificates expire.
func (r *Report) Envoy(ctx context.Context, get func(ctx context.Context, path string) (int, []byte, error), now time.Time) error {
	status, text, err := get(ctx, "/ready")
	if err != nil {
		return err
	}
	r.begin("Envoy")
	if state := strings.TrimSpace(string(text)); status == http.StatusOK {
		r.ok("ready", "%s", state)
	} else {
		r.wrong("ready", "", "Envoy is %s", state)
	}
	if status, text, err = get(ctx, "/certs"); err != nil || status != http.StatusOK {
		return fmt.Errorf("ask Envoy for its certificates: status %d: %w", status, err)
	}
	type certificate struct {
		Path       string    `json:"path"`
		Serial     string    `json:"serial_number"`
		Expiration time.Time `json:"expiration_time"`
	}
	var all struct {
		Certificates []struct {
			Roots []certificate `json:"ca_cert"`
			Chain []certificate `json:"cert_chain"`
		} `json:"certificates"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("decode Envoy's certificates: %w", err)
	}
	// A workload certificate lives one day and is replaced after half that time.
	var earliest, roots time.Time
	for _, c := range all.Certificates {
		for _, x := range c.Chain {
			if earliest.IsZero() || x.Expiration.Before(earliest) {
				earliest = x.Expiration
			}
		}
		for _, x := range c.Roots {
			if roots.IsZero() || x.Expiration.Before(roots) {
				roots = x.Expiration
			}
		}
	}
	const fix = "pilot-agent request GET certs"
	switch left := earliest.Sub(now); {
	case earliest.IsZero():
		r.skip("certificates", fix, "Envoy has no certificates")
		return nil
	case left <= 0:
		r.wrong("certificates", fix, "a certificate expired at %s: the agent got no new one, and its log says why",
			earliest.UTC().Format(time.RFC3339))
	case left < time.Hour:
		r.warn("certificates", fix, "a certificate expires in %s: the agent should have renewed it", span(left))
	default:
		r.ok("certificates", "%d, the first expires in %s", len(all.Certificates), span(left))
	}
	if !roots.IsZero() {
		r.expiry("roots", roots, now, fix)
	}
	return nil
}

// Pod checks the Pod of a proxy in a cluster: whether it was injected, by which revision, and whether it is ready.
func (r *Report) Pod(ctx context.Context, c *Cluster, name, namespace string) error {
	if _, _, err := c.reachable(ctx); err != nil {
		return err
	}
	r.begin("pod")
	pod, err := get[corev1.Pod](ctx, c, resource("", "pods"), namespace, name)
	if r.unread("pod", err) {
		return nil
	}
	if pod == nil {
		r.wrong("pod", "kubectl get pods -n "+namespace, "there is no Pod %s/%s", namespace, name)
		return nil
	}
	kubectl := "kubectl -n " + namespace + " "
	injected := false
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range list {
			if s.Name != "istio-proxy" {
				continue
			}
			if injected = true; s.Ready {
				r.ok("istio-proxy", "ready, %s, restarted %d times", s.Image, s.RestartCount)
			} else {
				r.wrong("istio-proxy", kubectl+"logs "+name+" -c istio-proxy", "the proxy is not ready (restarted %d times)", s.RestartCount)
			}
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, s := range list {
			if s.Name == "istio-proxy" && !injected {
				injected = true
				r.warn("istio-proxy", kubectl+"describe pod "+name, "the proxy has not started: the Pod is %s", pod.Status.Phase)
			}
		}
	}
	if injected {
		r.ok("injection", "by revision %s", revisionOf(map[string]string{names.LabelRevision: pod.Annotations[names.LabelRevision]}))
		return nil
	}
	ns, err := get[corev1.Namespace](ctx, c, resource("", "namespaces"), "", namespace)
	if r.unread("injection", err) {
		return nil
	}
	switch {
	case ns != nil && ns.Labels["istio-injection"] != "enabled" && ns.Labels[names.LabelRevision] == "" &&
		pod.Labels[names.LabelInject] != "true" && pod.Labels[names.LabelRevision] == "":
		r.wrong("injection", "kubectl label namespace "+namespace+" istio-injection=enabled && "+kubectl+"delete pod "+name,
			"the Pod has no proxy: neither it nor its namespace asks for one")
	case pod.Labels[names.LabelInject] == "false":
		r.wrong("injection", kubectl+"get pod "+name+" -o jsonpath='{.metadata.labels}'",
			"the Pod has no proxy: its label sidecar.istio.io/inject is false")
	default:
		r.wrong("injection", kubectl+"delete pod "+name+"  # a new Pod passes the webhook again",
			"the Pod has no proxy, although a label asks for one: the Pod is older than the label, or the webhook did not answer")
	}
	return nil
}

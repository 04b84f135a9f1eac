package authorize_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
)

// TestWhatPeersMayDo asks every question for every kind of peer.
func TestWhatPeersMayDo(t *testing.T) {
	web := identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}
	far, near := netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:1")
	peers := map[string]identity.Peer{
		"stranger":     {Address: far},
		"on the host":  {Address: near},
		"web":          {Address: far, ID: web, Proof: identity.Certificate},
		"web by token": {Address: far, ID: web, Proof: identity.Token},
		"claims web":   {Address: far, ID: web},
		"nowhere":      {},
		"federated": {Address: far, ID: identity.ID{TrustDomain: "alias", Namespace: "a", ServiceAccount: "web"},
			Proof: identity.Certificate, Federated: true},
		"pod of web": {Address: far, ID: web, Proof: identity.Token, Bound: identity.Bound{Cluster: "one", Pod: "web-0"}},
	}
	closed := authorize.New(authorize.Options{})
	open := authorize.New(authorize.Options{Readers: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, RegisterAnyone: true})
	silent := authorize.New(authorize.Options{Readers: []netip.Prefix{}})
	aliased := authorize.New(authorize.Options{ClusterAliases: map[string]string{"uno": "one"}})
	debug := func(namespace string, system ...string) func(identity.Peer) error {
		page, o := authorize.Page{Name: "config_dump", OwnProxy: true, Namespace: namespace}, authorize.Options{SystemNamespace: "istio-system"}
		if len(system) > 0 {
			page.Name, page.OwnProxy, o.SystemNamespace = "syncz", false, system[0]
		}
		return func(p identity.Peer) error { return authorize.New(o).Debug(p, page) }
	}
	object := func(namespace string) func(identity.Peer) error {
		page := authorize.Page{Name: "inforce", OwnObject: true, Namespace: namespace}
		return func(p identity.Peer) error { return closed.Debug(p, page) }
	}
	guess := func(system string) func(identity.Peer) error {
		page := authorize.Page{Name: "inforce", OwnObject: true, Namespace: "a", Guesses: true}
		return func(p identity.Peer) error {
			return authorize.New(authorize.Options{SystemNamespace: system}).Debug(p, page)
		}
	}
	others := []string{"stranger", "on the host", "web", "web by token", "claims web", "nowhere", "federated"}
	all := append([]string{"pod of web"}, others...)
	for _, c := range []struct {
		what    string
		ask     func(identity.Peer) error
		allowed []string
	}{
		{"proxy of a", func(p identity.Peer) error { return closed.Proxy(p, "a") }, append([]string{"pod of web"}, others...)},
		{"proxy of b", func(p identity.Peer) error { return closed.Proxy(p, "b") }, []string{"stranger", "on the host", "claims web", "nowhere"}},
		{"read", closed.ReadConfig, []string{"on the host"}},
		{"read where told", open.ReadConfig, []string{"stranger", "web", "web by token", "pod of web", "claims web", "federated"}},
		{"read where nobody may", silent.ReadConfig, nil},
		{"all debug pages", debug(""), []string{"on the host"}},
		{"all debug pages, from the system namespace", debug("", "a"), []string{"on the host", "web", "web by token", "pod of web"}},
		{"debug page of a proxy of a", debug("a"), []string{"on the host", "web", "web by token", "pod of web"}},
		{"debug page of a proxy of b", debug("b"), []string{"on the host"}},
		{"another debug page of a proxy of a", debug("a", "istio-system"), []string{"on the host"}},
		{"debug page of an object of a", object("a"), []string{"on the host", "web", "web by token", "pod of web"}},
		{"debug page of an object of b", object("b"), []string{"on the host"}},
		{"debug page of an object without a namespace", object(""), []string{"on the host"}},
		{"debug page of the content of a Secret of a", guess("istio-system"), []string{"on the host"}},
		{"debug page of the content of a Secret, from the system namespace", guess("a"),
			[]string{"on the host", "web", "web by token", "pod of web"}},
		{"register in a", func(p identity.Peer) error { return closed.Register(p, "a", "") },
			[]string{"on the host", "web", "web by token", "pod of web"}},
		{"register web in a", func(p identity.Peer) error { return closed.Register(p, "a", "web") },
			[]string{"on the host", "web", "web by token", "pod of web"}},
		{"register db in a", func(p identity.Peer) error { return closed.Register(p, "a", "db") }, []string{"on the host"}},
		{"register in b", func(p identity.Peer) error { return closed.Register(p, "b", "") }, []string{"on the host"}},
		{"register where anyone may", func(p identity.Peer) error { return open.Register(p, "b", "") },
			[]string{"stranger", "on the host", "claims web", "nowhere"}},
		{"secret of a", func(p identity.Peer) error { return open.Secret(p, "a") }, []string{"web", "web by token", "pod of web"}},
		{"proxy of its pod", func(p identity.Peer) error { return aliased.Workload(p, "web-0", "one") }, all},
		{"proxy of its pod somewhere", func(p identity.Peer) error { return aliased.Workload(p, "web-0", "") }, all},
		{"proxy of its pod by another name of the cluster", func(p identity.Peer) error { return aliased.Workload(p, "web-0", "uno") }, all},
		{"proxy of another pod", func(p identity.Peer) error { return aliased.Workload(p, "web-1", "one") }, others},
		{"proxy of another cluster", func(p identity.Peer) error { return aliased.Workload(p, "web-0", "two") }, others},
		{"proxy of a pod of web", func(p identity.Peer) error { return closed.Account(p, "web") }, all},
		{"proxy of a pod of db", func(p identity.Peer) error { return closed.Account(p, "db") },
			[]string{"stranger", "on the host", "claims web", "nowhere"}},
		{"proxy of an unknown pod", func(p identity.Peer) error { return closed.Account(p, "") }, all},
		{"secret of b", func(p identity.Peer) error { return open.Secret(p, "b") }, nil},
	} {
		allowed := map[string]bool{}
		for _, name := range c.allowed {
			allowed[name] = true
		}
		for name, peer := range peers {
			err := c.ask(peer)
			var denied *authorize.Denied
			if err == nil != allowed[name] || err != nil && !errors.As(err, &denied) {
				t.Errorf("%s, %s: %v", c.what, name, err)
			}
		}
	}
}

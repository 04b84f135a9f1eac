package identity_test

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/identity"
)

// parsed is an ID as it is written, and what comes of it: the zero ID if it is none.
type parsed struct {
	uri  string
	want identity.ID
}

func uris() []parsed {
	return []parsed{
		{"spiffe://cluster.local/ns/a/sa/web", identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}},
		{"spiffe://td_1/ns/A-b/sa/x.y_z", identity.ID{TrustDomain: "td_1", Namespace: "A-b", ServiceAccount: "x.y_z"}},
		{"spiffe://Cluster.local/ns/a/sa/web", identity.ID{}},
		{"cluster.local/ns/a/sa/web", identity.ID{}},
		{"spiffe://cluster.local/ns/a/sa/web/", identity.ID{}},
		{"spiffe://cluster.local/ns/a/sa/", identity.ID{}},
		{"spiffe://cluster.local/ns//sa/web", identity.ID{}},
		{"spiffe:///ns/a/sa/web", identity.ID{}},
		{"spiffe://cluster.local/ns/../sa/web", identity.ID{}},
		{"spiffe://cluster.local/sa/a/ns/web", identity.ID{}},
		{"spiffe://cluster.local:80/ns/a/sa/web", identity.ID{}},
		{"spiffe://user@cluster.local/ns/a/sa/web", identity.ID{}},
		{"spiffe://cluster.local/ns/a%2f/sa/web", identity.ID{}},
		{"spiffe://cluster.local/ns/a/sa/web?x", identity.ID{}},
		{"SPIFFE://cluster.local/ns/a/sa/web", identity.ID{}},
		{"https://cluster.local/ns/a/sa/web", identity.ID{}},
		{"spiffe://cluster.local/ns/a/sa/" + strings.Repeat("w", 2048), identity.ID{}},
		{"", identity.ID{}},
		{"spiffe://cluster.local/ns/a/sa/.", identity.ID{}},
		{"spiffe://cluster.local/ns/a/sa/web#", identity.ID{}},
		{"spiffe://cluster.local/ns/a/sa/web/../db", identity.ID{}},
		{"spiffe://cluster.local/ns/a/ns/b/sa/web", identity.ID{}},
		{"spiffe://cluster.local//ns/a/sa/web", identity.ID{}},
		{"spiffe://cluster.local/ns/a\x00/sa/web", identity.ID{}},
		{"spiffe://cluster.local/ns/a\n/sa/web", identity.ID{}},
		{"spiffe://cluster.local/ns/\u0430/sa/web", identity.ID{}}, // a Cyrillic a
		{"spiffe://cluster.local/ns/a\xff/sa/web", identity.ID{}},
		{"spiffe://[::1]/ns/a/sa/web", identity.ID{}},
		{"spiffe:cluster.local/ns/a/sa/web", identity.ID{}},
		{" spiffe://cluster.local/ns/a/sa/web", identity.ID{}},
	}
}

func TestParse(t *testing.T) {
	for _, c := range uris() {
		got, err := identity.Parse(c.uri)
		if got != c.want || (err == nil) != (c.want != identity.ID{}) {
			t.Errorf("%.80q: %v, %v", c.uri, got, err)
		}
		if err == nil && got.String() != c.uri {
			t.Errorf("%q came back as %q", c.uri, got)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("a message of %d bytes", len(err.Error()))
		}
	}
}

// FuzzParse: an ID is written back as it was read, and is what a certificate says that has it: net/url, by which a
// certificate's URIs are read, sees the same parts and nothing else.
func FuzzParse(f *testing.F) {
	for _, c := range uris() {
		f.Add(c.uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		id, err := identity.Parse(uri)
		if err != nil {
			if id != (identity.ID{}) {
				t.Errorf("%q: %v and %v", uri, id, err)
			}
			return
		}
		if id.String() != uri || id.TrustDomain == "" || id.Namespace == "" || id.ServiceAccount == "" {
			t.Errorf("%q became %#v", uri, id)
		}
		u, err := url.Parse(uri)
		if err != nil || u.String() != uri || u.Host != id.TrustDomain || u.Path != "/ns/"+id.Namespace+"/sa/"+id.ServiceAccount ||
			u.User != nil || u.Opaque != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
			t.Errorf("%q is %#v to net/url, %v", uri, u, err)
		}
	})
}

func TestPeer(t *testing.T) {
	id := identity.ID{TrustDomain: "td", Namespace: "a", ServiceAccount: "web"}
	here := netip.MustParseAddrPort("127.0.0.1:1")
	mapped, far := netip.MustParseAddrPort("[::ffff:127.0.0.1]:1"), netip.MustParseAddrPort("10.0.0.1:1")
	for _, c := range []struct {
		peer           identity.Peer
		proved, onHost bool
		name           string
	}{
		{identity.Peer{}, false, false, "a peer without an address"},
		{identity.Peer{Address: here}, false, true, "127.0.0.1:1"},
		{identity.Peer{Address: mapped}, false, true, "[::ffff:127.0.0.1]:1"},
		{identity.Peer{Address: far, ID: id}, false, false, "10.0.0.1:1"}, // an ID that nothing proves
		{identity.Peer{Address: far, Proof: identity.Certificate}, false, false, "10.0.0.1:1"},
		{identity.Peer{Address: far, ID: id, Proof: identity.Certificate}, true, false, "spiffe://td/ns/a/sa/web"},
	} {
		if c.peer.Proved() != c.proved || c.peer.OnHost() != c.onHost || c.peer.String() != c.name {
			t.Errorf("%#v: %t, %t, %s", c.peer, c.peer.Proved(), c.peer.OnHost(), c.peer)
		}
	}
}

package authenticate_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
)

// fixed is an Authenticator with one answer.
type fixed struct {
	peer identity.Peer
	err  error
}

func (f fixed) Authenticate(context.Context, authenticate.Request) (identity.Peer, error) {
	return f.peer, f.err
}

// TestList takes the first authenticator that succeeds, and says if one could not be asked.
func TestList(t *testing.T) {
	none, wrong, away := fixed{err: authenticate.ErrNoCredential}, fixed{err: errors.New("wrong")}, fixed{err: authenticate.ErrUnavailable}
	good := fixed{peer: identity.Peer{ID: web, Proof: identity.Token}}
	nobody := fixed{peer: identity.Peer{Proof: identity.Token}}
	for _, c := range []struct {
		list        authenticate.List
		good        bool
		none, retry bool
	}{
		{nil, false, true, false},
		{authenticate.List{none, none}, false, true, false},
		{authenticate.List{none, wrong}, false, false, false},
		{authenticate.List{away, wrong}, false, false, true},
		{authenticate.List{wrong, away, good}, true, false, false},
		{authenticate.List{nobody}, false, false, false},
	} {
		at := netip.MustParseAddrPort("10.0.0.1:1")
		p, err := c.list.Authenticate(t.Context(), authenticate.Request{Address: at})
		if (err == nil) != c.good || p.Proved() != c.good || p.Address != at ||
			errors.Is(err, authenticate.ErrNoCredential) != c.none || errors.Is(err, authenticate.ErrUnavailable) != c.retry {
			t.Errorf("%+v: %+v, %v", c, p, err)
		}
	}
}

// TestPlaintextPresentsNothing: over plaintext anybody could have read a token or a header, so none is taken.
func TestPlaintextPresentsNothing(t *testing.T) {
	from := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 4}
	for _, secure := range []bool{false, true} {
		p := &peer.Peer{Addr: from}
		if secure {
			p.AuthInfo = credentials.TLSInfo{}
		}
		ctx := metadata.NewIncomingContext(peer.NewContext(t.Context(), p), metadata.Pairs(
			"authorization", "Basic x", "authorization", "bearer token", "authorization", "Bearer another", "clusterid", "one",
			"x-forwarded-client-cert", "a", "x-forwarded-client-cert", "b",
		))
		want := authenticate.Request{Address: from.AddrPort()}
		if secure {
			want.Token, want.Cluster, want.Forwarded = "token", "one", "a,b"
		}
		got := authenticate.FromContext(ctx)
		if (got.TLS != nil) != secure {
			t.Errorf("TLS %v: %+v", secure, got)
		}
		got.TLS = nil
		if got != want {
			t.Errorf("TLS %v: %+v, want %+v", secure, got, want)
		}
	}
}

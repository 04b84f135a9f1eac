package xds

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// fakeStream is a stream without a network. Its peer sends requests of a size, and reads nothing if unread is not nil.
type fakeStream struct {
	grpc.ServerStream
	ctx    context.Context
	size   int
	unread <-chan struct{}
}

func (s *fakeStream) Context() context.Context { return s.ctx }

func (s *fakeStream) RecvMsg(m any) error {
	m.(*wire.Request).Size = s.size
	return nil
}

func (s *fakeStream) SendMsg(any) error {
	if s.unread == nil {
		return nil
	}
	<-s.unread
	return errors.New("the connection was cut")
}

// newFakeConn returns a stream of a Server that is not registered there.
func newFakeConn(t *testing.T, s *Server, stream *fakeStream, p identity.Peer) *conn {
	t.Helper()
	stream.ctx = t.Context()
	return newConn(s, stream, true, p)
}

// TestSilentStreamsEnd: a stream on which no request comes holds a slot for a while alone.
func TestSilentStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeConn(t, New(Options{Translator: xdstest.NewTranslator()}), &fakeStream{}, identity.Peer{})
		began := time.Now()
		if r, err := c.greet(); r != nil || status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%v, %v", r, err)
		}
		if after := time.Since(began); after != firstRequest {
			t.Errorf("it ends after %s", after)
		}
	})
}

// TestLargeRequestsCost: a client that sends large requests is read from less often.
func TestLargeRequestsCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := map[int]time.Duration{}
		for _, size := range []int{100, 1 << 20, 1 << 40} {
			s := New(Options{Translator: xdstest.NewTranslator()})
			s.o.Limits.RequestsPerSecond, s.o.Limits.RequestsBurst = 1, 64
			c := newFakeConn(t, s, &fakeStream{size: size}, identity.Peer{})
			began := time.Now()
			a, err := s.admission.arrive(t.Context(), identity.Peer{}, nil)
			must.Succeed(t, err)
			go c.read(a)
			for range 66 {
				<-c.requests
			}
			took[size] = time.Since(began).Round(time.Second)
			close(c.done)
			synctest.Wait()
		}
		// Each costs one second, 17, or no more than a burst has.
		for size, cost := range map[int]time.Duration{100: 1, 1 << 20: 17, 1 << 40: 64} {
			if want := (66*cost - 64) * time.Second; took[size] != want {
				t.Errorf("66 requests of %d bytes took %s, want %s", size, took[size], want)
			}
		}
	})
}

// TestStrangersAreNeverUrgent: a peer of another host that proves nothing goes before no other, as a gateway or not.
func TestStrangersAreNeverUrgent(t *testing.T) {
	far, near := netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:1")
	web := identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}
	s := New(Options{Translator: xdstest.NewTranslator()})
	for name, x := range map[string]struct {
		peer identity.Peer
		want bool
	}{
		"a stranger":           {identity.Peer{Address: far}, false},
		"who claims an ID":     {identity.Peer{Address: far, ID: web}, false},
		"a peer on this host":  {identity.Peer{Address: near}, true},
		"a peer with a proof":  {identity.Peer{Address: far, ID: web, Proof: identity.Certificate}, true},
		"without any address":  {identity.Peer{}, true}, // of a pipe
		"an address in 6 form": {identity.Peer{Address: netip.MustParseAddrPort("[::ffff:10.0.0.1]:1")}, false},
	} {
		c := newFakeConn(t, s, &fakeStream{}, x.peer)
		c.profile = &profile{}
		if got := c.urgent(); got != x.want {
			t.Errorf("%s that is new: %v", name, got)
		}
		c.joined, c.began, c.profile.urgent = true, time.Now().Add(-time.Hour), true
		if got := c.urgent(); got != x.want {
			t.Errorf("%s that is a gateway: %v", name, got)
		}
	}
}

// TestDebugStreamsEnd: a tool is answered for some minutes, or until its proof expires.
func TestDebugStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for lasts, want := range map[time.Duration]time.Duration{0: debugTime, time.Hour: debugTime, time.Minute: time.Minute} {
			s := New(Options{Translator: xdstest.NewTranslator(),
				World: debugging{pages: func(identity.Peer, string, []string) ([]*anypb.Any, error) { return nil, nil }}})
			p := identity.Peer{}
			began := time.Now()
			if lasts > 0 {
				p.Expires = began.Add(lasts)
			}
			c := newFakeConn(t, s, &fakeStream{}, p)
			err := c.serveDebug(&wire.Request{TypeURL: DebugType})
			if after := time.Since(began); status.Code(err) != codes.DeadlineExceeded || after != want {
				t.Errorf("with a proof of %s it ends after %s: %v", lasts, after, err)
			}
		}
	})
}

// closing is a connection that says when it is closed.
type closing struct {
	net.Conn
	closed chan struct{}
}

func (c closing) Close() error { close(c.closed); return nil }

// TestUnreadDebugPages: the connection of a tool that does not read its answer is cut.
func TestUnreadDebugPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Translator: xdstest.NewTranslator(),
			World: debugging{pages: func(identity.Peer, string, []string) ([]*anypb.Any, error) { return nil, nil }}})
		at := closing{closed: make(chan struct{})}
		c := newFakeConn(t, s, &fakeStream{unread: at.closed}, identity.Peer{})
		c.accepted = &trackedConn{Conn: at, connections: s.listeners}
		began := time.Now()
		if err := c.serveDebug(&wire.Request{TypeURL: DebugType}); err == nil {
			t.Error("nothing cuts it")
		}
		want := s.o.Limits.SendGrace + s.o.Limits.SendGrace/settleDivisor
		if after := time.Since(began); after != want {
			t.Errorf("it is cut after %s, want %s", after, want)
		}
	})
}

// TestWatchdog: a peer that takes a byte in each period is not cut, however long the message takes. One that takes
// nothing is.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &trackedConn{}
		var stalled atomic.Bool
		w := newWatchdog(conn, 10*time.Second, slog.New(slog.DiscardHandler), func() { stalled.Store(true) })
		w.start()
		for range 60 {
			time.Sleep(9 * time.Second)
			conn.written.Add(1)
		}
		if stalled.Load() {
			t.Error("a peer that reads slowly is cut")
		}
		time.Sleep(21 * time.Second)
		if !stalled.Load() {
			t.Error("a peer that does not read is not cut")
		}
	})
}

// TestCutResets: what is on its way to a peer whose connection is cut is not kept until that peer reads it.
func TestCutResets(t *testing.T) {
	at, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	connections := newAccepted(1)
	l := connections.wrap(at)
	defer l.Close()
	peer, err := net.Dial("tcp", at.Addr().String())
	must.Succeed(t, err)
	defer peer.Close()
	if _, err := l.Accept(); err != nil {
		t.Fatal(err)
	}
	if !connections.find(peer.LocalAddr().String(), peer.RemoteAddr().String()).cut() {
		t.Fatal("the connection is not known")
	}
	if _, err := io.ReadAll(peer); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer reads %v, as if all had been sent", err)
	}
}

package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func TestMain(m *testing.M) {
	if Inside() {
		os.Exit(m.Run())
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// The outer program is the caller from outside: it asks for the name that TestRelay serves inside.
	go func() {
		for {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				return
			}
			io.WriteString(conn, "outside")
			conn.(*net.TCPConn).CloseWrite()
			io.ReadAll(conn)
			conn.Close()
			time.Sleep(20 * time.Millisecond)
		}
	}()
	err = Enter(context.Background(), EnterOptions{Args: os.Args[1:], Listeners: []*net.TCPListener{l}})
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// network is the one of all tests.
var network = sync.OnceValue(func() *Network {
	n, err := NewNetwork(netip.MustParsePrefix("10.10.0.0/16"))
	if err != nil {
		panic(err)
	}
	return n
})

// add makes a pod that goes when the test ends.
func add(t *testing.T, name, addr string, redirect bool) *Pod {
	t.Helper()
	p, err := network().Add(Spec{Name: name, Addr: netip.MustParseAddr(addr), Redirect: redirect})
	must.Succeed(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

func TestNetwork(t *testing.T) {
	if got := os.Getpid(); got != 1 {
		t.Errorf("pid = %d, want 1: processes started in here would outlive it", got)
	}
	meshed, plain := add(t, "meshed", "10.10.1.1", true), add(t, "plain", "10.10.1.2", false)
	serve(t, meshed, ":8080", "meshed app")
	serve(t, meshed, ":15001", "outbound")
	serve(t, meshed, ":15006", "inbound")
	serve(t, meshed, ":15020", "probe")
	serve(t, plain, ":8080", "plain app")

	// Pods remember how to reach the gateway: that must not change as others come.
	for i := range 16 {
		add(t, fmt.Sprint("other-", i), fmt.Sprintf("10.10.2.%d", i), false)
		link, err := netlink.LinkByIndex(network().bridge)
		must.Succeed(t, err)
		if got := link.Attrs().HardwareAddr.String(); got != bridgeAddr().String() {
			t.Fatalf("with %d more pods the gateway is at %s, want %s", i+1, got, bridgeAddr())
		}
	}

	for _, c := range []struct {
		name string
		from *Pod
		mark bool
		src  string
		to   string
		want string
	}{
		{"app to a pod", meshed, false, "", "10.10.1.2:8080", "outbound"},
		{"app to a service address", meshed, false, "", "10.96.0.1:80", "outbound"},
		{"sidecar to a pod", meshed, true, "", "10.10.1.2:8080", "plain app"},
		{"from outside", plain, false, "", "10.10.1.1:8080", "inbound"},
		{"probe from outside", plain, false, "", "10.10.1.1:15020", "probe"},
		{"app to localhost", meshed, false, "", "127.0.0.1:8080", "meshed app"},
		{"app to itself", meshed, false, "", "10.10.1.1:8080", "meshed app"},
		{"inbound side to its app", meshed, false, "127.0.0.6", "10.10.1.1:8080", "meshed app"},
		{"outbound side to its own pod", meshed, true, "", "10.10.1.1:8080", "inbound"},
		{"between pods without sidecars", plain, false, "", "10.10.1.2:8080", "plain app"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ask(t, c.from, c.mark, c.src, c.to); got != c.want {
				t.Errorf("%s answered, want %s", got, c.want)
			}
		})
	}
}

// TestAddressChangesHands has pods follow one another at one address, while a socket keeps the namespace of each
// earlier one. A caller that knew the address reaches the new pod at once.
func TestAddressChangesHands(t *testing.T) {
	caller := add(t, "caller", "10.10.4.1", true)
	for i := range 4 {
		name := fmt.Sprint("pod ", i)
		p := add(t, name, "10.10.4.2", true)
		serve(t, p, ":15006", name)
		serve(t, p, "127.0.0.1:9", "until the test ends")
		if got := ask(t, caller, true, "", "10.10.4.2:8080"); got != name {
			t.Errorf("%s answered, want %s", got, name)
		}
		must.Succeed(t, p.Close())
	}
}

func TestRelay(t *testing.T) {
	ls, err := Listeners()
	if err != nil || len(ls) != 1 {
		t.Fatalf("listeners = %v, %v; want one", ls, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan string, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- Relay(ctx, ls[0], func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				buf := make([]byte, 7)
				if _, err := io.ReadFull(far, buf); err == nil {
					select {
					case got <- string(buf):
					default:
					}
				}
			}()
			return near, nil
		})
	}()
	select {
	case s := <-got:
		if s != "outside" {
			t.Errorf("relayed %q, want %q", s, "outside")
		}
	case <-time.After(2 * time.Minute):
		t.Error("nothing was relayed from outside")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func serve(t *testing.T, p *Pod, addr, name string) {
	t.Helper()
	l, err := p.Listen(addr)
	must.Succeed(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, name)
			conn.Close()
		}
	}()
}

func ask(t *testing.T, p *Pod, mark bool, src, to string) string {
	t.Helper()
	d := net.Dialer{Timeout: 5 * time.Second}
	if src != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(src)}
	}
	if mark {
		d.Control = func(_, _ string, c syscall.RawConn) error {
			var err error
			if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, Mark) }); e != nil {
				return e
			}
			return err
		}
	}
	var said []byte
	err := p.ns.within(p.home, func() error {
		conn, err := d.Dial("tcp", to)
		if err != nil {
			return err
		}
		defer conn.Close()
		said, err = io.ReadAll(conn)
		return err
	})
	must.Succeed(t, err)
	return string(said)
}

package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// Marks of sockets: of Envoy, as in --proxy-mark, and of connections that it makes with its client's address.
const (
	envoyMark = 77
	tproxy    = 1337
)

// answer accepts connections at an address in a pod, and sends each client the name of the server, the address of the
// client and the destination.
func answer(t *testing.T, p *pods.Pod, name, addr string, options ...func(fd int) error) {
	t.Helper()
	config := net.ListenConfig{Control: control(options)}
	var l net.Listener
	must.Succeed(t, p.Do(func() (err error) { l, err = config.Listen(context.Background(), "tcp", addr); return err }))
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			from, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
			fmt.Fprintf(conn, "%s %s %s", name, from, conn.LocalAddr())
			conn.Close()
		}
	}()
}

func control(options []func(fd int) error) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			for _, o := range options {
				if err := o(int(fd)); err != nil {
					failed = err
				}
			}
		})
		if err != nil {
			return err
		}
		return failed
	}
}

func mark(n int) func(int) error {
	return func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, n) }
}

func transparent(fd int) error {
	_ = unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1) // only sockets of that family have the option
	return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1)
}

// ask connects from a pod and returns the answer, or "nobody" without one.
func ask(t *testing.T, p *pods.Pod, source, to string, options ...func(fd int) error) string {
	t.Helper()
	d := net.Dialer{Control: control(options), Timeout: 20 * time.Second}
	if source != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
	}
	heard := "nobody"
	if err := p.Do(func() error {
		conn, err := d.Dial("tcp", to)
		if err != nil {
			return nil
		}
		defer conn.Close()
		b, err := io.ReadAll(conn)
		heard = string(b)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return heard
}

// dropped reports whether a connection from a pod is unanswered when later connections have been answered. Both
// addresses are IPv4.
func dropped(t *testing.T, p *pods.Pod, to, other string) bool {
	t.Helper()
	at := netip.MustParseAddrPort(to)
	fd := -1
	if err := p.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
		if errors.Is(err, unix.EINPROGRESS) { // the request has been sent
			err = nil
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for range 3 {
		if got := ask(t, p, "", other); got == "nobody" {
			t.Fatalf("nobody answers at %s", other)
		}
	}
	ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0)
	must.Succeed(t, err)
	return ready == 0
}

// tables returns the names of the tables of a pod.
func tables(t *testing.T, p *pods.Pod) (names []string) {
	t.Helper()
	if err := p.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		list, err := c.ListTables()
		for _, table := range list {
			names = append(names, table.Name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestRedirect(t *testing.T) {
	meshed, plain := add(t, "meshed", "10.20.1.1"), add(t, "plain", "10.20.1.2")
	for port, name := range map[string]string{"8080": "app", "15001": "outbound", "15006": "inbound", "15020": "status", "9999": "excluded",
		"15008": "tunnel"} {
		answer(t, meshed, name, ":"+port)
	}
	for _, port := range []string{"8080", "3306", "7777"} {
		answer(t, plain, "plain", ":"+port)
	}
	args := []string{"-d", "15090,15021,15020,9999", "-o", "3306", "-x", "10.20.7.0/24,10.30.0.1/32", "--proxy-mark", fmt.Sprint(envoyMark)}
	first := istioIptables(t, meshed, injected("REDIRECT", args...)...)
	again := istioIptables(t, meshed, injected("REDIRECT", args...)...)
	if first != again || fmt.Sprint(tables(t, meshed)) != "[pilot_agent]" {
		t.Errorf("written twice: tables %v\n%s\n%s", tables(t, meshed), first, again)
	}
	for _, c := range []struct {
		name, want string
		from       *pods.Pod
		source, to string
		options    []func(int) error
	}{
		{"app to a pod", "outbound 10.20.1.1", meshed, "", "10.20.1.2:8080", nil},
		{"app to a service address", "outbound 10.20.1.1", meshed, "", "10.96.0.1:80", nil},
		{"app to an excluded port", "plain 10.20.1.1", meshed, "", "10.20.1.2:3306", nil},
		{"app to localhost", "app 127.0.0.1", meshed, "", "127.0.0.1:8080", nil},
		{"app to its own pod", "app 10.20.1.1", meshed, "", "10.20.1.1:8080", nil},
		{"Envoy to a pod", "plain 10.20.1.1", meshed, "", "10.20.1.2:8080", []func(int) error{mark(envoyMark)}},
		{"Envoy to its own pod", "inbound 10.20.1.1", meshed, "", "10.20.1.1:8080", []func(int) error{mark(envoyMark)}},
		{"Envoy's inbound side to the app", "app 127.0.0.6", meshed, "127.0.0.6", "10.20.1.1:8080", []func(int) error{mark(envoyMark)}},
		{"others to the app", "inbound 10.20.1.2", plain, "", "10.20.1.1:8080", nil},
		{"others to a port where nobody listens", "inbound 10.20.1.2", plain, "", "10.20.1.1:4", nil},
		{"others to the status port", "status 10.20.1.2", plain, "", "10.20.1.1:15020", nil},
		{"others to an excluded port", "excluded 10.20.1.2", plain, "", "10.20.1.1:9999", nil},
		{"others to a tunnel", "tunnel 10.20.1.2", plain, "", "10.20.1.1:15008", nil},
	} {
		if got := ask(t, c.from, c.source, c.to, c.options...); !strings.HasPrefix(got, c.want+" ") {
			t.Errorf("%s reaches %q, want %q", c.name, got, c.want)
		}
	}
	t.Run("lists", func(t *testing.T) {
		istioIptables(t, meshed, "-m", "REDIRECT", "-b", "8080", "-i", "10.96.0.0/16", "-q", "7777", "-x", "10.20.1.0/24")
		for _, c := range []struct {
			name, want string
			from       *pods.Pod
			to         string
		}{
			{"app to an included range", "outbound", meshed, "10.96.0.1:80"},
			{"app to another", "plain", meshed, "10.20.1.2:8080"},
			{"app to an included port of an excluded range", "plain", meshed, "10.20.1.2:7777"},
			{"app to an included port", "outbound", meshed, "10.20.2.2:7777"},
			{"others to an included port", "inbound", plain, "10.20.1.1:8080"},
			{"others to another port", "excluded", plain, "10.20.1.1:9999"},
		} {
			if got := ask(t, c.from, "", c.to); !strings.HasPrefix(got, c.want+" ") {
				t.Errorf("%s reaches %q, want %q", c.name, got, c.want)
			}
		}
	})
	t.Run("owners", func(t *testing.T) {
		// The user of all sockets here is 0.
		for _, flag := range []string{"-u", "-g"} {
			istioIptables(t, meshed, injected("REDIRECT", "-u", "1337", "-g", "1337", flag, "0")...)
			if got := ask(t, meshed, "", "10.20.1.2:8080"); !strings.HasPrefix(got, "plain ") {
				t.Errorf("%s: Envoy to a pod reaches %q", flag, got)
			}
			if got := ask(t, meshed, "", "10.20.1.1:8080"); !strings.HasPrefix(got, "inbound ") {
				t.Errorf("%s: Envoy to its own pod reaches %q", flag, got)
			}
		}
	})
	t.Run("validation", func(t *testing.T) {
		p := add(t, "checked", "10.20.1.3")
		if out, err := tryIstioIptables(p, "--run-validation", "--skip-rule-apply", "--probe-timeout", "300ms"); err == nil ||
			!strings.Contains(out, "the rules are missing") {
			t.Errorf("without rules: %v: %s", err, out)
		}
		istioIptables(t, p, injected("REDIRECT", "-u", "0")...)
		istioIptables(t, p, "--run-validation", "--skip-rule-apply", "--probe-timeout", "60s")
	})
	t.Run("cleanup", func(t *testing.T) {
		istioIptables(t, meshed, "--cleanup-only")
		istioIptables(t, meshed, "--cleanup-only")
		if got := tables(t, meshed); len(got) > 0 {
			t.Errorf("tables left: %v", got)
		}
		if got := ask(t, plain, "", "10.20.1.1:8080"); !strings.HasPrefix(got, "app ") {
			t.Errorf("others to the app reach %q", got)
		}
	})
	t.Run("dry run", func(t *testing.T) {
		if out := istioIptables(t, meshed, injected("REDIRECT", "--dry-run")...); !strings.Contains(out, "redirect to :15006") ||
			len(tables(t, meshed)) > 0 {
			t.Errorf("tables %v, prints %s", tables(t, meshed), out)
		}
	})
}

// With TPROXY, Envoy and the application see the client's address. Connections to ports without a listener of Envoy are
// refused.
func TestTProxy(t *testing.T) {
	meshed, plain := add(t, "meshed", "10.20.2.1"), add(t, "plain", "10.20.2.2")
	answer(t, meshed, "app", ":8080")
	answer(t, meshed, "outbound", ":15001")
	answer(t, meshed, "status", ":15020")
	answer(t, plain, "plain", ":8080")
	args := injected("TPROXY", "--proxy-mark", fmt.Sprint(envoyMark))
	istioIptables(t, meshed, args...)
	istioIptables(t, meshed, args...)
	if !dropped(t, plain, "10.20.2.1:8080", "10.20.2.1:15020") {
		t.Error("without Envoy, others reach the application")
	}
	answer(t, meshed, "inbound", ":15006", transparent)
	for _, c := range []struct {
		name, want string
		from       *pods.Pod
		source, to string
		options    []func(int) error
	}{
		{"others to the app", "inbound 10.20.2.2 10.20.2.1:8080", plain, "", "10.20.2.1:8080", nil},
		{"others to the status port", "status 10.20.2.2 10.20.2.1:15020", plain, "", "10.20.2.1:15020", nil},
		{"Envoy to the app, as its client", "app 10.20.2.2 10.20.2.1:8080", meshed, "10.20.2.2", "10.20.2.1:8080",
			[]func(int) error{transparent, mark(tproxy)}},
		{"Envoy to its own pod", "inbound 10.20.2.1 10.20.2.1:8080", meshed, "", "10.20.2.1:8080", []func(int) error{mark(envoyMark)}},
		{"Envoy's inbound side to the app", "app 127.0.0.6 10.20.2.1:8080", meshed, "127.0.0.6", "10.20.2.1:8080",
			[]func(int) error{mark(envoyMark)}},
		{"Envoy to a pod", "plain 10.20.2.1 10.20.2.2:8080", meshed, "", "10.20.2.2:8080", []func(int) error{mark(envoyMark)}},
		{"app to a pod", "outbound 10.20.2.1 127.0.0.1:15001", meshed, "", "10.20.2.2:8080", nil},
		{"app to its own pod", "app 10.20.2.1 10.20.2.1:8080", meshed, "", "10.20.2.1:8080", nil},
	} {
		if got := ask(t, c.from, c.source, c.to, c.options...); got != c.want {
			t.Errorf("%s reaches %q, want %q", c.name, got, c.want)
		}
	}
	marked := func() (n int) {
		t.Helper()
		if err := meshed.Do(func() error {
			rules, err := netlink.RuleList(netlink.FAMILY_V4)
			for _, r := range rules {
				if r.Mark == tproxy {
					n++
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got := marked(); got != 1 {
		t.Errorf("%d routing rules after two runs, want 1", got)
	}
	istioIptables(t, meshed, "--cleanup-only")
	if got := marked(); got != 0 {
		t.Errorf("%d routing rules left", got)
	}
	if got := ask(t, plain, "", "10.20.2.1:8080"); !strings.HasPrefix(got, "app ") {
		t.Errorf("after the cleanup, others reach %q", got)
	}
}

// IPv6 is captured with --dual-stack, in both modes.
func TestIPv6(t *testing.T) {
	meshed, plain := add(t, "meshed", "10.20.3.1"), add(t, "plain", "10.20.3.2")
	for p, addr := range map[*pods.Pod]string{meshed: "fd20::1/64", plain: "fd20::2/64"} {
		if err := p.Do(func() error {
			a, err := netlink.ParseAddr(addr)
			if err != nil {
				return err
			}
			eth0, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			a.Flags = unix.IFA_F_NODAD
			return netlink.AddrAdd(eth0, a)
		}); err != nil {
			t.Fatal(err)
		}
	}
	answer(t, meshed, "app", ":8080")
	answer(t, meshed, "outbound", ":15001")
	answer(t, meshed, "inbound", ":15006", transparent)
	answer(t, plain, "plain", ":8080")
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		if out := istioIptables(t, meshed, injected(mode)...); !strings.Contains(out, "IPv6 connections of this pod are not captured") {
			t.Errorf("%s without --dual-stack says %s", mode, out)
		}
		istioIptables(t, meshed, injected(mode, "--dual-stack", "--drop-invalid", "--proxy-mark", fmt.Sprint(envoyMark))...)
		for _, c := range []struct {
			name, want string
			from       *pods.Pod
			source, to string
			options    []func(int) error
		}{
			{"app to a pod", "outbound fd20::1", meshed, "", "[fd20::2]:8080", nil},
			{"Envoy to a pod", "plain fd20::1", meshed, "", "[fd20::2]:8080", []func(int) error{mark(envoyMark)}},
			{"Envoy to its own pod", "inbound fd20::1", meshed, "", "[fd20::1]:8080", []func(int) error{mark(envoyMark)}},
			{"Envoy's inbound side to the app", "app ::6", meshed, "::6", "[fd20::1]:8080", []func(int) error{mark(envoyMark)}},
			{"others to the app", "inbound fd20::2", plain, "", "[fd20::1]:8080", nil},
			{"others to the app over IPv4", "inbound 10.20.3.2", plain, "", "10.20.3.1:8080", nil},
		} {
			if got := ask(t, c.from, c.source, c.to, c.options...); !strings.HasPrefix(got, c.want+" ") {
				t.Errorf("%s: %s reaches %q, want %q", mode, c.name, got, c.want)
			}
		}
	}
}

// DNS queries of the application go to the agent. Queries of the agent leave the pod, even from the same port.
func TestDNS(t *testing.T) {
	meshed, server := add(t, "meshed", "10.20.4.1"), add(t, "server", "10.20.4.2")
	reply := func(p *pods.Pod, name, addr string, options ...func(int) error) {
		config := net.ListenConfig{Control: control(options)}
		var c net.PacketConn
		must.Succeed(t, p.Do(func() (err error) { c, err = config.ListenPacket(context.Background(), "udp", addr); return err }))
		t.Cleanup(func() { c.Close() })
		go func() {
			b := make([]byte, 512)
			for {
				_, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				c.WriteTo([]byte(name), from)
			}
		}()
		answer(t, p, name, addr)
	}
	reply(meshed, "agent", "127.0.0.1:15053", mark(envoyMark))
	reply(meshed, "local", "127.0.0.1:53", mark(envoyMark))
	reply(server, "server", ":53")
	answer(t, meshed, "outbound", ":15001")
	istioIptables(t, meshed, injected("REDIRECT", "--redirect-dns", "--capture-all-dns", "--proxy-mark", fmt.Sprint(envoyMark))...)
	// query asks from one port each time.
	query := func(to string, options ...func(int) error) string {
		t.Helper()
		heard := make([]byte, 512)
		n := 0
		if err := meshed.Do(func() error {
			d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(10, 20, 4, 1), Port: 5555}, Control: control(options)}
			conn, err := d.Dial("udp", to)
			if err != nil {
				return err
			}
			defer conn.Close()
			for {
				if _, err := conn.Write([]byte("?")); err != nil {
					return err
				}
				conn.SetReadDeadline(time.Now().Add(2 * time.Second)) // UDP may lose it under load
				if n, err = conn.Read(heard); err == nil {
					return nil
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		return string(heard[:n])
	}
	for range 3 {
		if got := query("10.20.4.2:53"); got != "agent" {
			t.Errorf("a query of the application reaches %q", got)
		}
		if got := query("10.20.4.2:53", mark(envoyMark)); got != "server" {
			t.Errorf("a query of the agent reaches %q", got)
		}
	}
	if got := ask(t, meshed, "", "10.20.4.2:53"); !strings.HasPrefix(got, "agent ") {
		t.Errorf("a query of the application over TCP reaches %q", got)
	}
	if got := ask(t, meshed, "", "10.20.4.2:53", mark(envoyMark)); !strings.HasPrefix(got, "server ") {
		t.Errorf("a query of the agent over TCP reaches %q", got)
	}
	if got := ask(t, meshed, "", "10.20.4.2:80"); !strings.HasPrefix(got, "outbound ") {
		t.Errorf("a connection of the application reaches %q", got)
	}
}

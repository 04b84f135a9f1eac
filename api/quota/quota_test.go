package quota

import (
	"net"
	"net/netip"
	"slices"
	"testing"
)

// queue is a listener of connections that wait in it.
type queue struct {
	net.Listener
	list []net.Conn
}

func (q *queue) Accept() (net.Conn, error) {
	if len(q.list) == 0 {
		return nil, net.ErrClosed
	}
	next := q.list[0]
	q.list = q.list[1:]
	return next, nil
}

// from is a connection from some address.
type from struct {
	net.Conn
	address string
	closed  bool
}

func (c *from) RemoteAddr() net.Addr {
	a, _ := net.ResolveTCPAddr("tcp", c.address)
	return a
}

func (c *from) Close() error {
	c.closed = true
	return nil
}

// TestConnectionsOfOneAddress: they are bounded, until one of them is closed. Those of others and of this host are
// not.
func TestConnectionsOfOneAddress(t *testing.T) {
	var all []*from
	q := &queue{}
	for _, address := range []string{"10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3",
		"[::ffff:10.0.0.1]:4", "10.0.0.2:1", "127.0.0.1:1", "127.0.0.1:2", "[::1]:3", "10.0.0.1:5"} {
		c := &from{address: address}
		all, q.list = append(all, c), append(q.list, c)
	}
	counter := NewCounter[netip.Addr](2)
	l := Listen(q, counter)
	var taken []string
	var first net.Conn
	for {
		c, err := l.Accept()
		if err != nil {
			break
		}
		taken = append(taken, c.RemoteAddr().String())
		if first == nil {
			first = c
		}
		if len(taken) == 6 { // closed twice, it counts once
			_ = first.Close()
			_ = first.Close()
		}
	}
	want := []string{"10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "127.0.0.1:1", "127.0.0.1:2", "[::1]:3", "10.0.0.1:5"}
	if !slices.Equal(taken, want) || !all[2].closed || !all[3].closed || all[4].closed {
		t.Errorf("%v: want %v", taken, want)
	}
	if n := counter.Held(netip.MustParseAddr("10.0.0.1")); n != 2 {
		t.Errorf("%d connections of the first address are counted", n)
	}
}

// TestTable: those that hold a value at a time share it, and it goes with the last.
func TestTable(t *testing.T) {
	made := 0
	table := NewTable[netip.Addr](func() int { made++; return made })
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	first, leave := table.Hold(a)
	second, leaveToo := table.Hold(a)
	other, leaveOther := table.Hold(b)
	if first != 1 || second != 1 || other != 2 {
		t.Errorf("%d, %d and %d", first, second, other)
	}
	leave()
	again, leaveAgain := table.Hold(a)
	for _, leave := range []func(){leaveToo, leaveAgain, leaveOther} {
		leave()
	}
	if again != 1 || len(table.values) != 0 {
		t.Errorf("%d, and %d values are left", again, len(table.values))
	}
}

// TestShare checks that a share is a tenth, and of small pools at least one.
func TestShare(t *testing.T) {
	for total, want := range map[int]int{0: 1, 8: 1, 19: 1, 20: 2, 12000: 1200} {
		if got := Share(total); got != want {
			t.Errorf("the share of %d is %d, not %d", total, got, want)
		}
	}
}

// TestValues checks that a value is counted once for each holder, until its last Release.
func TestValues(t *testing.T) {
	v := NewValues[string, int](100)
	for i, x := range []struct {
		holder string
		value  int
		ok     bool
	}{{"a", 1, true}, {"a", 1, true}, {"b", 1, true}, {"a", 2, false}, {"b", 2, false}} {
		if ok := v.Hold(x.holder, x.value, 60); ok != x.ok {
			t.Errorf("step %d: %v", i, ok)
		}
	}
	v.Release("a", 2, 60)
	v.Release("a", 1, 60)
	if n := v.Held("a"); n != 60 || v.Held("b") != 120 {
		t.Errorf("a holds %d bytes, b %d", n, v.Held("b"))
	}
	v.Release("a", 1, 60)
	v.Release("b", 1, 60)
	v.Release("b", 2, 60)
	if v.Held("a") != 0 || len(v.held) != 0 || len(v.sizes.held) != 0 {
		t.Errorf("%d values are left", len(v.held))
	}
}

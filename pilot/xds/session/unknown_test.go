package session

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// clusterNames returns the names of clusters of services that do not exist.
func clusterNames(client, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("outbound|80||unknown-%05d.c-%03d.example.com", i, client))
	}
	return all
}

// TestUnknownAssignments checks that a client is answered each name of an assignment that does not exist, once, with
// an assignment without endpoints; that it is told when such a name comes to exist and when it goes; and that a name
// whose translation failed is not taken for one that does not exist.
func TestUnknownAssignments(t *testing.T) {
	for _, delta := range []bool{true, false} {
		t.Run(fmt.Sprint("delta=", delta), func(t *testing.T) { testUnknownAssignments(t, delta) })
	}
}

func testUnknownAssignments(t *testing.T, delta bool) {
	f := xdstest.NewTranslator()
	f.Empty.Store(true)
	s := newTestSession(f, quiet{}, delta)
	s.limits.NamesPerRequest, s.limits.NamesPerStream = 5000, 5000
	s.Start(f.Publish(true, "eds b=1", "eds !failed"))
	has, versions := map[string]string{}, map[string]string{}
	names := append(clusterNames(1, 1000), "b", "failed")
	last := ""
	request := func(add ...string) {
		t.Helper()
		var err error
		if delta {
			_, err = ask(s, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNamesSubscribe: add, ResponseNonce: last})
		} else {
			_, err = ask(s, &discoveryv3.DiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNames: names, ResponseNonce: last})
		}
		must.Succeed(t, err)
	}
	serve := func() (sent int) {
		t.Helper()
		for x := s.Next(); x != nil; x = s.Next() {
			if unknown := slices.DeleteFunc(slices.Clone(x.Resources),
				func(r *envoy.Resource) bool { return !r.NamesOnly() }); len(unknown) > maxUnknown {
				t.Errorf("one response has %d assignments of unknown names", len(unknown))
			}
			for i, r := range x.Resources {
				has[r.Name] = r.Version
				if versions[r.Name] = r.Version; x.Versions != nil {
					versions[r.Name] = x.Versions[i]
				}
				sent++
			}
			if last = x.Nonce; delta {
				request()
			} else {
				request(names...)
			}
		}
		return sent
	}
	request(names...)
	if sent := serve(); sent != 1001 || has["b"] != "1" || has["failed"] != "" ||
		has[names[999]] != envoy.EmptyAssignment(names[999]).Version {
		t.Errorf("at first %d are sent: b=%q, failed=%q, %s=%q", sent, has["b"], has["failed"], names[999], has[names[999]])
	}
	s.Adopt(NewPush(f.Publish(true, "eds "+names[3]+"=1", "eds b", "eds !failed"), time.Time{}))
	if sent := serve(); sent != 2 || has["b"] != envoy.EmptyAssignment("b").Version || has[names[3]] != "1" {
		t.Errorf("after a change %d are sent: b=%q, %s=%q", sent, has["b"], names[3], has[names[3]])
	}
	s.Adopt(NewPush(f.Publish(true, "eds "+names[3], "eds !failed"), time.Time{}))
	if sent := serve(); sent != 1 || has[names[3]] != envoy.EmptyAssignment(names[3]).Version {
		t.Errorf("after another change %d are sent: %s=%q", sent, names[3], has[names[3]])
	}
	if delta { // a name that is asked for again is answered again
		request(names[:600]...)
		if sent := serve(); sent != 600 {
			t.Errorf("asked for again, %d are sent", sent)
		}
		delete(versions, names[7])
		s, last = newTestSession(f, quiet{}, delta), ""
		s.limits.NamesPerRequest, s.limits.NamesPerStream = 5000, 5000
		s.Start(f.Publish(true, "eds !failed"))
		r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNamesSubscribe: names, InitialResourceVersions: versions}
		if _, err := ask(s, r); err != nil {
			t.Fatal(err)
		}
		if sent := serve(); sent != 1 {
			t.Errorf("to a client that resumes with all names but one, %d are sent", sent)
		}
	}
}

// TestUnknownAssignmentsBlameNoOther checks that an assignment which a client rejected together with one of an unknown
// name is sent again: which of them was bad is not known.
func TestUnknownAssignmentsBlameNoOther(t *testing.T) {
	for _, delta := range []bool{true, false} {
		f := xdstest.NewTranslator()
		f.Empty.Store(true)
		s := newTestSession(f, quiet{}, delta)
		s.Start(f.Publish(true, "eds b=1"))
		names := []string{"a", "b"}
		reply := func(nonce string, fault *rpcstatus.Status) {
			t.Helper()
			var err error
			if delta {
				r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType, ResponseNonce: nonce, ErrorDetail: fault}
				if nonce == "" {
					r.ResourceNamesSubscribe = names
				}
				_, err = ask(s, r)
			} else {
				_, err = ask(s, &discoveryv3.DiscoveryRequest{
					TypeUrl: envoy.EndpointType, ResourceNames: names, ResponseNonce: nonce, ErrorDetail: fault,
				})
			}
			must.Succeed(t, err)
		}
		reply("", nil)
		for i, want := range []string{"a b", "b", ""} { // both are rejected, and then b by itself
			got, nonce := "", ""
			if x := s.Next(); x != nil {
				var sent []string
				for _, r := range x.Resources {
					sent = append(sent, r.Name)
				}
				slices.Sort(sent)
				got, nonce = strings.Join(sent, " "), x.Nonce
			}
			if got != want {
				t.Errorf("delta %v, response %d has %q, want %q", delta, i, got, want)
			}
			if nonce != "" {
				reply(nonce, &rpcstatus.Status{Code: 13, Message: "a bad one is among them"})
			}
		}
	}
}

// TestUnknownNamesCostLittle checks that what is in memory of a client that asks for resources that do not exist is no
// more than what counts for it, which is CostOfNames, however much it has been answered and whether or not it
// acknowledges anything.
func TestUnknownNamesCostLittle(t *testing.T) {
	for _, short := range []string{"eds", "rds", "sds", "ecds", "cds", "nds"} {
		for _, delta := range []bool{true, false} {
			t.Run(fmt.Sprint(short, ", delta=", delta), func(t *testing.T) { testCostOfUnknownNames(t, xdstest.LongType(short), delta) })
		}
	}
}

func testCostOfUnknownNames(t *testing.T, typeURL string, delta bool) {
	const clients = 12
	each, kind := 4000, envoy.TypeOf(typeURL)
	if kind.Divisible { // the Translator of the tests is slow
		each = 500
	}
	f := xdstest.NewTranslator()
	f.Empty.Store(true)
	snap := f.Publish(true, "eds b=1")
	var all []*Session
	sent := 0
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	for i := range clients {
		s := newTestSession(f, quiet{}, delta)
		s.limits.NamesPerRequest, s.limits.NamesPerStream = each, each
		s.interner.Few = each + 1 // the index of lists has a bound of its own, for all clients together
		s.Start(snap)
		names := clusterNames(i, each)
		request := func(nonce string) {
			t.Helper()
			var m proto.Message
			switch {
			case !delta:
				m = &discoveryv3.DiscoveryRequest{TypeUrl: typeURL, ResourceNames: names, ResponseNonce: nonce}
			case nonce == "":
				m = &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names}
			default:
				m = &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: nonce}
			}
			if nonce == "" {
				sent += proto.Size(m)
			}
			if _, err := ask(s, m); err != nil {
				t.Fatal(err)
			}
		}
		request("")
		answered := 0
		for x := s.Next(); x != nil; x = s.Next() {
			answered += len(x.Resources)
			if i%2 == 0 {
				request(x.Nonce)
			}
		}
		if want := map[bool]int{true: each}[kind.Total]; answered != want {
			t.Fatalf("%d of %d names are answered with a resource", answered, want)
		}
		for range s.Subscribed(typeURL).OfHost("b") { // what a change of endpoints orders
			break
		}
		s.ReleaseSnapshot()
		all = append(all, s)
	}
	grown, counted := heap()-before, 0
	for _, s := range all {
		counted += CostOfNames(kind, s.Subscribed(typeURL))
	}
	runtime.KeepAlive(all)
	t.Logf("%d bytes sent, %d in memory, %d counted", sent, grown, counted)
	if grown > counted {
		t.Errorf("%d bytes are in memory, and %d count, of %d that were sent", grown, counted, sent)
	}
}

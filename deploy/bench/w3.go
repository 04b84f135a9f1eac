package main

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/cmd/load"
)

// endpointFlips is W3.
type endpointFlips struct{}

func (endpointFlips) name() string { return "W3" }
func (endpointFlips) needs() needs { return needs{fleet: true, limit: true, length: time.Minute} }

func (endpointFlips) about(options) string {
	return "One endpoint of one service changes its address every 100 ms, and every proxy watches every service: from the write to the API " +
		"server until the assignment reaches each proxy."
}

func (endpointFlips) rows() []row {
	rows := changeRows(nil, both(3), nil)
	most, one := 15.0, 1.0
	rows[1].atMost = &most
	return append(rows, row{name: "endpoints' resources", unit: "sent a change and proxy", informative: true, atMost: &one})
}

func (endpointFlips) run(ctx context.Context, s *session) (figures, error) { return s.flip(ctx, nil) }

// flip makes the changes of W3 and follows them to some proxies, or to all.
func (s *session) flip(ctx context.Context, to func(proxy int) bool) (figures, error) {
	c, tidy, err := s.addresses(ctx)
	if err != nil {
		return nil, err
	}
	c.to = to
	f, err := s.changed(ctx, c)
	if err != nil {
		return nil, err
	}
	return f, tidy()
}

// addresses returns changes of the address of one endpoint, and a function that removes the endpoint.
func (s *session) addresses(ctx context.Context) (c changes, tidy func() error, err error) {
	const service = 0
	slices := s.clients.Core.DiscoveryV1().EndpointSlices(s.world.Namespace(service))
	name := s.world.EndpointSlice(service).Name
	slice, err := slices.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return c, nil, fmt.Errorf("read an EndpointSlice: %w", err)
	}
	last := slice.Endpoints[s.world.Pods-1].DeepCopy()
	// The server waits for a pod that it does not know.
	last.TargetRef = nil
	slice.Endpoints = append(slice.Endpoints[:s.world.Pods], *last) // replaces the endpoint of a failed run
	c = changes{every: 100 * time.Millisecond, kinds: []load.Type{load.Endpoints}, find: findAddress, apply: func(n int) (err error) {
		slice.Endpoints[len(slice.Endpoints)-1].Addresses = []string{address(n)}
		slice, err = slices.Update(ctx, slice, metav1.UpdateOptions{})
		return err
	}}
	return c, func() error {
		slice.Endpoints = slice.Endpoints[:len(slice.Endpoints)-1]
		if _, err := slices.Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("take an endpoint away: %w", err)
		}
		return nil
	}, nil
}

// address returns an address of a private network without other addresses in the world. It contains a number below
// 2^20.
func address(n int) string { return fmt.Sprintf("172.%d.%d.%d", 16+n>>16, n>>8&0xff, n&0xff) }

// findAddress returns the highest number in such addresses of an encoded assignment, or -1.
func findAddress(body []byte) int {
	highest := -1
	for {
		at := bytes.Index(body, []byte("172."))
		if at < 0 {
			return highest
		}
		body = body[at:]
		end := 0
		for end < len(body) && (body[end] == '.' || body[end] >= '0' && body[end] <= '9') {
			end++
		}
		if found, err := netip.ParseAddr(string(body[:end])); err == nil {
			b := found.As4()
			highest = max(highest, (int(b[1])-16)<<16|int(b[2])<<8|int(b[3]))
		}
		body = body[end:]
	}
}

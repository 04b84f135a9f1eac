package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
)

// TestRejectedWithoutPush: what a proxy rejects when it connects is shown, though no push caused it.
func TestRejectedWithoutPush(t *testing.T) {
	page := pushes.Page{Unprompted: pushes.Push{Rejections: []pushes.Rejection{{
		Proxy: "web-1.shop", Type: "cds", Message: "no such thing", Resources: []string{"outbound|80||cart"},
		Sources: []pushes.Object{{Kind: "EnvoyFilter", Namespace: "shop", Name: "odd", Position: "mesh/odd.yaml:3"}},
	}}}}
	const want = "asked for: web-1.shop rejected CDS: no such thing\n  in outbound|80||cart\n  made of EnvoyFilter shop/odd (mesh/odd.yaml:3)\n"
	for _, list := range [][]pushes.Push{nil, {{ID: 7}}} {
		page.Pushes = list
		for output, shown := range map[string]bool{"table": true, "wide": true, "name": false} {
			var out bytes.Buffer
			w := pushWriter{out: &out, output: output}
			must.Succeed(t, w.page(allPushes{Page: page}))
			if got := out.String(); strings.HasSuffix(got, want) != shown {
				t.Errorf("-o %s of %d pushes: %s", output, len(list), got)
			}
		}
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }

// TestListIsCut: a list that cannot be written is an error, in each form.
func TestListIsCut(t *testing.T) {
	all := []debug.ProxyStatus{{ProxyID: "web-1.shop"}}
	for _, output := range listFormats() {
		for _, args := range [][]string{nil, {"web-1.shop"}} {
			if err := showProxies(full{}, all, args, output); err == nil {
				t.Errorf("-o %s %v: no error", output, args)
			}
		}
	}
}

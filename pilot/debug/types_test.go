package debug

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// What proxies were sent is shown though its types are in no Go package.
func TestUnlinkedTypes(t *testing.T) {
	c := &clusterv3.Cluster{Name: "web", TypedExtensionProtocolOptions: map[string]*anypb.Any{
		"stats":   {TypeUrl: "type.googleapis.com/stats.PluginConfig", Value: []byte{6 << 3, 1}},
		"unknown": {TypeUrl: "type.googleapis.com/no.such.Filter", Value: []byte{1 << 3, 1}},
		"bare":    {TypeUrl: "type.googleapis.com/Filter"},
		"known":   {TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"},
	}}
	text, err := SentJSON(c)
	must.Succeed(t, err)
	for _, want := range []string{
		`"disableHostHeaderFallback":true`, `"type.googleapis.com/no.such.Filter"`, `"type.googleapis.com/Filter"`, `"web"`,
	} {
		if flat := strings.ReplaceAll(string(text), ": ", ":"); !strings.Contains(flat, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

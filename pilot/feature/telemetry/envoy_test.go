package telemetry

import (
	"os"
	"strconv"
	"strings"
	"testing"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/api/substitution"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/envoy/envoytest"
)

// TestEnvoysTakeFormats: real Envoys take the formats of access logs that validation accepts, those before 1.40 but for
// recent commands, and refuse the others.
func TestEnvoysTakeFormats(t *testing.T) {
	histories.NoRace(t)
	text, err := os.ReadFile("testdata/formats.txt")
	must.Succeed(t, err)
	var good, recent, bad []string
	for format := range strings.Lines(string(text)) {
		format = strings.TrimSuffix(format, "\n")
		why, _ := substitution.Log.Fault(format)
		switch {
		case why != "":
			bad = append(bad, format)
		case substitution.Recent(format) != "":
			recent = append(recent, format)
		default:
			good = append(good, format)
		}
	}
	if len(good) < 100 || len(recent) < 20 || len(bad) < 20 {
		t.Fatalf("%d formats are good, %d have recent commands and %d are bad", len(good), len(recent), len(bad))
	}
	if testing.Short() {
		bad, recent = bad[:4], recent[:2]
	}
	newest, oldest := envoytest.Program(t), os.Getenv("ENVOY_OLDEST")
	takes(t, newest, append(good, recent...)...)
	for _, format := range bad {
		refuses(t, newest, format)
	}
	if oldest == "" {
		return
	}
	takes(t, oldest, good...)
	for _, format := range recent {
		refuses(t, oldest, format)
	}
}

func takes(t *testing.T, program string, formats ...string) {
	t.Helper()
	for _, r := range judged(t, program, formats).Refused(t) {
		t.Errorf("%s refuses formats that validation accepts: %s", program, r.Reason)
	}
}

func refuses(t *testing.T, program, format string) {
	t.Helper()
	if len(judged(t, program, []string{format}).Refused(t)) == 0 {
		t.Errorf("%s takes %q, and validation says that it does not", program, format)
	}
}

// judged returns a listener that logs each format as text and in JSON.
func judged(t *testing.T, program string, formats []string) *envoytest.Resources {
	t.Helper()
	t.Setenv("ENVOY", program)
	l := &listenerv3.Listener{Name: "a", Address: envoy.Address("127.0.0.1", 10000)}
	labels := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	add := func(f *filev3.FileAccessLog_LogFormat) {
		l.AccessLog = append(l.AccessLog, &accesslogv3.AccessLog{
			Name:       fileLogger,
			ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: envoy.Any(&filev3.FileAccessLog{Path: "/dev/null", AccessLogFormat: f})},
		})
	}
	for i, format := range formats {
		add(textFormat(format, false))
		labels.Fields[strconv.Itoa(i)] = structpb.NewStringValue(format)
	}
	add(jsonFormat(labels, false))
	l.FilterChains = []*listenerv3.FilterChain{{}}
	all := &envoytest.Resources{}
	all.Add(t, "a", envoy.ListenerType, envoy.NewResource("a", l))
	return all
}

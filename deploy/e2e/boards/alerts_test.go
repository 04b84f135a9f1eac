package boards

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	scraped = 30 * time.Second
	quiet   = 32 * time.Minute  // before the fault
	watched = 100 * time.Minute // with the quiet before
	day     = 86400.0
)

// faults returns the faults of the alerts, each with the metrics some minutes after it began. Other metrics stay as
// they are at rest.
func faults(began float64) []struct {
	name  string
	shows func(minutes int) map[string]float64
	want  string // the alert that fires, and no other
} {
	constant := func(metric string, value float64) func(int) map[string]float64 {
		return func(int) map[string]float64 { return map[string]float64{metric: value} }
	}
	return []struct {
		name  string
		shows func(minutes int) map[string]float64
		want  string
	}{
		{"rest", func(int) map[string]float64 { return nil }, ""},
		{"no replica is ready", constant(`kube_deployment_status_replicas_ready{namespace="istio-system",deployment="istiod"}`, 0),
			"IstiodNotReady"},
		{"the Deployment is gone", constant(`kube_deployment_status_replicas_ready{namespace="istio-system",deployment="istiod"}`, absent),
			"IstiodNotReady"},
		{"a webhook cannot be called", func(m int) map[string]float64 {
			return map[string]float64{
				`apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="rev.validation.istio.io"}`: 3 + float64(m),
			}
		}, "IstiodWebhookNotCalled"},
		{"a webhook that may fail cannot be called", func(m int) map[string]float64 {
			return map[string]float64{`apiserver_admission_webhook_fail_open_count{name="rev.namespace.sidecar-injector.istio.io"}`: 1 + float64(m)}
		}, "IstiodWebhookNotCalled"},
		{"a webhook configuration cannot be written", func(m int) map[string]float64 {
			return map[string]float64{`webhook_patch_failures_total{name="istiod-default-validator",reason="forbidden"}`: 1 + float64(m/5)}
		}, "IstiodWebhookConfigurationNotWritten"},
		{"an object is wrong", constant(`pilot_total_rejected_configs`, 1), "IstiodConfigurationNotUsed"},
		{"a proxy rejects once", constant(`pilot_total_xds_rejects{type="lds"}`, 5), "IstiodConfigurationRejected"},
		{"proxies wait", func(m int) map[string]float64 {
			return map[string]float64{`pilot_proxy_convergence_time_bucket{le="20"}`: 1000 + 200*float64(m),
				`pilot_proxy_convergence_time_bucket{le="+Inf"}`: 1000 + 200*float64(m)}
		}, "IstiodPushesSlow"},
		{"proxies wait for memory", constant(`pilot_xds_waiting_streams{for="memory"}`, 7), "IstiodProxiesWait"},
		{"proxies are refused", func(m int) map[string]float64 {
			return map[string]float64{`pilot_xds_refused_streams{reason="names"}`: 2 + float64(m)}
		}, "IstiodProxiesWait"},
		{"a proxy that hangs is cut time and again", func(m int) map[string]float64 {
			return map[string]float64{`pilot_xds_write_timeout`: 3 + float64(m/5)}
		}, "IstiodProxiesDoNotRead"},
		{"one translation fails", constant(`pilot_total_xds_internal_errors`, 2), "IstiodFails"},
		{"the first panic", constant(`istiod_panics_total{name="push"}`, 1), "IstiodFails"},
		{"one more panic", constant(`istiod_panics_total{name="ingest"}`, 2), "IstiodFails"},
		{"the root expires", constant(`citadel_server_root_cert_expiry_timestamp`, began+29*day), "IstiodCertificateExpires"},
		{"the certificate of the CA expires", constant(`citadel_server_cert_chain_expiry_timestamp`, began+13*day), "IstiodCertificateExpires"},
	}
}

// absent is the value of a metric that is not there.
const absent = -1

// atRest has metrics of a mesh that is well, had faults long ago, and is working.
func atRest(began float64, minutes int) map[string]float64 {
	return map[string]float64{
		`kube_deployment_status_replicas_ready{namespace="istio-system",deployment="istiod"}`:                            2,
		`apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="rev.validation.istio.io"}`: 3,
		`apiserver_admission_webhook_rejection_count{error_type="no_error",name="rev.validation.istio.io"}`:              float64(minutes),
		`apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="validate.kyverno.svc"}`:    float64(minutes),
		`apiserver_admission_webhook_fail_open_count{name="rev.namespace.sidecar-injector.istio.io"}`:                    1,
		`webhook_patch_failures_total{name="istiod-default-validator",reason="conflict"}`:                                1,
		`pilot_total_rejected_configs`:                   0,
		`pilot_total_xds_rejects{type="lds"}`:            4,
		`pilot_total_xds_rejects{type="cds"}`:            0,
		`pilot_xds_waiting_streams{for="arrival"}`:       3,
		`pilot_xds_refused_streams{reason="names"}`:      2,
		`pilot_proxy_convergence_time_bucket{le="1"}`:    1000 + 100*float64(minutes),
		`pilot_proxy_convergence_time_bucket{le="5"}`:    1000 + 100*float64(minutes),
		`pilot_proxy_convergence_time_bucket{le="20"}`:   1000 + 100*float64(minutes),
		`pilot_proxy_convergence_time_bucket{le="+Inf"}`: 1000 + 100*float64(minutes),
		`pilot_xds_write_timeout`:                        2,
		`pilot_total_xds_internal_errors`:                1,
		`istiod_panics_total{name="ingest"}`:             1,
		`citadel_server_root_cert_expiry_timestamp`:      began + 3650*day,
		`citadel_server_cert_chain_expiry_timestamp`:     began + 365*day,
	}
}

// TestAlertsFire: each fault fires its alert and no other, and no alert fires at rest.
func TestAlertsFire(t *testing.T) {
	_, rules := rendered(t)
	queries := make([]string, len(rules))
	for i, r := range rules {
		// Whether the expression was true as long as it has to be, at any time since before the fault.
		queries[i] = fmt.Sprintf("max_over_time((min_over_time((count(%s) or vector(0))[%s:%ds]))[%dm:1m]) > 0", strings.TrimSpace(r.Expr), r.For,
			int(scraped.Seconds()), int((watched - quiet/2).Minutes()))
	}
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fired := map[string]bool{}
	for _, f := range faults(float64(began.Unix())) {
		t.Run(f.name, func(t *testing.T) {
			var scrapes []scrape
			for at := time.Duration(0); at < watched; at += scraped {
				values := atRest(float64(began.Unix()), int(at.Minutes()))
				if at >= quiet {
					maps.Copy(values, f.shows(int((at - quiet).Minutes())))
				}
				var text strings.Builder
				for _, metric := range slices.Sorted(maps.Keys(values)) {
					if values[metric] != absent {
						fmt.Fprintf(&text, "%s %g\n", metric, values[metric])
					}
				}
				scrapes = append(scrapes,
					scrape{At: began.Add(at).UnixMilli(), Labels: map[string]string{"job": "all", "instance": "10.0.0.1:1"}, Text: text.String()})
			}
			for i, a := range ask(t, scrapes, queries) {
				if a.Error != "" {
					t.Fatalf("%s: %s", queries[i], a.Error)
				}
				if fires := len(a.Samples) > 0; fires != (rules[i].Alert == f.want) {
					t.Errorf("%s fires: %v", rules[i].Alert, fires)
				}
			}
			fired[f.want] = true
		})
	}
	for _, r := range rules {
		if !fired[r.Alert] {
			t.Errorf("no fault for %s", r.Alert)
		}
	}
}

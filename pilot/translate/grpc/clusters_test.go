package grpc

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestOutlierDetection reduces the outlier detection of Envoys to what gRPC knows: the share of failures.
func TestOutlierDetection(t *testing.T) {
	for _, c := range []struct {
		name                     string
		of                       *clusterv3.OutlierDetection
		threshold, hosts, volume uint32 // 0 for the defaults of gRPC, or if nothing is ejected
	}{
		{"none", nil, 0, 0, 0},
		{"consecutive errors", &clusterv3.OutlierDetection{Consecutive_5Xx: envoy.UInt32(3)}, 85, 1, 3},
		{"no errors", &clusterv3.OutlierDetection{EnforcingConsecutive_5Xx: envoy.UInt32(0)}, 0, 0, 0},
		{"a share of failures before consecutive errors", &clusterv3.OutlierDetection{Consecutive_5Xx: envoy.UInt32(3),
			FailurePercentageThreshold: envoy.UInt32(40), EnforcingFailurePercentage: envoy.UInt32(100)}, 40, 0, 0},
		{"a share of failures that ejects nothing", &clusterv3.OutlierDetection{Consecutive_5Xx: envoy.UInt32(3),
			FailurePercentageThreshold: envoy.UInt32(0), EnforcingFailurePercentage: envoy.UInt32(0)}, 85, 1, 3},
	} {
		d := outlierDetection(c.of)
		threshold, hosts, volume := d.GetFailurePercentageThreshold().GetValue(), d.GetFailurePercentageMinimumHosts().GetValue(),
			d.GetFailurePercentageRequestVolume().GetValue()
		if threshold != c.threshold || hosts != c.hosts || volume != c.volume {
			t.Errorf("%s: %d %% of %d calls to %d endpoints, want %d %% of %d to %d", c.name, threshold, volume, hosts, c.threshold, c.volume, c.hosts)
		}
		if enforced := d.GetEnforcingFailurePercentage().GetValue() == 100; enforced != (c.threshold > 0) {
			t.Errorf("%s: enforced: %v", c.name, enforced)
		}
	}
}
